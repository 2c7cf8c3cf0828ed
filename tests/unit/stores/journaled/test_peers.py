"""Two processes with journals on one store: after an outage, turns keep their order, and no session is denied."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import MasterKeyMissing, SessionElsewhere, SessionNotFound, StoreUnavailable
from tenuto.model import NewSession, Page
from tenuto.model.scope import JOURNALS, SYSTEM, session_key
from tenuto.model.turn import JOURNALED_AFTER, order_by_place
from tenuto.stores.journaled.rows import RowSealer
from tenuto.stores.memory import MemoryStore
from tests.clock import FakeClock
from tests.outages import Fate, Killed, Process, process
from tests.peek import journal_peers
from tests.samples import ANN, EVE

KEY = session_key(ANN, "s")
BEFORE_THE_SECOND_ROW = 7


class Pair:
    """Two processes; their clocks go at the same pace."""

    def __init__(self, one: Process, two: Process) -> None:
        self.one, self.two = one, two

    @property
    def both(self) -> tuple[Process, Process]:
        return self.one, self.two

    async def renew(self, *processes: Process) -> None:
        """Each writes its entry and reads the others', three times: as often as a turn may have to wait for."""
        for _ in range(3):
            for each in processes or self.both:
                await journal_peers(each.store).renew()

    async def outage(self) -> None:
        """Both notice that the store is away."""
        for each in self.both:
            each.goes_away()
            with pytest.raises(StoreUnavailable):
                await journal_peers(each.store).renew()

    def comes_back(self) -> None:
        for each in self.both:
            each.comes_back()

    async def catch_up(self, each: Process) -> None:
        """One that was cut off alone replays its turns."""
        each.comes_back()
        await self.renew()
        await each.replay()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    clock = FakeClock()
    memory = MemoryStore(clock=clock)
    async with (
        process(tmp_path / "one", store=memory, clock=clock) as one,
        process(tmp_path / "two", store=memory, clock=clock) as two,
    ):
        made = Pair(one, two)
        await made.renew()
        yield made


async def talk_before(pair: Pair) -> None:
    """Two turns at the first process, of which the second is told."""
    for number in ("1", "2"):
        await pair.one.turn(ANN, "s", f"q{number}", f"a{number}", create=NewSession())
    pair.two.feed.tell([KEY])


async def test_a_turn_waits_for_those_that_another_process_has_journaled(pair: Pair) -> None:
    """Issue 15: stored 1, 2, 4, 3 before."""
    await talk_before(pair)
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.comes_back()
    with pytest.raises(SessionElsewhere):
        await pair.two.begin(ANN, "s", "q4")
    await pair.renew()
    with pytest.raises(SessionElsewhere):
        await pair.two.begin(ANN, "s", "q4")

    await pair.one.replay()
    await pair.renew()
    await pair.two.turn(ANN, "s", "q4", "a4")

    assert await pair.two.log(ANN, "s") == [f"{kind}{n}" for n in range(1, 5) for kind in "qa"]


async def test_other_sessions_go_on_once_every_process_has_renewed(pair: Pair) -> None:
    await talk_before(pair)
    await pair.two.turn(ANN, "t", "q1", "a1", create=NewSession())
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.comes_back()
    await journal_peers(pair.two.store).renew()
    with pytest.raises(SessionElsewhere):
        await pair.two.begin(ANN, "t", "too early")

    await pair.renew()
    await pair.two.turn(ANN, "t", "q2", "a2")

    assert await pair.two.log(ANN, "t") == ["q1", "a1", "q2", "a2"]


async def test_one_renewal_may_have_been_sent_before_the_outage(pair: Pair) -> None:
    """It is carried out afterwards, with a list that is out of date."""
    await talk_before(pair)
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.comes_back()
    await journal_peers(pair.two.store).renew()
    await pair.two.memory.state.write_state(SYSTEM, JOURNALS, journal_peers(pair.one.store).name, {})
    await journal_peers(pair.two.store).renew()

    with pytest.raises(SessionElsewhere):
        await pair.two.begin(ANN, "s", "q4")


async def test_entries_that_were_read_while_the_store_failed_again_admit_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk_before(pair)
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.comes_back()
    peers, list_entries = journal_peers(pair.two.store), pair.two.wire.list_state

    async def fail_meanwhile(*args: Any, **rest: Any) -> Any:
        found = await list_entries(*args, **rest)
        peers.observe_outage()
        return found

    monkeypatch.setattr(pair.two.wire, "list_state", fail_meanwhile)

    with pytest.raises(StoreUnavailable):
        await pair.two.begin(ANN, "s", "q4", create=None)
    assert not await peers.admit_replay()


async def test_new_sessions_are_never_held_up(pair: Pair) -> None:
    await pair.outage()
    pair.comes_back()

    await pair.two.turn(ANN, "new", "q1", "a1", create=NewSession())

    assert await pair.two.log(ANN, "new") == ["q1", "a1"]


async def test_a_session_that_began_elsewhere_in_the_outage_is_not_denied(pair: Pair) -> None:
    await pair.outage()
    await pair.one.turn(ANN, "s", "q1", "a1", create=NewSession())
    pair.comes_back()
    for _ in range(2):
        for call in (pair.two.store.sessions.get(ANN, "s"), pair.two.begin(ANN, "s", "q2", create=None)):
            with pytest.raises(SessionElsewhere):
                await call
        await pair.renew()

    await pair.one.replay()
    await pair.renew()

    assert (await pair.two.store.sessions.get(ANN, "s")).messages == 2
    with pytest.raises(SessionNotFound):
        await pair.two.store.sessions.get(ANN, "never")
    with pytest.raises(SessionNotFound):
        await pair.two.store.sessions.get(EVE, "s")


async def test_a_session_is_not_denied_while_another_process_does_not_renew(pair: Pair) -> None:
    """It may be cut off alone, and journal; after its lease it counts as dead."""
    pair.one.goes_away()
    await pair.one.turn(ANN, "s", "q1", "a1", create=NewSession())
    pair.two.now += 5
    with pytest.raises(SessionElsewhere):
        await pair.two.store.sessions.get(ANN, "s")

    pair.two.now += 10
    await pair.renew(pair.two)

    with pytest.raises(SessionNotFound):
        await pair.two.store.sessions.get(ANN, "s")


async def test_a_process_that_does_not_come_back_holds_up_for_its_lease_only(pair: Pair) -> None:
    await talk_before(pair)
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.two.comes_back()
    await pair.renew(pair.two)
    pair.two.now += 9
    await pair.renew(pair.two)
    with pytest.raises(SessionElsewhere):
        await pair.two.begin(ANN, "s", "q4")

    pair.two.now += 1.1
    await pair.renew(pair.two)
    await pair.two.turn(ANN, "s", "q4", "a4")

    assert [entry.key for entry in await _entries(pair.two)] == [journal_peers(pair.two.store).name]


async def test_turns_that_cannot_be_replayed_hold_up_for_a_lease_only(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without their key, for example. They are not lost: they come late."""
    await talk_before(pair)
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.comes_back()

    async def locked(*_: object) -> None:
        raise MasterKeyMissing("f")

    with monkeypatch.context() as without_key:
        without_key.setattr(RowSealer, "row", locked)
        await pair.renew()
        await pair.one.replay()
        await pair.renew()
        with pytest.raises(SessionElsewhere):
            await pair.two.begin(ANN, "s", "q4")
        await pair.one.replay()
        await pair.renew()
        await pair.two.turn(ANN, "s", "q4", "a4")
    pair.one.feed.tell([KEY])
    await pair.one.replay()

    assert await pair.two.log(ANN, "s") == ["q1", "a1", "q2", "a2", "q4", "a4", "q3", "a3"]


async def test_a_process_of_this_machine_that_is_gone_holds_nothing_up(pair: Pair) -> None:
    program = "from tenuto.holder import with_holder; print(with_holder('t'))"
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    gone = (await ended.communicate())[0].decode().strip()
    await pair.two.memory.state.write_state(SYSTEM, JOURNALS, gone, {KEY[:8].hex(): 0})
    await talk_before(pair)
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.comes_back()

    await pair.renew()
    assert await pair.one.replay()
    await pair.renew()
    await pair.two.turn(ANN, "s", "q4", "a4")

    assert gone not in {entry.key for entry in await _entries(pair.two)}


async def test_an_outage_that_ends_and_begins_again_is_waited_out_again(pair: Pair) -> None:
    await talk_before(pair)
    await pair.outage()
    pair.comes_back()
    await pair.renew()
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.comes_back()

    with pytest.raises(SessionElsewhere):
        await pair.two.begin(ANN, "s", "q4")


async def test_an_interrupted_feed_is_a_sign_of_an_outage(pair: Pair) -> None:
    await talk_before(pair)
    pair.one.goes_away()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.two.feed.lose_track()

    with pytest.raises(SessionElsewhere):
        await pair.two.begin(ANN, "s", "q4")


async def test_without_an_outage_a_turn_costs_no_look_at_the_entries(pair: Pair) -> None:
    calls = len(pair.two.wire.calls)

    await pair.two.turn(ANN, "s", "q1", "a1", create=NewSession())

    assert pair.two.wire.calls[calls:] == ["begin_turn", "finish_turn"]


async def test_only_the_process_that_changed_a_session_last_goes_on_in_an_outage(pair: Pair) -> None:
    """Otherwise both could, and the order of their turns would not be known."""
    await talk_before(pair)
    await pair.two.store.sessions.messages(ANN, "s", Page())
    await pair.outage()

    with pytest.raises(StoreUnavailable):
        await pair.two.begin(ANN, "s", "q3")
    assert (await pair.one.begin(ANN, "s", "q3")).journaled


async def journal_in_turns(pair: Pair) -> None:
    """Both journal turns of one session: the report of the second turn was lost with the store."""
    await pair.one.turn(ANN, "s", "q1", "a1", create=NewSession())
    await pair.two.turn(ANN, "s", "q2", "a2")
    await pair.outage()
    for number, each in enumerate((pair.one, pair.one, pair.two, pair.one, pair.two), start=3):
        each.clock.advance(timedelta(seconds=1))
        await each.turn(ANN, "s", f"q{number}", f"a{number}")
    pair.comes_back()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_turns_that_two_processes_journaled_are_merged_by_time(pair: Pair, order: tuple[int, int]) -> None:
    """T7: whichever replays first; what waits for the other process is refused meanwhile."""
    await journal_in_turns(pair)
    assert not any([await pair.both[which].replay() for which in order])  # Not all have listed their turns.
    await pair.renew()
    if order == (1, 0):
        with pytest.raises(SessionElsewhere):
            await pair.two.begin(ANN, "s", "too early")
    for _ in range(4):
        for which in order:
            await pair.both[which].replay()
        await pair.renew()

    assert [each.store.status.waiting for each in pair.both] == [0, 0]
    assert await pair.two.log(ANN, "s") == [f"{kind}{n}" for n in range(1, 8) for kind in "qa"]


async def test_a_process_that_dies_holds_no_replay_up_for_longer_than_its_lease(pair: Pair) -> None:
    await journal_in_turns(pair)
    await pair.renew()
    assert not await pair.two.replay()
    pair.two.now += 10
    await pair.renew(pair.two)

    assert await pair.two.replay()
    assert (await pair.two.log(ANN, "s"))[4:] == ["q5", "a5", "q7", "a7"]


async def test_a_process_alone_goes_on_with_what_it_has_read(pair: Pair) -> None:
    await talk_before(pair)
    await journal_peers(pair.one.store).close()
    await pair.renew(pair.two)
    await pair.two.store.sessions.messages(ANN, "s", Page())
    pair.two.goes_away()

    assert (await pair.two.begin(ANN, "s", "q3")).journaled


async def test_entries_hold_no_ids_and_go_with_their_process(pair: Pair) -> None:
    await talk_before(pair)
    await pair.outage()
    await pair.one.turn(ANN, "s", "q3", "a3")
    pair.comes_back()
    await pair.renew()

    stored = json.dumps([entry.value for entry in await _entries(pair.two)])
    for each in pair.both:
        await journal_peers(each.store).close()

    assert KEY[:8].hex() in stored
    assert "acme" not in stored
    assert not await _entries(pair.two)


async def _entries(at: Process) -> Any:
    return await at.memory.state.list_state(SYSTEM, JOURNALS)


async def test_turns_of_a_process_that_was_cut_off_alone_are_marked_with_their_place(pair: Pair) -> None:
    """They are stored late: another process went on meanwhile."""
    await talk_before(pair)
    pair.one.goes_away()
    for number in ("3", "4"):
        await pair.one.turn(ANN, "s", f"q{number}", f"a{number}")
    await pair.two.turn(ANN, "s", "q5", "a5")
    await pair.catch_up(pair.one)

    page = await pair.two.memory.sessions.messages(ANN, "s", Page())

    assert [message.text for message in page.messages][4:] == ["q5", "a5", "q3", "a3", "q4", "a4"]
    assert [message.metadata.get(JOURNALED_AFTER) for message in page.messages] == [None] * 6 + [4] * 4
    assert [message.text for message in order_by_place(page.messages)] == [
        *("q1", "a1", "q2", "a2"),
        *("q3", "a3", "q4", "a4"),
        *("q5", "a5"),
    ]


async def test_a_replay_that_is_killed_leaves_the_places_as_they_were(pair: Pair) -> None:
    await talk_before(pair)
    pair.one.goes_away()
    for number in ("3", "4"):
        await pair.one.turn(ANN, "s", f"q{number}", f"a{number}")
    pair.one.comes_back()
    await pair.renew()
    pair.one.wire.strike(BEFORE_THE_SECOND_ROW, Fate.KILLED_BEFORE)
    with pytest.raises(Killed):
        await pair.one.replay()
    await pair.one.restart()
    pair.two.now += 10
    await pair.renew(pair.two)
    await pair.two.turn(ANN, "s", "q5", "a5")
    await pair.one.catch_up()

    page = await pair.two.memory.sessions.messages(ANN, "s", Page())

    assert [message.text for message in page.messages][4:] == ["q3", "a3", "q5", "a5", "q4", "a4"]
    assert [message.text for message in order_by_place(page.messages)][4:] == ["q3", "a3", "q4", "a4", "q5", "a5"]


async def test_the_answer_of_a_turn_that_ended_in_the_store_stays_with_its_question(pair: Pair) -> None:
    await talk_before(pair)
    pair.one.goes_away()
    turn = await pair.one.begin(ANN, "s", "q3")
    await pair.two.turn(ANN, "s", "q4", "a4")
    await pair.catch_up(pair.one)
    await pair.one.finish(turn, "a3")

    page = await pair.two.memory.sessions.messages(ANN, "s", Page())

    assert [message.text for message in order_by_place(page.messages)][4:] == ["q3", "a3", "q4", "a4"]


async def test_a_store_that_refuses_at_once_is_asked_with_pauses(pair: Pair) -> None:
    pair.one.goes_away()
    running = asyncio.create_task(journal_peers(pair.one.store).run())
    await asyncio.sleep(0.5)
    running.cancel()

    assert len(pair.one.wire.calls) < 20


async def test_a_probe_that_fails_for_one_server_of_several_holds_no_renewal_up(pair: Pair) -> None:
    await talk_before(pair)
    await pair.outage()
    pair.comes_back()
    for each in pair.both:
        journal_peers(each.store)._probe = _does_not_answer
    await pair.renew()

    assert journal_peers(pair.two.store).settled


async def _does_not_answer() -> None:
    raise StoreUnavailable
