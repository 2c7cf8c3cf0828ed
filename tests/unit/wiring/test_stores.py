"""What stands before a store: a breaker and a journal where it is a server, neither where it is a file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tenuto.app import open_app
from tenuto.errors import InvalidSetting
from tenuto.settings import Settings, read_settings
from tenuto.stores.engine import Engine
from tenuto.stores.engine.breaker import BreakerRecords
from tenuto.stores.engine.codec import PLAIN
from tenuto.stores.factory import place_of
from tenuto.tasks import ProtectedStore
from tenuto.wiring.stores import journal_folder
from tests.samples import fresh
from tests.servers import RedisServer

KEY = bytes(range(32)).hex()


def _settings(server: RedisServer, folder: Path, **given: Any) -> Settings:
    store = f"{server.url}?prefix={fresh('storing')}"
    return read_settings({}, store=store, journal=str(folder), **given)


async def test_a_server_is_behind_breaker_engine_and_privacy_policy(valkey: RedisServer, tmp_path: Path) -> None:
    """A2, A22: in this order, so that cache and journal see what passed the policy, the breaker what is sealed."""
    settings = _settings(valkey, tmp_path, encryption=True, privacy_key=KEY)
    async with open_app(settings, run_upkeep=False) as app:
        stores = app.stores
        journal = stores.journal

        assert isinstance(stores.front, ProtectedStore)
        assert stores.front.inner is stores.trusted
        assert stores.trusted.inner is stores.unredacted
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


def test_the_breakers_settings() -> None:
    """X8."""
    given = read_settings({"TENUTO_BREAKER_FAILURES": "3", "TENUTO_BREAKER_RESET": "15s"})

    assert (given.breaker_failures, given.breaker_reset) == (3, timedelta(seconds=15))
    assert (Settings().breaker_failures, Settings().breaker_reset) == (5, timedelta(seconds=30))
    with pytest.raises(InvalidSetting, match="breaker_reset"):
        read_settings({}, breaker_reset="off")
    with pytest.raises(InvalidSetting, match="breaker_failures"):
        read_settings({}, breaker_failures=-1)
