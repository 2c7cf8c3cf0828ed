"""A turn, told in order: choose, admit and begin here, then `loading`, `answering` and `storing`.

Each phase takes what the phase before it made and returns a value (`turn_values`). In an outage of the store the
assistant's policy decides: `journal` is carried out below, by the engine of the store, and the turn looks as always;
`stateless` is carried out here, where the turn goes on without memory; `raise` fails it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from tenuto.assistants import Assistant, AssistantRegistry
from tenuto.chat.agent_loop import StepTimer
from tenuto.chat.answer_form import check_schema
from tenuto.chat.answering import Answering, LeaseRenewal, answer, check_prompt_room
from tenuto.chat.deps import ChatDeps
from tenuto.chat.loading import cancel_recall, load, start_recall, with_older_messages
from tenuto.chat.request import ChatRequest, EventSink, Reply
from tenuto.chat.revision import (
    check_after_seq,
    check_after_turn,
    check_not_superseded,
    digest_of_key,
    hide_old_answer,
    rewind_for_edit,
    undo_user_message,
    with_stored_contents,
)
from tenuto.chat.shown_media import check_attachments_taken, name_shown, with_known_attachments
from tenuto.chat.storing import abandon, replay, report, store
from tenuto.chat.turn_values import ActiveAssistant, Beginning, Choice, TurnContext
from tenuto.context import display_name, language_of
from tenuto.context.compression import conversation_in
from tenuto.context.tool_pairs import pair_tools
from tenuto.errors import (
    AssistantFailed,
    DecryptionFailed,
    NothingToAnswer,
    SessionNotFound,
    StateCorrupt,
    Superseded,
    TenutoError,
    Unavailable,
    UnknownToolCall,
    UnsupportedParameter,
)
from tenuto.logs import bind_log_context, describe_exception
from tenuto.model import Draft, Message, NewSession, OpenTurn, Role, Scope, Session, TurnState, text_part
from tenuto.model.generation import Persona
from tenuto.model.message import INPUT, NAME, is_input, readable_part
from tenuto.model.parameters import NO_PARAMETERS, OWN_FIELDS, overridden
from tenuto.model.policy import OnMissing, OnStoreDown, Preset, SessionPolicy
from tenuto.model.prompt import PromptPolicy
from tenuto.model.session import ASSISTANT, PERSONA, PRIVACY_ALSO, PROFILE
from tenuto.model.turn import MAX_WINDOW, ONCE, history_length
from tenuto.model.values import JsonObject, check_type
from tenuto.ports import SpanAttributes, facts_of, refused_parameters
from tenuto.sessions import TurnRequest, fresh_id
from tenuto.sessions.attachments import prepare_contents
from tenuto.sessions.lease import complete_despite_cancel, release_on_error
from tenuto.sessions.limits import check_message_sizes, check_metadata_size, check_text_size
from tenuto.sessions.titles import with_fallback_title

# The part of its budget that a prompt may fill before it is compressed, whatever a request says.
_MOST_FULL: Final = 0.95
# How long an answer waits until it is stored that there is something to remember.
_HEARING_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


async def take_turn(deps: ChatDeps, scope: Scope, request: ChatRequest, sink: EventSink) -> Reply:
    """Take a turn, from its request to its reply. `Chat.take_turn` tells what it raises."""
    check_type(scope, Scope, "scope")
    check_type(request, ChatRequest, "the request")
    telemetry = deps.telemetry
    turn_span: AbstractContextManager[SpanAttributes | None] = telemetry.span("turn") if telemetry else nullcontext()
    with turn_span as span, bind_log_context(tenant=scope.tenant, session=request.session_id):
        steps = StepTimer(telemetry)
        with steps.step("begin"):
            context = await _open_turn(deps, scope, request, sink)
        if span is not None:
            span.set_session(context.session_id)
            span.set_attributes(
                tenant=scope.tenant,
                session=context.session_id,
                turn=context.number,
                trace=context.trace_id,
                assistant=context.assistant.name,
                model=deps.models(context.assistant.model).name,
            )
        with bind_log_context(session=context.session_id, turn=str(context.number)):
            if context.turn is not None and context.turn.state is TurnState.FINISHED:
                reply = await replay(deps, context.turn, context.trace_id)
            else:
                if sink.listens:
                    await sink.emit_event(context.to_turn_started())
                reply = await _answer_and_store(deps, context, steps, sink)
        if span is not None:
            span.set_attributes(model=reply.model, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
        return reply


async def answer_once(
    deps: ChatDeps, scope: Scope, request: ChatRequest, history: tuple[Message, ...], sink: EventSink
) -> Reply:
    """Answer after these messages, and store nothing but the usage; the request names the assistant."""
    choice = await _choice(deps, scope, request, None)
    if request.parameters.provider_store is None and facts_of(deps.models(choice.assistant.model)).stores_answers:
        # What is stored nowhere is not stored at the provider either.
        request = replace(request, parameters=replace(request.parameters, provider_store=False))
        choice = replace(choice, request=request)
    await admit(deps, choice, history)
    await deps.spending.check_tenant(choice.scope)
    context = await load(deps, await _begin_unstored(deps, choice, history), None)
    reply = await _answer_and_store(deps, context, StepTimer(deps.telemetry), sink)
    return replace(reply, degraded=tuple(name for name in reply.degraded if name != "store"))


async def _open_turn(deps: ChatDeps, scope: Scope, request: ChatRequest, sink: EventSink) -> TurnContext:
    choice = await choose(deps, scope, await with_known_attachments(deps, scope, request))
    if sink.shared:
        choice = replace(choice, shared=True, joins_running=sink.joins_running)
    await admit(deps, choice)
    # It runs beside the store's part of the turn, and does not outlive it.
    recalling = start_recall(deps.memories, choice)
    try:
        return await load(deps, await begin(deps, choice), recalling)
    finally:
        await cancel_recall(recalling)


async def _answer_and_store(deps: ChatDeps, context: TurnContext, steps: StepTimer, sink: EventSink) -> Reply:
    """Answer the turn and store it; on any error the lease is released.

    Raises:
        AssistantFailed: code of the assistant, or of a model that a program gave, raised something of its own.
    """
    work = Answering.of(deps, context, steps, sink)
    turn = context.turn
    # Also of a turn that fails: what was said in it is remembered.
    hearing = deps.follow_up.hear(context.to_snapshot(turn.session, log_tail=turn.window)) if turn else None
    try:
        async with LeaseRenewal(deps.sessions, context.turn):
            if context.turn is not None and context.turn.stale_before:
                await deps.follow_up.note_stale(context.to_snapshot(context.turn.session))
            with _agent_span(deps, work):
                await answer(deps, work)
        if hearing is not None:
            await asyncio.wait({hearing}, timeout=_HEARING_SECONDS)
        outcome = await store(deps, work)
    except BaseException as error:
        # Also on cancellation: the user message stays, and the same key resumes.
        failure = error
        if isinstance(error, Exception) and not isinstance(error, TenutoError):
            _log.error("assistant %s failed: %s", context.assistant.name, describe_exception(error))
            failure = AssistantFailed(context.assistant.name)
            failure.__cause__ = error
        if isinstance(failure, TenutoError) and context.turn is not None:
            failure.ids = {"session_id": context.session_id, "trace_id": context.trace_id}
        await complete_despite_cancel(abandon(deps, work, failure))
        if failure is not error:
            raise failure from error
        raise
    return await report(deps, work, outcome)


def _agent_span(deps: ChatDeps, work: Answering) -> AbstractContextManager[object]:
    if deps.telemetry is None:
        return nullcontext()
    context = work.context
    return deps.telemetry.agent(context.assistant.name, session_id=context.session_id, model=work.model)


# Choose: who answers


async def choose(deps: ChatDeps, scope: Scope, request: ChatRequest) -> Choice:
    """The assistant and the persona that the request names, else the last ones of the session, else the default.

    A running conversation reads its assistant from the session cache. If another process changes it between that
    read and the begin of the turn, the turn goes to the assistant that was read.

    Raises:
        AssistantNotFound: there is no such assistant or persona.
        ModelUnknown: there is no such model for this caller.
    """
    named = request.assistant is not None and (
        request.persona is not None or len(deps.assistants.find(request.assistant).personas) < 2
    )
    session = None if named else await _find_session(deps, scope, request.session_id)
    return await _choice(deps, scope, request, session)


async def _choice(deps: ChatDeps, scope: Scope, request: ChatRequest, session: Session | None) -> Choice:
    last = ActiveAssistant.of(session)
    assistant, persona = resolve_assistant(deps.assistants, request.assistant, request.persona, last)
    assistant.check_installed()
    if request.model is not None:
        model = await deps.model_choice.admit(scope.tenant, request.model)
        assistant = dataclasses.replace(assistant, model=model)
    prompt = deps.prompt_for(assistant.prompt, deps.models(assistant.model))
    if request.policy is not None or request.compress_above is not None:
        policies = _policies_for(request, assistant.policies, prompt)
        assistant = dataclasses.replace(assistant, policies=policies)
    scope = scope if persona is None else replace(scope, persona=persona.id)
    return Choice(
        request=request,
        scope=scope,
        assistant=assistant,
        prompt=prompt,
        persona=persona,
        in_session=session is not None,
    )


def resolve_assistant(
    assistants: AssistantRegistry, name: str | None, persona: str | None, last: ActiveAssistant
) -> tuple[Assistant, Persona | None]:
    """Assistant and persona: those named, else the last ones of the session, else the default.

    An assistant that becomes active again keeps its last persona.

    Raises:
        AssistantNotFound: there is no such assistant or persona.
    """
    if name is None and last.assistant in assistants.names:
        name = last.assistant
    assistant = assistants.find(name)
    if persona is None:
        previous = last.persona if assistant.name == last.assistant else dict(last.others).get(assistant.name)
        persona = previous if previous in assistant.personas else None
    return assistant, assistant.persona(persona)


def _policies_for(request: ChatRequest, policies: Preset, prompt: PromptPolicy) -> Preset:
    """The assistant's policies with what the request has in place of them."""
    if request.policy is not None:
        policies = replace(policies, sessions=request.policy)
    if request.compress_above is not None:
        share = min(request.compress_above / prompt.budget_tokens, _MOST_FULL)
        policies = replace(policies, context=replace(policies.context, compress_at=share))
    return policies


# Admit: what may be stored and shown to a model


async def admit(deps: ChatDeps, choice: Choice, history: tuple[Message, ...] = ()) -> None:
    """Refuse what no session may hold and what the prompt has no room for, before anything is stored; a `history` came
    with the request.

    Raises:
        Invalid: the schema of the answer is none, or beside the request's tools there is no room for a question.
        UnsupportedParameter: the model does not take a parameter, or the assistant fixes it.
        UnsupportedAttachment: the model does not take a picture, a sound or a file that the request requires.
        TooLarge: the message, or the metadata of its reply, is above the size limit.
        PrivateData: the privacy policy blocks the content.
        InstructionsTooLong: its instructions or system messages do not fit into the prompt.
    """
    if choice.request.parameters != NO_PARAMETERS:
        _check_parameters(deps, choice)
    if choice.request.schema is not None:
        check_schema(choice.request.schema)
    _check_provider_tools(deps, choice)
    if choice.request.require_attachments:
        check_attachments_taken(choice.request, deps.models(choice.assistant.model), history)
    await _check_input(deps, choice)
    if choice.assistant.remembers and _brings_more_than_a_question(choice.request):
        # In a thread, since it can be long.
        await asyncio.to_thread(check_prompt_room, deps, choice)


def _brings_more_than_a_question(request: ChatRequest) -> bool:
    if request.tools or request.instructions or request.schema or request.model is not None:
        return True
    return any(message.role is Role.SYSTEM for message in request.messages)


def _check_parameters(deps: ChatDeps, choice: Choice) -> None:
    assistant, parameters = choice.assistant, choice.request.parameters
    for name in assistant.fixed_parameters:
        if name in parameters.given and getattr(parameters, name) != getattr(assistant.parameters, name):
            raise UnsupportedParameter(name, f"is fixed by the assistant {assistant.name}")
    if (changed := overridden(parameters.extra, assistant.fixed_parameters)) is not None:
        raise UnsupportedParameter(changed, f"is fixed by the assistant {assistant.name}")
    if (own := next((name for name in parameters.extra if name in OWN_FIELDS), None)) is not None:
        raise UnsupportedParameter(own, "is not passed on: it is no field of the provider's own")
    model = deps.models(assistant.model)
    for name in refused_parameters(model, parameters):
        raise UnsupportedParameter(name, f"is not taken by {model.name}")


def _check_provider_tools(deps: ChatDeps, choice: Choice) -> None:
    wanted, model = choice.request.provider_tools, deps.models(choice.assistant.model)
    if wanted.tools and not facts_of(model).provider_tools:
        why = f"{model.name} calls functions alone; OpenAI runs its tools for its own models, by the responses API"
        raise UnsupportedParameter(f"tools[{wanted.place}].type", why)


async def _check_input(deps: ChatDeps, choice: Choice) -> None:
    """Sizes first: before texts of megabytes are counted or scanned for private values."""
    request, policy = choice.request, choice.assistant.policies.sessions
    check_text_size(request.text, policy)
    if request.messages:
        check_message_sizes(request.messages, policy)
    if request.reply_metadata:
        check_metadata_size(request.reply_metadata, policy)
    await deps.redaction.admit(choice.scope, request.text, request.messages, request.parts)


# Begin: store the messages and take the lease


async def begin(deps: ChatDeps, choice: Choice) -> Beginning:
    """Store the user's messages and take the session's lease; an assistant without memory stores nothing.

    Raises:
        TenutoError: as in `Chat.take_turn`; the session has no lease, and what a refused turn stored is undone.
    """
    if not choice.assistant.remembers:
        await deps.spending.check_tenant(choice.scope)
        return await _begin_unstored(deps, choice)
    try:
        return await _begin_in_store(deps, choice)
    except DecryptionFailed:
        raise
    except Unavailable:
        if choice.assistant.policies.sessions.on_store_down is not OnStoreDown.STATELESS:
            raise
        _log.warning("the store is unavailable: answering without memory")
        return await _begin_unstored(deps, choice)


async def _begin_unstored(deps: ChatDeps, choice: Choice, history: tuple[Message, ...] | None = None) -> Beginning:
    if choice.request.regenerate:
        raise NothingToAnswer
    policy = choice.assistant.policies.sessions
    messages = await prepare_contents(choice.scope, _input_messages(deps, choice), policy)
    if history is not None:
        # It came with the request as the messages did, also where it was once stored.
        history = await prepare_contents(choice.scope, history, policy)
    return Beginning(choice=choice, messages=messages, history=history)


async def _begin_in_store(deps: ChatDeps, choice: Choice) -> Beginning:
    request, scope, policy = choice.request, choice.scope, choice.assistant.policies.sessions
    replaces, messages = request.replaces, _input_messages(deps, choice)
    if replaces and request.session_id is not None:
        messages = await with_stored_contents(deps.sessions, scope, request.session_id, messages)
    if any(message.contents for message in messages):
        messages = await prepare_contents(scope, messages, policy)
    creates_missing = request.session_id is None or policy.on_missing is not OnMissing.ERROR
    # What a new session starts with takes long to make, so it waits until the one that was there is gone after all.
    is_existing = creates_missing and choice.in_session and not replaces and not request.regenerate
    may_be_new = creates_missing and not is_existing
    if may_be_new or request.regenerate or replaces:
        # Before anything is undone for them, or a session is titled by them; otherwise `begin` checks them.
        check_message_sizes(messages, policy)
    if deps.spending.active and request.idempotency_key is None:
        # With a key the reply may be stored already, and a replay costs nothing.
        await deps.spending.check(scope, lambda: _find_session(deps, scope, request.session_id))
    loaded = max(choice.assistant.policies.context.loaded_messages, deps.reach.guess(scope, request.session_id))
    turn_request = TurnRequest(
        user_messages=messages,
        session_id=request.session_id,
        idempotency_key=request.idempotency_key,
        fingerprint=request.fingerprint,
        # A request may bring a whole conversation, and its outputs belong to calls before it.
        window=min(loaded + max(0, len(messages) - 1), MAX_WINDOW),
        new_session=await _new_session(deps, choice) if may_be_new and not request.regenerate else None,
        policy=_without_journal(policy)
        if request.regenerate
        else _policy_for_existing(policy)
        if is_existing
        else policy,
        renews=True,
        shared=choice.shared,
        joins_running=choice.joins_running,
    )
    if replaces:
        editing = replace(turn_request, policy=_without_journal(policy))
        await rewind_for_edit(deps.sessions, scope, request, editing, lambda session: _check_budgets(deps, session))
    try:
        turn = await deps.sessions.begin(scope, turn_request)
    except SessionNotFound:
        if not is_existing:
            raise
        new_session = await _new_session(deps, choice)
        turn = await deps.sessions.begin(scope, replace(turn_request, new_session=new_session, policy=policy))
    await _store_profile(deps, scope, request.profile)
    if turn.state is TurnState.FINISHED:
        return Beginning(choice=choice, turn=turn)
    checking = _check_open_turn(deps, choice, turn, turn_request.window)
    beginning = await release_on_error(deps.sessions.finish, turn, checking)
    return beginning if not messages else replace(beginning, messages=messages)


async def _check_open_turn(deps: ChatDeps, choice: Choice, turn: OpenTurn, window: int) -> Beginning:
    """Checks that need the stored session; a concurrent turn may have spent the rest of a budget."""
    request = choice.request
    replaced_answer: tuple[Message, ...] = ()
    if request.after_seq is not None and turn.state is TurnState.OPENED and not turn.journaled:
        await check_after_seq(deps.sessions, turn, request)
    if request.regenerate:
        turn, replaced_answer = await hide_old_answer(deps.sessions, turn, window)
    if request.idempotency_key is not None:
        try:
            check_not_superseded(turn.session, request.idempotency_key)
        except Superseded:
            await undo_user_message(deps.sessions, turn)
            raise
    if request.after_turn is not None and turn.state is TurnState.OPENED:
        await check_after_turn(deps.sessions, turn, request.after_turn)
    await _check_budgets(deps, turn.session)
    if not turn.user_messages:
        # Another turn may have answered the last message while the old answer was undone.
        messages = conversation_in(turn.window)
        if not messages or not is_input(messages[-1]):
            raise NothingToAnswer
    if _has_unknown_output(turn):
        # More calls than one window holds may wait for their outputs.
        turn = await with_older_messages(deps, turn)
        if _has_unknown_output(turn):
            await undo_user_message(deps.sessions, turn)
            raise UnknownToolCall
    return Beginning(choice=choice, turn=turn, replaced_answer=replaced_answer)


async def _check_budgets(deps: ChatDeps, session: Session) -> None:
    if deps.spending.active:
        deps.spending.budgets.check_session(session)
        await deps.spending.check_tenant(session.scope)


def _input_messages(deps: ChatDeps, choice: Choice) -> tuple[Draft, ...]:
    """The request's messages as they are stored; none if it answers the last ones again."""
    request, scope = choice.request, choice.scope
    if request.regenerate:
        return ()
    # In a chat the prompts of later turns need it.
    name = display_name(request.profile) if scope.chat is not None else ""
    metadata: JsonObject = {ONCE: digest_of_key(request.idempotency_key)} if request.idempotency_key is not None else {}
    if request.messages:
        before = history_length(request.messages)
        return tuple([
            _input_message(deps, scope, message, name, metadata, is_history=place < before)
            for place, message in enumerate(request.messages)
        ])  # fmt: skip
    draft = Draft(
        id=fresh_id(),
        role=Role.USER,
        sent_at=deps.clock(),
        parts=(*((text_part(request.text),) if request.text or not request.parts else ()), *request.parts),
        contents=request.contents,
        speaker=scope.user,
        persona=scope.persona,
        tokens=deps.counter.count(request.text),
        extra={NAME: name} if name else {},
        metadata=metadata,
    )
    return (draft,)


def _input_message(
    deps: ChatDeps, scope: Scope, message: Draft, name: str, metadata: JsonObject, *, is_history: bool
) -> Draft:
    from_user = message.role is Role.USER
    answers = is_history and message.role is Role.ASSISTANT
    return replace(
        message,
        speaker=message.speaker if message.role is Role.ASSISTANT else scope.user,
        persona=scope.persona,
        tokens=deps.counter.count_message(message),
        extra={NAME: name, **message.extra} if name and from_user else message.extra,
        metadata={**message.metadata, **metadata, **({} if from_user or answers else {INPUT: True})},
    )


def _has_unknown_output(turn: OpenTurn) -> bool:
    """Whether the turn brings the output of a call that does not wait for it: no model can be shown the two."""
    if turn.journaled or not any(message.role is Role.TOOL for message in turn.user_messages):
        return False
    paired = {place for _, place in pair_tools(turn.window)}
    own = {message.seq for message in turn.user_messages}
    return any(
        readable_part(part)["type"] == "tool_result" and (place, number) not in paired
        for place, message in enumerate(turn.window)
        if message.seq in own
        for number, part in enumerate(message.parts)
    )


async def _find_session(deps: ChatDeps, scope: Scope, session_id: str | None) -> Session | None:
    if session_id is None:
        return None
    try:
        return await deps.sessions.get(scope, session_id)
    except DecryptionFailed:
        raise
    except (SessionNotFound, Unavailable):
        # The begin of the turn decides what that means, by the assistant's policy.
        return None


async def _new_session(deps: ChatDeps, choice: Choice) -> NewSession:
    request, scope, assistant = choice.request, choice.scope, choice.assistant
    # Members of a chat read its session, and their prompts would show the profile of the member that began it.
    profile = {**await _stored_profile(deps, scope, request), **request.profile} if scope.chat is None else {}
    metadata: JsonObject = {ASSISTANT: assistant.name}
    if scope.persona is not None:
        metadata[PERSONA] = scope.persona
    private_types = assistant.policies.privacy_also
    if private_types:
        metadata[PRIVACY_ALSO] = list(private_types)
    new = NewSession(metadata=metadata, context={PROFILE: profile} if profile else {})
    texts = [message.text for message in request.messages if message.role is Role.USER]
    text = next(filter(str.strip, texts), request.text) or name_shown(deps, scope, request)
    if not text:
        # The first turn with words of the user gives the title.
        return new
    title = await deps.redaction.for_records(private_types).for_title(scope, text)
    limit = assistant.policies.sessions.fallback_title_characters
    return with_fallback_title(new, title, request.language or language_of(text), limit)


async def _stored_profile(deps: ChatDeps, scope: Scope, request: ChatRequest) -> JsonObject:
    """What is known of the user beyond this session, for a new one; without the store the turn goes on."""
    if deps.profiles is None or await _find_session(deps, scope, request.session_id) is not None:
        return {}
    try:
        return await deps.profiles.read(scope)
    except (StateCorrupt, Unavailable) as error:
        _log.warning("the stored profile cannot be read: %s", error.code)
        return {}


async def _store_profile(deps: ChatDeps, scope: Scope, profile: JsonObject) -> None:
    """Store what the request says of the user beyond this session; without the store the turn goes on."""
    if deps.profiles is None or not profile:
        return
    try:
        await deps.profiles.update(scope, profile)
    except TenutoError as error:
        _log.warning("a profile was not stored: %s", error.code)


@lru_cache(maxsize=64)
def _policy_for_existing(policy: SessionPolicy) -> SessionPolicy:
    """The policy of a turn in a session that was there a moment ago."""
    return replace(policy, on_missing=OnMissing.ERROR)


def _without_journal(policy: SessionPolicy) -> SessionPolicy:
    """The policy of an edit or a regeneration: it removes stored messages, which a journal cannot do."""
    if policy.on_store_down is not OnStoreDown.JOURNAL:
        return policy
    return replace(policy, on_store_down=OnStoreDown.RAISE)
