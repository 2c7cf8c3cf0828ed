"""Whom sessions talked to last, as this process remembers it, so that a turn need not look at its session first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from tenuto.assistants import Assistant, AssistantRegistry
from tenuto.model import Scope, Session
from tenuto.model.generation import Persona
from tenuto.model.session import ASSISTANT, PERSONA, PERSONAS
from tenuto.model.values import JsonObject

_MOST: Final = 4096


class ActiveAssistant(NamedTuple):
    """An assistant and one of its characters, by name; and the character last met of each other assistant."""

    assistant: str | None
    persona: str | None
    others: tuple[tuple[str, str], ...] = ()

    def last_persona_of(self, assistant: str) -> str | None:
        """As whom that assistant spoke last."""
        return self.persona if assistant == self.assistant else dict(self.others).get(assistant)

    def switch_to(self, assistant: str, persona: str | None) -> ActiveAssistant:
        """Who talks next, with those who talked before."""
        if (assistant, persona) == (self.assistant, self.persona):
            return self
        others = {name: met for name, met in self.others if name != assistant}
        if self.assistant not in (None, assistant) and self.persona is not None:
            others[str(self.assistant)] = self.persona
        return ActiveAssistant(assistant, persona, tuple(others.items()))

    def to_metadata(self) -> JsonObject:
        """What a session's metadata says of it."""
        return {ASSISTANT: self.assistant, PERSONA: self.persona, PERSONAS: dict(self.others) or None}


class RecentAssistants:
    """A guess for each session in use. Another process may know better: what a begun turn's session says, counts."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, ...], ActiveAssistant] = OrderedDict()

    def guess(self, scope: Scope, session_id: str) -> ActiveAssistant | None:
        """Whom this caller's session talked to last, if that is remembered."""
        return self._last.get(_cache_key(scope, session_id))

    def remember(self, scope: Scope, session_id: str, partner: ActiveAssistant) -> None:
        """From now on this is the guess."""
        place = _cache_key(scope, session_id)
        self._last[place] = partner
        self._last.move_to_end(place)
        if len(self._last) > _MOST:
            self._last.popitem(last=False)

    def drop(self, scope: Scope, session_id: str) -> None:
        """There is nothing to guess any more."""
        self._last.pop(_cache_key(scope, session_id), None)


def active_assistant_of(session: Session | None) -> ActiveAssistant:
    """Whom a session says it talks to; anybody may write into its metadata, so these may be no names at all."""
    if session is None:
        return ActiveAssistant(None, None)
    told = session.metadata
    assistant, persona, others = told.get(ASSISTANT), told.get(PERSONA), told.get(PERSONAS)
    met = others.items() if isinstance(others, dict) else ()
    return ActiveAssistant(
        assistant if isinstance(assistant, str) else None,
        persona if isinstance(persona, str) else None,
        tuple([(name, character) for name, character in met if isinstance(character, str)]),
    )


def resolve_assistant(
    assistants: AssistantRegistry, asked: ActiveAssistant, last: ActiveAssistant
) -> tuple[Assistant, Persona | None]:
    """Assistant and character: those asked for; else those the session last talked to; else the default.

    An assistant that comes back, after others have spoken, comes back as the character it was.

    Raises:
        AssistantNotFound: there is no such assistant or character.
    """
    name, character, _ = asked
    if name is None and last.assistant in assistants.names:
        name = last.assistant
    assistant = assistants.find(name)
    if character is None and last.last_persona_of(assistant.name) in assistant.personas:
        character = last.last_persona_of(assistant.name)
    return assistant, assistant.persona(character)


def _cache_key(scope: Scope, session_id: str) -> tuple[str, ...]:
    return (scope.tenant, scope.site, session_id, *scope.owner)
