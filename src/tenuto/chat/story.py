"""The story of a turn: begin, look things up, assemble, ask the model, finish. Whole, or event by event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from msgspec.structs import replace

from tenuto.assistants import Assistant, Assistants
from tenuto.chat.audience import Audience, Reader, Unheard
from tenuto.chat.means import Means, Observer
from tenuto.chat.opening import Begun, Opener
from tenuto.chat.request import Answered, ChatEvent, ChatRequest, Reply, Started
from tenuto.chat.timing import Steps
from tenuto.chat.turn import Turn, reply_of
from tenuto.logs import bound
from tenuto.model import Scope, TurnState
from tenuto.model.values import check_kind
from tenuto.ports import ChatModel


class Chat:
    """Takes turns between a caller and an assistant."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._opener = Opener(means)

    @property
    def assistants(self) -> Assistants:
        """Who can be talked to."""
        return self._means.assistants

    @property
    def embedder(self) -> str | None:
        """What compares by meaning, by name; `None` where words alone are compared."""
        return self._means.embedder.name if self._means.embedder is not None else None

    def forget(self) -> None:
        """Keep nothing in memory that was made of what people said: somebody was erased."""
        self._opener.forget()

    def observe(self, observer: Observer) -> None:
        """Tell this observer of every turn that ends, answered or not."""
        self._means.observers.append(observer)

    def model_of(self, assistant: Assistant) -> ChatModel:
        """The model that answers for an assistant."""
        return self._means.models(assistant.model)

    async def take_turn(self, scope: Scope, request: ChatRequest) -> Reply:
        """Answer, whole.

        Raises:
            AssistantNotFound: there is no such assistant or character.
            SessionNotFound: there is no such session, and its policy makes none.
            SessionBusy: another turn still ran when the wait was over.
            BudgetExhausted: session or tenant have spent what they may; no model was asked.
            ModelFailed: no model answered. The words stay stored, and the same key tries again.
            TakenBack: this key was answered, and an edit or a new answer has replaced what it brought.
            VersionConflict: somebody spoke while words were about to be taken back; none were.
            TurnLost: the session was reset, truncated or deleted meanwhile, or another turn took over.
        """
        return await self._turn(scope, request, Unheard())

    async def stream(self, scope: Scope, request: ChatRequest) -> AsyncIterator[ChatEvent]:
        """Answer, event by event, the last one `Answered`. Closing the iterator cancels the turn and keeps the words.

        Raises:
            TenutoError: as in `take_turn`.
        """
        reader = Reader()

        async def work() -> None:
            try:
                await reader.tell(Answered(reply=await self._turn(scope, request, reader)))
            finally:
                reader.end()

        task = asyncio.create_task(work(), name="tenuto turn")
        try:
            async for event in reader.events(task):
                yield event
            await task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    # The story

    async def _turn(self, scope: Scope, request: ChatRequest, audience: Audience) -> Reply:
        check_kind(scope, Scope, "scope")
        check_kind(request, ChatRequest, "the request")
        with self._means.span("tenuto.turn") as span, bound(tenant=scope.tenant, session=request.session_id) as ids:
            steps = Steps(self._means.span)
            with steps.step("begin"):
                begun = await self._opener.begin(scope, request)
            span.tell(
                tenant=scope.tenant,
                session=begun.session_id,
                turn=begun.number,
                trace=begun.trace_id,
                assistant=begun.assistant.name,
                model=self.model_of(begun.assistant).name,
            )
            ids.also(session=begun.session_id, turn=str(begun.number))
            reply = await self._reply(begun, steps, audience)
            span.tell(model=reply.model, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
            return reply

    async def _reply(self, begun: Begun, steps: Steps, audience: Audience) -> Reply:
        if begun.turn is not None and begun.turn.state is TurnState.FINISHED:
            return await self._again(begun)
        if audience.listens:
            await audience.tell(
                Started(session_id=begun.session_id, trace_id=begun.trace_id, turn=begun.number, created=begun.created)
            )
        return await Turn(self._means, begun, steps, audience).answered()

    async def _again(self, begun: Begun) -> Reply:
        """The reply this key was answered with before."""
        assert begun.turn is not None
        final = next((message for message in reversed(begun.turn.reply) if "trace" in message.metadata), None)
        told = final.metadata if final is not None else {}
        trace = await self._means.traces.trace(begun.scope, begun.session_id, begun.number)
        reply = reply_of(trace, begun.turn.session) if trace is not None else None
        text = final.text if final is not None else "".join(message.text for message in begun.turn.reply)
        base = reply or Reply(
            session_id=begun.session_id, trace_id=begun.trace_id, turn=begun.number, assistant="", text=""
        )
        return replace(
            base,
            text=await self._means.redaction.restore(begun.turn.session, text),
            trace_id=told.get("trace", base.trace_id),
            model=told.get("model", base.model),
            offline=told.get("offline", base.offline),
            degraded=tuple(told.get("degraded", base.degraded)),
            data=told.get("data", base.data),
            repeated=True,
        )
