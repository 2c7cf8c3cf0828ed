"""LangGraph's checkpointer on Postgres, as `langgraph_sqlite` has it; both sides on one server, which syncs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

from bench.adapters.__main__ import Turn
from bench.adapters.langgraph_sqlite import ours, peer, turns
from tests.servers import PostgresServer, start_postgres

_stack = ExitStack()


@cache
def _server() -> PostgresServer:
    return _stack.enter_context(start_postgres(fsync=True, shared_buffers="256MB"))


@asynccontextmanager
async def _ours(_: Path) -> AsyncIterator[Turn]:
    async with ours(_server().new_database().app_url) as turn:
        yield turn


@asynccontextmanager
async def _theirs(_: Path) -> AsyncIterator[Turn]:
    """Over a pool of ten connections, set up as its documentation asks."""
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": peer("psycopg.rows").dict_row}
    url = _server().new_database().app_url
    pool = peer("psycopg_pool").AsyncConnectionPool(url, min_size=10, max_size=10, open=False, kwargs=settings)
    async with pool:
        saver = peer("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver(pool)
        await saver.setup()
        yield turns(saver)


SIDES = {"ours": _ours, "theirs": _theirs}
