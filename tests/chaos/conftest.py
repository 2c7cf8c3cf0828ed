"""Servers of a test's own, to be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.stores.postgres import _feed
from tenuto.stores.redis import _invalidation, _node
from tests.servers import PostgresServer, RedisServer, start_postgres, start_redis
from tests.shared_stores import SHARED, SharedStore
from tests.timeouts import LONG


@pytest.fixture
def tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone is tried again after a second at the most; here that would be half a minute in all."""
    monkeypatch.setattr(_node, "_LONGEST_PAUSE", 0.02)


@pytest.fixture
def trustful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for two seconds hears nothing for as long, and every session would be in doubt."""
    for feed in (_invalidation, _feed):
        assert feed.DOUBT < LONG
        monkeypatch.setattr(feed, "DOUBT", 10 * LONG)


@pytest.fixture(params=["valkey", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer | PostgresServer]:
    """A server of this test's own, to be killed."""
    with start_redis(fsync="no") if request.param == "valkey" else start_postgres() as own:
        yield own


@pytest.fixture(params=SHARED, ids=lambda shared: shared.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind that several processes may share."""
    assert isinstance(request.param, SharedStore)
    return request.param.url(request.getfixturevalue, tmp_path)
