"""Messages of a chat platform wait in any store, each once: T14, D26."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenuto.errors import QueueFull
from tenuto.gateway.inbox import HELD_FOR, Inbox, QueuePlace, Waiting, erase_waiting
from tenuto.model import Scope
from tenuto.model.channel import ChannelPolicy
from tenuto.ports import Store
from tests.clock import FakeClock
from tests.group_chat import message

PLACE = QueuePlace(tenant="acme", key="room-1")


def inbox_over(store: Store, clock: FakeClock, max_waiting: int = 100) -> Inbox:
    policy = ChannelPolicy(max_waiting=max_waiting)
    return Inbox(state=store.state, app="room:app", policy=policy, clock=clock)


async def test_a_message_is_accepted_once_by_either_of_its_ids(store: Store, clock: FakeClock) -> None:
    """T14: while it waits, after it was answered, and after a day of re-deliveries, from two processes at once."""
    here, there = inbox_over(store, clock), inbox_over(store, clock)
    first = Waiting(message=message("one"), received_at=clock())
    again = replace(first, message=replace(first.message, event_id="another"))
    same_event = replace(first, message=replace(first.message, id="another"))

    accepted = await asyncio.gather(*(inbox.put(PLACE, first) for inbox in (here, there, here, there)))
    assert sorted(accepted) == [False, False, False, True]
    for repeated in (again, same_event):
        assert not await there.put(PLACE, repeated)
    numbered = Waiting(
        message=message("two", id=first.message.event_id, event_id=first.message.id), received_at=clock()
    )
    assert await there.put(PLACE, numbered)
    await there.remove(PLACE, numbered.message)

    assert await here.hold(PLACE, "here") is not None
    await here.remove(PLACE, first.message)
    for passed in (timedelta(), timedelta(hours=7, minutes=5)):
        clock.advance(passed)
        await there.forget_old_marks()
        for repeated in (first, again, same_event):
            assert not await there.put(PLACE, repeated)

    clock.advance(timedelta(hours=18))
    assert await there.forget_old_marks() == 4


async def test_messages_of_many_processes_keep_their_order_and_their_limit(store: Store, clock: FakeClock) -> None:
    inboxes = [inbox_over(store, clock, max_waiting=12) for _ in range(3)]
    said = [Waiting(message=message(str(number)), received_at=clock()) for number in range(12)]

    await inboxes[0].put(PLACE, said[0])
    await asyncio.gather(*(inboxes[number % 3].put(PLACE, one) for number, one in enumerate(said[1:])))
    with pytest.raises(QueueFull):
        await inboxes[1].put(PLACE, Waiting(message=message("one too many"), received_at=clock()))

    queue = await inboxes[2].hold(PLACE, "worker")
    assert queue is not None
    assert queue.waiting[0] == said[0]
    assert {one.message.id for one in queue.waiting} == {one.message.id for one in said}


async def test_a_queue_has_one_worker_until_it_dies(store: Store, clock: FakeClock) -> None:
    inbox = inbox_over(store, clock)
    one = Waiting(message=message("one"), received_at=clock())
    await inbox.put(PLACE, one)

    assert list(await inbox.busy()) == [PLACE]
    assert await inbox.hold(PLACE, "first") is not None
    assert await inbox.hold(PLACE, "second") is None
    clock.advance(HELD_FOR)
    assert await inbox.hold(PLACE, "second") is not None
    assert await inbox.hold(PLACE, "first") is None

    await inbox.remove(PLACE, one.message)
    assert await inbox.hold(PLACE, "second") is None
    assert not await inbox.busy()


async def test_erasing_a_user_removes_what_still_waits(store: Store, clock: FakeClock) -> None:
    inbox = inbox_over(store, clock)
    await inbox.put(PLACE, Waiting(message=message("a secret"), received_at=clock()))
    bobs = Waiting(message=message("hello", sender="ou_bob"), received_at=clock())
    await inbox.put(PLACE, bobs)

    assert await erase_waiting(store.state, Scope(tenant="other", user="ou_ann"), clock) == 0
    assert await erase_waiting(store.state, Scope(tenant="acme", user="ou_ann"), clock) == 1

    queue = await inbox.hold(PLACE, "worker")
    assert queue is not None
    assert [one.message for one in queue.waiting] == [bobs.message]
