"""What the doctor says of outages: the breaker, and the journal of a store that may not even answer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli import program
from tenuto.settings import Settings
from tenuto.stores.engine import Engine
from tenuto.stores.engine.journal_files import DiskFolder
from tenuto.wiring.stores import journal_folder
from tests.samples import ANN, talk
from tests.simulation.store import Fate, SimClient, SimServer

# Without a listener.
AWAY = "redis://127.0.0.1:1/0"


pytestmark = pytest.mark.usefixtures("own_environment")


def _examined(folder: Path, store: str = AWAY, **env: str) -> dict[str, dict[str, Any]]:
    given = {"TENUTO_STORE": store, "TENUTO_JOURNAL": str(folder), **env}
    told = CliRunner().invoke(program, ["doctor", "--json"], env=given, catch_exceptions=False)
    return {check["name"]: check for check in json.loads(told.stdout)["checks"]}


async def _leave_a_turn(path: Path) -> None:
    """A process that ends while its store is away."""
    server = SimServer(Random(1))
    server.fate = lambda process, kind: Fate.REFUSED
    folder = await DiskFolder.open(path)
    async with Engine(SimClient(server, "a"), chance=Random(1), folder=folder) as engine:
        await talk(engine, ANN, "s", "one", "1", journaled=True, new_id=True)
    await folder.close()


def test_breaker_and_journal_are_told_though_the_store_is_away(tmp_path: Path) -> None:
    checks = _examined(tmp_path)

    assert checks["store"]["status"] == "error"
    assert checks["breaker"]["message"] == "after 5 calls in a row without an answer, calls are rejected for 30s"
    assert checks["journal"]["status"] == "ok"
    assert checks["journal"]["message"].endswith(": 0 turns waiting, 0 quarantined")


def test_a_breaker_that_is_off_is_a_note(tmp_path: Path) -> None:
    assert _examined(tmp_path, TENUTO_BREAKER_FAILURES="0")["breaker"]["status"] == "warning"


async def test_turns_that_wait_are_counted(tmp_path: Path) -> None:
    await _leave_a_turn(journal_folder(Settings(store=AWAY, journal=str(tmp_path))))

    journal = (await asyncio.to_thread(_examined, tmp_path))["journal"]

    assert (journal["status"], "1 turn waiting, 0 quarantined" in journal["message"]) == ("warning", True)
    assert "as soon as the store answers" in journal["advice"]


async def test_turns_of_a_store_that_moved_are_found(tmp_path: Path) -> None:
    await _leave_a_turn(journal_folder(Settings(store="redis://before:6379/0", journal=str(tmp_path))))

    checks = await asyncio.to_thread(_examined, tmp_path)

    assert "0 turns waiting" in checks["journal"]["message"]
    assert checks["other journal"]["status"] == "warning"
    assert "1 turn waiting for another store" in checks["other journal"]["message"]
    assert "it would be overwritten" not in checks["other journal"]["advice"]


async def test_turns_of_this_store_are_not_to_be_overwritten_by_those_of_another(tmp_path: Path) -> None:
    for store in (AWAY, "redis://before:6379/0"):
        await _leave_a_turn(journal_folder(Settings(store=store, journal=str(tmp_path))))

    checks = await asyncio.to_thread(_examined, tmp_path)

    assert "not before the one there is empty (`tenuto journal`)" in checks["other journal"]["advice"]


async def test_quarantined_turns_are_listed(tmp_path: Path) -> None:
    """Without their text, and though the store is away."""
    env = {"TENUTO_STORE": AWAY, "TENUTO_JOURNAL": str(tmp_path)}
    path = journal_folder(Settings(store=AWAY, journal=str(tmp_path)))

    async def run(*options: str) -> str:
        command = ["journal", *options]
        told = await asyncio.to_thread(CliRunner().invoke, program, command, env=env, catch_exceptions=False)
        return told.stdout

    empty = await run()
    await _leave_a_turn(path)
    with closing(sqlite3.connect(path / "journal.db")) as db, db:
        db.execute("UPDATE row SET aside = 'session_replaced', aside_at = at")
    listed = json.loads(await run("--json"))
    shown = await run()

    assert "0 turns waiting, 0 quarantined" in empty
    (turn,) = listed["quarantined"]
    assert (turn["tenant"], turn["session_id"], turn["reason"]) == ("acme", "s", "session_replaced")
    assert {*turn} == {"tenant", "site", "session_id", "turn", "at", "quarantined_at", "reason"}
    assert "1 quarantined" in shown
    assert "session_replaced" in shown


@pytest.mark.parametrize(("policy", "state"), [("journal", "error"), ("raise", "warning")])
def test_a_folder_that_cannot_be_had_is_as_bad_as_it_is_needed(tmp_path: Path, policy: str, state: str) -> None:
    (tmp_path / "file").write_text("no folder")

    journal = _examined(tmp_path / "file", TENUTO_ON_STORE_DOWN=policy)["journal"]

    assert journal["status"] == state
    assert "TENUTO_JOURNAL" in journal["advice"]


def test_a_file_in_the_journal_that_cannot_be_read_is_red(tmp_path: Path) -> None:
    folder = journal_folder(Settings(store=AWAY, journal=str(tmp_path)))
    folder.mkdir(parents=True)
    (folder / "journal.db").write_text("no database at all, but long enough to be read as one" * 20)

    assert _examined(tmp_path)["journal"]["status"] == "error"


async def test_files_of_a_development_version_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the log of a server as well: their turns were acknowledged, and nobody reads them."""
    path = journal_folder(Settings(store=AWAY, journal=str(tmp_path)))
    await (await DiskFolder.open(path)).close()
    quiet = not caplog.messages
    for name in ("1.db", "12.db", "tasks.db"):
        (path / name).write_bytes(b"turns")

    await (await DiskFolder.open(path)).close()
    journal = (await asyncio.to_thread(_examined, tmp_path))["journal"]

    assert quiet
    assert [line.endswith("not read: 1.db, 12.db") for line in caplog.messages] == [True]
    assert (journal["status"], journal["message"].endswith("in 1.db, 12.db")) == ("error", True)


def test_a_store_that_is_a_file_has_neither(tmp_path: Path) -> None:
    assert not {"breaker", "journal"} & set(_examined(tmp_path, store="sqlite:///s.db"))
