"""Running turns that are followed elsewhere, by seed: nothing is lost, doubled, or another user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tenuto.chat import shared_turns
from tenuto.chat.shared_turns import FollowedTurn
from tenuto.chat.turn_wire import LogLine
from tenuto.model.stored import KEY_GROUP
from tenuto.ports import LogPlace, TurnAddress
from tenuto.stores.engine import turn_logs
from tenuto.stores.engine.turn_logs import EngineTurnLogs
from tests.simulation.live import LiveWorld, offences, unasked

_STORIES = 100
_PLANTED = 120


def broken(world: LiveWorld) -> list[str]:
    return [*offences(world), *unasked(world)]


@pytest.mark.requirement("T7")
def test_no_live_story_breaks_a_law() -> None:
    named = os.environ.get("TENUTO_SIM_SEED")
    seeds = [int(named)] if named else range(_STORIES)
    worlds = [LiveWorld(seed).run() for seed in seeds]

    assert {world.seed: broken(world) for world in worlds if broken(world)} == {}
    ends = {heard.end for world in worlds for heard in world.heard}
    assert named or {"whole", "left", "error", "turn_interrupted"} <= ends
    assert LiveWorld(7).run().loop.steps == LiveWorld(7).run().loop.steps


def appended_again_after_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    append = EngineTurnLogs.append

    async def insisting(logs: EngineTurnLogs, turn: TurnAddress, place: LogPlace, *said: Any, **how: Any) -> Any:
        place, made = await append(logs, turn, place, *said, **how)
        return (place, made) if made else await append(logs, turn, place, *said, **how)

    patch.setattr(EngineTurnLogs, "append", insisting)


def an_end_is_taken_as_written(patch: pytest.MonkeyPatch) -> None:
    append = EngineTurnLogs.append

    async def hopeful(logs: EngineTurnLogs, turn: TurnAddress, place: LogPlace, *said: Any, **how: Any) -> Any:
        return (await append(logs, turn, place, *said, **how))[0], True

    patch.setattr(EngineTurnLogs, "append", hopeful)


def what_was_read_is_read_again(patch: pytest.MonkeyPatch) -> None:
    async def forgetful(turn: FollowedTurn, number: int, line: LogLine) -> None:
        await receive(turn, turn.event_count + 1, line)

    read, receive = EngineTurnLogs.read, FollowedTurn.receive
    patch.setattr(FollowedTurn, "receive", forgetful)

    async def all_of_it(logs: EngineTurnLogs, turn: TurnAddress, after: int) -> Sequence[Any]:
        return await read(logs, turn, max(0, after - 1))

    patch.setattr(EngineTurnLogs, "read", all_of_it)


def sessions_of_one_name_share_a_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turn_logs, "_key", lambda turn, what: bytes(KEY_GROUP) + what.encode().ljust(12))


def the_dead_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    async def hopeful(turns: Any, turn: Any) -> bool:
        return False

    patch.setattr(shared_turns.SharedTurns, "_is_gone", hopeful)


def it_is_asked_once(patch: pytest.MonkeyPatch) -> None:
    """A turn that was begun and not told of yet does not see the question."""
    patch.setattr(shared_turns, "_ASK_AGAIN", 60.0)


PLANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    appended_again_after_a_lost_answer,
    an_end_is_taken_as_written,
    what_was_read_is_read_again,
    sessions_of_one_name_share_a_log,
    the_dead_are_waited_for,
    it_is_asked_once,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_of_the_log_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    def found() -> Iterator[str]:
        for seed in range(_PLANTED):
            yield from broken(LiveWorld(seed).run())

    assert next(found(), None) is not None
