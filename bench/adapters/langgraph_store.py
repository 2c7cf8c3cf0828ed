"""LangGraph's store on SQLite. A turn puts an item, reads it, and every fourth time searches its namespace.

LangGraph's own store comes from `.venv-peers` (`make peers`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from langgraph.store.base import BaseStore

import tenuto
from bench.adapters.__main__ import Turn
from bench.adapters.langgraph_sqlite import peer
from tenuto.integrations.langgraph import TenutoStore

_ITEMS = 50


@asynccontextmanager
async def _ours(folder: Path) -> AsyncIterator[Turn]:
    async with tenuto.open(f"sqlite:///{folder / 'items.db'}") as app:
        yield _turns(TenutoStore(app, user="ann"))


@asynccontextmanager
async def _theirs(folder: Path) -> AsyncIterator[Turn]:
    store = peer("langgraph.store.sqlite.aio").AsyncSqliteStore
    async with store.from_conn_string(str(folder / "items.db")) as opened:
        await opened.setup()
        yield _turns(opened)


def _turns(store: BaseStore) -> Turn:
    async def turn(writer: int, number: int) -> None:
        namespace = (f"user{writer}", f"facts{number // _ITEMS}")
        await store.aput(namespace, f"item{number}", {"text": "likes green tea and long walks", "number": number})
        await store.aget(namespace, f"item{number}")
        if number % 4 == 0:
            await store.asearch(namespace, limit=5)

    return turn


SIDES = {"ours": _ours, "theirs": _theirs}
