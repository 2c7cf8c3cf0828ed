"""Commits that fail: a definite refusal is reported and not retried, one in doubt is settled by what stands."""

from __future__ import annotations

from asyncio import Event, Future, create_task, get_running_loop, sleep, wait
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from tenuto.errors import CircuitOpen, StoreFull, StoreReadOnly, StoreRejected, StoreUnavailable, Unavailable
from tenuto.model.stored import Known, RecordChange, Refused, StoredRecord
from tenuto.stores.engine import Engine
from tenuto.stores.memory import InMemoryRecords
from tests.backends import engine_over
from tests.clock import FakeClock
from tests.samples import ANN, batch, begin, closing, talk, texts
from tests.simulation.store import SimClient, SimServer

REFUSALS = [StoreRejected("session store"), StoreFull(), StoreReadOnly(), CircuitOpen(timedelta(seconds=1))]


class FailingRecords(InMemoryRecords):
    """Commits and the loads after them end with the planned failures, without having been carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.commit_failures: list[Unavailable] = []
        self.load_failures: list[Unavailable] = []

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        self.commits += 1
        return _failed(self.commit_failures) if self.commit_failures else super().commit(changes)

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        if self.load_failures and not self.commit_failures and self.commits:
            return _failed(self.load_failures)
        return super().load(key, tail, known)


def _failed(failures: list[Unavailable]) -> Future[Any]:
    future: Future[Any] = get_running_loop().create_future()
    future.set_exception(failures.pop(0))
    return future


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.code)
async def test_a_definite_refusal_is_reported_and_not_retried(refusal: Unavailable) -> None:
    records = FailingRecords()
    async with engine_over(records) as store:
        records.commit_failures = [refusal]

        with pytest.raises(type(refusal)):
            await store.sessions.append(ANN, "s", batch("one"))

        assert records.commits == 1
        await store.sessions.append(ANN, "s", batch("two"))
        assert await texts(store, ANN, "s") == ["two"]


async def test_a_commit_in_doubt_is_made_again_where_it_was_not_made() -> None:
    records = FailingRecords()
    async with engine_over(records) as store:
        records.commit_failures = [StoreUnavailable()]

        await store.sessions.append(ANN, "s", batch("one"))

        assert records.commits == 2
        assert await texts(store, ANN, "s") == ["one"]


async def test_a_commit_that_stays_in_doubt_ends_with_its_failure() -> None:
    """After a few tries: each may take as long as the store's time limit."""
    records = FailingRecords()
    async with engine_over(records) as store:
        lost = StoreUnavailable()
        records.commit_failures = [lost, *(StoreUnavailable(why="is gone") for _ in range(9))]

        with pytest.raises(StoreUnavailable) as excinfo:
            await store.sessions.append(ANN, "s", batch("one"))

        assert excinfo.value is lost
        assert records.commits == 3


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.code)
@pytest.mark.parametrize("refused", ["commit", "load"])
async def test_a_refusal_behind_a_commit_in_doubt_is_not_definite(refused: str, refusal: Unavailable) -> None:
    """The first commit may be made yet: callers must not send the call again as a new one."""
    records = FailingRecords()
    async with engine_over(records) as store:
        records.commit_failures = [StoreUnavailable(), *([refusal] if refused == "commit" else [])]
        records.load_failures = [refusal] if refused == "load" else []

        with pytest.raises(StoreUnavailable) as excinfo:
            await store.sessions.append(ANN, "s", batch("one"))

        assert type(excinfo.value) is StoreUnavailable


async def test_a_read_that_joins_a_refused_call_sees_what_was_acknowledged_before_it(clock: FakeClock) -> None:
    """The refusal told what stood earlier: nothing that came later is answered from it."""
    server = SimServer(Random(1))
    slow = SlowClient(server, "here")
    async with (
        Engine(slow, clock=clock, chance=Random("here")) as here,
        Engine(SimClient(server, "there"), clock=clock, chance=Random("there")) as there,
    ):
        await talk(here, ANN, "s", "q", "a")
        turn = await begin(there, ANN, "s", "theirs")
        slow.answered.clear()
        slow.answers.clear()
        refused = create_task(begin(here, ANN, "s", "ours"))
        await slow.answered.wait()
        await there.sessions.finish_turn(turn, closing("reply"))

        read = create_task(texts(here, ANN, "s"))
        await sleep(0)
        slow.answers.set()

        assert (await read)[:4] == ["q", "a", "theirs", "reply"]
        await wait((refused,))


class SlowClient(SimClient):
    """Answers of commits arrive when `answers` is set."""

    def __init__(self, server: SimServer, process: str) -> None:
        super().__init__(server, process)
        self.answered, self.answers = Event(), Event()
        self.answers.set()

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        return create_task(self._wait(super().commit(changes)))

    async def _wait(self, commit: Future[Refused | None]) -> Refused | None:
        answer = await commit
        self.answered.set()
        await self.answers.wait()
        return answer
