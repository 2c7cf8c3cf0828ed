"""Turns first at a provider with few slots: when background requests wait, end, and are made again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from tenuto.errors import ModelBusy, ModelFailed
from tenuto.llm import FallbackChain, Hang, ModelConnection, ModelSlots, Say, Script, ScriptedModel, complete
from tenuto.llm.slots import Slots, SlottedModel
from tenuto.model.generation import ModelDone, ModelRequest, TextDelta
from tenuto.ports import ChatModel, time_limit
from tests.chats import events_of
from tests.timeouts import LONG, wait_until

TURN = ModelRequest(messages=())
LIMIT = timedelta(seconds=LONG)


def opened(*scripts: Script, count: int = 1) -> tuple[ScriptedModel, SlottedModel]:
    model = ScriptedModel(*scripts)
    return model, SlottedModel(model, Slots(count, quiet=0))


def in_background(model: ChatModel) -> asyncio.Task[tuple[str, ModelDone]]:
    return asyncio.create_task(complete(model, "", "Title?", 10, LIMIT))


def a_turn(model: SlottedModel) -> asyncio.Task[list[object]]:
    return cast(asyncio.Task[list[object]], asyncio.create_task(events_of(model, TURN)))


async def test_a_background_request_waits_for_the_turns_and_turns_wait_for_none() -> None:
    one, other = Hang(), Hang()
    model, slotted = opened([one], [other], "A title")
    turns = [a_turn(slotted), a_turn(slotted)]
    await one.reached.wait()
    await other.reached.wait()
    title = in_background(slotted)
    await asyncio.sleep(0)
    one.release.set()
    await turns[0]
    before = len(model.requests)

    other.release.set()
    await turns[1]

    assert (await title)[0] == "A title"
    assert before == 2


async def test_a_turn_breaks_off_a_background_request_which_is_made_again() -> None:
    hang, answering = Hang(), Hang()
    model, slotted = opened([Say("half a ti"), hang], [answering, Say("Yes.")], "A title")
    title = in_background(slotted)
    await hang.reached.wait()

    turn = a_turn(slotted)
    await answering.reached.wait()
    await wait_until(lambda: model.cancelled == 1)
    answering.release.set()
    await turn

    assert (await title)[0] == "A title"
    assert [request.background for request in model.requests] == [True, False, True]


async def test_a_request_that_turns_break_off_again_and_again_fails() -> None:
    hangs = [Hang() for _ in range(3)]
    scripts: list[Script] = [script for hang in hangs for script in (hang, "Yes.")]
    _, slotted = opened(*scripts)
    title = in_background(slotted)

    for hang in hangs:
        await hang.reached.wait()
        assert (await a_turn(slotted))[0] == TextDelta(text="Yes.")

    with pytest.raises(ModelFailed, match="was needed for turns"):
        await title


async def test_a_request_for_which_turns_leave_no_time_fails() -> None:
    hang = Hang()
    slotted = SlottedModel(ScriptedModel([hang], "A title"), Slots(1, quiet=0, timeout=0))
    turn = a_turn(slotted)
    await hang.reached.wait()

    spare = ScriptedModel("A title of another provider")
    for model in (slotted, FallbackChain([slotted, spare])):
        with pytest.raises(ModelBusy, match="was needed for turns"):
            await in_background(model)
    assert spare.requests == []
    hang.release.set()
    await turn

    await asyncio.sleep(0)
    assert (await in_background(slotted))[0] == "A title"


async def test_with_two_slots_a_background_request_runs_beside_a_turn_and_a_second_turn_ends_it() -> None:
    first, hang = Hang(), Hang()
    model, slotted = opened([first], [hang], "Yes.", "A title", count=2)
    turn = a_turn(slotted)
    await first.reached.wait()
    title = in_background(slotted)
    await hang.reached.wait()

    await a_turn(slotted)
    await wait_until(lambda: model.cancelled == 1)

    assert (await title)[0] == "A title"
    first.release.set()
    await turn


async def test_what_is_cancelled_while_it_waits_or_runs_leaves_its_slot_to_the_next() -> None:
    running, turn = Hang(), Hang()
    model, slotted = opened([running], [turn], "A title")
    gone, waits, stays = in_background(slotted), in_background(slotted), in_background(slotted)
    await running.reached.wait()

    waits.cancel()
    gone.cancel()
    await asyncio.gather(waits, gone, return_exceptions=True)
    await turn.reached.wait()
    turn.release.set()
    await wait_until(stays.done)

    # The second script was the third request's: it hung, was released, and said nothing.
    assert isinstance(stays.exception(), ModelFailed)
    assert len(model.requests) == 2
    assert (await complete(slotted, "", "Title?", 10, LIMIT))[0] == "A title"


def test_a_chain_behind_slots_has_the_time_of_all_its_models() -> None:
    chain = FallbackChain([ScriptedModel(), ScriptedModel(), ScriptedModel()])

    assert time_limit(SlottedModel(chain, Slots(1)), LIMIT) == time_limit(chain, LIMIT) == 3 * LONG


def test_models_of_one_server_share_its_slots_and_others_have_no_limit() -> None:
    def guard(slots: ModelSlots, address: str, *, local: bool) -> object:
        model = slots.guard(ScriptedModel(), address, local=local)
        return model._slots if isinstance(model, SlottedModel) else None

    slots = ModelSlots()

    assert guard(slots, "localhost:11434", local=True) is guard(slots, "localhost:11434", local=True) is not None
    assert guard(slots, "localhost:8000", local=True) is not guard(slots, "localhost:11434", local=True)
    assert guard(slots, "api.openai.com", local=False) is None
    assert guard(ModelSlots(0), "localhost:11434", local=True) is None
    assert guard(ModelSlots(2), "gpu.example:8000", local=False) is not None


@pytest.mark.parametrize(
    ("whole", "first", "local", "limits"),
    [
        (None, None, True, (None, None)),
        (None, None, False, (120, 60)),
        (600, None, True, (600, None)),
        (None, 300, True, (None, 300)),
        (None, 0, False, (120, None)),
        (30, None, False, (30, 60)),
    ],
)
def test_only_a_model_on_this_machine_may_take_its_time(
    whole: int | None, first: int | None, local: bool, limits: tuple[int | None, int | None]
) -> None:
    def of(seconds: int | None) -> timedelta | None:
        return None if seconds is None else timedelta(seconds=seconds)

    connection = ModelConnection(timeout=of(whole), first_token_timeout=of(first))

    found = connection.limit(local=local), connection.first_token_limit(local=local)
    assert found == tuple(of(limit) for limit in limits)
