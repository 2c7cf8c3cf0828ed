"""The active assistant of a session, which its metadata names."""

from __future__ import annotations

from typing import NamedTuple

from tenuto.assistants import Assistant, AssistantRegistry
from tenuto.model import Session
from tenuto.model.generation import Persona
from tenuto.model.session import ASSISTANT, PERSONA, PERSONAS
from tenuto.model.values import JsonObject


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
