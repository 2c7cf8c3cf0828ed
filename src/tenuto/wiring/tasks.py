"""The wiring of the task engine: its database, beside the store of the settings."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from tenuto.errors import InvalidSetting
from tenuto.model.policy import RunPolicy
from tenuto.ports import Clock, TaskEngine
from tenuto.sessions import fresh_id
from tenuto.settings import Settings
from tenuto.stores.factory import is_network_store, sqlite_path
from tenuto.tasks import Tasks
from tenuto.tasks.agent_contexts import AgentContexts
from tenuto.tasks.agents import Agents
from tenuto.tasks.step_runner import StepRunner
from tenuto.wiring.stores import journal_folder

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_engine(
    settings: Settings,
    *,
    tasks: Tasks,
    contexts: AgentContexts,
    agents: Agents,
    clock: Clock,
    worker: bool,
    policy: RunPolicy = RunPolicy(),  # noqa: B008 (a frozen value)
) -> AsyncIterator[TaskEngine]:
    """The engine of the settings.

    Raises:
        InvalidSetting: the extra is not installed, or the database is of another kind.
    """
    try:
        from tenuto.tasks.engines.dbos_engine import open_dbos_engine
    except ModuleNotFoundError as absent:
        raise InvalidSetting("tasks_database", "running plans needs an extra: pip install 'tenuto[tasks]'") from absent
    runner = StepRunner(tasks=tasks, contexts=contexts, agents=agents, policy=policy, clock=clock)
    # Only tasks in memory have no place of their own; a killed worker would leave the folder behind.
    in_memory = settings.tasks_database is None and urlsplit(settings.store).scheme == "memory"
    with tempfile.TemporaryDirectory(prefix="tenuto-tasks-") if in_memory else nullcontext("") as scratch:
        url = engine_database(settings, Path(scratch))
        async with open_dbos_engine(
            url, tasks=tasks, runner=runner, agents=agents, policy=policy, new_id=fresh_id(), worker=worker
        ) as engine:
            yield engine


def engine_database(settings: Settings, scratch: Path) -> str:
    """The database of the engine: as it is set, or beside the store.

    Raises:
        InvalidSetting: it is neither SQLite nor Postgres.
    """
    chosen, kind = settings.tasks_database, urlsplit(settings.store).scheme
    if chosen is not None:
        if urlsplit(chosen).scheme not in ("sqlite", "postgresql", "postgres"):
            raise InvalidSetting("tasks_database", "must be sqlite:///… or postgresql://…")
        return chosen
    if kind == "sqlite":
        store = sqlite_path(settings.store)
        return f"sqlite:///{store.with_name(store.stem + '-tasks' + store.suffix)}"
    if kind in ("postgresql", "postgres"):
        return settings.store
    if not is_network_store(settings.store):
        return f"sqlite:///{scratch / 'tasks.db'}"
    folder = journal_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    _log.warning(
        "tasks of this machine run here alone: Redis holds them, but their runs are in a local file; "
        "set tasks_database to a Postgres database that all workers share"
    )
    return f"sqlite:///{folder / 'tasks.db'}"
