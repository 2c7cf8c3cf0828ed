"""A session's head stays within its size, whatever patches come."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.errors import TooLarge
from tenuto.model import Changes, FinishTurn
from tenuto.model.policy import SessionPolicy
from tenuto.model.session import head_bytes, merge_patch
from tenuto.model.values import JsonObject
from tenuto.sessions import EventEmitter, Sessions, TurnRequest
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ANN, says

LIMIT = 1024
names = st.sampled_from("abcdefgh")
# By length: Hypothesis likes texts short, and then nothing would ever be too large.
values = st.none() | st.integers(0, 9) | st.builds(lambda letter, length: letter * length, names, st.integers(0, 700))
objects = st.dictionaries(names, values, max_size=3)
patches = st.builds(Changes, context=objects, attributes=objects, metadata=objects)


def _desk() -> Sessions:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    return Sessions(
        store=store.sessions,
        upkeep=store.upkeep,
        policy=SessionPolicy(max_head_bytes=LIMIT, busy_wait=timedelta(0)),
        events=EventEmitter(clock=clock),
    )


async def _changed(shell: Sessions, session_id: str, changes: Changes, in_turn: bool) -> None:
    if not in_turn:
        await shell.patch(ANN, session_id, changes)
        return
    turn = await shell.begin(ANN, TurnRequest(user_messages=(says("hi"),), session_id=session_id))
    try:
        await shell.finish(turn, FinishTurn(changes=changes))
    except TooLarge:
        await shell.finish(turn, FinishTurn())
        raise


@given(steps=st.lists(st.tuples(patches, st.booleans()), max_size=8))
def test_a_patch_applies_whole_or_is_refused_and_the_head_stays_small(steps: list[tuple[Changes, bool]]) -> None:
    async def story() -> None:
        shell = _desk()
        session, _ = await shell.create(ANN)
        expected: tuple[JsonObject, JsonObject, JsonObject] = ({}, {}, {})
        for changes, in_turn in steps:
            wanted = (
                merge_patch(expected[0], changes.context),
                merge_patch(expected[1], changes.attributes),
                merge_patch(expected[2], changes.metadata),
            )
            try:
                await _changed(shell, session.id, changes, in_turn)
            except TooLarge:
                full = replace(session, context=wanted[0], attributes=wanted[1], metadata=wanted[2])
                assert head_bytes(full) > LIMIT
            else:
                expected = wanted
            head = await shell.get(ANN, session.id)
            assert (head.context, head.attributes, head.metadata) == expected
            assert head_bytes(head) <= LIMIT

    asyncio.run(story())
