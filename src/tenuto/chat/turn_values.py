"""What the phases of a turn hand on: what was chosen, what was begun, and what was loaded."""

from __future__ import annotations

from typing import NamedTuple

from tenuto.assistants import Assistant
from tenuto.chat.request import ChatRequest, TurnStarted
from tenuto.model import Content, Draft, Message, OpenTurn, Scope, Session
from tenuto.model.generation import Persona, ToolContext, TurnSnapshot
from tenuto.model.prompt import PromptInputs, PromptPolicy
from tenuto.model.session import ASSISTANT, PERSONA, PERSONAS
from tenuto.model.values import JsonObject, Value


class ActiveAssistant(NamedTuple):
    """An assistant and its persona, by name, and the last persona of each other assistant."""

    assistant: str | None = None
    persona: str | None = None
    others: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, session: Session | None) -> ActiveAssistant:
        """The active assistant in a session's metadata, which clients may write: the names may not exist."""
        if session is None:
            return cls()
        assistant, persona, others = map(session.metadata.get, (ASSISTANT, PERSONA, PERSONAS))
        return cls(
            assistant if isinstance(assistant, str) else None,
            persona if isinstance(persona, str) else None,
            tuple([pair for pair in others.items() if isinstance(pair[1], str)]) if isinstance(others, dict) else (),
        )

    def switch_to(self, assistant: str, persona: str | None) -> ActiveAssistant:
        """The next active assistant, with the earlier ones."""
        if (assistant, persona) == (self.assistant, self.persona):
            return self
        others = {name: last for name, last in self.others if name != assistant}
        if self.assistant not in (None, assistant) and self.persona is not None:
            others[str(self.assistant)] = self.persona
        return ActiveAssistant(assistant, persona, tuple(others.items()))

    def metadata_changes(self, session: Session) -> JsonObject:
        """What differs from the metadata of the session."""
        names = {ASSISTANT: self.assistant, PERSONA: self.persona, PERSONAS: dict(self.others) or None}
        return {key: name for key, name in names.items() if session.metadata.get(key) != name}


class Choice(Value, frozen=True, kw_only=True):
    """Who answers what: the assistant has the request's policies, and the scope names the persona.

    `prompt` is the assistant's policy with a budget that its model has room for. `in_session` tells that the request's
    session was there when it was read for its assistant, `shared` that other processes can follow the turn, and
    `joins_running` that a running turn of its key is joined and not waited for.
    """

    request: ChatRequest
    scope: Scope
    assistant: Assistant
    prompt: PromptPolicy
    persona: Persona | None
    in_session: bool = False
    shared: bool = False
    joins_running: bool = False


class Beginning(Value, frozen=True, kw_only=True):
    """A turn that has begun.

    `messages` are the request's. `turn` is `None` if nothing is stored: the turn then answers them, after the `history`
    that a caller brings in place of a session. `replaced_answer` is the answer that a regeneration replaces; it stays
    in the log until the new one is stored, and `turn` hides it.
    """

    choice: Choice
    turn: OpenTurn | None = None
    replaced_answer: tuple[Message, ...] = ()
    messages: tuple[Draft, ...] = ()
    history: tuple[Message, ...] | None = None


class TurnContext(Value, frozen=True, kw_only=True):
    """What was loaded: all that prompt, tools and the end of the turn are made of.

    `turn` is `None` if the assistant answers without memory, as in an outage of the store. `active_assistant` is the
    session's assistant from this turn on, for requests that name none. `contents` are attachments at hand, which need
    not be read from the store. `degraded` names what was not available.
    """

    request: ChatRequest
    scope: Scope
    assistant: Assistant
    prompt: PromptPolicy
    turn: OpenTurn | None
    session_id: str
    number: int
    trace_id: str
    prompt_inputs: PromptInputs
    tool_context: ToolContext
    active_assistant: ActiveAssistant
    replaced_answer: tuple[Message, ...] = ()
    contents: tuple[Content, ...] = ()
    degraded: tuple[str, ...] = ()

    @property
    def created(self) -> bool:
        """Whether the session is new."""
        return self.turn is not None and self.turn.created

    @property
    def isolated_persona(self) -> str | None:
        """The persona, if it sees only its own turns."""
        return self.scope.persona if self.assistant.isolated else None

    def to_turn_started(self) -> TurnStarted:
        """The event for readers before the answer."""
        turn = self.turn
        words = turn.user_messages if turn is not None and not turn.journaled else ()
        return TurnStarted(
            session_id=self.session_id,
            trace_id=self.trace_id,
            turn=self.number,
            created=self.created,
            incarnation=turn.session.incarnation if turn is not None else "",
            input_seq=words[-1].seq if words else 0,
        )

    def to_snapshot(
        self,
        session: Session,
        answer: str = "",
        claims_title: bool = False,
        log_tail: tuple[Message, ...] = (),
        reserved_tokens: int = 0,
    ) -> TurnSnapshot:
        """What upkeep is told of the turn, once it has begun and once it is stored."""
        turn = self.turn
        return TurnSnapshot(
            scope=self.scope,
            session=session,
            assistant=self.assistant.name,
            language=self.tool_context.language,
            policies=self.assistant.policies,
            prompt=self.prompt,
            question=self.tool_context.question,
            answer=answer,
            claims_title=claims_title,
            log_tail=log_tail,
            reserved_tokens=reserved_tokens,
            persona=self.isolated_persona,
            # What was stale or put aside before is not stale again.
            stale_from=turn.session.window_start if turn is not None else 0,
            stale_before=turn.stale_before if turn is not None else 0,
            edited_from=self.request.edited_from,
            edited_until=turn.user_messages[0].seq if turn is not None and turn.user_messages else 0,
            recalls=self.assistant.recalls,
        )
