"""Messages of a chat platform wait in any store, each once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tenuto.errors import QueueFull
from tenuto.gateway.inbox import HELD_FOR, Inbox, Queue, QueuePlace, erase_waiting
from tenuto.model import Scope
from tenuto.model.channel import ChannelPolicy
from tenuto.model.scope import SYSTEM
from tenuto.ports import StateStore, Store
from tests.clock import FakeClock
from tests.group_chat import message

pytestmark = pytest.mark.requirement("T14", "D26")


PLACE = QueuePlace(tenant="acme", key="room-1")


def inbox_over(store: Store, clock: FakeClock, app: str = "room:app", **limits: int) -> Inbox:
    remembered = timedelta(hours=limits.get("hours", 24))
    policy = ChannelPolicy(max_waiting=limits.get("max_waiting", 100), remember_events=remembered)
    return Inbox(state=store.state, app=app, policy=policy, clock=clock)


async def held(inbox: Inbox, worker: str = "worker") -> Queue:
    queue = await inbox.hold(PLACE, worker)
    assert queue is not None
    return queue


@pytest.mark.requirement("T14")
async def test_a_message_is_accepted_once_by_either_of_its_ids(store: Store, clock: FakeClock) -> None:
    """While it waits, after it was answered, and after a day of re-deliveries, from two processes at once."""
    here, there = inbox_over(store, clock), inbox_over(store, clock)
    first = message("one")
    again, same_event = replace(first, event_id="another"), replace(first, id="another")

    accepted = await asyncio.gather(*(inbox.put(PLACE, first) for inbox in (here, there, here, there)))
    assert sorted(accepted) == [False, False, False, True]
    for repeated in (again, same_event):
        assert not await there.put(PLACE, repeated)

    (entry,) = (await held(here)).waiting
    assert await there.read(PLACE, entry) == first
    await here.remove(PLACE, entry)
    assert await here.read(PLACE, entry) is None
    assert await there.put(PLACE, message("two", id=first.event_id, event_id=first.id))
    # Another app of the tenant forgets its own messages earlier.
    short = inbox_over(store, clock, app="room:other", hours=8)
    for passed in (timedelta(), timedelta(hours=9)):
        clock.advance(passed)
        await short.forget_old_marks()
        for repeated in (first, again, same_event):
            assert not await there.put(PLACE, repeated)

    clock.advance(timedelta(hours=16))
    assert await there.forget_old_marks() == 2


async def test_messages_of_many_processes_keep_their_order_and_their_limit(store: Store, clock: FakeClock) -> None:
    """A reset is taken beyond the limit, and goes first."""
    inboxes = [inbox_over(store, clock, max_waiting=12) for _ in range(3)]
    said = [message(str(number)) for number in range(12)]

    await inboxes[0].put(PLACE, said[0])
    await asyncio.gather(*(inboxes[number % 3].put(PLACE, one) for number, one in enumerate(said[1:])))
    with pytest.raises(QueueFull):
        await inboxes[1].put(PLACE, message("one too many"))
    queue = await held(inboxes[2])
    assert queue.next() == queue.waiting[0]
    assert queue.waiting[0].id == said[0].id
    assert {one.id for one in queue.waiting} == {one.id for one in said}

    reset = message("/reset")
    await inboxes[1].put(PLACE, reset, resets=True)
    following = (await held(inboxes[2])).next()
    assert following is not None
    assert following.id == reset.id


async def test_a_queue_has_one_worker_until_it_dies(store: Store, clock: FakeClock) -> None:
    inbox = inbox_over(store, clock)
    await inbox.put(PLACE, message("one"))

    assert list(await inbox.busy()) == [PLACE]
    (entry,) = (await held(inbox, "first")).waiting
    assert await inbox.hold(PLACE, "second") is None
    clock.advance(HELD_FOR)
    await held(inbox, "second")
    assert await inbox.hold(PLACE, "first") is None

    await inbox.remove(PLACE, entry)
    assert await inbox.hold(PLACE, "second") is None
    assert not await inbox.busy()


@pytest.mark.requirement("D26")
async def test_a_message_that_comes_as_a_worker_leaves_is_found(store: Store, clock: FakeClock) -> None:
    """Whichever of its steps it comes between, and from another process: else nothing would look for its queue."""
    other, said = inbox_over(store, clock), message("late")

    class Interrupted:
        """State into which the other process puts its message just before one of the worker's steps."""

        def __init__(self, before: str) -> None:
            self._before = before

        def __getattr__(self, name: str) -> Any:
            async def act(*args: Any) -> Any:
                if name == self._before:
                    self._before = ""
                    await other.put(PLACE, said)
                return await getattr(store.state, name)(*args)

            return act

    for step in ("read_state", "write_state", "delete_state"):
        said = message(f"before {step}")
        await other.put(PLACE, first := message("first"))
        worker = inbox_over(store, clock)
        (entry,) = (await held(worker)).waiting
        await worker.remove(PLACE, entry)
        worker._state = cast("StateStore", Interrupted(step))
        await worker.hold(PLACE, "worker")

        assert first.id == entry.id
        assert list(await other.busy()) == [PLACE], step
        (late,) = (await held(other)).waiting
        assert late.id == said.id
        await other.remove(PLACE, late)
        await other.hold(PLACE, "worker")
        assert not await other.busy()


@pytest.mark.requirement("D26")
async def test_a_message_whose_process_died_is_found_when_it_is_delivered_again(store: Store, clock: FakeClock) -> None:
    """It died between the queue and the note that something waits there."""
    inbox, said = inbox_over(store, clock), message("one")
    await inbox.put(PLACE, said)
    for mark in await store.state.list_state(SYSTEM, "channel-busy"):
        await store.state.delete_state(SYSTEM, "channel-busy", mark.key)

    assert not await inbox.put(PLACE, said)
    assert list(await inbox.busy()) == [PLACE]


async def test_tenants_that_are_known_are_bounded_and_stay_listed(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.gateway.inbox._MOST_TENANTS", 2)
    inbox = inbox_over(store, clock)
    for number in range(5):
        await inbox.put(QueuePlace(tenant=f"tenant-{number}", key="room"), message("hello"))

    assert len(inbox._known_tenants) <= 2
    assert {one.value for one in await store.state.list_state(SYSTEM, "channel-tenants")} >= {
        f"tenant-{number}" for number in range(5)
    }


async def test_erasing_a_user_removes_what_still_waits(store: Store, clock: FakeClock) -> None:
    inbox = inbox_over(store, clock)
    await inbox.put(PLACE, message("a secret"))
    bobs = message("hello", sender="ou_bob")
    await inbox.put(PLACE, bobs)

    assert await erase_waiting(store.state, Scope(tenant="other", user="ou_ann"), clock) == 0
    assert await erase_waiting(store.state, Scope(tenant="acme", user="ou_ann"), clock) == 1

    (entry,) = (await held(inbox)).waiting
    assert await inbox.read(PLACE, entry) == bobs
    assert "secret" not in str(await store.state.list_state(Scope(tenant="acme"), "channel-messages"))
