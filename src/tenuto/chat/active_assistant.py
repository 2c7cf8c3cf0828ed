"""The active assistant of each session, cached so that a turn need not load its session first."""

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
    """An assistant and its persona, by name, and the last persona of each other assistant."""

    assistant: str | None
    persona: str | None
    others: tuple[tuple[str, str], ...] = ()

    def switch_to(self, assistant: str, persona: str | None) -> ActiveAssistant:
        """The next active assistant, with the earlier ones."""
        if (assistant, persona) == (self.assistant, self.persona):
            return self
        others = {name: met for name, met in self.others if name != assistant}
        if self.assistant not in (None, assistant) and self.persona is not None:
            others[str(self.assistant)] = self.persona
        return ActiveAssistant(assistant, persona, tuple(others.items()))

    def metadata_changes(self, session: Session) -> JsonObject:
        """What differs from the metadata of the session."""
        noted = {ASSISTANT: self.assistant, PERSONA: self.persona, PERSONAS: dict(self.others) or None}
        return {what: name for what, name in noted.items() if session.metadata.get(what) != name}


class RecentAssistants:
    """A guess for each session in use. Another process may have changed it: the session of the begun turn decides."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, ...], ActiveAssistant] = OrderedDict()

    def guess(self, scope: Scope, session_id: str) -> ActiveAssistant | None:
        """The cached assistant of this caller's session."""
        return self._last.get(_cache_key(scope, session_id))

    def remember(self, scope: Scope, session_id: str, partner: ActiveAssistant) -> None:
        place = _cache_key(scope, session_id)
        self._last[place] = partner
        self._last.move_to_end(place)
        if len(self._last) > _MOST:
            self._last.popitem(last=False)

    def drop(self, scope: Scope, session_id: str) -> None:
        self._last.pop(_cache_key(scope, session_id), None)


def active_assistant_of(session: Session | None) -> ActiveAssistant:
    """The active assistant in a session's metadata, which clients may write: the names may not exist."""
    if session is None:
        return ActiveAssistant(None, None)
    metadata = session.metadata
    assistant, persona, others = metadata.get(ASSISTANT), metadata.get(PERSONA), metadata.get(PERSONAS)
    met = others.items() if isinstance(others, dict) else ()
    return ActiveAssistant(
        assistant if isinstance(assistant, str) else None,
        persona if isinstance(persona, str) else None,
        tuple([(name, character) for name, character in met if isinstance(character, str)]),
    )


def resolve_assistant(
    assistants: AssistantRegistry, name: str | None, character: str | None, last: ActiveAssistant
) -> tuple[Assistant, Persona | None]:
    """Assistant and persona: the requested ones, else the last ones of the session, else the default.

    An assistant that becomes active again keeps its last persona.

    Raises:
        AssistantNotFound: there is no such assistant or persona.
    """
    if name is None and last.assistant in assistants.names:
        name = last.assistant
    assistant = assistants.find(name)
    if character is None:
        known = last.persona if assistant.name == last.assistant else dict(last.others).get(assistant.name)
        character = known if known in assistant.personas else None
    return assistant, assistant.persona(character)


def _cache_key(scope: Scope, session_id: str) -> tuple[str, ...]:
    return (scope.tenant, scope.site, session_id, *scope.owner)
