"""Group commit: waiting calls go together, and none fails for another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import asyncpg
import pytest

from tenuto.errors import StoreFull, StoreReadOnly, StoreUnavailable, Unavailable
from tenuto.stores.postgres._batcher import MAX_OPS, Lane, Op
from tenuto.stores.postgres._client import Row
from tenuto.stores.postgres._errors import InDoubt, RequestRejected, Unsent, fault, telling

SPACE = b"space"


class Server:
    """Answers batches when told to; `faults` are raised for the first ones."""

    def __init__(self, *faults: Exception | None) -> None:
        self.batches: list[list[bytes]] = []
        self.faults = list(faults)
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Event()

    async def send(self, ops: Sequence[Op]) -> Sequence[Row]:
        self.batches.append([op[0] for op in ops])
        self.asked.set()
        await self.open.wait()
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        if len(ops) > 1 and any(op[0] == b"poison" for op in ops):
            raise RequestRejected("session store")
        if ops[0][0] == b"poison":
            raise RequestRejected("session store")
        # A dictionary is read like a row.
        return cast("Sequence[Row]", [{"nth": nth, "op": op} for nth, op in enumerate(ops, 1)])


def call(lane: Lane, key: bytes, **options: Any) -> asyncio.Task[Row]:
    """A call under way."""
    return asyncio.create_task(lane.call((key, SPACE), **options))


async def _held(width: int = 1) -> tuple[Server, Lane, asyncio.Task[Row]]:
    """A lane whose first batch is under way and held up."""
    server = Server()
    server.open.clear()
    lane = Lane(server.send, width=width)
    first = call(lane, b"first")
    await server.asked.wait()
    return server, lane, first


async def test_calls_that_wait_for_a_batch_go_together_in_order_of_their_keys() -> None:
    server, lane, first = await _held()
    waiting = [call(lane, key) for key in (b"c", b"a", b"b")]
    await asyncio.sleep(0)

    server.open.set()
    answers = await asyncio.gather(first, *waiting)

    assert server.batches == [[b"first"], [b"a", b"b", b"c"]]
    assert [answer["op"][0] for answer in answers] == [b"first", b"c", b"a", b"b"]


async def test_nobody_waits_longer_than_its_patience_for_a_place_or_an_answer() -> None:
    """T7: the first call is under way, the second waits behind it; when the server goes on, the second is left out."""
    server = Server()
    server.open.clear()
    lane = Lane(server.send, width=1, patience=0.01)

    first = call(lane, b"first")
    await server.asked.wait()
    ends = await asyncio.gather(first, call(lane, b"second"), return_exceptions=True)
    server.open.set()
    await lane.close()

    assert [type(end) for end in ends] == [InDoubt, InDoubt]
    assert server.batches == [[b"first"]]


async def test_a_call_that_has_waited_its_time_is_not_sent_again() -> None:
    """What lost its connection at once is worth another try; what the server left unanswered is not."""
    late = InDoubt("session store")
    late.__cause__ = TimeoutError()
    server = Server(late)
    lane = Lane(server.send, width=1)

    with pytest.raises(InDoubt):
        await call(lane, b"k", again=(b"k", SPACE))

    assert server.batches == [[b"k"]]


async def test_what_the_driver_cannot_write_down_fails_alone() -> None:
    """It never reaches the server, says nothing of it, and fails no other call."""
    told = fault(asyncpg.exceptions._base.DataError("out of range"), sent=False)

    assert isinstance(told, RequestRejected)
    assert not isinstance(told, StoreUnavailable)


async def test_callers_woken_together_come_back_in_one_batch() -> None:
    server = Server()
    lane = Lane(server.send, width=1)

    async def twice(key: bytes) -> None:
        await lane.call((key, SPACE))
        await lane.call((key, SPACE))

    await asyncio.gather(*(twice(bytes([n])) for n in range(5)))

    assert [len(batch) for batch in server.batches] == [5, 5]


async def test_a_batch_has_bounds() -> None:
    server, lane, first = await _held()
    many = [call(lane, b"k") for _ in range(MAX_OPS + 1)]
    large = [call(lane, b"large", size=3 * 1024 * 1024) for _ in range(3)]
    await asyncio.sleep(0)

    server.open.set()
    await asyncio.gather(first, *many, *large)

    assert [len(batch) for batch in server.batches] == [1, MAX_OPS, 3, 1]


async def test_a_call_that_spoils_its_batch_fails_alone() -> None:
    server, lane, first = await _held()
    good, bad = call(lane, b"good"), call(lane, b"poison")
    await asyncio.sleep(0)

    server.open.set()

    assert (await good)["op"][0] == b"good"
    with pytest.raises(RequestRejected):
        await bad
    await first


async def test_a_caller_that_goes_away_harms_nothing() -> None:
    server, lane, first = await _held()
    gone, stays = call(lane, b"gone"), call(lane, b"stays")
    await asyncio.sleep(0)

    gone.cancel()
    first.cancel()
    await asyncio.sleep(0)
    server.open.set()

    assert (await stays)["op"][0] == b"stays"
    assert server.batches == [[b"first"], [b"stays"]]


async def test_a_lost_connection_repeats_only_what_may_be_repeated() -> None:
    server = Server(InDoubt("session store"))
    lane = Lane(server.send, width=1)
    safe, unsafe = call(lane, b"safe", again=(b"safe again", SPACE)), call(lane, b"unsafe")

    assert (await safe)["op"][0] == b"safe again"
    with pytest.raises(InDoubt):
        await unsafe
    assert server.batches == [[b"safe", b"unsafe"], [b"safe again"]]


async def test_what_was_not_sent_is_tried_once_more() -> None:
    server = Server(Unsent("session store"))
    lane = Lane(server.send, width=1)

    assert (await call(lane, b"plain"))["op"][0] == b"plain"


async def test_nothing_is_tried_a_third_time() -> None:
    server = Server(Unsent("session store"), InDoubt("session store"))
    lane = Lane(server.send, width=1)

    with pytest.raises(InDoubt):
        await call(lane, b"k", again=(b"k", SPACE))

    assert len(server.batches) == 2


async def test_closing_refuses_who_waits_and_lets_end_what_is_under_way() -> None:
    server, lane, first = await _held()
    waiting = call(lane, b"waiting")
    await asyncio.sleep(0)

    closing = asyncio.create_task(lane.close())
    await asyncio.sleep(0)
    server.open.set()
    await closing

    assert (await first)["op"][0] == b"first"
    with pytest.raises(Unavailable, match="closed"):
        await waiting
    with pytest.raises(Unavailable, match="closed"):
        await lane.call((b"late", SPACE))


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (asyncpg.DiskFullError("no space left"), StoreFull),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute"), StoreReadOnly),
        (asyncpg.DeadlockDetectedError("deadlock"), RequestRejected),
        (asyncpg.QueryCanceledError("statement timeout"), RequestRejected),
        (asyncpg.AdminShutdownError("terminating"), InDoubt),
        (asyncpg.ConnectionDoesNotExistError("closed"), InDoubt),
        (ConnectionResetError("reset"), InDoubt),
        (TimeoutError(), InDoubt),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_a_drivers_error_becomes_one_of_ours(cause: Exception, error: type[Unavailable]) -> None:
    assert isinstance(fault(cause, sent=True), error)
    # Where there is no room, a connection may be refused for that alone.
    assert isinstance(fault(cause, sent=False), StoreFull if error is StoreFull else Unsent)


def test_a_message_of_the_server_that_may_quote_a_user_is_not_passed_on() -> None:
    assert telling(asyncpg.InvalidTextRepresentationError("secret words")) is None
    assert telling(asyncpg.UniqueViolationError("secret words")) is None
    assert telling(OSError("no route")) is not None
