"""The loop that runs upkeep: it sweeps, outlives what goes wrong, and ends when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.app import open_app
from tenuto.errors import Unavailable
from tenuto.model import RemovedSession, Retention
from tenuto.model.policy import SessionPolicy
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import EventEmitter, EventKind, SessionEvent, Sessions, TurnRequest
from tenuto.settings import Settings
from tenuto.upkeep import Upkeep
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.samples import ANN, says

EVERY = timedelta(minutes=5)
RETENTION = timedelta(minutes=30)


class Rests:
    """Stands for sleeping: the loop rests until the test lets it go on."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._resting = asyncio.Event()
        self._go_on = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        self._resting.set()
        await self._go_on.wait()
        self._go_on.clear()

    async def begun(self) -> None:
        """Wait until a round is over."""
        await self._resting.wait()
        self._resting.clear()

    def none_more(self) -> None:
        """The loop has ended: whoever waits for its next round need not."""
        self._resting.set()

    async def over(self) -> None:
        """Let the loop go on, and wait until its next round is over."""
        self._go_on.set()
        await self.begun()


class Failing(FlatMemoryStore):
    """A store whose sweep first raises what it was given, one for each round."""

    def __init__(self, clock: FakeClock, *failures: Exception) -> None:
        super().__init__(clock=clock)
        self._failures = list(failures)

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        if self._failures:
            raise self._failures.pop(0)
        return await super().sweep(limit)


class Harness:
    """Sessions over memory that live half an hour, their upkeep, and what was announced."""

    def __init__(self, clock: FakeClock, store: MemoryStore | FlatMemoryStore | None = None) -> None:
        self.clock = clock
        self.store = store or MemoryStore(clock=clock)
        self.heard: list[SessionEvent] = []
        policy = SessionPolicy(retention=Retention(idle=RETENTION))
        events = EventEmitter(clock=clock, listeners=[self._hear])
        self.sessions = Sessions(store=self.store.sessions, upkeep=self.store.upkeep, policy=policy, events=events)
        self.rests = Rests()
        self.upkeep = Upkeep(
            sessions=self.sessions, redaction=UpkeepRedaction(NO_REDACTION), sweep_every=EVERY, pause=self.rests
        )

    async def _hear(self, event: SessionEvent) -> None:
        self.heard.append(event)

    def expired(self) -> list[str]:
        return [event.session_id for event in self.heard if event.kind is EventKind.EXPIRED]

    async def talk(self) -> str:
        return (await self.sessions.begin(ANN, TurnRequest(user_messages=(says("hello"),)))).session.id

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """The loop, after its first round."""
        task = asyncio.create_task(self.upkeep.run())
        task.add_done_callback(lambda _: self.rests.none_more())
        try:
            await self.rests.begun()
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def harness(fake_clock: FakeClock) -> Harness:
    return Harness(fake_clock)


@pytest.mark.requirement("B2")
async def test_each_round_sweeps_and_then_rests_as_long_as_the_setting_says(harness: Harness) -> None:
    """Swept every five minutes, in the first round as in the later ones."""
    first = await harness.talk()
    harness.clock.advance(RETENTION)

    async with harness.running():
        after_one_round = harness.expired()
        second = await harness.talk()
        harness.clock.advance(RETENTION)
        await harness.rests.over()

    assert after_one_round == [first]
    assert harness.expired() == [first, second]
    assert harness.rests.asked == [300, 300]


async def test_what_has_not_expired_outlives_the_rounds(harness: Harness) -> None:
    kept = await harness.talk()
    harness.clock.advance(RETENTION - timedelta(seconds=1))

    async with harness.running():
        await harness.rests.over()

    assert harness.expired() == []
    assert (await harness.sessions.get(ANN, kept)).id == kept


async def test_a_sweep_goes_on_until_nothing_expired_is_left(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.upkeep.service._BATCH", 2)
    gone = [await harness.talk() for _ in range(5)]
    harness.clock.advance(RETENTION)

    swept = await harness.upkeep.sweep()

    assert swept == 5
    assert sorted(harness.expired()) == sorted(gone)


@pytest.mark.parametrize(
    "failure", [Unavailable("session store"), RuntimeError("no store raises this")], ids=["away", "broken"]
)
async def test_a_round_that_fails_does_not_end_the_loop(
    fake_clock: FakeClock, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    harness = Harness(fake_clock, Failing(fake_clock, failure, failure))
    session = await harness.talk()
    fake_clock.advance(RETENTION)

    async with harness.running() as loop:
        await harness.rests.over()
        while_failing, failed = harness.expired(), harness.upkeep.jobs
        await harness.rests.over()
        alive = not loop.done()

    assert (while_failing, alive) == ([], True)
    # The other sweeps succeed in each round, which does not hide the one that fails.
    assert (failed.failed_in_a_row, harness.upkeep.jobs.failed_in_a_row) == (2, 0)
    assert harness.expired() == [session]
    assert [
        record.getMessage().split(":")[0] for record in caplog.records if record.name.startswith("tenuto.upkeep")
    ] == ["expired sessions were not swept"] * 2


class Stuck(FlatMemoryStore):
    """A store whose sweep never comes back."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked = asyncio.Event()

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        self.asked.set()
        await asyncio.Event().wait()
        return ()


async def _resting(clock: FakeClock) -> asyncio.Task[None]:
    harness = Harness(clock)
    loop = asyncio.create_task(harness.upkeep.run())
    await harness.rests.begun()
    return loop


async def _sweeping(clock: FakeClock) -> asyncio.Task[None]:
    store = Stuck(clock)
    loop = asyncio.create_task(Harness(clock, store).upkeep.run())
    await store.asked.wait()
    return loop


@pytest.mark.parametrize("begun", [_resting, _sweeping], ids=["while it rests", "while it sweeps"])
async def test_cancelling_ends_the_loop(
    fake_clock: FakeClock, begun: Callable[[FakeClock], Awaitable[asyncio.Task[None]]]
) -> None:
    loop = await begun(fake_clock)

    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop

    assert loop.cancelled()


async def test_an_open_installation_sweeps_and_leaves_nothing_running(fake_clock: FakeClock, tmp_path: Path) -> None:
    swept = asyncio.Event()

    async def hear(event: SessionEvent) -> None:
        if event.kind is EventKind.EXPIRED:
            swept.set()

    settings = Settings(store=f"sqlite:///{tmp_path}/sessions.db", retention=RETENTION)
    async with open_app(settings, clock=fake_clock, run_upkeep=False) as app:
        await app.begin(app.scope(), "hello")
    fake_clock.advance(RETENTION)

    async with open_app(settings, clock=fake_clock, listeners=[hear]):
        await swept.wait()

    assert "tenuto upkeep" not in {task.get_name() for task in asyncio.all_tasks()}
