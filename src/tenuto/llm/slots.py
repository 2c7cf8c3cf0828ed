"""Turns first: where a provider answers few requests at once, titles, summaries and notes wait until no turn needs it.

Turns never wait here, the provider queues them itself. A background request that runs when a turn comes is broken off,
so that the turn does not wait for a summary of minutes, and is made again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final, TypeVar

from tenuto.errors import ModelBusy
from tenuto.model.generation import ModelEvent, ModelRequest
from tenuto.model.parameters import ModelParameters
from tenuto.ports import ChatModel, Tool, facts_of, refused_parameters

# A turn asks several times, with tools between; a background request would only be broken off again.
_QUIET: Final = 0.5
# Then the caller has to do without: summaries and notes are extracted from the text, titles come with a later turn.
_TRIES: Final = 3
# So does a request that found no quiet in these seconds, as on a server where turns come one after another all day.
_TIMEOUT: Final = 300.0
_T = TypeVar("_T")


class _Interrupted(Exception):
    """A turn came."""


class _NeverFree(Exception):
    """Turns kept the slots for as long as a background request waits."""


class _Call:
    """A background request that waits, or runs once it is granted."""

    def __init__(self) -> None:
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.interrupted = False
        self._scope: asyncio.Timeout | None = None

    async def run(self, work: Callable[[], Awaitable[_T]], timeout: float) -> _T:
        """Do the work once granted.

        Raises:
            _Interrupted: `interrupt` was called meanwhile.
            _NeverFree: it was not granted within `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                await self.granted
        except TimeoutError:
            raise _NeverFree from None
        # A timeout without a time: the one way of asyncio to cancel a part of a task.
        try:
            async with asyncio.timeout(None) as self._scope:
                if self.interrupted:
                    raise _Interrupted
                return await work()
        except TimeoutError:
            if self.interrupted:
                raise _Interrupted from None
            raise
        finally:
            self._scope = None

    def interrupt(self) -> None:
        self.interrupted = True
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())


class Slots:
    """The slots of one provider."""

    def __init__(self, count: int, *, quiet: float = _QUIET, timeout: float = _TIMEOUT) -> None:
        self._count = count
        self._quiet = quiet
        self._timeout = timeout
        self._turns = 0
        self._running: list[_Call] = []
        self._waiting: list[_Call] = []
        self._rest: asyncio.TimerHandle | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold a slot for a turn; background requests that are too many end, the newest first."""
        self._turns += 1
        self._end_rest()
        while self._running and self._turns + len(self._running) > self._count:
            self._running.pop().interrupt()
        try:
            yield
        finally:
            self._turns -= 1
            self._end_rest()
            self._rest = asyncio.get_running_loop().call_later(self._quiet, self._on_rest_over)

    async def run_in_background(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do the work when a slot is free, in the order of the calls.

        Raises:
            _Interrupted: a turn needed the slot.
            _NeverFree: no slot became free.
        """
        call = _Call()
        self._waiting.append(call)
        self._grant()
        try:
            return await call.run(work, self._timeout)
        finally:
            for calls in (self._waiting, self._running):
                if call in calls:
                    calls.remove(call)
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self._rest is None and self._turns + len(self._running) < self._count:
            call = self._waiting.pop(0)
            if not call.granted.done():
                self._running.append(call)
                call.granted.set_result(None)

    def _end_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _on_rest_over(self) -> None:
        self._rest = None
        self._grant()


class ModelSlots:
    """The slots of all providers, by address: models of one server share them.

    `count` is for each; by default 1 for a server on loopback, and no limit elsewhere, as with 0.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self._slots: dict[str, Slots] = {}

    def guard(self, model: ChatModel, address: str, *, local: bool) -> ChatModel:
        """The model behind the slots of its provider, where these are limited."""
        count = self._count if self._count is not None else int(local)
        if not count:
            return model
        return SlottedModel(model, self._slots.setdefault(address, Slots(count)))


class SlottedModel:
    """The `ChatModel` port; a background request waits for a slot, and its answer comes whole."""

    def __init__(self, model: ChatModel, slots: Slots) -> None:
        self._model = model
        self._slots = slots
        self.name = model.name
        self.chain_length: int = getattr(model, "chain_length", 0)
        self.unlimited: bool = getattr(model, "unlimited", False)
        self.facts = facts_of(model)

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        """The names of those that it does not take."""
        return refused_parameters(self._model, parameters)

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """As the port says.

        Raises:
            ModelBusy: turns broke a background request off again and again, or left no time for it.
        """
        if request.background:
            for event in await self._collect(request, tools):
                yield event
            return
        with self._slots.turn():
            async with aclosing(self._model.stream_answer(request, tools)) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event

    async def _collect(self, request: ModelRequest, tools: Sequence[Tool]) -> list[ModelEvent]:
        async def ask() -> list[ModelEvent]:
            async with aclosing(self._model.stream_answer(request, tools)) as events:  # type: ignore[type-var]
                return [event async for event in events]

        for _ in range(_TRIES):
            try:
                return await self._slots.run_in_background(ask)
            except _Interrupted:
                continue
            except _NeverFree:
                break
        raise ModelBusy(self.name)
