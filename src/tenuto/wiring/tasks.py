"""The wiring of the task engine: its database, beside the store of the settings."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tenuto.errors import PackageMissing
from tenuto.lazy_imports import lazy_module
from tenuto.model.policy import RunPolicy
from tenuto.model.signature import read_signing_key
from tenuto.ports import Clock, OwnersOf, Store, TaskEngine, owner_alone
from tenuto.privacy.redactor import Redactor
from tenuto.sessions import fresh_id
from tenuto.sessions.profiles import Profiles
from tenuto.settings import Settings
from tenuto.stores.factory import is_network_store, sqlite_path
from tenuto.tasks import Tasks
from tenuto.tasks.agent_contexts import AgentContexts
from tenuto.tasks.agents import Agents
from tenuto.tasks.step_runner import StepRunner
from tenuto.telemetry import open_telemetry
from tenuto.wiring.stores import journal_folder

if TYPE_CHECKING:
    from tenuto import context
    from tenuto.tasks import webhooks
else:
    context = lazy_module("tenuto.context")
    webhooks = lazy_module("tenuto.tasks.webhooks")

_log = logging.getLogger(__name__)
EXTRA: Final = "tasks"
"""The extra that running plans needs."""


@asynccontextmanager
async def open_engine(
    settings: Settings,
    *,
    tasks: Tasks,
    contexts: AgentContexts,
    agents: Agents,
    clock: Clock,
    worker: bool,
    redactor: Redactor,
    policy: RunPolicy = RunPolicy(),  # noqa: B008 (a frozen value)
) -> AsyncIterator[TaskEngine]:
    """The engine of the settings.

    Raises:
        InvalidSetting: the extra is not installed, or the database is of another kind.
    """
    open_dbos_engine = await asyncio.to_thread(_load_engine)
    async with AsyncExitStack() as stack:
        telemetry = await stack.enter_async_context(open_telemetry(metrics=False)) if settings.telemetry else None
        runner = StepRunner(
            tasks=tasks,
            contexts=contexts,
            agents=agents,
            policy=policy,
            clock=clock,
            telemetry=telemetry,
            redact=redactor.trace_text,
        )
        # Only tasks in memory have no place of their own; a killed worker would leave the folder behind.
        in_memory = settings.tasks_database is None and urlsplit(settings.store).scheme == "memory"
        scratch = tempfile.TemporaryDirectory(prefix="tenuto-tasks-") if in_memory else nullcontext("")
        url = engine_database(settings, Path(stack.enter_context(scratch)))
        if worker and (notice := one_machine_notice(settings)) is not None:
            _log.warning("%s", notice)
        if settings.tasks_database is None and url.startswith("sqlite:") and is_network_store(settings.store):
            journal_folder(settings).mkdir(parents=True, exist_ok=True)
        delivery = await stack.enter_async_context(_open_delivery(settings, tasks, clock))
        engine = open_dbos_engine(
            url,
            tasks=tasks,
            runner=runner,
            agents=agents,
            policy=policy,
            new_id=fresh_id(),
            worker=worker,
            delivery=delivery,
        )
        yield await stack.enter_async_context(engine)


@asynccontextmanager
async def _open_delivery(
    settings: Settings, tasks: Tasks, clock: Clock
) -> AsyncIterator[webhooks.EventDelivery | None]:
    key = webhook_key(settings)
    if settings.task_webhook is None or key is None:
        yield None
        return
    webhook = webhooks.Webhook(settings.task_webhook, key, clock=clock)
    try:
        yield webhooks.EventDelivery(tasks=tasks, webhook=webhook)
    finally:
        await webhook.close()


def make_agent_contexts(tasks: Tasks, store: Store, owners_of: OwnersOf = owner_alone) -> AgentContexts:
    """What agents see of tasks."""
    return AgentContexts(
        tasks=tasks,
        sessions=store.sessions,
        profile_of=Profiles(store.state, owners_of).read,
        write_prompt=context.agent_prompt,
        history_messages=RunPolicy().history_messages,
    )


def can_run_plans() -> bool:
    """Whether the extra is installed; to look for it costs nothing."""
    return find_spec("dbos") is not None


def _load_engine() -> Callable[..., AbstractAsyncContextManager[TaskEngine]]:
    """Import the engine, which takes half a second."""
    try:
        from tenuto.tasks.engines.dbos_engine import open_dbos_engine
    except ModuleNotFoundError as error:
        raise PackageMissing("tasks_database", "running plans", extra=EXTRA) from error
    return open_dbos_engine


def one_machine_notice(settings: Settings) -> str | None:
    """What to know where processes share tasks, but maybe not their runs."""
    is_shared = urlsplit(settings.store).scheme in ("postgresql", "postgres") or not is_network_store(settings.store)
    if is_shared or (settings.tasks_database is not None and not settings.tasks_database.startswith("sqlite")):
        return None
    file = engine_database(settings).removeprefix("sqlite:///")
    return (
        f"Redis holds the tasks, but the queue of their runs is the file {file}, and only processes that share it "
        "share them; set tasks_database to a Postgres database of all, or on one machine the same journal folder"
    )


def engine_database(settings: Settings, scratch: Path = Path()) -> str:
    """The database of the engine: as it is set, or beside the store; `scratch` is for a store in memory."""
    database, kind = settings.tasks_database, urlsplit(settings.store).scheme
    if database is not None:
        return database
    if kind == "sqlite":
        store = sqlite_path(settings.store)
        return f"sqlite:///{store.with_name(store.stem + '-tasks' + store.suffix)}"
    if kind in ("postgresql", "postgres"):
        return settings.store
    if not is_network_store(settings.store):
        return f"sqlite:///{scratch / 'tasks.db'}"
    return f"sqlite:///{journal_folder(settings) / 'tasks.db'}"


def webhook_key(settings: Settings) -> bytes | None:
    """The key that signs the events of tasks, which the settings have checked; `None` if they are not sent."""
    if settings.task_webhook is None:
        return None
    return read_signing_key(settings.task_webhook_secret or "", "task_webhook_secret")
