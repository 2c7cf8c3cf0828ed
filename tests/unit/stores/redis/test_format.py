"""Data that was written before there was a release: refused with a sentence, and left as it is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenuto.errors import Unavailable
from tenuto.model import NewSession, Retention
from tenuto.model.scope import SYSTEM, session_key
from tenuto.stores.redis import RedisStore
from tests.samples import ANN, batch, begin
from tests.servers import RedisServer

BEFORE = (1).to_bytes(8, "big")


async def _aged(store: RedisStore, session_id: str) -> tuple[bytes, bytes]:
    """Make a session's head one of the format before; the key of the head, and its numbers."""
    head = store.keys.session(session_key(ANN, session_id))[0]
    numbers = BEFORE + (await store.link.call("HGET", head, "s", key=head))[8:]
    await store.link.call("HSET", head, "s", numbers, key=head)
    return head, numbers


async def test_a_store_from_before_the_first_release_is_not_opened(
    store: RedisStore, redis_server: RedisServer, prefix: str
) -> None:
    await store.sessions.append(
        ANN, "s", batch("hello", create=NewSession(retention=Retention(idle=timedelta(days=1))))
    )
    await (await RedisStore.open(redis_server.url, prefix=prefix)).close()
    await _aged(store, "s")

    with pytest.raises(Unavailable, match="from before the first release: begin with an empty database"):
        await RedisStore.open(redis_server.url, prefix=prefix)


async def test_api_keys_from_before_the_first_release_do_not_make_an_open_server(
    store: RedisStore, redis_server: RedisServer, prefix: str
) -> None:
    """They would not be found, and a server without keys lets every caller in."""
    values, names, _ = store.keys.state(SYSTEM, "api-keys")
    await store.link.call("HSET", values, "an-id", '1:1:{"hash":"abc"}', key=values)
    await store.link.call("ZADD", names, 0, "an-id", key=names)

    with pytest.raises(Unavailable, match="from before the first release"):
        await RedisStore.open(redis_server.url, prefix=prefix)


async def test_a_session_that_was_not_looked_at_is_refused_when_it_is_met(store: RedisStore) -> None:
    await store.sessions.append(ANN, "s", batch("hello"))
    head, numbers = await _aged(store, "s")

    with pytest.raises(Unavailable, match="from before the first release"):
        await store.sessions.get(ANN, "s")
    with pytest.raises(Unavailable, match="from before the first release"):
        await begin(store, ANN, "s", "more")
    await store.upkeep.evict(ANN, keep=0)
    with pytest.raises(Unavailable, match="from before the first release"):
        await store.upkeep.erase(ANN)

    assert await store.link.call("HGET", head, "s", key=head) == numbers, "it is not set aside"
