"""Redis stores with key prefixes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenuto.stores.redis import RedisStore
from tests.clock import FakeClock
from tests.samples import fresh
from tests.servers import RedisServer
from tests.shared_stores import redis_store


@pytest.fixture
async def store(redis_server: RedisServer, fake_clock: FakeClock) -> AsyncIterator[RedisStore]:
    """A store on each flavour of server."""
    async with redis_store(redis_server.url, prefix=fresh("store"), clock=fake_clock) as opened:
        yield opened


@pytest.fixture
async def pair(redis_server: RedisServer, fake_clock: FakeClock) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    """Two processes, as far as the server can tell, with one clock."""
    url, given = redis_server.url, {"prefix": fresh("pair"), "clock": fake_clock}
    async with redis_store(url, **given) as here, redis_store(url, **given) as there:
        yield here, there
