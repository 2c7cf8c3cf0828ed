"""The engine with a journal on a disk: what is acknowledged in an outage, what is refused, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from tenuto.errors import (
    AttachmentNotFound,
    DecryptionFailed,
    MasterKeyMissing,
    SessionNotFound,
    StoreUnavailable,
    Unavailable,
)
from tenuto.model import Changes, Content, FinishTurn, OpenTurn, Page, Scope, TurnState
from tenuto.model.scope import session_key
from tenuto.model.turn import JOURNALED_AFTER, IdempotencyKey
from tenuto.stores.breaker import BreakerPolicy
from tenuto.stores.engine import Engine
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.engine.commands import Finish
from tenuto.stores.engine.journal_files import DiskFolder, count_journal
from tenuto.stores.engine.journal_folder import JournaledSession
from tenuto.stores.engine.journal_replay import Replay
from tenuto.stores.engine.journal_rows import Row, replay_row
from tenuto.stores.memory import InMemoryRecords
from tests.clock import FakeClock
from tests.machine import Machine
from tests.samples import ANN, BOB, appends, batch, begin, closing, opening, shows, talk, texts, trace_of
from tests.simulation.hosts import CheckingSealer
from tests.timeouts import LONG, wait_until

CHAT = Scope(tenant="acme", channel="lark", chat="room", user="ann")
KEY = IdempotencyKey(key="k1", fingerprint="f")


@pytest.mark.requirement("A22")
async def test_any_process_goes_on_in_an_outage_and_the_store_has_it_once(machine: Machine) -> None:
    first, second = await machine.start("a"), await machine.start("b")
    await talk(first, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True

    turn = await begin(second, ANN, "s", "two", journaled=True, idempotency_key=KEY)
    done = await first.sessions.finish_turn(turn, closing("2"))
    again = await begin(first, ANN, "s", "two", journaled=True, idempotency_key=KEY)
    shown = await texts(second, ANN, "s")
    await machine.stop(first)
    status = second.sessions.journal.status  # type: ignore[union-attr]
    await wait_until(lambda: second.sessions.journal.status.waiting == 1)  # type: ignore[union-attr]
    await machine.until_stored(second)
    after = await talk(second, ANN, "s", "three", "3", journaled=True)

    assert (turn.journaled, done.journaled, [message.text for message in again.reply]) == (True, True, ["2"])
    assert shown == ["one", "1", "two", "2"]
    assert (status.away, status.since) == (True, machine.clock())
    assert (after.journaled, await texts(second, ANN, "s")) == (False, ["one", "1", "two", "2", "three", "3"])
    assert second.sessions.journal.status.replayed == 1  # type: ignore[union-attr]


async def test_rows_of_a_killed_process_are_stored_by_the_next_one(machine: Machine) -> None:
    first = await machine.start("a")
    await talk(first, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(first, ANN, "s", "two", "2", journaled=True)
    await machine.stop(first)

    second = await machine.start("b")
    await talk(second, ANN, "s", "three", "3", journaled=True)
    await machine.until_stored(second)

    assert await texts(second, ANN, "s") == ["one", "1", "two", "2", "three", "3"]


async def test_a_picture_of_an_outage_is_read_from_its_row_and_stored_after_it(machine: Machine) -> None:
    """Also by another process, and after the first one was killed. What the store alone has waits for it."""
    old, new = Content.of(ANN, b"old picture", "image/png"), Content.of(ANN, b"new picture", "image/png")
    first, second = await machine.start("a"), await machine.start("b")
    await first.sessions.append(ANN, "s", appends(shows(old), journaled=True))
    machine.is_away = True
    turn = await begin(first, ANN, "s", user_messages=(shows(new), shows(old, brings=False)), journaled=True)
    await first.sessions.finish_turn(turn, closing("nice"))
    await machine.stop(first)

    known = [one.seqs for one in await second.sessions.attachments(ANN, "s")]
    assert (known, await second.sessions.attachment(ANN, "s", new.id)) == ([(1, 3), (2,)], new)
    for scope, content in ((ANN, old), (BOB, new)):
        with pytest.raises(StoreUnavailable):
            await second.sessions.attachment(scope, "s", content.id)
    with pytest.raises(StoreUnavailable):
        await second.sessions.remove_attachment(ANN, "s", new.id)
    with pytest.raises(AttachmentNotFound):
        await second.sessions.attachment(ANN, "s", "0" * 32)
    await machine.until_stored(second)

    assert [await second.sessions.attachment(ANN, "s", one.id) for one in (old, new)] == [old, new]


async def test_a_journaled_message_is_stored_without_a_picture_that_was_removed_elsewhere(machine: Machine) -> None:
    """It named the picture and did not bring it; the part says that it is gone."""
    picture = Content.of(ANN, b"picture", "image/png")
    here, there = await machine.start("a"), machine.elsewhere()
    await here.sessions.append(ANN, "s", appends(shows(picture), journaled=True))
    machine.lose("a")
    await here.sessions.append(ANN, "s", appends(shows(picture, brings=False), journaled=True))
    await there.sessions.remove_attachment(ANN, "s", picture.id)
    machine.lose("")
    await machine.until_stored(here)

    page = await there.sessions.messages(ANN, "s", Page())
    assert [message.parts[1].get("removed") for message in page.messages] == [True, True]
    assert await there.sessions.attachments(ANN, "s") == ()


async def test_a_breaker_rests_no_longer_than_the_other_processes_need_to_find_the_store(machine: Machine) -> None:
    resting = await machine.start("a", BreakerPolicy(failures=1, reset=timedelta(hours=1)))
    other = await machine.start("b")
    await talk(resting, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(resting, ANN, "s", "two", "2", journaled=True)
    machine.cut = "a"  # It finds the store later than the other one.
    await machine.until_stored(other)
    machine.cut = ""

    assert isinstance(resting.records, BreakerRecords)
    await wait_until(lambda: not resting.records.is_resting)  # type: ignore[attr-defined]  # it is one
    assert await texts(resting, ANN, "s") == ["one", "1", "two", "2"]


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_absent_and_a_foreign_id_get_the_same_answer(machine: Machine, is_known: bool) -> None:
    first, second = await machine.start("a"), await machine.start("b")
    await talk(first, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    if is_known:
        await begin(second, ANN, "s", "two", journaled=True)
    refusals = set[tuple[type, str]]()

    for engine in (first, second):
        for session_id in ("s", "absent"):
            for call in (
                engine.sessions.get(BOB, session_id),
                engine.sessions.messages(BOB, session_id, Page()),
                engine.sessions.begin_turn(BOB, opening(session_id, "mine?", journaled=True)),
                engine.sessions.append(BOB, session_id, batch("mine?", journaled=True)),
                engine.sessions.patch(BOB, session_id, Changes(title="mine")),
                engine.sessions.delete(BOB, session_id),
            ):
                with pytest.raises(Unavailable) as refusal:
                    await call
                refusals.add((type(refusal.value), str(refusal.value)))

    assert refusals == {(StoreUnavailable, str(StoreUnavailable()))}
    assert first.sessions.journal.status.refused == 4  # type: ignore[union-attr]


async def test_a_policy_that_allows_no_journal_is_kept(machine: Machine) -> None:
    engine = await machine.start("a")
    for session_id in ("s", "t"):
        await talk(engine, ANN, session_id, "one", "1")
    open_turn = await begin(engine, ANN, "t", "two")
    machine.is_away = True

    for call in (
        begin(engine, ANN, "s", "two"),
        engine.sessions.append(ANN, "s", batch("two")),
        engine.sessions.finish_turn(open_turn, closing("2")),
        engine.sessions.patch(ANN, "s", Changes(title="t")),
    ):
        with pytest.raises(StoreUnavailable):
            await call

    assert count_journal(machine.path).waiting == 0


async def test_a_session_is_created_where_nobody_can_know_its_id(machine: Machine) -> None:
    first, second = await machine.start("a"), await machine.start("b")
    machine.is_away = True

    with pytest.raises(StoreUnavailable):
        await begin(first, ANN, "chosen", "one", journaled=True)
    turn = await begin(first, ANN, "made", "one", journaled=True, new_id=True)
    await second.sessions.finish_turn(turn, closing("1"))
    await machine.until_stored(second)

    assert turn.created
    assert await texts(first, ANN, "made") == ["one", "1"]
    with pytest.raises(SessionNotFound):
        await first.sessions.get(ANN, "chosen")


async def test_an_attempt_before_the_outage_that_created_the_session_is_gone_on_with(machine: Machine) -> None:
    """The answer was lost with its process: the retry under the key creates the session here, and is not lost."""
    lost = await machine.start("a")
    await begin(lost, ANN, "made", "one", journaled=True, new_id=True, idempotency_key=KEY, turn_id="first")
    await machine.stop(lost)
    engine = await machine.start("b")
    machine.is_away = True

    turn = await begin(engine, ANN, "made", "one", journaled=True, new_id=True, idempotency_key=KEY)
    await engine.sessions.finish_turn(turn, closing("1"))
    await machine.until_stored(engine)

    assert await texts(engine, ANN, "made") == ["one", "1"]


async def test_turns_of_a_session_that_was_replaced_meanwhile_are_set_aside(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(engine, ANN, "s", "two", "2", journaled=True)
    elsewhere = machine.elsewhere()
    machine.cut, machine.is_away = "a", False
    await elsewhere.sessions.delete(ANN, "s")
    await talk(elsewhere, ANN, "s", "another", "session")
    machine.cut = ""

    with caplog.at_level(logging.WARNING):
        await machine.until_stored(engine)

    assert await texts(engine, ANN, "s") == ["another", "session"]
    assert engine.sessions.journal.status.quarantined == 1  # type: ignore[union-attr]
    assert "a journaled turn was quarantined: session_replaced" in caplog.text


async def test_what_does_not_apply_any_more_is_stored_late_and_marked(machine: Machine) -> None:
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    turn = await begin(engine, ANN, "s", "two", journaled=True)
    await engine.sessions.finish_turn(turn, closing("2"))
    elsewhere = machine.elsewhere()
    machine.cut, machine.is_away = "a", False
    await begin(elsewhere, ANN, "s", "meanwhile")
    machine.cut = ""

    await machine.until_stored(engine)
    page = await engine.sessions.messages(ANN, "s", Page())

    assert [message.text for message in page.messages] == ["one", "1", "meanwhile", "two", "2"]
    assert [message.metadata.get(JOURNALED_AFTER) for message in page.messages] == [None, None, None, 2, 2]


async def _replay_end(engine: Engine, turn: OpenTurn, request: FinishTurn) -> None:
    """Twice, as after a crash between the store and the folder."""
    command, incarnation = Finish(turn=turn, request=request), turn.session.incarnation
    assert turn.lease_until is not None
    row = Row(number=1, at=turn.lease_until, command=command, writer="a", since=1, incarnation=incarnation)
    for _ in range(2):
        await engine.sessions.queue(ANN, session_key(ANN, "s"), "s", lambda record, _: replay_row(record, row))


@pytest.mark.parametrize(
    ("abandoned", "once", "state"),
    [
        (False, None, TurnState.OPENED),
        (True, None, TurnState.OPENED),
        (False, KEY, TurnState.FINISHED),
        (True, KEY, TurnState.RESUMED),
    ],
)
async def test_a_late_end_without_a_reply_is_stored_once(
    clock: FakeClock, abandoned: bool, once: IdempotencyKey | None, state: TurnState
) -> None:
    engine = Engine(InMemoryRecords(), chance=Random(1), clock=clock)
    turn = await begin(engine, ANN, "s", "ask", idempotency_key=once)
    clock.advance(timedelta(hours=1))
    await talk(engine, ANN, "s", "meanwhile", "went on")

    await _replay_end(engine, turn, closing(tokens=900, changes=Changes(title="named"), abandoned=abandoned))
    stored = await engine.sessions.get(ANN, "s")
    again = await begin(engine, ANN, "s", "ask", idempotency_key=once)

    assert (stored.tokens, stored.title) == (900, "named")
    assert again.state is state


async def test_an_abandoned_turn_is_not_counted_again(clock: FakeClock) -> None:
    engine = Engine(InMemoryRecords(), chance=Random(1), clock=clock)
    turn = await begin(engine, ANN, "s", "ask")

    await _replay_end(engine, turn, closing(tokens=900, abandoned=True))

    assert (await engine.sessions.get(ANN, "s")).tokens == 900


async def test_a_process_that_alone_lost_the_store_refuses(machine: Machine) -> None:
    first, second = await machine.start("a"), await machine.start("b")
    await talk(first, ANN, "s", "one", "1", journaled=True)
    machine.cut = "a"

    with pytest.raises(StoreUnavailable):
        await begin(first, ANN, "s", "two", journaled=True)
    turn = await begin(second, ANN, "s", "two", journaled=True)

    assert (turn.journaled, first.sessions.journal.status.away) == (False, False)  # type: ignore[union-attr]


async def test_a_long_session_is_not_read_anew_with_each_row(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, read_session = list[int](), DiskFolder.read_session

    async def count(folder: DiskFolder, key: bytes, first: int = 0) -> JournaledSession | None:
        session = await read_session(folder, key, first)
        counts.append(0 if session is None else len(session.rows))
        return session

    monkeypatch.setattr(DiskFolder, "read_session", count)
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    for number in range(20):
        await talk(engine, ANN, "s", f"q{number}", "a", journaled=True)

    assert max(counts) <= 2


async def test_a_torn_row_is_set_aside_and_the_others_are_stored(machine: Machine) -> None:
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(engine, ANN, "s", "two", "2", journaled=True)
    await talk(engine, ANN, "s", "three", "3", journaled=True)
    folder: Any = engine.sessions.journal._folder  # type: ignore[union-attr]
    await folder._thread.run(lambda db: db.execute("UPDATE row SET body = x'00ff' WHERE number = 2").rowcount)

    await machine.until_stored(engine)

    assert await texts(engine, ANN, "s") == ["one", "1", "two", "three", "3"]
    assert (engine.sessions.journal.status.quarantined, count_journal(machine.path).quarantined) == (1, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("part", "failure", "counts"),
    [
        ("row", DecryptionFailed("was changed"), (0, 1)),
        ("row", MasterKeyMissing("f"), (1, 0)),
        ("head", DecryptionFailed("needs another key"), (1, 0)),
    ],
)
async def test_rows_wait_for_a_key_that_may_come_back(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
    failure: Exception,
    counts: tuple[int, int],
) -> None:
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(engine, ANN, "s", "two", "2", journaled=True)
    engine.cache.clear()
    open_body = CheckingSealer.open

    def open_some(sealer: CheckingSealer, sealed: bytes, place: tuple[str, ...]) -> bytes:
        if part in place[:2]:
            raise failure
        return open_body(sealer, sealed, place)

    monkeypatch.setattr(CheckingSealer, "open", open_some)
    machine.is_away = False
    await wait_until(lambda: "quarantined" in caplog.text or "wait on: decryption_failed" in caplog.text)
    await wait_until(lambda: not engine.sessions.journal.status.away)  # type: ignore[union-attr]

    def left() -> tuple[int, int]:
        counted = count_journal(machine.path)
        return counted.waiting, counted.quarantined

    await wait_until(lambda: left() == counts)  # A turn has two rows.


async def test_a_row_in_the_place_of_a_torn_one_is_seen_by_all(machine: Machine) -> None:
    first, second = await machine.start("a"), await machine.start("b")
    await talk(first, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(first, ANN, "s", "two", "2", journaled=True)
    before = await texts(second, ANN, "s")
    folder: Any = first.sessions.journal._folder  # type: ignore[union-attr]
    await folder._thread.run(lambda db: db.execute("UPDATE row SET body = x'00ff' WHERE number = 2").rowcount)
    machine.clock.advance(timedelta(hours=1))

    await talk(first, ANN, "s", "three", "3", journaled=True)

    assert before == ["one", "1", "two", "2"]
    assert await texts(second, ANN, "s") == ["one", "1", "two", "three", "3"]


async def test_rows_of_a_newer_release_wait(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(engine, ANN, "s", "two", "2", journaled=True)
    folder: Any = engine.sessions.journal._folder  # type: ignore[union-attr]
    await folder._thread.run(lambda db: db.execute("UPDATE row SET body = x'7fff'").rowcount)

    machine.is_away = False
    await wait_until(lambda: not engine.sessions.journal.status.away)  # type: ignore[union-attr]
    with pytest.raises(Unavailable, match="newer release"):
        await begin(engine, ANN, "s", "three", journaled=True)

    status = engine.sessions.journal.status  # type: ignore[union-attr]
    assert (status.waiting, status.quarantined) == (1, 0)


async def test_rows_are_sealed(machine: Machine) -> None:
    """The sealer of the test adds a checksum: without it a body does not open."""
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(engine, ANN, "s", "two", "2", journaled=True)
    folder: Any = engine.sessions.journal._folder  # type: ignore[union-attr]

    session = await folder.read_session(session_key(ANN, "s"))

    assert {body[:1] for body in (session.base.body, *[row.body for row in session.rows])} == {b"\x81"}


async def test_an_unexpected_error_does_not_end_the_replay(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(engine, ANN, "s", "two", "2", journaled=True)
    everything, failures = Replay.all, [ValueError()]

    async def fail_once(replay: Replay) -> None:
        if failures:
            raise failures.pop()
        await everything(replay)

    monkeypatch.setattr(Replay, "all", fail_once)
    await machine.until_stored(engine)

    assert "the journal has met an error" in caplog.text
    assert await texts(engine, ANN, "s") == ["one", "1", "two", "2"]


async def test_a_full_disk_refuses_the_turn(machine: Machine) -> None:
    engine = await machine.start("a")
    await talk(engine, ANN, "s", "one", "1", journaled=True)
    machine.is_away = True
    await talk(engine, ANN, "s", "two", "2", journaled=True)
    folder: Any = engine.sessions.journal._folder  # type: ignore[union-attr]

    def limit(db: Any) -> None:
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")

    await folder._thread.run(limit)
    with pytest.raises(Unavailable, match="no space left"):
        async with asyncio.timeout(LONG):
            await begin(engine, ANN, "s", "x" * 100_000, journaled=True)
    await machine.until_stored(engine)

    assert await texts(engine, ANN, "s") == ["one", "1", "two", "2"]


@pytest.mark.parametrize("takes_over", [False, True])
async def test_a_turn_stored_behind_another_machines_overwrites_no_trace(machine: Machine, takes_over: bool) -> None:
    """Its question, its answer and its trace get one number, which no other turn has."""
    here, there = await machine.start("a"), machine.elsewhere()
    await talk(here, ANN, "s", "one", "1", journaled=True)
    machine.lose("a")
    turn = await begin(here, ANN, "s", "here", journaled=True, idempotency_key=KEY)
    await here.sessions.finish_turn(turn, closing("H", trace=trace_of(turn)))
    other = await begin(there, ANN, "s", "there")
    if not takes_over:
        await there.sessions.finish_turn(other, closing("T", trace=trace_of(other)))
    machine.lose("")
    await machine.until_stored(here)
    if takes_over:
        await there.sessions.finish_turn(other, closing("T", trace=trace_of(other)))

    log = (await there.sessions.messages(ANN, "s", Page())).messages
    turns = {message.text: message.turn for message in log}
    traces = {trace.turn_id: trace.number for trace in await there.traces.traces(ANN, "s")}
    assert turns["here"] == turns["H"] == traces[turn.id]
    assert turns["there"] == turns["T"] == traces[other.id]
    assert turns["here"] != turns["there"]
