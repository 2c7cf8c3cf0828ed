"""A turn that has begun: what its prompt, its tools and its end are made of."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from tenuto.assistants import Assistant, in_language
from tenuto.chat.active_assistant import ActiveAssistant, active_assistant_of
from tenuto.chat.agent_loop import load_tool_state
from tenuto.chat.request import ChatRequest, TurnStarted, last_question
from tenuto.chat.turn_input import number_messages
from tenuto.context import (
    chat_context,
    has_relevant_history,
    inputs_from_turn,
    language_of,
    last_input,
    last_words,
    profile_text,
    speaker_names,
)
from tenuto.context.compression import LogTail, of_persona
from tenuto.model import Draft, Message, OpenTurn, Scope, Session, TurnState
from tenuto.model.generation import Persona, Summary, ToolContext, TurnEnded
from tenuto.model.message import readable_messages
from tenuto.model.prompt import Language, PromptInputs
from tenuto.model.session import PROFILE
from tenuto.model.turn import trace_id
from tenuto.model.values import Value
from tenuto.sessions import fresh_id

_LANGUAGES: Final = {language.value: language for language in Language}


class TurnContext(Value, frozen=True, kw_only=True):
    """A turn that has begun. `turn` is `None` if the assistant answers without memory, as in an outage of the store.

    `active_assistant` is the session's assistant from this turn on, for requests that name none. `replaced_answer` is
    the answer that a regeneration replaces; it stays in the log until the new one is stored, and is hidden here.
    `degraded` names what was not available.
    """

    request: ChatRequest
    scope: Scope
    assistant: Assistant
    turn: OpenTurn | None
    session_id: str
    number: int
    trace_id: str
    prompt_inputs: PromptInputs
    tool_context: ToolContext
    active_assistant: ActiveAssistant
    replaced_answer: tuple[Message, ...] = ()
    degraded: tuple[str, ...] = ()

    @property
    def created(self) -> bool:
        """Whether the session is new."""
        return self.turn is not None and self.turn.created

    def to_turn_started(self) -> TurnStarted:
        """The event for readers before the answer."""
        return TurnStarted(
            session_id=self.session_id,
            trace_id=self.trace_id,
            turn=self.number,
            created=self.created,
            incarnation=self.turn.session.incarnation if self.turn is not None else "",
        )

    def to_turn_ended(
        self, session: Session, answer: str = "", titles: bool = False, loaded: tuple[Message, ...] = (), taken: int = 0
    ) -> TurnEnded:
        """The event for upkeep after the turn is stored."""
        return TurnEnded(
            scope=self.scope,
            session=session,
            assistant=self.assistant.name,
            language=self.tool_context.language,
            policies=self.assistant.policies,
            prompt=self.assistant.prompt,
            question=self.tool_context.question,
            answer=answer,
            claims_title=titles,
            log_tail=loaded,
            reserved_tokens=taken,
            persona=self.scope.persona if self.assistant.isolated else None,
            stale_before=self.turn.stale_before if self.turn is not None else 0,
            edited_from=self.request.edit or 0,
            edited_until=self.turn.user_messages[0].seq if self.turn is not None and self.turn.user_messages else 0,
            recalls=self.assistant.recalls,
        )


def stored_context(
    request: ChatRequest,
    assistant: Assistant,
    persona: Persona | None,
    turn: OpenTurn,
    log: LogTail,
    summary: Summary | None,
    now: datetime,
) -> TurnContext:
    """A turn of a stored session, with the history and the summary that it begins with."""
    session, scope = turn.session, turn.scope
    materials = _prompt_inputs(request, assistant, persona, turn, log, summary)
    given, history = turn.user_messages or last_input(log.talk), materials.history
    question = materials.question or last_question(given)
    # Digits and punctuation alone have no language.
    has_letters = any(map(str.isalpha, question))
    spoken = request.language or (language_of(question) if has_letters else materials.language)
    asked = ToolContext(
        scope=scope,
        session=session,
        question=question,
        language=spoken,
        now=now,
        state=load_tool_state(turn.window, assistant.name) if assistant.tools or assistant.respond else {},
        history=of_persona(history, scope.persona if assistant.isolated else None),
        persona=scope.persona,
        persona_name=in_language(persona.names, spoken) if persona is not None else None,
        speaker_names=materials.speaker_names,
        turn_key=_turn_key(turn),
    )
    return TurnContext(
        request=request,
        scope=scope,
        assistant=assistant,
        turn=turn,
        session_id=session.id,
        number=turn.number,
        trace_id=trace_id(session.id, turn.number, turn.id),
        prompt_inputs=materials,
        tool_context=asked,
        active_assistant=active_assistant_of(session).switch_to(assistant.name, scope.persona),
    )


def stateless_context(
    scope: Scope,
    request: ChatRequest,
    assistant: Assistant,
    persona: Persona | None,
    drafts: tuple[Draft, ...],
    talk: tuple[Message, ...],
    now: datetime,
) -> TurnContext:
    """A turn of these messages, after this talk, that stores nothing."""
    session_id, question = request.session_id or fresh_id(), request.question
    language = request.language or language_of(question)
    given = number_messages(drafts, talk)
    words = last_words(given)
    before = given[: len(given) - len(words)]
    talk = readable_messages((*talk, *before))
    materials = PromptInputs(
        question="\n".join([message.text for message in words]),
        input_start=before[0].seq if before else 0,
        history=talk,
        system=assistant.system_prompt(persona, language),
        instructions=request.instructions or "",
        persona=scope.persona,
        speaker=scope.user,
        language=language,
    )
    asked = ToolContext(
        scope=scope,
        session=None,
        question=question,
        history=talk,
        language=language,
        now=now,
        persona=scope.persona,
        persona_name=in_language(persona.names, language) if persona is not None else None,
    )
    return TurnContext(
        request=request,
        scope=scope,
        assistant=assistant,
        turn=None,
        session_id=session_id,
        number=1,
        trace_id="",
        prompt_inputs=materials,
        tool_context=asked,
        active_assistant=ActiveAssistant(assistant.name, scope.persona),
    )


def _prompt_inputs(
    request: ChatRequest,
    assistant: Assistant,
    persona: Persona | None,
    turn: OpenTurn,
    log: LogTail,
    summary: Summary | None,
) -> PromptInputs:
    """The inputs of the turn, completed from assistant and session."""
    context = turn.session.context
    # A count is trusted if this very turn has made it.
    counted = turn.state is TurnState.OPENED and bool(turn.user_messages) and turn.user_messages[0].text == request.text
    talk = readable_messages(log.talk)
    materials = inputs_from_turn(
        turn, "", talk=talk, question_tokens=turn.user_messages[0].tokens if counted else 0, summary=summary
    )
    # Headings and labels are in the session's first language, so that the prompt prefix is stable.
    first = context.get("language")
    language = _LANGUAGES.get(first) if isinstance(first, str) else None
    language = language or request.language or language_of(materials.question)
    stored = context.get(PROFILE) if turn.scope.chat is None else None
    known = {**(stored if isinstance(stored, dict) else {}), **request.profile}
    names = {each.id: in_language(each.names, language) for each in assistant.personas.values()}
    tenant, in_chat = turn.scope.tenant, turn.scope.chat is not None
    personas = [name for each in assistant.personas.values() for name in each.names.values()]
    speakers = speaker_names(talk, tenant, language, in_chat=in_chat, personas=personas)
    return replace(
        materials,
        system=assistant.system_prompt(persona, language),
        instructions=request.instructions or "",
        preferences=profile_text(known, language) if known else "",
        chat_context=chat_context(request.chat_context, tenant, language, speakers=speakers, personas=personas),
        history_relevant=has_relevant_history(materials.question, materials.history, threshold=assistant.relevance)
        or (summary is not None and assistant.relevance <= 0)
        or not materials.question,
        isolated=assistant.isolated,
        language=language,
        display_names={name: shown for name, shown in names.items() if shown},
        speaker_names=speakers,
    )


def _turn_key(turn: OpenTurn) -> str:
    """The message and the turn: a regeneration answers the same message in another turn."""
    said = turn.user_messages[0].id if turn.user_messages else ""
    return f"{turn.session.incarnation}:{turn.number}:{said}"
