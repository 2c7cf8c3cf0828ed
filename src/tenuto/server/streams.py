"""Long responses: given up when the client disconnects, or sent event by event."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tenuto.errors import TenutoError
from tenuto.logs import describe_exception
from tenuto.server.auth import service
from tenuto.server.problems import AccessDenied, InvalidCredential, handle_error, internal

_Answer = TypeVar("_Answer")
_Event = TypeVar("_Event")
_log = logging.getLogger(__name__)
_HEADERS: Final = {"X-Accel-Buffering": "no"}
# A comment line that clients ignore; it keeps proxies from closing a silent connection.
_PING: Final = b": still here\n\n"
_PING_EVERY: Final = 15.0


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Do the work; cancel it if the client disconnects meanwhile.

    Raises:
        ClientDisconnect: the client has disconnected.
    """
    task, gone = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        await cancel_task(gone)
        await cancel_task(task)


class Encodes(Protocol):
    """What a stream sends in one piece: an event, or several that are known at once."""

    def encode(self) -> bytes:
        """The bytes of it."""
        ...


class ServerSentEvent(NamedTuple):
    """An event as clients get it, maybe without a name; a client that reconnects names the last `id` it saw."""

    name: str
    data: bytes
    id: str | None = None

    def encode(self) -> bytes:
        """The lines of the event."""
        ident = b"" if self.id is None else b"id: %b\n" % self.id.encode()
        name = b"event: %b\n" % self.name.encode() if self.name else b""
        return b"%b%bdata: %b\n\n" % (ident, name, self.data)


async def event_stream(
    request: Request,
    events: AsyncIterator[_Event],
    encode: Callable[[_Event], Encodes],
    *,
    endless: bool = False,
    ping: bytes = _PING,
) -> Response:
    """Server-sent events. A failure before the first one is an ordinary error response.

    An `endless` stream begins at once, since its first event may come late, does not delay the server's end, and ends
    when the credential of its request no longer holds. The events of an answer are those of `until_lapsed`.
    """
    request.state.endless = endless
    first = () if endless else (await cancel_on_disconnect(request, _next_event(events)),)
    return _EventResponse(_sse_stream(request, first, events, encode, ping), events)


class _EventResponse(StreamingResponse):
    """Closes its events however it ends, also before the first one."""

    def __init__(self, body: AsyncIterator[bytes], events: AsyncIterator[Any]) -> None:
        super().__init__(body, media_type="text/event-stream; charset=utf-8", headers=_HEADERS)
        self._closing = (body, events)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            for iterator in self._closing:
                await close_iterator(iterator)


class _Internal(TenutoError):
    code: ClassVar[str] = "internal"


def told_error(fault: Exception) -> TenutoError | AccessDenied:
    """What a stream says of its failure, for protocols with an event for it; what was not expected is logged."""
    if isinstance(fault, TenutoError | AccessDenied):
        return fault
    _log.error("a stream failed: %s", describe_exception(fault))
    return _Internal("internal error; the server's log has the details under this answer's x-request-id")


async def begun_events(request: Request, events: AsyncIterator[_Event]) -> AsyncIterator[_Event]:
    """The events, once the first is there; an error before it is raised."""
    first = await cancel_on_disconnect(request, _next_event(events))

    async def all_events() -> AsyncIterator[_Event]:
        yield first
        async for event in events:
            yield event

    return all_events()


async def events_behind_head(
    events: AsyncIterator[_Event],
    *,
    is_head: Callable[[_Event], bool],
    is_raised: Callable[[BaseException], bool],
    within: float,
    awaits_first: bool = True,
) -> AsyncIterator[_Event]:
    """The events, once one of them is there that does not belong to their head, or so many seconds are over.

    An error instead of it is raised if it `is_raised`, or is the first that comes; others are raised in their place.
    The seconds are those behind the first event, which is awaited, or all if it need not be.
    """
    clock = asyncio.get_running_loop()
    until, head = clock.time() + within, list[_Event]()
    while True:
        step = asyncio.create_task(_next_event(events))
        try:
            await asyncio.wait((step,), timeout=None if awaits_first and not head else until - clock.time())
        except asyncio.CancelledError:
            await _end(step, events)
            raise
        if not step.done():
            return _resumed(head, step, events)
        error = step.exception()
        if error is not None and (not head or is_raised(error)):
            raise error
        if error is not None or not is_head(step.result()):
            return _resumed(head, step, events)
        head.append(step.result())


async def _resumed(
    head: list[_Event], step: asyncio.Task[_Event], events: AsyncIterator[_Event]
) -> AsyncIterator[_Event]:
    try:
        for event in head:
            yield event
        with contextlib.suppress(StopAsyncIteration):
            yield await step
            async for event in events:
                yield event
    finally:
        await _end(step, events)


async def _end(step: asyncio.Task[_Event], events: AsyncIterator[_Event]) -> None:
    await cancel_task(step)
    await close_iterator(events)


async def until_lapsed(request: Request, events: AsyncIterator[_Event]) -> AsyncIterator[_Event]:
    """The events of an answer, while the credential of its request holds. A token may expire meanwhile: the answer was
    admitted as a whole.

    Raises:
        InvalidCredential: the key was revoked, or the credential does not hold for another reason.
    """
    lapsed = asyncio.create_task(service(request).gate.wait_until_lapsed(request, allow_expired=True))
    step: asyncio.Task[_Event] | None = None
    try:
        while True:
            step = asyncio.create_task(_next_event(events))
            await asyncio.wait((step, lapsed), return_when=asyncio.FIRST_COMPLETED)
            if lapsed.done():
                raise InvalidCredential
            yield step.result()
    except StopAsyncIteration:
        return
    finally:
        for task in (lapsed, step):
            if task is not None:
                await cancel_task(task)
        await close_iterator(events)


async def _next_event(events: AsyncIterator[_Event]) -> _Event:
    return await anext(events)


async def _sse_stream(
    request: Request,
    first: tuple[_Event, ...],
    events: AsyncIterator[_Event],
    encode: Callable[[_Event], Encodes],
    ping: bytes,
) -> AsyncIterator[bytes]:
    ends = [asyncio.create_task(_wait_for_disconnect(request))]
    if request.state.endless:
        ends.append(asyncio.create_task(service(request).gate.wait_until_lapsed(request)))
    step: asyncio.Task[_Event] | None = None
    try:
        for event in first:
            yield encode(event).encode()
        while True:
            step = step or asyncio.create_task(_next_event(events))
            await asyncio.wait((step, *ends), timeout=_PING_EVERY, return_when=asyncio.FIRST_COMPLETED)
            if any(end.done() for end in ends):
                return
            if not step.done():
                yield ping
                continue
            event, step = step.result(), None
            yield encode(event).encode()
    except StopAsyncIteration:
        return
    except (TenutoError, AccessDenied) as error:
        yield ServerSentEvent("error", bytes((await handle_error(request, error)).body)).encode()
    except Exception:
        yield ServerSentEvent("error", bytes(internal().body)).encode()
        raise
    finally:
        for task in (*ends, step):
            if task is not None:
                await cancel_task(task)
        await close_iterator(events)


async def close_iterator(iterator: AsyncIterator[Any]) -> None:
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def cancel_task(task: asyncio.Task[Any]) -> None:
    """Cancel the task if it is still running."""
    if task.done():
        # Retrieve the error; awaiting the task again would raise it here.
        if not task.cancelled():
            task.exception()
        return
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
