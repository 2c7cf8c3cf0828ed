"""Store: the reply and its trace, as one step with the release of the lease; or the release alone, if the turn failed.

An answer that cannot be stored is returned all the same where the assistant's policy allows that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Counts
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.chat.agent_loop import redaction_metadata
from tenuto.chat.answering import Answering
from tenuto.chat.deps import ChatDeps
from tenuto.chat.request import Reply
from tenuto.chat.revision import digest_of_key, remove_old_answer, superseding_metadata
from tenuto.chat.shown_media import ATTACHMENTS
from tenuto.chat.toolbox import with_tool_state
from tenuto.context import truncate_text
from tenuto.errors import (
    AssistantFailed,
    DecryptionFailed,
    StoreFull,
    StoreUnavailable,
    TenutoError,
    TooLarge,
    TurnStopped,
    Unavailable,
    failure_reason,
    reply_error_code,
)
from tenuto.logs import explain_exception
from tenuto.model import AppendResult, Changes, Draft, FinishTurn, OpenTurn, Role, Scope, Session
from tenuto.model.analytics import UsageCounts
from tenuto.model.generation import ToolCall
from tenuto.model.message import FINISH, STOPPED
from tenuto.model.parameters import FinishReason
from tenuto.model.policy import OnStoreDown
from tenuto.model.privacy import Sink
from tenuto.model.prompt import Kind
from tenuto.model.provider_items import ANNOTATIONS, is_provider_item
from tenuto.model.reasoning import is_reasoning, shown_reasoning
from tenuto.model.session import INTENT, PRIVACY_ALSO, record_types
from tenuto.model.turn import ONCE, ToolRun, Trace
from tenuto.model.values import Json, JsonObject, replace_valid, to_text
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.sessions import fresh_id
from tenuto.sessions.lease import complete_despite_cancel
from tenuto.sessions.limits import check_message_sizes
from tenuto.sessions.titles import claim_title

# Characters of a question, an answer or a tool's output that a trace keeps.
_TRACE_CHARACTERS: Final = 8000
_NO_TALK: Final = (Kind.SYSTEM, Kind.PREFERENCES)
_log = logging.getLogger(__name__)


class TurnOutcome(NamedTuple):
    """A finished turn: its trace, the trace as it is stored, and the session's head; `None` if nothing was stored."""

    trace: Trace
    stored_trace: Trace | None = None
    session: Session | None = None


async def store(deps: ChatDeps, work: Answering) -> TurnOutcome:
    """Store the answer and release the session.

    Raises:
        TurnLost: the session was reset, truncated or deleted meanwhile, or another turn took over.
        VersionConflict: messages were appended that the caller of a regeneration has not seen.
        TooLarge: the answer is above the size limit.
    """
    trace = await _make_trace(deps, work)
    turn = work.context.turn
    if turn is None:
        return TurnOutcome(trace)
    try:
        with work.steps.step("finish"):
            result, claims_title = await _finish_answered(deps, work, turn, trace)
    except DecryptionFailed:
        raise
    except Unavailable as error:
        if work.context.assistant.policies.sessions.on_store_down is not OnStoreDown.STATELESS:
            raise
        _log.warning("an answer was returned but not stored: the store is unavailable")
        work.degraded["store"] = None
        abandoned = FinishTurn(abandoned=True, usage=work.completion.usage, trace=trace)
        _release_later(deps, work, turn, work.unfinished or abandoned, error)
        return TurnOutcome(trace)
    entries = work.prompt.manifest.entries if work.prompt is not None else ()
    # The tokens that the conversation cannot use; these entries open every manifest.
    reserved = sum([entry.tokens for entry in takewhile(lambda entry: entry.kind in _NO_TALK, entries)])
    log_tail = (*turn.window, *result.messages)
    deps.follow_up.follow(
        work.context.to_snapshot(result.session, work.completion.text, claims_title, log_tail, reserved)
    )
    return TurnOutcome(trace, result.trace, result.session)


async def report(deps: ChatDeps, work: Answering, outcome: TurnOutcome) -> Reply:
    """Count what the answer cost, notify the observers, and make the reply."""
    await _count_usage(deps, work, turns=1)
    if deps.redaction.degraded:
        # The detector may have failed only on what was stored.
        work.degraded["detector"] = None
    await _notify_observers(deps, work, outcome.trace, outcome.stored_trace)
    return reply_from_trace(
        outcome.trace,
        outcome.session,
        text=work.completion.text,
        calls=tuple(work.completion.calls),
        parts=work.completion.parts if work.completion.thoughts or work.completion.annotations else (),
        created=work.context.created,
        steps=work.steps.taken,
        degraded=tuple(work.degraded),
        stopped=work.completion.stopped,
        logprobs=work.completion.logprobs,
    )


async def abandon(deps: ChatDeps, work: Answering, error: BaseException) -> None:
    """Release the session without an answer, and store a trace with the reason."""
    turn, completion = work.context.turn, work.completion
    # The usage is charged with or without an answer.
    await _count_usage(deps, work, turns=0)
    if turn is None:
        return
    text = completion.text
    if isinstance(error, asyncio.CancelledError) and work.sink.delivered_text is not None:
        # The model may be ahead of its reader: only delivered text counts.
        text = work.sink.delivered_text
    trace = await _make_trace(deps, work, text, error)
    # The user message stays, so a later retry must find the assistant it was addressed to.
    metadata = _assistant_metadata(work, turn.session)
    changes = Changes(metadata=metadata) if metadata else None
    request = work.unfinished or FinishTurn(abandoned=True, usage=completion.usage, changes=changes, trace=trace)
    stored_trace = None
    try:
        stored_trace = (await _finish(deps, work, turn, request)).trace
    except TenutoError as exc:
        _log.info("a turn could not be abandoned: %s", exc.code)
        if isinstance(exc, Unavailable) and not isinstance(exc, DecryptionFailed):
            _release_later(deps, work, turn, request, exc)
    await _notify_observers(deps, work, trace, stored_trace)


async def replay(deps: ChatDeps, turn: OpenTurn, trace_id: str) -> Reply:
    """The reply this key was answered with before."""
    final = next((message for message in reversed(turn.reply) if "trace" in message.metadata), None)
    metadata = final.metadata if final is not None else {}
    try:
        trace = await deps.traces.trace(turn.scope, turn.session.id, turn.number)
    except StoreUnavailable:
        _log.warning("a turn is repeated without what its trace holds: the store does not answer")
        trace = None
    reply = Reply(session_id=turn.session.id, trace_id=trace_id, turn=turn.number, assistant="", text="")
    if trace is not None:
        reply = reply_from_trace(trace, turn.session)
    text = final.text if final is not None else "".join(message.text for message in turn.reply)
    calls = [part for part in final.parts if part["type"] == "tool_call"] if final is not None else []
    parts = await _thought_parts(deps, turn.session, final)
    return replace(
        reply,
        text=await deps.redaction.restore(turn.session, text),
        calls=tuple(
            ToolCall(id=call["id"], name=call["name"], arguments=call["arguments"])
            for call in await deps.redaction.restore(turn.session, calls)
        ),
        parts=parts,
        reasoning=shown_reasoning(parts),
        trace_id=metadata.get("trace", reply.trace_id),
        model=metadata.get("model", reply.model),
        offline=metadata.get("offline", reply.offline),
        degraded=tuple(metadata.get("degraded", reply.degraded)),
        data=metadata.get("data", reply.data),
        stopped=metadata.get(STOPPED, False),
        finish=FinishReason(metadata.get(FINISH, FinishReason.STOP)),
        replayed=True,
    )


async def _thought_parts(deps: ChatDeps, session: Session, final: Draft | None) -> tuple[JsonObject, ...]:
    """The parts of an answer that are more than text and calls."""
    if final is None or not any(map(_is_beside, final.parts)):
        return ()
    return tuple(await deps.redaction.restore(session, list(final.parts)))


def _is_beside(part: JsonObject) -> bool:
    return is_reasoning(part) or is_provider_item(part) or ANNOTATIONS in part


def _complete_answer(work: Answering) -> None:
    """The answer as it is stored: changed by the assistant's own code, and with counts where a model reports none."""
    completion, assistant, results = work.completion, work.context.assistant, work.toolbox.results
    is_spoken = not completion.calls and not completion.is_formed and not completion.stopped
    if assistant.postprocess is not None and is_spoken:
        completion.text = assistant.postprocess(completion.text, tuple(results), work.context.tool_context)
    if not completion.input_tokens and work.prompt is not None:
        completion.input_tokens = work.prompt.manifest.total
    completion.complete(work.counter)
    looked_up = assistant.looks_up and not completion.offline and not completion.calls
    if completion.used_fallback:
        work.degraded["fallback_model"] = None
    if completion.media_left_out or completion.tool_media_left_out:
        work.degraded[ATTACHMENTS] = None
    if (work.prompt is not None and work.prompt.cut) or any(run.uncut_tokens for run in work.toolbox.runs):
        work.degraded["cut"] = None
    if completion.dropped_parameters:
        work.degraded["parameters"] = None
    if any(result.error for result in results):
        work.degraded["tools"] = None
    if looked_up and all(result.error for result in results):
        work.degraded["lookup"] = None


# The end of the turn in the store


async def _finish_answered(deps: ChatDeps, work: Answering, turn: OpenTurn, trace: Trace) -> tuple[AppendResult, bool]:
    """Finish the turn with its answer; also whether the turn claims the title."""
    now = deps.clock()
    claim = await _claim_title(deps, work, turn.session, now)
    request = FinishTurn(
        reply=_reply_drafts(work, trace, now),
        usage=work.completion.usage,
        changes=_session_changes(work, turn, claim),
        trace=trace,
    )
    if work.context.replaced_answer:
        return await _replace_answer(deps, work, turn, request), claim is not None
    return await _finish(deps, work, turn, request, turn.session), claim is not None


async def _replace_answer(deps: ChatDeps, work: Answering, turn: OpenTurn, request: FinishTurn) -> AppendResult:
    """Finish and replace the old answer, which stays if the new one cannot be stored."""
    check_message_sizes(request.reply, work.context.assistant.policies.sessions)

    async def replace_and_finish() -> AppendResult:
        session = await remove_old_answer(deps.sessions, turn)
        work.unfinished = request
        return await _finish(deps, work, turn, request, session)

    # A cancellation at this moment must not leave the message without an answer.
    return await complete_despite_cancel(replace_and_finish())


async def _finish(
    deps: ChatDeps, work: Answering, turn: OpenTurn, request: FinishTurn, head: Session | None = None
) -> AppendResult:
    """Finish; if the head is full, store the answer without the changes to the head.

    With the current `head`, messages that the reply would evict are first covered by a summary.
    """
    context, policy = work.context, work.context.assistant.policies.sessions
    if head is not None:
        covered = context.prompt_inputs.summarized_through
        await deps.follow_up.secure(context.to_snapshot(head), through=covered, adding=len(request.reply))
    try:
        result = await deps.sessions.finish(turn, request, policy)
    except TooLarge:
        if request.changes is None:
            raise
        _log.warning("session metadata over max_head_bytes; turn metadata dropped")
        result = await deps.sessions.finish(turn, replace_valid(request, changes=None), policy)
    if result.journaled:
        work.degraded["journal"] = None
    return result


def _release_later(deps: ChatDeps, work: Answering, turn: OpenTurn, request: FinishTurn, error: Unavailable) -> None:
    """Release the lease once the store is back; if this process dies before, the lease expires."""
    if isinstance(error, StoreFull):
        # A full store has no space for a trace, but can release the lease.
        request = replace_valid(request, changes=None, trace=None)
    deps.follow_up.release(turn, request, work.context.assistant.policies.sessions)


def _reply_drafts(work: Answering, trace: Trace, now: datetime) -> tuple[Draft, ...]:
    """The reply as it is stored: calls with their results, then the answer."""
    context, completion = work.context, work.completion
    assistant, request = context.assistant, context.request
    metadata: JsonObject = {**request.reply_metadata, "trace": trace.id, "model": completion.model}
    if completion.offline:
        metadata["offline"] = True
    if completion.stopped:
        metadata[STOPPED] = True
    if completion.finish not in (FinishReason.STOP, FinishReason.TOOL_CALLS):
        metadata[FINISH] = completion.finish.value
    if work.degraded:
        metadata["degraded"] = list(work.degraded)
    if work.toolbox.data:
        metadata["data"] = work.toolbox.data
    if request.idempotency_key is not None:
        metadata[ONCE] = digest_of_key(request.idempotency_key)
    metadata |= redaction_metadata(completion.redacted)
    exchanges = [(*one, work.counter.count_parts(one[1])) for one in completion.tool_messages]
    final = (Role.ASSISTANT, completion.parts, metadata, completion.stored_tokens)
    *before, last = [
        Draft(
            id=fresh_id(),
            role=role,
            sent_at=now,
            parts=parts,
            speaker=context.scope.persona or assistant.name,
            persona=context.scope.persona,
            tokens=tokens,
            metadata=message_metadata,
        )
        for role, parts, message_metadata, tokens in (*exchanges, final)
    ]
    if state := {**context.tool_context.state, **work.toolbox.state}:
        last = with_tool_state(last, assistant.name, state, assistant.policies.sessions.max_message_bytes)
    return (*before, last)


def _session_changes(work: Answering, turn: OpenTurn, claim: Changes | None) -> Changes | None:
    session, context = turn.session, JsonObject()
    if session.context.get("language") is None:
        context["language"] = work.context.prompt_inputs.language.value
    if work.toolbox.intent not in (None, session.context.get(INTENT)):
        context[INTENT] = work.toolbox.intent
    claimed = claim.metadata if claim is not None else {}
    metadata = {**claimed, **_assistant_metadata(work, session)}
    if not turn.user_messages:
        metadata |= superseding_metadata(turn, work.context.replaced_answer)
    return Changes(context=context, metadata=metadata) if context or metadata else None


def _assistant_metadata(work: Answering, session: Session) -> JsonObject:
    """What the session's metadata notes of the assistant."""
    metadata = work.context.active_assistant.metadata_changes(session)
    if work.record_types and work.record_types.difference(record_types(session.metadata)):
        metadata[PRIVACY_ALSO] = sorted(work.record_types)
    return metadata


async def _claim_title(deps: ChatDeps, work: Answering, session: Session, now: datetime) -> Changes | None:
    """The changes of a turn that claims the title."""
    tool_context = work.context.tool_context
    if not tool_context.question:
        return None
    # The question is a title only for a session that has none.
    question = "" if session.title else await work.records.for_title(work.context.scope, tool_context.question)
    return claim_title(
        session,
        question,
        tool_context.language,
        now,
        limit=work.context.assistant.policies.sessions.fallback_title_characters,
        model=deps.titles_by_model,
    )


async def _count_usage(deps: ChatDeps, work: Answering, turns: int) -> None:
    """Add to the tenant's usage today."""
    completion = work.completion
    counts = UsageCounts(
        turns=turns,
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cost_nanos=completion.cost_nanos,
    )
    await deps.spending.add(work.context.scope, counts, work.context.assistant.name)


# The trace, and the reply that is made of it


@dataclass(slots=True)
class _TraceShortener:
    """Shortens texts for a trace; the log has them whole. `redacted` counts values redacted before the cut."""

    redaction: TurnRedaction
    scope: Scope
    redacted: dict[str, int] = field(default_factory=dict)

    async def shorten(self, text: str) -> str:
        if len(text) <= _TRACE_CHARACTERS:
            return text
        clean, redacted = await self.redaction.before_cut(self.scope, text, (Sink.TRACE,), _TRACE_CHARACTERS)
        self.redacted = dict(Counts(self.redacted) + Counts(redacted))
        return truncate_text(clean, _TRACE_CHARACTERS, len)

    async def shorten_value(self, value: Json) -> Json:
        """A value whose text is short enough, else that text shortened: a prediction may be a whole file."""
        text = to_text(value)
        return value if len(text) <= _TRACE_CHARACTERS else await self.shorten(text)

    async def shorten_run(self, run: ToolRun) -> ToolRun:
        output, exception = to_text(run.output), await self.shorten(run.exception)
        run = run if exception == run.exception else replace(run, exception=exception)
        return run if len(output) <= _TRACE_CHARACTERS else replace(run, output=await self.shorten(output))


def _error_message(error: BaseException) -> str:
    """What ended a turn, in words: ours have no user text, and those of others pass the privacy policy of the trace."""
    if isinstance(error, asyncio.CancelledError):
        return ""
    if isinstance(error, AssistantFailed):
        return explain_exception(error.__cause__)
    return str(error) if isinstance(error, TenutoError) else explain_exception(error)


async def _make_trace(
    deps: ChatDeps, work: Answering, text: str | None = None, error: BaseException | None = None
) -> Trace:
    """The trace of the answered turn; or, with the `text` that was delivered, of one that an error ended."""
    context, completion = work.context, work.completion
    with work.steps.step("trace"):
        if error is None:
            _complete_answer(work)
        code = None if error is None else reply_error_code(error)
        shortener = _TraceShortener(work.records, context.scope, dict(completion.redacted))
        request = await shortener.shorten(context.tool_context.question)
        answer = await shortener.shorten(completion.text if text is None else text)
        tools = tuple([await shortener.shorten_run(run) for run in work.toolbox.runs])
        parameters = {name: await shortener.shorten_value(value) for name, value in work.parameters.given.items()}
        error_message = await shortener.shorten(completion.fallback_message if error is None else _error_message(error))
    if error is None and deps.redaction.degraded:
        work.degraded["detector"] = None
    return Trace(
        id=context.trace_id,
        session_id=context.session_id,
        turn_id=context.turn.id if context.turn is not None else "",
        number=context.number,
        began_at=context.tool_context.now,
        assistant=context.assistant.name,
        persona=context.scope.persona,
        speaker=context.scope.user,
        request=request,
        answer=answer,
        model=completion.model or work.model.name,
        offline=completion.offline,
        manifest=work.prompt.manifest if work.prompt is not None else None,
        tools=tools,
        steps=dict(work.steps.taken),
        spans=tuple(work.steps.spans),
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cached_tokens=completion.cached_tokens,
        cache_write_tokens=completion.cache_write_tokens,
        reasoning_tokens=completion.reasoning_tokens,
        dropped_reasoning=completion.dropped_reasoning,
        dropped_items=completion.dropped_items,
        cost_nanos=completion.cost_nanos,
        finish=completion.finish,
        parameters=parameters,
        degraded=tuple(work.degraded),
        error=code,
        error_message=error_message,
        reason=completion.fallback_reason if error is None else failure_reason(error),
        stopped=completion.stopped or code == TurnStopped.code,
        data=work.toolbox.data,
        redacted=shortener.redacted,
        digest_key=work.digest_key if work.prompt is not None else "",
        app=context.request.app,
        app_task=context.request.app_task,
        store_overridden=context.request.store_overridden,
    )


async def _notify_observers(deps: ChatDeps, work: Answering, trace: Trace, stored_trace: Trace | None) -> None:
    """Notify the observers, with no more text than is stored."""
    if not deps.observers:
        return
    if stored_trace is None:
        with work.steps.step("trace"):
            stored_trace = await work.records.redact_trace(work.context.scope, trace)
    shown = replace_valid(stored_trace, steps=work.steps.taken, degraded=tuple(work.degraded))
    for observer in deps.observers:
        observer(shown)


def reply_from_trace(
    trace: Trace,
    session: Session | None,
    *,
    text: str | None = None,
    calls: tuple[ToolCall, ...] = (),
    parts: tuple[JsonObject, ...] = (),
    created: bool = False,
    steps: dict[str, float] | None = None,
    degraded: tuple[str, ...] | None = None,
    stopped: bool = False,
    logprobs: tuple[JsonObject, ...] | None = None,
) -> Reply:
    """The reply of a finished turn.

    `text` is the whole answer, which the trace may have shortened; `steps` and `degraded` are the final ones, which are
    known after the trace is stored.
    """
    return Reply(
        session_id=trace.session_id,
        trace_id=trace.id,
        turn=trace.number,
        assistant=trace.assistant,
        text=trace.answer if text is None else text,
        calls=calls,
        parts=parts,
        reasoning=shown_reasoning(parts) if parts else "",
        created=created,
        model=trace.model,
        offline=trace.offline,
        title=session.title if session is not None else "",
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        cached_tokens=trace.cached_tokens,
        cache_write_tokens=trace.cache_write_tokens,
        reasoning_tokens=trace.reasoning_tokens,
        cost_nanos=trace.cost_nanos,
        finish=trace.finish,
        logprobs=logprobs,
        manifest=trace.manifest,
        degraded=trace.degraded if degraded is None else degraded,
        data=trace.data,
        steps=trace.steps if steps is None else steps,
        stopped=stopped,
    )
