"""What a server holds of its users is bounded: nothing in its memory grows with their number."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
from collections import deque
from collections.abc import Container
from functools import _lru_cache_wrapper
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from tests.journeys.http_service import HttpService, http_service

FEW: Final = 6
USERS: Final = 25
# The bounds of all that is held by user, session or text. A structure that needs one more is bounded in another way, or
# not at all.
BOUNDS: Final = (
    "chat.live._MOST_KEPT",
    "chat.sent_turns._MOST_CACHED",
    "chat.shared_turns._MOST_ENDED",
    "context.tokens._MOST_RECURRING",
    "privacy.detection.finder._MOST_KNOWN",
    "recall.owner_cache._MOST_OWNERS",
    "recall.embedding._MOST_VECTORS",
    "server.auth._REMEMBERED",
    "stores.engine.cache._MOST_NOTED",
    "stores.sqlite._commits._MOST_ROWS",
    "upkeep.unread._SESSIONS",
)


def containers(older: Container[int] = ()) -> dict[int, Any]:
    """The dictionaries, lists and sets by their ids, of our modules and of all objects but `older` ones.

    Those of plain values alone are found by what refers to them. Left out are those whose bound is not ours: of
    `lru_cache`, and of cursors and timers, dropped by hundreds.
    """
    everything = gc.get_objects()
    owners = (_lru_cache_wrapper, sqlite3.Connection, asyncio.BaseEventLoop)
    bounded = frozenset(id(held) for owner in everything if isinstance(owner, owners) for held in _held_by(owner))
    tracked = [one for one in everything if id(one) not in older]
    tracked += [vars(module) for name, module in list(sys.modules.items()) if name.startswith("tenuto")]
    return {
        id(held): held
        for held in chain(tracked, chain.from_iterable(map(gc.get_referents, tracked)))
        if isinstance(held, dict | list | set | deque) and id(held) not in bounded
    }


def _held_by(owner: object) -> list[Any]:
    return [*gc.get_referents(owner), *getattr(owner, "__dict__", {}).values()]


async def visit(service: HttpService, number: int) -> None:
    """Talk as a user of one's own, with and without a stream, with a model of one's own, and by a whole chat."""
    said, mine = f"I live in town {number} with {number} cats.", {"X-User-ID": f"user-{number}"}
    asked = {"message": said, "stream": number % 2 == 0}
    reply = await service.http.post("/v1/chat", json=asked, headers=mine | {"Idempotency-Key": f"{number}"})
    response = await service.http.post("/v1/turns", json={"message": {"role": "user", "text": said}}, headers=mine)
    answer = {"messages": [{"role": "assistant", "text": said}]}
    done = await service.http.post(f"/v1/turns/{response.json()['turn_id']}/finish", json=answer, headers=mine)
    chat = {"messages": [{"role": "user", "content": said}]}
    sent = await service.http.post("/v1/chat/completions", json=chat, headers=mine | {"Tenuto-Session": f"s{number}"})
    assert [one.status_code for one in (reply, response, done, sent)] == [200, 201, 200, 200]


async def test_nothing_grows_with_the_number_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in BOUNDS:
        monkeypatch.setattr(f"tenuto.{bound}", FEW)
    gc.unfreeze()  # Frozen objects are among none that the collector lists.
    older = frozenset(map(id, gc.get_objects()))
    async with http_service(store=f"sqlite:///{tmp_path}/chat.db", embedder="none", l1_sessions=FEW) as service:
        for number in range(FEW + 1):
            await visit(service, number)
        await service.tenuto.upkeep.drain()
        # Held here, so that none of their ids is given to another; modules that are imported later are not among them.
        watched = containers(older)
        before = {name: len(held) for name, held in watched.items()}
        for number in range(USERS):
            await visit(service, FEW + 1 + number)
        await service.tenuto.upkeep.drain()

        grown = [
            f"{type(held).__name__} of {len(held)} in {[type(owner).__name__ for owner in gc.get_referrers(held)][:9]}"
            for name, held in watched.items()
            if len(held) - before[name] >= USERS
        ]

    assert grown == []
