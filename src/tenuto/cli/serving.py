"""`tenuto serve`, `mcp` and `worker`: processes that run until they are stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Annotated

from tenuto.app import open_app
from tenuto.cli.effective_settings import mask_password
from tenuto.cli.options import StoreUrl, option
from tenuto.cli.running import UserStore, for_one_person, make_folder, naming_store, shown_store
from tenuto.errors import ExtraMissing, InvalidSetting, PackageMissing
from tenuto.model import Scope
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.settings import Settings, read_settings
from tenuto.wiring.privacy import open_policies

_log = logging.getLogger(__name__)


def serve(
    host: Annotated[str | None, option("ADDRESS", "Address to listen on.")] = None,
    port: Annotated[int | None, option("N", "Port to listen on; 0 picks a free one.", min=0, max=65_535)] = None,
    workers: Annotated[int | None, option("N", "Server processes on the port.", min=1, max=64)] = None,
    store: StoreUrl = None,
) -> None:
    """Serve sessions over HTTP until stopped.

    With several workers, SIGHUP replaces them one after the other.
    """
    settings = read_settings(store=store, host=host, port=port, workers=workers)
    make_folder(settings)
    # Only this command pays for the web framework.
    from tenuto.server import serve as serve_http

    with naming_store(settings):
        serve_http(settings)


def mcp(call: UserStore) -> None:
    """Serve sessions and memories to an MCP client.

    The client starts this command and speaks on its standard input and output; logs go to standard error.
    """
    settings = for_one_person(read_settings(store=call.store))
    make_folder(settings)
    _log_like_a_server(settings)
    with naming_store(settings):
        asyncio.run(_serve_mcp(settings, call.scope))


async def _serve_mcp(settings: Settings, scope: Scope) -> None:
    try:
        from tenuto.server.mcp.service import serve_stdio
    except ModuleNotFoundError as error:
        raise ExtraMissing("protocol MCP", "mcp") from error
    async with open_app(settings) as app:
        await serve_stdio(app, scope)


def worker(
    concurrency: Annotated[int, option("N", "Maximum number of agents that run at once.", min=1, max=1000)] = 16,
    store: StoreUrl = None,
) -> None:
    """Work on tasks until stopped.

    Other workers continue what this one leaves unfinished.
    """
    from tenuto.wiring.tasks import EXTRA, can_run_plans

    settings = read_settings(store=store)
    if settings.store.startswith("memory:"):
        raise InvalidSetting("store", "a worker needs a store that it shares with other processes, not memory")
    if not can_run_plans():
        raise PackageMissing("tasks", "a worker", extra=EXTRA)
    make_folder(settings)
    _log_like_a_server(settings)
    with naming_store(settings):
        asyncio.run(_work(settings, concurrency))


def _log_like_a_server(settings: Settings) -> None:
    """On standard error, in the lines of servers; of `tenuto mcp` nothing else may reach the client."""
    from tenuto.server.logs import configure_logging

    configure_logging(settings.log_level, LogRedactor(lambda: open_policies(settings)))


async def _work(settings: Settings, concurrency: int) -> None:
    from tenuto.wiring.tasks import engine_database

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_app(settings) as app:
        agents = ", ".join(sorted(app.agents.own))
        if not agents:
            raise InvalidSetting("agents", "a worker needs agents: set TENUTO_AGENTS to a folder that contains some")
        await app.engine(worker=True, concurrency=concurrency)
        database = mask_password(engine_database(settings))
        _log.info("working on tasks: store %s, engine database %s, agents %s", shown_store(settings), database, agents)
        await stop.wait()
        _log.info("stopping: other workers take over the tasks of this one")
