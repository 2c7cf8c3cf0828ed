"""One turn from its begin until it is stored or abandoned.

No lock or transaction is held during a model request: the turn's lease covers that time, is renewed meanwhile, and
expires if this process dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Counts
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.chat.agent_loop import (
    AgentLoop,
    Completion,
    StepTimer,
    Toolbox,
    plan_arguments,
    redaction_metadata,
    with_tool_state,
)
from tenuto.chat.deps import ChatDeps
from tenuto.chat.lease_renewal import LeaseRenewal
from tenuto.chat.offered_tools import OfferedTools
from tenuto.chat.request import EventSink, Reply
from tenuto.chat.revision import Revision, mark_of, superseding_metadata
from tenuto.chat.turn_context import TurnContext
from tenuto.chat.turn_prompt import assemble_with_tools, prompt_policy
from tenuto.context import counter_for, truncate_text
from tenuto.context.layout import join_unanswered
from tenuto.errors import (
    AssistantFailed,
    DecryptionFailed,
    StoreFull,
    TenutoError,
    TooLarge,
    TurnStopped,
    Unavailable,
    failure_reason,
    reply_error_code,
)
from tenuto.logs import describe_exception, explain_exception
from tenuto.model import AppendResult, Changes, Draft, FinishTurn, OpenTurn, Role, Scope, Session
from tenuto.model.analytics import UsageCounts
from tenuto.model.generation import ModelRequest, StepChanged, ToolCall
from tenuto.model.message import STOPPED
from tenuto.model.policy import OnStoreDown
from tenuto.model.privacy import Sink
from tenuto.model.prompt import Kind, Piece, Prompt
from tenuto.model.session import INTENT, PRIVACY_ALSO, record_types
from tenuto.model.turn import ONCE, ToolRun, Trace
from tenuto.model.values import JsonObject, to_text
from tenuto.ports import OfflineTool
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.sessions import fresh_id
from tenuto.sessions.cancellation import complete_despite_cancel
from tenuto.sessions.limits import check_messages
from tenuto.sessions.titles import claim_title

# Characters of a question, an answer or a tool's output that a trace keeps.
_TRACED: Final = 8000
_NO_TALK: Final = (Kind.SYSTEM, Kind.PREFERENCES)
_log = logging.getLogger(__name__)


class Turn:
    """One turn in progress."""

    def __init__(self, means: ChatDeps, begun: TurnContext, steps: StepTimer, audience: EventSink) -> None:
        self._means = means
        self._begun = begun
        self._steps = steps
        self._audience = audience
        self._began_at = means.clock()
        self._prompt: Prompt | None = None
        # The name of the key of the digests.
        self._digest_key = ""
        self._stored_already = False
        self._stopped = False
        self._counted = False
        # How the turn must end once the old answer is removed.
        self._owed: FinishTurn | None = None
        self._kept: Trace | None = None
        # An assistant without memory does without the store by choice.
        missed = begun.turn is None and begun.assistant.remembers
        journaled = begun.turn is not None and begun.turn.journaled
        # A set in order of arrival.
        self._degraded: dict[str, None] = dict.fromkeys(
            [*(["store"] if missed else []), *begun.degraded, *(["journal"] if journaled else [])]
        )
        noted = record_types(begun.turn.session.metadata) if begun.turn is not None else ()
        self._record_types = {*noted, *begun.assistant.policies.privacy_also}
        self._records = means.redaction.for_records(self._record_types)
        self._offers = OfferedTools.of(begun.request, begun.assistant.tools)
        self._policy = prompt_policy(begun.request, begun.assistant, self._offers, begun.prompt_inputs.question)
        self._model = means.models(begun.assistant.model)
        self._counter = counter_for(self._model.name)
        self._toolbox = Toolbox(
            tools=begun.assistant.tools,
            turn=begun.tool_context,
            timeout=means.limits.tool_timeout,
            emit=audience.emit_event,
            began=steps.began,
        )
        self._answering = AgentLoop(
            model=self._model,
            tools=self._offers.own,
            callers_tools=self._offers.callers_names,
            answer_tool=begun.request.answer_tool,
            toolbox=self._toolbox,
            counter=self._counter,
            steps=steps,
            emit=audience.emit_event if audience.listens else None,
            rounds=means.limits.tool_rounds,
            timeout=means.limits.model_timeout,
            # A result is sent to the model, and stored.
            before_cut=lambda text: means.redaction.before_cut(begun.scope, text, (Sink.MODEL, Sink.MESSAGE)),
        )

    async def run(self) -> Reply:
        """Run the turn to its end; on any error the lease is released.

        Raises:
            AssistantFailed: code of the assistant, or of a model that a program gave, raised something of its own.
        """
        try:
            lease = LeaseRenewal(self._means, self._begun.turn)
            try:
                answer = await self._answer_until_stopped()
            finally:
                await lease.stop()
            return await self._finish(answer)
        except BaseException as error:
            # Also on cancellation: the user message stays, and the same key resumes.
            if self._stored_already:
                raise
            if isinstance(error, Exception) and not isinstance(error, TenutoError):
                _log.error("assistant %s failed: %s", self._begun.assistant.name, describe_exception(error))
                failure = AssistantFailed(self._begun.assistant.name)
                failure.__cause__ = error
                await complete_despite_cancel(self._abandon(failure))
                raise failure from error
            await complete_despite_cancel(self._abandon(error))
            raise

    async def _answer_until_stopped(self) -> Completion:
        """The whole answer; if the turn is stopped meanwhile, what has been said.

        Raises:
            TurnStopped: nothing has been said, or a whole answer would be replaced by a part of one.
        """
        try:
            async with self._audience.until_stopped():
                return await self._make_answer()
        except TurnStopped:
            answer = self._answering.answer
            if self._begun.replaced_answer or not answer.text.strip():
                raise
            self._stopped, answer.model = True, answer.model or self._model.name
            return answer

    async def _make_answer(self) -> Completion:
        asked = bool(self._begun.tool_context.question)
        if asked and self._begun.assistant.run_first:
            await self._run_first_tools()
        if asked and self._begun.assistant.respond is not None:
            with self._steps.step("respond"):
                async with aclosing(self._begun.assistant.respond(self._begun.tool_context)) as events:
                    async for event in events:
                        if isinstance(event, StepChanged):
                            await self._audience.emit_event(event)
                        else:
                            self._toolbox.collect(event)
                            self._degraded.update(dict.fromkeys(event.degraded))
        return await self._ask_model()

    async def _run_first_tools(self) -> None:
        """Run the tools that run before the model."""
        assistant = self._begun.assistant
        for tool in assistant.tools:
            if tool.spec.name not in assistant.run_first or not isinstance(tool, OfflineTool):
                continue
            with self._steps.step("tools"):
                arguments = plan_arguments(tool, self._begun.tool_context)
                if arguments is not None:
                    await self._run_first(ToolCall(id=fresh_id(), name=tool.spec.name, arguments=arguments))

    async def _run_first(self, call: ToolCall) -> None:
        """Run a tool before the model, which sees the output as evidence where the tool names no pieces itself."""
        before = self._toolbox.pieces
        result = await self._toolbox.run(call)
        if self._toolbox.pieces is before:
            self._toolbox.pieces = (*(before or ()), Piece(id=call.name, text=to_text(result.output)))

    async def _ask_model(self) -> Completion:
        answer = self._answering.answer
        if self._toolbox.reply is not None:
            answer.text, answer.model = self._toolbox.reply, "none"
            return answer
        begun = self._begun
        materials = begun.prompt_inputs
        if self._toolbox.pieces is not None:
            materials = replace(materials, evidence=self._toolbox.pieces)
        with self._steps.step("assemble"):
            shown = await self._means.redaction.redact_prompt_inputs(begun.scope, begun.tool_context.session, materials)
            seen = materials if shown is None else shown
            key = await self._make_digest_key()
            self._prompt = assemble_with_tools(seen, self._policy, begun.assistant, self._offers, self._counter, key)
        self._answering.prompt = self._prompt.manifest.total
        self._answering.room = self._prompt.manifest.prompt_limit - self._prompt.manifest.total
        messages, cacheable = join_unanswered(self._prompt)
        asking = ModelRequest(
            messages=messages,
            tools=self._offers.specs,
            requires_call=self._offers.required,
            reply_tokens=self._policy.reply_tokens,
            cacheable_messages=cacheable,
            redacted_messages=0 if shown is None else len(messages),
            tool_results=tuple(self._toolbox.results),
            tool_context=begun.tool_context,
        )
        return await self._answering.run(asking)

    async def _make_digest_key(self) -> bytes:
        """The key of the digests; empty if no trace is stored."""
        if self._begun.turn is None:
            return b""
        redaction = self._means.redaction
        try:
            self._digest_key, key = await redaction.digest_key(self._begun.scope, self._begun.trace_id, create=True)
        except Unavailable as error:
            _log.warning("a trace has no digests: %s", error.code)
            return b""
        return key

    async def _finish(self, answer: Completion) -> Reply:
        begun = self._begun
        with self._steps.step("trace"):
            spoken = not answer.calls and not answer.is_formed and not self._stopped
            if begun.assistant.postprocess is not None and spoken:
                answer.text = begun.assistant.postprocess(answer.text, tuple(self._toolbox.results), begun.tool_context)
            # Some models report no usage.
            if not answer.input_tokens and self._prompt is not None:
                answer.input_tokens = self._prompt.manifest.total
            answer.output_tokens = answer.output_tokens or self._counter.count_parts(answer.parts)
            texts = await self._shorten_for_trace(answer, answer.text)
        if answer.used_fallback:
            self._degraded["fallback_model"] = None
        if any(result.error for result in self._toolbox.results):
            self._degraded["tools"] = None
        answered = not answer.offline and not answer.calls
        if begun.assistant.looks_up and answered and all(result.error for result in self._toolbox.results):
            self._degraded["lookup"] = None
        if self._means.redaction.degraded:
            self._degraded["detector"] = None
        trace = self._build_trace(answer, texts)
        session = await self._store_turn(answer, trace)
        await self._count_usage(answer, turns=1)
        if self._means.redaction.degraded:
            # The detector may have failed only on what was stored.
            self._degraded["detector"] = None
        await self._notify_observers(trace)
        return reply_from_trace(
            trace,
            session,
            text=answer.text,
            calls=tuple(answer.calls),
            created=begun.created,
            steps=self._steps.taken,
            degraded=tuple(self._degraded),
            stopped=self._stopped,
        )

    async def _store_turn(self, answer: Completion, trace: Trace) -> Session | None:
        begun, turn = self._begun, self._begun.turn
        usage = answer.usage
        if turn is None:
            return None
        try:
            with self._steps.step("finish"):
                claim = await self._claim_title()
                reply, changes = self._reply_drafts(answer, trace), self._session_changes(claim)
                closing = FinishTurn(reply=reply, usage=usage, changes=changes, trace=trace)
                if begun.replaced_answer:
                    done = await self._replace_answer(turn, closing)
                else:
                    done = await self._finish_turn(turn, closing, turn.session)
        except DecryptionFailed:
            raise
        except Unavailable as failed:
            if begun.assistant.policies.sessions.on_store_down is not OnStoreDown.STATELESS:
                raise
            _log.warning("an answer was returned but not stored: the store is unavailable")
            self._degraded["store"] = None
            self._release_later(turn, self._owed or FinishTurn(abandoned=True, usage=usage, trace=trace), failed)
            return None
        self._stored_already = True
        loaded = (*turn.window, *done.messages)
        entries = self._prompt.manifest.entries if self._prompt is not None else ()
        # The tokens that the conversation cannot use; these entries open every manifest.
        taken = sum([entry.tokens for entry in takewhile(lambda entry: entry.kind in _NO_TALK, entries)])
        ended = begun.to_turn_ended(done.session, answer.text, claim is not None, loaded, taken)
        self._means.afterwards.follow(ended)
        return done.session

    async def _replace_answer(self, turn: OpenTurn, closing: FinishTurn) -> AppendResult:
        """Finish and replace the old answer, which stays if the new one cannot be stored."""
        check_messages(closing.reply, self._begun.assistant.policies.sessions)

        async def replace_and_finish() -> AppendResult:
            session = await Revision(self._means.sessions).remove_old_answer(turn)
            self._owed = closing
            return await self._finish_turn(turn, closing, session)

        # A cancellation at this moment must not leave the message without an answer.
        return await complete_despite_cancel(replace_and_finish())

    async def _finish_turn(self, turn: OpenTurn, closing: FinishTurn, head: Session | None = None) -> AppendResult:
        """Finish; if the head is full, store the answer without the changes to the head.

        With the current `head`, messages that the reply would evict are first covered by a summary.
        """
        policy = self._begun.assistant.policies.sessions
        if head is not None:
            ended, covered = self._begun.to_turn_ended(head), self._begun.prompt_inputs.summarized_through
            await self._means.afterwards.secure(ended, covered=covered, adding=len(closing.reply))
        try:
            done = await self._means.sessions.finish(turn, closing, policy)
        except TooLarge:
            if closing.changes is None:
                raise
            _log.warning("session metadata over max_head_bytes; turn metadata dropped")
            done = await self._means.sessions.finish(turn, replace(closing, changes=None), policy)
        self._kept = done.trace
        if done.journaled:
            self._degraded["journal"] = None
        return done

    async def _count_usage(self, answer: Completion, turns: int) -> None:
        """Add to the tenant's usage today, once and also on cancellation."""
        if self._counted:
            return
        self._counted = True
        begun, spending = self._begun, self._means.spending
        counts = UsageCounts(
            turns=turns,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            cost_nanos=answer.cost_nanos,
        )
        adding = spending.add(begun.scope, counts, begun.assistant.name)
        await (complete_despite_cancel(adding) if spending.budgets.per_tenant else adding)

    def _reply_drafts(self, answer: Completion, trace: Trace) -> tuple[Draft, ...]:
        """The reply as it is stored: calls with their results, then the answer."""
        metadata: JsonObject = {**self._begun.request.reply_metadata, "trace": trace.id, "model": answer.model}
        if answer.offline:
            metadata["offline"] = True
        if self._stopped:
            metadata[STOPPED] = True
        if self._degraded:
            metadata["degraded"] = list(self._degraded)
        if self._toolbox.data:
            metadata["data"] = self._toolbox.data
        if self._begun.request.idempotency_key is not None:
            metadata[ONCE] = mark_of(self._begun.request.idempotency_key)
        final = (Role.ASSISTANT, answer.parts, metadata | redaction_metadata(answer.redacted))
        now = self._means.clock()
        *exchanges, last = [
            Draft(
                id=fresh_id(),
                role=role,
                sent_at=now,
                parts=content,
                speaker=self._begun.scope.persona or self._begun.assistant.name,
                persona=self._begun.scope.persona,
                tokens=self._counter.count_parts(content),
                metadata=noted,
            )
            for role, content, noted in (*answer.tool_messages, final)
        ]
        if state := {**self._begun.tool_context.state, **self._toolbox.state}:
            assistant = self._begun.assistant
            last = with_tool_state(last, assistant.name, state, assistant.policies.sessions.max_message_bytes)
        return (*exchanges, last)

    def _session_changes(self, claim: Changes | None) -> Changes | None:
        begun = self._begun
        assert begun.turn is not None
        session = begun.turn.session
        context: JsonObject = {}
        if session.context.get("language") is None:
            context["language"] = begun.prompt_inputs.language.value
        if self._toolbox.intent not in (None, session.context.get(INTENT)):
            context[INTENT] = self._toolbox.intent
        claimed = claim.metadata if claim is not None else {}
        metadata = {**claimed, **self._assistant_changes(session)}
        if not begun.turn.user_messages:
            metadata |= superseding_metadata(begun.turn, begun.replaced_answer)
        return Changes(context=context, metadata=metadata) if context or metadata else None

    def _assistant_changes(self, session: Session) -> JsonObject:
        """What the session's metadata notes of the assistant. Types that were private once stay so."""
        changes = self._begun.active_assistant.metadata_changes(session)
        if self._record_types.difference(record_types(session.metadata)):
            changes[PRIVACY_ALSO] = sorted(self._record_types)
        return changes

    async def _claim_title(self) -> Changes | None:
        """The changes of a turn that claims the title."""
        assert self._begun.turn is not None
        asked, session = self._begun.tool_context, self._begun.turn.session
        if not asked.question:
            return None
        # The question is a title only for a session that has none.
        question = "" if session.title else await self._records.for_title(self._begun.scope, asked.question)
        return claim_title(
            session,
            question,
            asked.language,
            self._means.clock(),
            limit=self._begun.assistant.policies.sessions.fallback_title_characters,
            model=self._means.titles_by_model,
        )

    async def _shorten_for_trace(
        self, answer: Completion, said: str, ended: BaseException | None = None
    ) -> _TraceTexts:
        """The texts of the turn, shortened for its trace."""
        short = _TraceShortener(self._records, self._begun.scope, dict(answer.redacted))
        return _TraceTexts(
            request=await short.text(self._begun.tool_context.question),
            answer=await short.text(said),
            tools=tuple([await short.shorten_run(run) for run in self._toolbox.runs]),
            error_message=await short.text(answer.fallback_message if ended is None else _error_message(ended)),
            redacted=short.taken,
        )

    def _build_trace(self, answer: Completion, texts: _TraceTexts, ended: BaseException | None = None) -> Trace:
        begun, error = self._begun, None if ended is None else reply_error_code(ended)
        return Trace(
            id=begun.trace_id,
            session_id=begun.session_id,
            turn_id=begun.turn.id if begun.turn is not None else "",
            number=begun.number,
            began_at=self._began_at,
            assistant=begun.assistant.name,
            persona=begun.scope.persona,
            speaker=begun.scope.user,
            request=texts.request,
            answer=texts.answer,
            model=answer.model or self._model.name,
            offline=answer.offline,
            manifest=self._prompt.manifest if self._prompt is not None else None,
            tools=texts.tools,
            steps=dict(self._steps.taken),
            spans=tuple(self._steps.spans),
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            cost_nanos=answer.cost_nanos,
            degraded=tuple(self._degraded),
            error=error,
            error_message=texts.error_message,
            reason=answer.fallback_reason if ended is None else failure_reason(ended),
            stopped=self._stopped or error == TurnStopped.code,
            data=self._toolbox.data,
            redacted=texts.redacted,
            digest_key=self._digest_key if self._prompt is not None else "",
        )

    async def _notify_observers(self, trace: Trace) -> None:
        """Notify the observers, with no more text than is stored."""
        if self._means.observers:
            kept = self._kept
            if kept is None:
                with self._steps.step("trace"):
                    kept = await self._records.redact_trace(self._begun.scope, trace)
            kept = replace(kept, steps=self._steps.taken, degraded=tuple(self._degraded))
            for observer in self._means.observers:
                observer(kept)

    async def _abandon(self, ended: BaseException) -> None:
        """Release the session without an answer, and store a trace with the reason."""
        turn, answer = self._begun.turn, self._answering.answer
        # The usage is charged with or without an answer.
        await self._count_usage(answer, turns=0)
        if turn is None:
            return
        said = answer.text
        if isinstance(ended, asyncio.CancelledError) and self._audience.delivered_text is not None:
            # The model may be ahead of its reader: only delivered text counts.
            said = self._audience.delivered_text
        with self._steps.step("trace"):
            texts = await self._shorten_for_trace(answer, said, ended)
        trace = self._build_trace(answer, texts, ended)
        # The user message stays, so a later retry must find the assistant it was addressed to.
        partner = self._assistant_changes(turn.session)
        changes = Changes(metadata=partner) if partner else None
        closing = self._owed or FinishTurn(abandoned=True, usage=answer.usage, changes=changes, trace=trace)
        try:
            await self._finish_turn(turn, closing)
        except TenutoError as failed:
            _log.info("a turn could not be abandoned: %s", failed.code)
            if isinstance(failed, Unavailable) and not isinstance(failed, DecryptionFailed):
                self._release_later(turn, closing, failed)
        await self._notify_observers(trace)

    def _release_later(self, turn: OpenTurn, closing: FinishTurn, failed: Unavailable) -> None:
        """Release the lease once the store is back; if this process dies before, the lease expires."""
        if isinstance(failed, StoreFull):
            # A full store has no space for a trace, but can release the lease.
            closing = replace(closing, changes=None, trace=None)
        self._means.afterwards.release(turn, closing, self._begun.assistant.policies.sessions)


def _error_message(ended: BaseException | None) -> str:
    """What ended a turn, in words: ours have no user text, and those of others pass the privacy policy of the trace."""
    if ended is None or isinstance(ended, asyncio.CancelledError):
        return ""
    if isinstance(ended, AssistantFailed):
        return explain_exception(ended.__cause__)
    return str(ended) if isinstance(ended, TenutoError) else explain_exception(ended)


class _TraceTexts(NamedTuple):
    """The texts of a trace, and counts of redacted values."""

    request: str
    answer: str
    tools: tuple[ToolRun, ...]
    error_message: str
    redacted: dict[str, int]


@dataclass(slots=True)
class _TraceShortener:
    """Shortens texts for a trace; the log has them whole. `taken` counts values redacted before the cut."""

    redaction: TurnRedaction
    scope: Scope
    taken: dict[str, int]

    async def text(self, text: str) -> str:
        if len(text) <= _TRACED:
            return text
        clean, taken = await self.redaction.before_cut(self.scope, text, (Sink.TRACE,), _TRACED)
        self.taken = dict(Counts(self.taken) + Counts(taken))
        return truncate_text(clean, _TRACED, len)

    async def shorten_run(self, run: ToolRun) -> ToolRun:
        output, exception = to_text(run.output), await self.text(run.exception)
        run = run if exception == run.exception else replace(run, exception=exception)
        return run if len(output) <= _TRACED else replace(run, output=await self.text(output))


def reply_from_trace(
    trace: Trace,
    session: Session | None,
    *,
    text: str | None = None,
    calls: tuple[ToolCall, ...] = (),
    created: bool = False,
    steps: dict[str, float] | None = None,
    degraded: tuple[str, ...] | None = None,
    stopped: bool = False,
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
        created=created,
        model=trace.model,
        offline=trace.offline,
        title=session.title if session is not None else "",
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        cost_nanos=trace.cost_nanos,
        manifest=trace.manifest,
        degraded=trace.degraded if degraded is None else degraded,
        data=trace.data,
        steps=trace.steps if steps is None else steps,
        stopped=stopped,
    )
