"""A task's timeline is what its records say, and a watcher gets each event once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tenuto.errors import InvalidCursor
from tenuto.model import Scope
from tenuto.model.plan import Plan, Step
from tenuto.model.task import TaskError, TaskEvent
from tenuto.task_errors import TaskNotFound
from tenuto.tasks import Tasks, timeline
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ANN
from tests.tasks import opened, tasks_over
from tests.timeouts import LONG

pytestmark = pytest.mark.requirement("E3", "E14", "E22")


READ = Step(id="read", agent="reader")
ASK = Step(id="ask", human_input="Is it so?", after=("read",))
SKIP = Step(id="skip", agent="reader")
BROKEN = TaskError(code="agent_failed", message="a ValueError", step="read")


class Story:
    """A task whose plan is worked on by hand, a second for each thing that happens."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.tasks = tasks_over(MemoryStore(clock=self.clock), self.clock)
        self.id = ""

    async def begin(self) -> None:
        self.id = (await opened(self.tasks, ANN)).id
        await self.tasks.add_plan(ANN, self.id, Plan(steps=(READ, ASK, SKIP)))
        self.steps, self.board = self.tasks.steps(ANN, self.id), self.tasks.board(ANN, self.id)

    async def run(self) -> None:
        """One run, in which a person does not answer."""
        self.wait()
        await self.tasks.start_run(ANN, self.id, run=1, timeout=None)
        _, token = await self.steps.begin(READ)
        self.wait()
        _, token = await self.steps.begin(READ, take_over=True)
        await self.board.append("list", "secret", agent="reader")
        self.wait()
        await self.steps.complete(READ, token, "secret")
        self.wait()
        await self.board.delete("list", agent="other")
        await self.steps.begin(ASK, waiting=True)
        self.wait()
        await self.steps.skip(SKIP)

    async def fail(self) -> None:
        self.wait()
        await self.tasks.finish(ANN, self.id, failed=True, error=BROKEN)

    def wait(self) -> None:
        self.clock.advance(timedelta(seconds=1))

    async def events(self, after: str | None = None) -> tuple[TaskEvent, ...]:
        return await self.tasks.events(ANN, self.id, after=after)


@pytest.fixture
async def story() -> Story:
    story = Story()
    await story.begin()
    return story


def told(event: TaskEvent) -> tuple[object, ...]:
    about = (event.step, event.agent, event.key, event.version, event.status, event.attempts, event.error_code)
    return (str(event.type), *(each for each in about if each is not None))


async def test_a_timeline_tells_what_happened_in_order_and_no_value(story: Story) -> None:
    await story.run()
    await story.fail()

    events = await story.events()
    assert list(map(told, events)) == [
        ("task.opened",),
        ("task.started",),
        ("step.started", "read", "reader"),
        ("board.changed", "reader", "list", 1, "written"),
        ("step.finished", "read", "reader", "completed", 2),
        ("step.waiting", "ask"),
        ("board.changed", "other", "list", 2, "deleted"),
        ("step.finished", "skip", "reader", "skipped", 0),
        ("step.finished", "ask", "failed", 1, "agent_failed"),
        ("task.finished", "failed", "agent_failed"),
    ]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert len({event.id for event in events}) == len(events)
    assert await story.events() == events
    assert b"secret" not in msgspec.json.encode(events)
    with pytest.raises(TaskNotFound):
        await story.tasks.events(Scope(tenant="acme", user="eve"), story.id)


async def test_a_task_that_is_run_again_has_events_of_its_own(story: Story) -> None:
    await story.run()
    await story.fail()
    last = (await story.events())[-1].id

    story.wait()
    await story.tasks.start_run(ANN, story.id, run=2, timeout=None, reopen=True)
    await story.steps.reset([(ASK, (await story.steps.list(Plan(steps=(ASK,))))[0])])
    story.wait()
    await story.steps.begin(ASK, waiting=True)

    assert list(map(told, await story.events(last))) == [("task.started",), ("step.waiting", "ask")]
    assert [event.run for event in await story.events(last)] == [2, None]
    assert [told(event)[1] for event in await story.events() if event.type == "step.finished"] == ["read", "skip"]


async def test_a_watcher_gets_each_event_once_until_the_end(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose time is before that of events it has got: clocks of machines differ."""
    monkeypatch.setattr(timeline, "POLL", 0)
    watched = story.tasks.watch(ANN, story.id)
    async with asyncio.timeout(LONG):
        got = [await anext(watched) for _ in await story.events()]
        await story.run()
        got += [await anext(watched) for _ in (await story.events())[len(got) :]]
        story.clock.advance(timedelta(seconds=-3))
        await story.board.write("late", 1, agent="other")
        got.append(await anext(watched))
        await story.fail()
        got += [event async for event in watched]

    events = await story.events()
    assert got[-1] == events[-1]
    assert sorted(got, key=lambda event: event.id) == sorted(events, key=lambda event: event.id)
    assert got[8].key == "late"


async def test_a_watcher_goes_on_after_the_event_it_saw_last(story: Story) -> None:
    await story.run()
    await story.fail()
    events = await story.events()

    for place, event in enumerate(events):
        rest = [each async for each in story.tasks.watch(ANN, story.id, after=event.id)]
        assert rest == list(events[place + 1 :])
    ahead = f"9{events[0].id[1:]}"
    assert await story.events(ahead) == events[-1:]
    for odd in ("", "5", "x" * 200, events[0].id + "\n"):
        with pytest.raises(InvalidCursor):
            await story.events(odd)


async def test_a_watched_task_that_is_removed_ends_the_watch(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "POLL", 0)
    watched = story.tasks.watch(ANN, story.id)
    await anext(watched)
    await story.tasks.delete(ANN, story.id)

    with pytest.raises(TaskNotFound):
        [event async for event in watched]


async def test_a_task_without_a_plan_has_a_timeline(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    await tasks.board(ANN, task.id).write("a", 1, agent="x")
    await tasks.finish(ANN, task.id)

    types = [str(event.type) for event in await tasks.events(ANN, task.id)]
    assert types == ["task.opened", "task.started", "board.changed", "task.finished"]


@pytest.fixture
def tasks() -> Tasks:
    clock = FakeClock()
    return tasks_over(MemoryStore(clock=clock), clock)
