"""Erasing on Redis when an answer is lost on the way: the call is made again, and finds nothing any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tenuto.model import NewSession, Retention
from tenuto.stores.redis import RedisStore
from tenuto.stores.redis._resp import Reply
from tests.peek import redis_runner
from tests.samples import ANN, batch, fresh
from tests.servers import RedisServer


async def test_an_answer_that_is_lost_leaves_nothing_of_the_person(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expiry index names the owner, and would for as long as the session was to be kept."""
    store = await RedisStore.open(redis_server.url, prefix=fresh("erasing"))
    new = NewSession(retention=Retention(idle=timedelta(days=30)))
    await store.sessions.append(ANN, "s", batch("hello", "hi", create=new))
    ask = redis_runner(store).session

    async def twice(name: str, *args: Any, **rest: Any) -> Reply:
        reply = await ask(name, *args, **rest)
        return await ask(name, *args, **rest) if name == "erase" else reply

    monkeypatch.setattr(redis_runner(store), "session", twice)

    erased = await store.upkeep.erase(ANN)

    assert ([gone.session_id for gone in erased.removed_sessions], erased.messages) == (["s"], 2)
    left = [await store.link.call("ZRANGE", part, 0, -1, key=part) for part in store.keys.expiries]
    assert not any(left)
    await store.close()
