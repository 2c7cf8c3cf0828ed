"""One turn: begin, run tools, assemble the prompt, request the model, finish. Whole, or as a stream of events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

from msgspec.structs import replace

from tenuto.assistants import Assistant, AssistantRegistry
from tenuto.chat.agent_loop import StepTimer
from tenuto.chat.deps import ChatDeps, Observer
from tenuto.chat.prompt_texts import load_prompt_texts
from tenuto.chat.request import ChatEvent, ChatRequest, EventSink, Reply, ReplyFinished, StreamSink
from tenuto.chat.turn_context import TurnContext
from tenuto.chat.turn_opener import TurnOpener
from tenuto.chat.turn_runner import Turn, reply_from_trace
from tenuto.chat.typed_answer import TypedRequest, ask_typed
from tenuto.errors import StoreUnavailable, TenutoError
from tenuto.llm import ModelCallLog
from tenuto.logs import bind_log_context
from tenuto.model import Message, Scope, TurnState
from tenuto.model.generation import ToolCall
from tenuto.model.message import STOPPED
from tenuto.model.prompt import PartText
from tenuto.model.turn import Trace
from tenuto.model.values import Value, check_type
from tenuto.ports import ChatModel, Facts

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer", bound=Value)


class Chat:
    """Takes turns between a caller and an assistant."""

    def __init__(self, means: ChatDeps) -> None:
        self._means = means
        self._opener = TurnOpener(means)

    @property
    def assistants(self) -> AssistantRegistry:
        """The assistants of this installation."""
        return self._means.assistants

    @property
    def embedder(self) -> str | None:
        """The name of the embedder; `None` if relevance is lexical only."""
        return self._means.embedder.name if self._means.embedder is not None else None

    @property
    def model_calls(self) -> ModelCallLog:
        """What became of the calls of each model since the start."""
        return self._means.calls

    def clear_caches(self) -> None:
        """Drop cached values that were computed from user text, as after the erasure of a user."""
        self._opener.clear_caches()

    def observe(self, observer: Observer) -> None:
        """Call this observer for every turn that ends, answered or not."""
        self._means.observers.append(observer)

    def model_of(self, assistant: Assistant) -> ChatModel:
        """The model that answers for an assistant."""
        return self._means.models(assistant.model)

    def model_named(self, name: str) -> ChatModel:
        """The model that a setting or an assistant names."""
        return self._means.models(name)

    async def prompt_texts(self, scope: Scope, trace: Trace, *, show_assistant: bool) -> tuple[PartText, ...]:
        """The text of each part of a trace's prompt, from what is stored today and under the privacy policy.

        Without `show_assistant`, the assistant's prompt and tools are withheld, as for users.

        Raises:
            SessionNotFound: the session is gone, or not this caller's.
        """
        return await load_prompt_texts(self._means, scope, trace, show_assistant=show_assistant)

    async def ask_typed(self, assistant: str, scope: Scope, asked: TypedRequest, kind: type[_Answer]) -> _Answer | None:
        """Ask an assistant's model for a value; `None` where only the offline model answers.

        Raises:
            NoTypedAnswer: its answers are not of that type, or the models before the offline one failed.
            ModelFailed: the model failed.
            BudgetExhausted: the tenant has spent what it may.
        """
        return await ask_typed(self._means, self.assistants.find(assistant), scope, asked, kind)

    async def take_turn(self, scope: Scope, request: ChatRequest, sink: EventSink | None = None) -> Reply:
        """Answer, whole; a `sink` gets the events of the turn, except the last.

        Raises:
            AssistantNotFound: there is no such assistant or character.
            SessionNotFound: there is no such session, and its policy makes none.
            SessionBusy: another turn still ran when the wait was over.
            BudgetExhausted: session or tenant have spent what they may; no model was asked.
            ModelFailed: no model answered. The user message stays stored; the same key retries.
            Superseded: this key was answered, and an edit or a regeneration has replaced the result.
            VersionConflict: another message arrived before the undo; nothing was removed.
            TurnLost: the session was reset, truncated or deleted meanwhile, or another turn took over.
            TurnStopped: the sink stopped the turn before it said anything.
        """
        return await self._run_turn(scope, request, sink or EventSink())

    async def stream(
        self, scope: Scope, request: ChatRequest, history: Sequence[Message] | None = None
    ) -> AsyncIterator[ChatEvent]:
        """Answer, event by event; the last is `ReplyFinished`. Closing the iterator cancels the turn.

        With a `history`, nothing is stored, as in `answer_once`.

        Raises:
            TenutoError: as in `take_turn`.
        """
        reader = StreamSink()

        async def work() -> None:
            try:
                if history is None:
                    reply = await self._run_turn(scope, request, reader)
                else:
                    reply = await self.answer_once(scope, request, history, reader)
                await reader.emit_event(ReplyFinished(reply=reply))
            finally:
                reader.close()

        task = asyncio.create_task(work(), name="tenuto turn")
        try:
            async for event in reader.events(task):
                yield event
            await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def answer_once(
        self, scope: Scope, request: ChatRequest, history: Sequence[Message], audience: EventSink
    ) -> Reply:
        """Answer after these messages without a session: nothing is stored but the usage.

        Raises:
            AssistantNotFound: there is no such assistant or character.
            BudgetExhausted: the tenant has spent what it may.
            ModelFailed: no model answered.
        """
        begun = await self._opener.open_unstored(scope, request, tuple(history))
        reply = await Turn(self._means, begun, StepTimer(self._means.span), audience).run()
        return replace(reply, degraded=tuple(name for name in reply.degraded if name != "store"))

    async def _run_turn(self, scope: Scope, request: ChatRequest, audience: EventSink) -> Reply:
        check_type(scope, Scope, "scope")
        check_type(request, ChatRequest, "the request")
        means = self._means
        spanning: AbstractContextManager[Facts | None] = means.span("tenuto.turn") if means.span else nullcontext()
        with spanning as span, bind_log_context(tenant=scope.tenant, session=request.session_id):
            steps = StepTimer(means.span)
            with steps.step("begin"):
                begun = await self._opener.open_turn(scope, request)
            session_id, number, trace_id = begun.session_id, begun.number, begun.trace_id
            if span is not None:
                name, model = begun.assistant.name, self.model_of(begun.assistant).name
                span.set_attributes(
                    tenant=scope.tenant, session=session_id, turn=number, trace=trace_id, assistant=name, model=model
                )
            with bind_log_context(session=session_id, turn=str(number)):
                if begun.turn is not None and begun.turn.state is TurnState.FINISHED:
                    reply = await self._again(begun)
                else:
                    if audience.listens:
                        await audience.emit_event(begun.to_turn_started())
                    try:
                        reply = await Turn(means, begun, steps, audience).run()
                    except TenutoError as error:
                        if begun.turn is not None:
                            error.ids = {"session_id": session_id, "trace_id": trace_id}
                        raise
            if span is not None:
                span.set_attributes(
                    model=reply.model, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens
                )
            return reply

    async def _again(self, begun: TurnContext) -> Reply:
        """The reply this key was answered with before."""
        assert begun.turn is not None
        final = next((message for message in reversed(begun.turn.reply) if "trace" in message.metadata), None)
        stored = final.metadata if final is not None else {}
        try:
            trace = await self._means.traces.trace(begun.scope, begun.session_id, begun.number)
        except StoreUnavailable:
            _log.warning("a turn is repeated without what its trace holds: the store does not answer")
            trace = None
        reply = reply_from_trace(trace, begun.turn.session) if trace is not None else None
        text = final.text if final is not None else "".join(message.text for message in begun.turn.reply)
        calls = [part for part in final.parts if part["type"] == "tool_call"] if final is not None else []
        base = reply or Reply(
            session_id=begun.session_id, trace_id=begun.trace_id, turn=begun.number, assistant="", text=""
        )
        return replace(
            base,
            text=await self._means.redaction.restore(begun.turn.session, text),
            calls=tuple(
                ToolCall(id=call["id"], name=call["name"], arguments=call["arguments"])
                for call in await self._means.redaction.restore(begun.turn.session, calls)
            ),
            trace_id=stored.get("trace", base.trace_id),
            model=stored.get("model", base.model),
            offline=stored.get("offline", base.offline),
            degraded=tuple(stored.get("degraded", base.degraded)),
            data=stored.get("data", base.data),
            stopped=stored.get(STOPPED, False),
            replayed=True,
        )
