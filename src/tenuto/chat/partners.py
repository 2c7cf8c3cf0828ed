"""Whom sessions talked to last, as this process remembers it, so that a turn need not look at its session first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from tenuto.assistants import Assistant, Assistants
from tenuto.model import Scope, Session
from tenuto.model.session import ASSISTANT, PERSONA
from tenuto.model.talk import Persona

_MOST: Final = 4096


class Partner(NamedTuple):
    """An assistant and one of its characters, by name."""

    assistant: str | None
    persona: str | None


class Partners:
    """A guess for each session in use. Another process may know better: what a begun turn's session says, counts."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, ...], Partner] = OrderedDict()

    def guess(self, scope: Scope, session_id: str) -> Partner | None:
        """Whom this caller's session talked to last, if that is remembered."""
        return self._last.get(_place(scope, session_id))

    def remember(self, scope: Scope, session_id: str, partner: Partner) -> None:
        """From now on this is the guess."""
        place = _place(scope, session_id)
        self._last[place] = partner
        self._last.move_to_end(place)
        if len(self._last) > _MOST:
            self._last.popitem(last=False)

    def forget(self, scope: Scope, session_id: str) -> None:
        """There is nothing to guess any more."""
        self._last.pop(_place(scope, session_id), None)


def noted(session: Session | None) -> Partner:
    """Whom a session says it talks to; anybody may write into its metadata, so these may be no names at all."""
    if session is None:
        return Partner(None, None)
    assistant, persona = session.metadata.get(ASSISTANT), session.metadata.get(PERSONA)
    return Partner(
        assistant if isinstance(assistant, str) else None,
        persona if isinstance(persona, str) else None,
    )


def resolved(assistants: Assistants, asked: Partner, last: Partner) -> tuple[Assistant, Persona | None]:
    """Assistant and character: those asked for; else those the session last talked to; else the default.

    Raises:
        AssistantNotFound: there is no such assistant or character.
    """
    name, character = asked
    if name is None and last.assistant in assistants.names:
        name = last.assistant
    assistant = assistants.find(name)
    if character is None and last.assistant == assistant.name and last.persona in assistant.personas:
        character = last.persona
    return assistant, assistant.persona(character)


def _place(scope: Scope, session_id: str) -> tuple[str, ...]:
    return (scope.tenant, scope.site, session_id, *scope.owner)
