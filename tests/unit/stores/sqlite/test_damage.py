"""A damaged record is set aside, kept, and hides no other (X6)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.errors import Invalid, SessionCorrupt, SessionNotFound, StoreDamaged, TurnLost, Unavailable
from tenuto.model import Page, Scope, SessionQuery
from tenuto.stores.sqlite import SqliteStore
from tests.clock import FakeClock
from tests.peek import sqlite_db, sqlite_rows
from tests.samples import ACME, ANN, EVE, batch, begin, listed, talk, texts
from tests.samples import closing as closed

SCRIBBLES = {
    "a number that is text": "UPDATE session SET version = 'many'",
    "a deadline that is text": "UPDATE session SET expires_at = 'never'",
    "an instant beyond the calendar": "UPDATE session SET created_at = 9000000000000000000",
    "text that is not UTF-8": "UPDATE profile SET title = CAST(x'ff' AS TEXT)",
    "a title that is a blob": "UPDATE profile SET title = x'41'",
    "an unknown status": "UPDATE profile SET status = 'asleep'",
    "an unknown touch": "UPDATE profile SET touch = 'sometimes'",
    "a scope of another shape": "UPDATE profile SET scope = CAST('{\"tenant\": 7}' AS BLOB)",
    "a scope that is none": 'UPDATE profile SET scope = CAST(\'{"tenant": ""}\' AS BLOB)',
    "half an object": "UPDATE profile SET context = x'7b22'",
    "a list for an object": "UPDATE profile SET metadata = x'5b5d'",
    "retention below nothing": "UPDATE profile SET idle = -5",
    "no profile": "DELETE FROM profile",
}


ACTS: dict[str, Callable[[SqliteStore], Awaitable[object]]] = {
    "get": lambda store: store.sessions.get(ANN, "s"),
    "begin_turn": lambda store: begin(store, ANN, "s", "hi"),
    "reset": lambda store: store.sessions.reset(ANN, "s"),
    "delete": lambda store: store.sessions.delete(ANN, "s"),
}


@pytest.mark.parametrize("scribble", SCRIBBLES.values(), ids=SCRIBBLES.keys())
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
async def test_a_damaged_head_is_set_aside_whole(
    store: SqliteStore, scribble: str, act: Callable[[SqliteStore], Awaitable[object]]
) -> None:
    await talk(store, ANN, "s", "secret", "kept")
    sqlite_rows(store, scribble)

    with pytest.raises(SessionCorrupt) as corrupt:
        await act(store)

    assert str(corrupt.value) == "session not found"
    assert sqlite_rows(store, "SELECT count(*) FROM message") == [(2,)]
    assert sqlite_rows(store, "SELECT key IS NOT NULL FROM quarantine") == [(1,)]
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")
    await talk(store, ANN, "s", "again", "fresh")
    assert await texts(store, ANN, "s") == ["again", "fresh"]


@pytest.mark.parametrize(
    "body",
    [
        "x''",
        "x'7b'",
        "CAST('{}' AS BLOB)",
        "CAST('null' AS BLOB)",
        'CAST(\'{"seq":1,"turn":1,"id":"m","role":"user","sent_at":"x"}\' AS BLOB)',
        "7",
    ],
)
async def test_a_damaged_message_sets_its_session_aside(store: SqliteStore, body: str) -> None:
    await talk(store, ANN, "s", "secret", "kept")
    await talk(store, ANN, "other", "hello", "hi")
    sqlite_rows(store, f"UPDATE message SET body = {body} WHERE place = (SELECT min(place) FROM message)")

    with pytest.raises(SessionCorrupt):
        await begin(store, ANN, "s", "words")

    assert sqlite_rows(store, "SELECT count(*) FROM message") == [(4,)]
    with pytest.raises(SessionNotFound):
        await store.sessions.messages(ANN, "s", Page())
    assert await texts(store, ANN, "other") == ["hello", "hi"]


async def test_a_damaged_message_is_met_by_a_reader_too(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    await talk(store, ANN, "s", "my secret", "kept")
    sqlite_rows(store, "UPDATE message SET body = substr(body, 1, 40)")

    with caplog.at_level(logging.WARNING), pytest.raises(SessionCorrupt) as corrupt:
        await store.sessions.messages(ANN, "s", Page())

    assert sqlite_rows(store, "SELECT reason FROM quarantine") == [("a message cannot be decoded",)]
    assert "session s was set aside" in caplog.text
    assert "secret" not in caplog.text + repr(corrupt.value)


async def test_a_turn_whose_session_was_damaged_is_lost(store: SqliteStore) -> None:
    turn = await begin(store, ANN, "s", "words")
    sqlite_rows(store, "UPDATE profile SET context = x'7b22'")

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(turn, closed("late"))
    with pytest.raises(TurnLost):
        await store.sessions.renew_turn(turn)


@pytest.mark.parametrize("scribble", SCRIBBLES.values(), ids=SCRIBBLES.keys())
async def test_the_list_of_spaces_shows_the_others(store: SqliteStore, scribble: str) -> None:
    await talk(store, ANN, "s", "secret", "kept")
    sqlite_rows(store, scribble)
    await talk(store, EVE, "s", "q", "a")
    await talk(store, ANN, "later", "q", "a")

    assert set(await store.upkeep.list_sites()) == {ACME, Scope(tenant="evil")}


async def test_a_listing_shows_the_others(store: SqliteStore) -> None:
    for name in ("a", "b", "c"):
        await talk(store, ANN, name, "q", "a")
    sqlite_rows(store, "UPDATE profile SET title = CAST(x'ff' AS TEXT) WHERE session_id = 'b'")
    sqlite_rows(store, "UPDATE profile SET context = x'00' WHERE session_id = 'c'")

    assert await listed(store, ANN) == ["a"]
    assert sqlite_rows(store, "SELECT count(*) FROM quarantine") == [(2,)]


async def test_a_sweep_sets_aside_what_it_cannot_name(store: SqliteStore, clock: FakeClock) -> None:
    for name in ("a", "b", "c"):
        await talk(store, ANN, name, "q", "a")
    sqlite_rows(store, "UPDATE profile SET scope = x'00' WHERE session_id = 'b'")
    sqlite_rows(store, "UPDATE profile SET title = CAST(x'ff' AS TEXT) WHERE session_id = 'c'")
    clock.advance(timedelta(days=31))

    gone = await store.upkeep.sweep()

    assert [item.session_id for item in gone] == ["a"]
    assert sqlite_rows(store, "SELECT count(*) FROM quarantine") == [(2,)]
    assert await store.upkeep.sweep() == ()


async def test_what_was_set_aside_neither_counts_nor_expires(store: SqliteStore, clock: FakeClock) -> None:
    await talk(store, ANN, "s", "q", "a")
    sqlite_rows(store, "UPDATE profile SET context = x'00'")
    with pytest.raises(SessionCorrupt):
        await store.sessions.get(ANN, "s")
    clock.advance(timedelta(days=400))

    assert (await store.upkeep.stats(ACME)).sessions == 0
    assert await store.upkeep.evict(ANN, keep=0) == ()
    assert await store.upkeep.sweep() == ()
    assert sqlite_rows(store, "SELECT count(*) FROM message") == [(2,)]


async def test_a_damaged_record_in_a_file_that_cannot_be_written_is_still_corrupt(store: SqliteStore) -> None:
    await talk(store, ANN, "s", "q", "a")
    sqlite_rows(store, "UPDATE profile SET context = x'00'")
    sqlite_db(store).execute("PRAGMA query_only = ON")

    with pytest.raises(SessionCorrupt):
        await store.sessions.get(ANN, "s")
    with pytest.raises(Unavailable):
        await store.sessions.list(ANN, SessionQuery())


async def test_damaged_state_is_an_error_and_not_a_value(store: SqliteStore) -> None:
    await store.state.write_state(ANN, "prefs", "k", {"a": 1})
    sqlite_rows(store, "UPDATE state SET value = x'7b'")

    with pytest.raises(Unavailable):
        await store.state.read_state(ANN, "prefs", "k")
    assert (await store.state.write_state(ANN, "prefs", "k", 2)).version == 2


async def test_a_lease_beyond_reason_is_refused_and_damages_nothing(store: SqliteStore) -> None:
    await store.sessions.append(ANN, "s", batch("hello"))

    with pytest.raises(Invalid, match="a lease is longer"):
        await begin(store, ANN, "s", "hi", lease=timedelta(days=3_000_000))
    turn = await begin(store, ANN, "s", "hi")

    assert (turn.number, turn.session.messages, turn.session.last_seq) == (2, 2, 2)
    assert turn.session == await store.sessions.get(ANN, "s")
    assert await texts(store, ANN, "s") == ["hello", "hi"]


async def test_damaged_pages_have_a_code_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with await SqliteStore.open(path) as store:
        for number in range(50):
            await talk(store, ANN, f"s{number}", "x" * 2000, "y" * 2000)
    half = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.seek(half)
        file.write(b"\xff" * half)

    async with await SqliteStore.open(path) as store:
        with pytest.raises(StoreDamaged, match="is damaged"):
            await texts(store, ANN, "s49")
