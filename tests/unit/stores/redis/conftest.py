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
def prefix() -> str:
    """Before the keys of this test's stores."""
    return fresh("store")


@pytest.fixture
async def store(redis_server: RedisServer, fake_clock: FakeClock, prefix: str) -> AsyncIterator[RedisStore]:
    """A store on each flavour of server."""
    async with redis_store(redis_server.url, prefix=prefix, clock=fake_clock) as opened:
        yield opened


@pytest.fixture
def here(store: RedisStore) -> RedisStore:
    """One of two processes, as far as the server can tell, with one clock."""
    return store


@pytest.fixture
async def there(redis_server: RedisServer, fake_clock: FakeClock, prefix: str) -> AsyncIterator[RedisStore]:
    """The other one."""
    async with redis_store(redis_server.url, prefix=prefix, clock=fake_clock) as opened:
        yield opened
