"""`tenuto copy` and `tenuto backup` as they are typed."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

import tenuto
from tenuto.stores.sqlite._schema import APPLICATION_ID, FORMAT
from tests.journeys.cli_runs import PSEUDONYM_SETTINGS, chat_session_id, run_command, run_json
from tests.samples import ANN, batch, fresh, texts
from tests.servers import RedisServer

pytestmark = pytest.mark.usefixtures("own_environment")
SOURCE = "sqlite:///data/tenuto.db"


@pytest.mark.requirement("T19")
def test_a_store_moves_with_keys_and_vault(valkey: RedisServer) -> None:
    """From a file to a server: the same command answers the same there, and a comparison names a change."""
    run_command("privacy", "new-key", "key.toml")
    session = chat_session_id(env=PSEUDONYM_SETTINGS)
    key = run_json("keys", "create", "--tenant", "acme")["key"]["id"]
    there = f"{valkey.url}?prefix={fresh('moved')}"
    env = {**PSEUDONYM_SETTINGS, "TENUTO_STORE": there}

    moved = run_command("copy", SOURCE, there)

    assert (moved.exit_code, moved.stdout.splitlines()[-1]) == (0, "Nothing differs.")
    assert moved.stdout.startswith("1 session with 2 messages and ")
    assert run_json("sessions", "show", session, env=env) == run_json(
        "sessions", "show", session, env=PSEUDONYM_SETTINGS
    )
    assert "ann.lee@example.com" in str(run_json("privacy", "reveal", session, "[EMAIL_1]", env=env))
    assert [made["id"] for made in run_json("keys", "list", env=env)["keys"]] == [key]
    output = run_json("copy", SOURCE, there, "--verify-only", ends=1)
    assert (output["copied"], output["verified"]["different"]) == (None, 1)
    assert "is in the target alone" in output["verified"]["differences"][0]  # The reveal was recorded there.


def test_what_cannot_be_meant_is_refused(subtests: pytest.Subtests) -> None:
    """Nothing comes into being for it."""
    for store in (SOURCE, "sqlite:///other.db"):
        run_json("keys", "create", "--tenant", "acme", "--store", store)
    Path("data", "tenuto-tasks.db").touch()
    for args, told in (
        (("copy", SOURCE, f"sqlite:///{Path.cwd()}/data/tenuto.db"), "both addresses name the same store"),
        (("copy", "sqlite:///none.db", SOURCE), "there is no file"),
        (("copy", SOURCE, "sqlite:///none.db", "--verify-only"), "there is no file"),
        (("copy", SOURCE, "sqlite:///other.db"), "the target holds other data"),
        (("copy", SOURCE, "oracle://host"), "no backend is called"),
        (("copy", SOURCE, "memory://"), "a store in memory is gone when the command ends"),
        (("copy", "memory://", "sqlite:///none.db"), "a store in memory is gone when the command ends"),
        (("copy", "postgresql://u:pass@127.0.0.1:1/x", SOURCE), "store at postgresql://u:***@127.0.0.1:1/x does not"),
        (("backup", "other.db"), "already exists"),
        (("backup", "b.db", "--store", "sqlite:///none.db"), "there is no file"),
        (("backup", "b.db", "--store", "redis://localhost"), "only SQLite is backed up here"),
    ):
        with subtests.test(" ".join(args)):
            result = run_command(*args)

            assert (result.exit_code, told in result.stderr) == (1, True)

    assert sorted(path.name for path in Path().iterdir() if not path.name.startswith("other.db")) == ["data"]


@pytest.mark.requirement("T19")
def test_a_source_of_a_development_version_is_refused_and_stays_as_it_is(subtests: pytest.Subtests) -> None:
    with closing(sqlite3.connect("old.db")) as db:
        db.executescript(f"CREATE TABLE session (id); PRAGMA application_id = {0x746E7574}; PRAGMA user_version = 6")
    before = Path("old.db").read_bytes()
    for options in (("--dry-run",), ("--verify",), ("--verify-only",)):
        with subtests.test(*options):
            result = run_command("copy", "sqlite:///old.db", "sqlite:///new.db", *options)

            assert (result.exit_code, Path("old.db").read_bytes() == before) == (1, True)
            assert "old.db is from before the first release" in result.stderr
            assert not list(Path().glob("new.db*"))


@pytest.mark.requirement("T19")
def test_records_that_cannot_be_read_stay_behind_and_count_as_different() -> None:
    """The others are copied; once a damaged session was met it is set aside, and still named."""
    sessions = []
    for _ in range(2):
        sessions.append(chat_session_id())
        run_json("keys", "create", "--tenant", "acme")
    with closing(sqlite3.connect("data/tenuto.db")) as db, db:
        for kind in ("session", "value"):
            key = "SELECT key FROM record WHERE kind = ? ORDER BY id DESC LIMIT 1"
            assert db.execute(f"UPDATE head SET head = x'01c1' WHERE key = ({key})", (kind,)).rowcount == 1

    for option, told in (("--verify", "copied"), ("--verify-only", "verified")):
        report = run_json("copy", SOURCE, "sqlite:///new.db", option, ends=1)
        assert (report[told]["unreadable"], report["verified"]["different"]) == (2, 2)
    assert len(run_json("sessions", "list", "--store", "sqlite:///new.db")["sessions"]) == 1
    for session in sessions:
        run_command("sessions", "rename", session, "met")
    copied = run_command("copy", SOURCE, "sqlite:///new.db", "--no-verify")
    assert (
        copied.exit_code,
        "1 record stayed behind in the source's quarantine, damaged:\n  session " in copied.stdout,
    ) == (1, True)


@pytest.mark.requirement("T19")
async def test_a_backup_of_a_store_in_use_holds_what_was_acknowledged(tmp_path: Path) -> None:
    """Turns go on while it is written; it is whole, for its owner alone, and opens as a store."""
    async with tenuto.open(f"sqlite:///{tmp_path}/a.db") as app:
        store = app.stores.unredacted
        begun, stop = asyncio.Event(), asyncio.Event()

        async def write() -> int:
            number = 0
            while not stop.is_set():
                await store.sessions.append(ANN, "s", batch(f"w{number}"))
                number += 1
                begun.set()
            return number

        writing = asyncio.create_task(write())
        await begun.wait()
        before = await texts(store, ANN, "s")
        done = await asyncio.to_thread(run_command, "backup", "copy.db", "--store", f"sqlite:///{tmp_path}/a.db")
        stop.set()
        written = await writing

    assert (done.exit_code, "checked" in done.stdout, written >= len(before)) == (0, True, True)
    assert _mode("copy.db") == 0o600
    async with tenuto.open("sqlite:///copy.db") as restored:
        kept = await texts(restored.stores.unredacted, ANN, "s")
    assert kept[: len(before)] == before
    assert kept == [f"w{number}" for number in range(len(kept))]


def test_a_file_of_others_is_not_backed_up(subtests: pytest.Subtests) -> None:
    """The message names the file and says what it is."""
    with closing(sqlite3.connect("newer.db")) as db:
        db.executescript(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT + 1}")
    with closing(sqlite3.connect("theirs.db")) as db:
        db.execute("CREATE TABLE theirs (x)")
    Path("letter.db").write_text("dear diary " * 100)
    for name, told in (("newer", f"has format {FORMAT + 1}"), ("theirs", "of another program"), ("letter", "not a")):
        with subtests.test(name):
            result = run_command("backup", "b.db", "--store", f"sqlite:///{name}.db")

            assert (result.exit_code, Path("b.db").exists()) == (1, False)
            assert told in result.stderr
            assert f"{name}.db" in result.stderr


def _mode(file: str) -> int:
    return stat.S_IMODE(Path(file).stat().st_mode)
