"""Records behind their breaker: what counts as a failure, which calls are rejected, and how the breaker closes."""

from __future__ import annotations

import asyncio
from asyncio import Future
from datetime import timedelta

import pytest

from tenuto.errors import CircuitOpen, Invalid, StoreFull, StoreReadOnly, StoreUnavailable, TenutoError
from tenuto.model.stored import IndexOrder, IndexQuery, Known, StoredRecord
from tenuto.stores.breaker import BreakerPolicy, BreakerState
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.memory import InMemoryRecords
from tests.clock import Ticks

POLICY = BreakerPolicy(failures=3, reset=timedelta(seconds=10))
QUERY = IndexQuery(order=IndexOrder.NEWEST)


class MoodyRecords(InMemoryRecords):
    """Records that fail as a test wants, and count the calls that reach them."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: TenutoError | None = None
        self.answers: asyncio.Event | None = None
        self.calls = 0

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        self.calls += 1
        if self.failure is None:
            return super().load(key, tail, known)
        future: Future[StoredRecord | None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(_fail_unless_cancelled, future, self.failure)
        return future

    async def list(self, query: IndexQuery) -> tuple[()]:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return ()

    async def ping(self) -> None:
        self.calls += 1
        if self.answers is not None:
            await self.answers.wait()
        if self.failure is not None:
            raise self.failure


def _fail_unless_cancelled(future: Future[StoredRecord | None], failure: TenutoError) -> None:
    if not future.done():
        future.set_exception(failure)


class ShardedMoodyRecords(MoodyRecords):
    """Records on two servers, told apart by the first byte of their keys; the one of `b"a"` fails."""

    shards = frozenset({"a", "b"})

    def shard_of(self, key: bytes) -> str:
        return key[:1].decode()

    async def ping_shards(self) -> frozenset[str]:
        return frozenset({"b"})

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        self.failure = StoreUnavailable() if key.startswith(b"a") else None
        return super().load(key, tail, known)


async def _fail(records: BreakerRecords, times: int, key: bytes = b"a") -> None:
    for _ in range(times):
        with pytest.raises(TenutoError):
            await records.load(key, 1)


@pytest.mark.requirement("A28")
@pytest.mark.parametrize("is_record_call", [True, False], ids=["load", "list"])
async def test_failures_in_a_row_open_it_and_one_probe_closes_it(is_record_call: bool) -> None:
    ticks, inner = Ticks(), MoodyRecords()
    records = BreakerRecords(inner, now=ticks, policy=POLICY)

    async def call() -> None:
        await (records.load(b"a", 1) if is_record_call else records.list(QUERY))

    inner.failure = StoreUnavailable()
    for _ in range(POLICY.failures):
        with pytest.raises(StoreUnavailable):
            await call()
    with pytest.raises(CircuitOpen) as rejection:
        await call()
    seen = records.state, records.rejected, inner.calls, rejection.value.retry_after
    inner.failure = None
    ticks.now += 10
    await call()

    assert seen == (BreakerState.OPEN, 1, POLICY.failures, timedelta(seconds=10))
    assert records.closed


@pytest.mark.parametrize("answer", [StoreFull(), StoreReadOnly(), Invalid("no")], ids=lambda error: error.code)
async def test_answers_do_not_open_it(answer: TenutoError) -> None:
    inner = MoodyRecords()
    records = BreakerRecords(inner, now=Ticks(), policy=POLICY)
    inner.failure = answer

    await _fail(records, 2 * POLICY.failures)

    assert (records.closed, inner.calls) == (True, 2 * POLICY.failures)


async def test_a_probe_that_is_answered_ends_the_rest() -> None:
    """A ping is rejected like any call meanwhile: who asks for the state of a server is answered at once."""
    inner = MoodyRecords()
    records = BreakerRecords(inner, now=Ticks(), policy=POLICY)
    inner.failure = StoreUnavailable()
    await _fail(records, POLICY.failures)

    with pytest.raises(CircuitOpen):
        await records.ping()
    assert inner.calls == POLICY.failures
    with pytest.raises(StoreUnavailable):
        await records.probe()
    still_open = records.state
    inner.failure = None
    await records.probe()
    await records.load(b"a", 1)

    assert (still_open, records.state) == (BreakerState.OPEN, BreakerState.CLOSED)


async def test_a_ping_counts_though_its_caller_gave_up() -> None:
    """A server that is silent keeps one readiness check waiting, not each of them."""
    ticks, inner, answers = Ticks(), MoodyRecords(), asyncio.Event()
    records = BreakerRecords(inner, now=ticks, policy=POLICY)
    inner.failure = StoreUnavailable()
    await _fail(records, POLICY.failures)
    ticks.now += 10
    inner.answers = answers

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await records.ping()
    with pytest.raises(CircuitOpen):
        await records.ping()
    answers.set()
    for _ in range(3):
        await asyncio.sleep(0)

    assert (records.state, inner.calls) == (BreakerState.OPEN, POLICY.failures + 1)
    with pytest.raises(CircuitOpen):
        await records.load(b"a", 1)


async def test_a_cancelled_probe_lets_the_next_call_be_one() -> None:
    ticks, inner = Ticks(), MoodyRecords()
    records = BreakerRecords(inner, now=ticks, policy=POLICY)
    inner.failure = StoreUnavailable()
    await _fail(records, POLICY.failures)
    ticks.now += 10

    records.load(b"a", 1).cancel()
    await asyncio.sleep(0)
    inner.failure = None
    await records.load(b"a", 1)

    assert records.closed


async def test_a_server_that_is_down_blocks_its_own_records_alone() -> None:
    records = BreakerRecords(ShardedMoodyRecords(), now=Ticks(), policy=POLICY)

    await _fail(records, POLICY.failures)
    with pytest.raises(CircuitOpen):
        await records.load(b"a", 1)
    other = await records.load(b"b", 1)

    assert (other, records.state) == (None, BreakerState.OPEN)


async def test_a_probe_ends_the_rest_of_the_servers_that_answer_it() -> None:
    inner = ShardedMoodyRecords()
    records = BreakerRecords(inner, now=Ticks(), policy=POLICY)
    await _fail(records, POLICY.failures)
    before = inner.calls

    await records.probe()

    with pytest.raises(CircuitOpen):
        await records.load(b"a", 1)
    assert inner.calls == before


async def test_a_store_that_was_down_is_prepared_before_its_first_call() -> None:
    attempts, outcomes = 0, [StoreUnavailable(), None]
    inner = MoodyRecords()

    async def prepare() -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0)
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    records = BreakerRecords(inner, now=Ticks(), policy=POLICY, prepare=prepare)
    first = await asyncio.gather(records.load(b"a", 1), records.list(QUERY), return_exceptions=True)
    reached = inner.calls
    await asyncio.gather(records.load(b"a", 1), records.list(QUERY))
    await records.load(b"a", 1)
    await records.close()

    assert [type(one) for one in first] == [StoreUnavailable] * 2
    assert (reached, inner.calls, attempts) == (0, 3, 2)
