"""The task engine of the settings: its database stands beside the store, and its agents come from a folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tenuto.extras import install_line

pytest.importorskip("dbos")

import tenuto
from tenuto.errors import InvalidSetting
from tenuto.model import Scope
from tenuto.settings import read_settings
from tenuto.wiring.tasks import engine_database, one_machine_notice
from tests.engines import plan_of, wait_for_end

ANN = Scope(tenant="local", user="ann")
READER = """
import tenuto

@tenuto.agent("reader")
async def read(ctx: tenuto.AgentContext) -> str:
    return ctx.goal
"""


@pytest.mark.parametrize(
    ("store", "database", "used"),
    [
        ("sqlite:////data/chat.db", None, "sqlite:////data/chat-tasks.db"),
        ("sqlite:///chat.db", None, "sqlite:///chat-tasks.db"),
        ("postgresql://db/chat", None, "postgresql://db/chat"),
        ("memory://", None, "sqlite:///{folder}/tasks.db"),
        ("redis://host", "postgresql://db/tasks", "postgresql://db/tasks"),
    ],
)
def test_the_database_stands_beside_the_store(store: str, database: str | None, used: str, tmp_path: Path) -> None:
    settings = read_settings({}, store=store, **({} if database is None else {"tasks_database": database}))

    assert engine_database(settings, tmp_path) == used.format(folder=tmp_path)


def test_with_redis_a_local_file_is_used_and_said(tmp_path: Path) -> None:
    settings = read_settings({}, store="redis://host", journal=str(tmp_path))
    shared = read_settings({}, store="redis://host", tasks_database="postgresql://db/tasks")

    assert engine_database(settings).startswith(f"sqlite:///{tmp_path}/")
    notice = one_machine_notice(settings) or ""
    assert engine_database(settings).removeprefix("sqlite:///") in notice
    assert "only processes that share it share them; set tasks_database to a Postgres database" in notice
    assert one_machine_notice(shared) is None
    assert one_machine_notice(read_settings({}, store="postgresql://db/chat")) is None
    assert one_machine_notice(read_settings({}, store="sqlite:///chat.db")) is None


def test_other_databases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="tasks_database: must be"):
        engine_database(read_settings({}, store="memory://", tasks_database="redis://host"), tmp_path)


async def test_agents_of_a_folder_run_a_plan_and_erasing_their_user_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "reading.py").write_text(READER)

    async with tenuto.open(f"sqlite:///{tmp_path}/chat.db", agents=str(tmp_path / "agents")) as app:
        engine = await app.engine()
        assert await app.engine() is engine
        task = await engine.submit(ANN, tenuto.NewTask(type="x", goal="so"), plan_of({"id": "a", "agent": "reader"}))
        progress = await wait_for_end(app.tasks, ANN, task.id)
        assert progress.task.result == {"a": "so"}

    # A process that has run nothing itself knows from the store that there is something to erase.
    async with tenuto.open(f"sqlite:///{tmp_path}/chat.db") as app:
        receipt = await app.privacy.erase(ANN, by="test")

        engine = await app.engine()
        assert receipt.counts["task_runs"] == 1
        assert await engine.erase(ANN) == 0
        assert (await engine.list(ANN, tenuto.TaskQuery())).tasks == ()


async def test_without_the_extra_the_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)
    monkeypatch.delitem(sys.modules, "tenuto.tasks.engines.dbos_engine", raising=False)

    async with tenuto.open("memory://") as app:
        with pytest.raises(InvalidSetting, match=re.escape(install_line("tasks"))):
            await app.engine()
