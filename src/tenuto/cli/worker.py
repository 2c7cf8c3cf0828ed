"""`tenuto worker`: a process that works on tasks, and does nothing else."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Annotated

import typer

from tenuto.app import open_app
from tenuto.cli.effective_settings import mask_password
from tenuto.cli.options import StoreUrl
from tenuto.cli.running import make_folder, naming_store, shown_store
from tenuto.errors import InvalidSetting, PackageMissing
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.settings import Settings, read_settings
from tenuto.wiring.privacy import open_policies
from tenuto.wiring.tasks import EXTRA, can_run_plans, engine_database

_log = logging.getLogger(__name__)


def worker(
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", min=1, max=1000, metavar="N", help="Maximum number of agents that run at once."),
    ] = 16,
    store: StoreUrl = None,
) -> None:
    """Work on tasks until stopped.

    Other workers continue what this one leaves unfinished.
    """
    settings = read_settings(store=store)
    if settings.store.startswith("memory:"):
        raise InvalidSetting("store", "a worker needs a store that it shares with other processes, not memory")
    if not can_run_plans():
        raise PackageMissing("tasks", "a worker", extra=EXTRA)
    make_folder(settings)
    # Loaded here: lines of workers look like those of servers.
    from tenuto.server.logs import configure_logging

    configure_logging(settings.log_level, LogRedactor(lambda: open_policies(settings)))
    with naming_store(settings):
        asyncio.run(_work(settings, concurrency))


async def _work(settings: Settings, concurrency: int) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with open_app(settings) as app:
        agents = ", ".join(sorted(app.agents.own))
        if not agents:
            raise InvalidSetting("agents", "a worker needs agents: set TENUTO_AGENTS to a folder that contains some")
        await app.engine(worker=True, concurrency=concurrency)
        database = mask_password(engine_database(settings))
        _log.info("working on tasks: store %s, engine database %s, agents %s", shown_store(settings), database, agents)
        await stopped.wait()
        _log.info("stopping: other workers take over the tasks of this one")
