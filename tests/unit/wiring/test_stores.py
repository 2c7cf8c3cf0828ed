"""What stands before a store: a breaker and a journal where it is a server, neither where it is a file."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.app import open_app
from tenuto.errors import InvalidSetting
from tenuto.model import Changes, Page
from tenuto.model.scope import site_scope, user_digest
from tenuto.model.session import MAX_TITLE_CHARACTERS
from tenuto.settings import Settings, read_settings
from tenuto.stores.engine import Engine
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.engine.codec import PLAIN
from tenuto.stores.engine.journal_replay import ERASURES
from tenuto.stores.factory import place_of
from tenuto.stores.sealed_state import has_sealed_records
from tenuto.tasks import ProtectedStore
from tenuto.wiring.stores import journal_folder
from tests.samples import ANN, fresh
from tests.servers import RedisServer

KEY = bytes(range(32)).hex()


def _settings(server: RedisServer, folder: Path, **given: Any) -> Settings:
    store = f"{server.url}?prefix={fresh('storing')}"
    return read_settings({}, store=store, journal=str(folder), **given)


@pytest.mark.requirement("A2", "A22")
async def test_a_server_is_behind_breaker_engine_and_privacy_policy(valkey: RedisServer, tmp_path: Path) -> None:
    """In this order, so that cache and journal see what passed the policy, the breaker what is sealed."""
    settings = _settings(valkey, tmp_path, encryption=True, privacy_key=KEY)
    async with open_app(settings, run_upkeep=False) as app:
        stores = app.stores
        journal = stores.journal

        assert isinstance(stores.front, ProtectedStore)
        assert stores.front.inner is stores.unprotected
        assert stores.unprotected.inner is stores.unredacted
        engine = stores.unredacted
        assert isinstance(engine, Engine)
        assert engine.sessions.journal is journal
        assert engine.cache is stores.cache
        assert await engine.sessions.codec(app.scope()) is not PLAIN
        assert isinstance(engine.records, BreakerRecords)
        assert engine.records is stores.circuit
        assert engine.records.inner is stores.backend
        assert stores.writable_journal is journal
        assert not stores.unavailable


async def test_a_breaker_can_be_switched_off(valkey: RedisServer, tmp_path: Path) -> None:
    async with open_app(_settings(valkey, tmp_path, breaker_failures=0), run_upkeep=False) as app:
        assert app.stores.circuit is None
        assert app.stores.journal is not None


async def test_an_erasure_is_marked_for_other_machines_where_the_folder_cannot_be_used(
    valkey: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    async with open_app(_settings(valkey, tmp_path / "file"), run_upkeep=False) as app:
        await app.stores.front.upkeep.erase(ANN)

        assert app.stores.journal is None
        erased = user_digest(ANN.tenant, "ann")
        assert await app.stores.unredacted.state.read_state(site_scope(ANN), ERASURES, erased) is not None


async def test_who_only_reads_has_no_journal(valkey: RedisServer, tmp_path: Path) -> None:
    async with open_app(_settings(valkey, tmp_path / "none"), run_upkeep=False, read_only=True) as app:
        assert app.stores.journal is None
    assert not (tmp_path / "none").exists()


async def test_a_file_has_neither_breaker_nor_journal(tmp_path: Path) -> None:
    settings = read_settings({}, store=f"sqlite:///{tmp_path}/s.db", journal=str(tmp_path / "none"))
    async with open_app(settings, run_upkeep=False) as app:
        assert (app.stores.circuit, app.stores.journal, app.stores.unavailable) == (None, None, False)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("redis://h:1/0", "redis://u:hunter2@h:1/0"),
        ("redis://h:1/0", "valkey://H:1/0/"),
        ("redis://h:1/0?prefix=a", "redis://h:1/0?password=x&prefix=a"),
        ("redis+cluster://a:1,b:2", "redis+cluster://u:p@b:2,a:1"),
        ("postgresql://u:p@h/db", "postgres://v:q@h/db?sslmode=require&user=ann"),
    ],
)
def test_a_store_is_known_by_its_place_however_one_gets_there(one: str, other: str) -> None:
    """Else a changed password would leave turns behind in a folder that is never read."""
    assert place_of(one) == place_of(other)
    assert "hunter2" not in place_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("redis://h:1/0", "redis://h:1/1"),
        ("redis://h:1/0", "redis://h:2/0"),
        ("redis://h:1/0?prefix=a", "redis://h:1/0?prefix=b"),
        ("redis://h/db", "postgresql://h/db"),
        ("postgresql:///db?host=a", "postgresql:///db?host=b"),
    ],
)
def test_journals_of_different_stores_lie_apart(one: str, other: str, tmp_path: Path) -> None:
    """What was said to one store never goes to another."""
    folders = {journal_folder(read_settings({}, store=url, journal=str(tmp_path))) for url in (one, other)}

    assert len(folders) == 2
    assert {folder.parent for folder in folders} == {tmp_path}


def test_the_journal_lies_in_the_users_folder_unless_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own = Settings().journals()
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))

    assert own == tmp_path / "tenuto" / "journal"
    assert Settings().journals() == tmp_path / "ann" / ".local" / "state" / "tenuto" / "journal"
    assert Settings(journal="/var/lib/tenuto").journals() == Path("/var/lib/tenuto")


@pytest.mark.requirement("X8")
def test_the_breakers_settings() -> None:
    given = read_settings({"TENUTO_BREAKER_FAILURES": "3", "TENUTO_BREAKER_RESET": "15s"})

    assert (given.breaker_failures, given.breaker_reset) == (3, timedelta(seconds=15))
    assert (Settings().breaker_failures, Settings().breaker_reset) == (5, timedelta(seconds=30))
    with pytest.raises(InvalidSetting, match="breaker_reset"):
        read_settings({}, breaker_reset="off")
    with pytest.raises(InvalidSetting, match="breaker_failures"):
        read_settings({}, breaker_failures=-1)


# Encryption


def _key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


async def _say(url: str, **settings: Any) -> None:
    async with tenuto.open(url, **settings) as app:
        turn = await app.begin(app.scope(user="ann"), "The quokka smiles.")
        await app.finish(turn, "So it does.")


def _bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_a_sealed_store_opens_with_its_own_key_alone(tmp_path: Path) -> None:
    """Under another one new records would be sealed, and lost with the right one; switched off, it is needed still."""
    url = f"sqlite:///{tmp_path}/chat.db"
    await _say(url, encryption=True, privacy_key=_key(1))

    assert b"quokka" not in _bytes_in(tmp_path)
    for settings, why in (
        ({}, "privacy_key: is needed: the store holds encrypted records"),
        ({"privacy_key": _key(2)}, "encrypted with another master key"),
        ({"privacy_key": _key(2), "encryption": True}, "encrypted with another master key"),
    ):
        with pytest.raises(InvalidSetting, match=why):
            await _say(url, **settings)
    for encryption in (False, True):
        async with tenuto.open(url, encryption=encryption, privacy_key=_key(1)) as app:
            ann = app.scope(user="ann")
            [session] = (await app.sessions.list(ann)).sessions
            page = await app.sessions.messages(ann, session.id, Page())
            assert [message.text for message in page.messages] == ["The quokka smiles.", "So it does."]


async def test_limits_count_what_people_said_and_a_plain_store_needs_no_key(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_message_bytes": 4096, "max_head_bytes": 4096}
    async with tenuto.open(f"sqlite:///{tmp_path}/s.db", encryption=True, privacy_key=_key(1), **limits) as app:
        ann = app.scope(user="ann")
        turn = await app.begin(ann, "x" * 3800)
        await app.finish(turn, "y" * 3800)
        title = "长" * MAX_TITLE_CHARACTERS
        await app.sessions.patch(ann, turn.session.id, Changes(title=title))
        patched = await app.sessions.patch(ann, turn.session.id, Changes(attributes={"k": "z" * 3000}))
    await _say(f"sqlite:///{tmp_path}/plain.db")
    async with tenuto.open(f"sqlite:///{tmp_path}/plain.db") as app:
        marked = await has_sealed_records(app.stores.plain_state)

    assert (patched.title, patched.attributes, marked) == (title, {"k": "z" * 3000}, False)
