"""A damaged record is set aside, kept, and hides no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tenuto.errors import SessionCorrupt, SessionNotFound, StoreDamaged, TurnLost, Unavailable
from tenuto.model import IdempotencyKey, Page, Rewrite, Scope, Truncation
from tenuto.stores.engine import Engine
from tests.backends import sqlite_engine
from tests.clock import FakeClock
from tests.internals import sqlite_db, sqlite_rows
from tests.samples import ACME, ANN, EVE, batch, begin, closing, listed, talk, texts, trace_of

pytestmark = pytest.mark.requirement("X6")


_PAGE = 4096
DAMAGE = {
    "no head": "UPDATE head SET head = x''",
    "half a head": "UPDATE head SET head = substr(head, 1, 20)",
    "a deadline that is text": "UPDATE head SET deadline = 'never'",
    "an instant beyond the calendar": "UPDATE head SET deadline = 9000000000000000000",
    "half a profile": "UPDATE record SET profile = substr(profile, 1, 20)",
    "a profile of another": "UPDATE record SET profile = (SELECT head FROM head LIMIT 1)",
    "half a message": "UPDATE entry SET body = substr(body, 1, 20) WHERE part = 'm'",
    "a missing message": "DELETE FROM entry WHERE part = 'm' AND number = 1",
}


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Engine]:
    """A store whose time the test moves, and which holds nothing in memory."""
    async with sqlite_engine(tmp_path / "sessions.db", clock) as store:
        yield store


async def damage(store: Engine, statement: str) -> None:
    """Have the whole store damaged by another process."""
    sqlite_rows(store, statement)
    store.cache.clear()


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_record_is_set_aside_whole(
    store: Engine, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    await begin(store, ANN, "s", "my secret")
    await damage(store, statement)
    entries = sqlite_rows(store, "SELECT count(*) FROM entry")
    await talk(store, ANN, "other", "q", "a")

    with caplog.at_level(logging.WARNING), pytest.raises(SessionCorrupt) as excinfo:
        await store.sessions.messages(ANN, "s", Page())

    assert str(excinfo.value) == "session not found"
    assert "secret" not in caplog.text + repr(excinfo.value)
    assert "set aside" in caplog.text
    assert sqlite_rows(store, "SELECT count(*) FROM entry JOIN record ON id = record WHERE aside NOTNULL") == entries
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")
    await talk(store, ANN, "s", "again", "fresh")
    assert await texts(store, ANN, "s") == ["again", "fresh"]
    assert await texts(store, ANN, "other") == ["q", "a"]


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_record_hides_no_other(store: Engine, clock: FakeClock, statement: str) -> None:
    await begin(store, ANN, "s", "words")
    await damage(store, statement)
    await talk(store, ANN, "later", "q", "a")
    await talk(store, EVE, "s", "q", "a")

    assert "later" in await listed(store, ANN)
    assert set(await store.upkeep.list_sites()) == {ACME, Scope(tenant="evil")}
    clock.advance(timedelta(days=31))
    assert {item.session_id for item in await store.upkeep.sweep()} >= {"later", "s"}
    assert await store.upkeep.sweep() == ()


COLUMNS = {
    "a scope that is none": "scope = x'7b'",
    "a scope of another site": "scope = (SELECT scope FROM record ORDER BY id LIMIT 1)",
    "a status that is none": "status = 'asleep'",
    "a title that is no text": "title = CAST(x'ff' AS TEXT)",
}


@pytest.mark.parametrize("change", COLUMNS.values(), ids=COLUMNS.keys())
async def test_damaged_columns_hide_no_other(store: Engine, clock: FakeClock, change: str) -> None:
    await talk(store, EVE, "s", "q", "a")
    for name in ("a", "b", "c"):
        await talk(store, ANN, name, "q", "a")
        await store.state.write_state(ANN, "prefs", name, 1)
    await damage(store, f"UPDATE record SET {change} WHERE name IN ('a', 'b')")

    assert "c" in await listed(store, ANN)
    assert len(await store.state.list_state_locations(ACME, limit=1)) == 1
    assert set(await store.upkeep.list_sites(limit=2)) == {ACME, Scope(tenant="evil")}
    clock.advance(timedelta(days=31))
    assert {item.session_id for item in await store.upkeep.sweep(limit=4)} >= {"c", "s"}


async def test_a_damaged_message_far_back_is_met_when_it_is_read(store: Engine) -> None:
    await store.sessions.append(ANN, "s", batch(*(f"m{n}" for n in range(40))))
    await damage(store, "UPDATE entry SET body = substr(body, 1, 20) WHERE part = 'm' AND number = 2")

    await begin(store, ANN, "s", "words")
    with pytest.raises(SessionCorrupt):
        await store.sessions.messages(ANN, "s", Page(after=0, limit=5))
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")


async def test_a_lost_message_far_back_is_met_when_it_is_read(store: Engine) -> None:
    await store.sessions.append(ANN, "s", batch(*(f"m{n}" for n in range(40))))
    first = (await store.sessions.messages(ANN, "s", Page(after=0, limit=3))).messages[1]
    await damage(store, "DELETE FROM entry WHERE part = 'm' AND number = 2")

    await begin(store, ANN, "s", "words")
    with pytest.raises(SessionCorrupt):
        await store.sessions.rewrite(ANN, "s", Rewrite(messages=(first,)))
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")


OPENING: dict[str, Callable[[Engine, IdempotencyKey], Awaitable[object]]] = {
    "append": lambda store, key: store.sessions.append(ANN, "s", batch("m", idempotency_key=key)),
    "truncate": lambda store, key: store.sessions.truncate(ANN, "s", Truncation(after=3)),
}


@pytest.mark.parametrize("call", OPENING.values(), ids=OPENING.keys())
async def test_a_damaged_page_of_keys_is_met_when_it_is_opened(
    store: Engine, call: Callable[[Engine, IdempotencyKey], Awaitable[object]]
) -> None:
    once = [IdempotencyKey(key=f"k{n}", fingerprint="f") for n in range(30)]
    for key in once:
        await store.sessions.append(ANN, "s", batch("m", idempotency_key=key))
    ((body,),) = sqlite_rows(store, "SELECT body FROM entry WHERE part = 'k' AND number = 0")
    keys, packed = msgspec.msgpack.decode(body[1:])
    scribbled = body[:1] + msgspec.msgpack.encode((keys, b"\xc1" + packed[1:]))
    await damage(store, f"UPDATE entry SET body = x'{scribbled.hex()}' WHERE part = 'k' AND number = 0")

    with pytest.raises(SessionCorrupt):
        await call(store, once[0])
    await store.sessions.append(ANN, "s", batch("fresh", idempotency_key=once[0]))

    assert await texts(store, ANN, "s") == ["fresh"]


async def test_a_turn_whose_session_was_damaged_is_lost(store: Engine) -> None:
    turn = await begin(store, ANN, "s", "words")
    await damage(store, "UPDATE head SET head = x'00', revision = revision + 1")

    with pytest.raises(SessionCorrupt):
        await store.sessions.finish_turn(turn, closing("late"))
    with pytest.raises(TurnLost):
        await store.sessions.renew_turn(turn)


async def test_a_damaged_record_in_a_file_that_cannot_be_written_is_an_error(store: Engine) -> None:
    await talk(store, ANN, "s", "q", "a")
    await damage(store, "UPDATE head SET head = x'00'")
    sqlite_db(store).execute("PRAGMA query_only = ON")

    with pytest.raises(Unavailable):
        await store.sessions.get(ANN, "s")


async def test_a_damaged_trace_is_as_good_as_none_and_its_session_stays(store: Engine) -> None:
    turns = []
    for text in ("my secret", "hello"):
        turns.append(await begin(store, ANN, "s", text))
        await store.sessions.finish_turn(turns[-1], closing("hi", trace=trace_of(turns[-1], request=text)))
    await damage(store, "UPDATE entry SET body = substr(body, 1, 20) WHERE part = 't' AND number = 1")

    assert await store.traces.trace(ANN, "s", 1) is None
    assert await store.traces.traces(ANN, "s") == (trace_of(turns[1], request="hello"),)
    assert await texts(store, ANN, "s") == ["my secret", "hi", "hello", "hi"]


async def test_damaged_state_is_an_error_and_not_a_value(store: Engine) -> None:
    await store.state.write_state(ANN, "prefs", "k", {"a": 1})
    await damage(store, "UPDATE head SET head = x'00'")

    with pytest.raises(Unavailable):
        await store.state.read_state(ANN, "prefs", "k")
    await store.state.write_state(ANN, "prefs", "k", 2)
    value = await store.state.read_state(ANN, "prefs", "k")
    assert value is not None
    assert value.value == 2


async def test_a_damaged_page_has_a_code_of_its_own_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with sqlite_engine(path) as store:
        for number in range(50):
            await talk(store, ANN, f"s{number}", "x" * 2000, "y" * 2000)
    page = path.read_bytes().rindex(b"y" * 1000) // _PAGE
    with path.open("r+b") as file:
        file.seek(page * _PAGE)
        file.write(b"\xff" * _PAGE)

    async with sqlite_engine(path) as store:
        ends = await asyncio.gather(*(texts(store, ANN, f"s{n}") for n in range(50)), return_exceptions=True)

    damaged = [end for end in ends if isinstance(end, StoreDamaged)]
    assert 1 <= len(damaged) <= 2
    assert "is damaged" in str(damaged[0])
    assert sum(isinstance(end, list) for end in ends) + len(damaged) == 50
