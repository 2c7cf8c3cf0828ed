"""Setting a damaged session aside never takes a healthy one along."""

from __future__ import annotations

import pytest

from tenuto.errors import SessionCorrupt, Unavailable
from tenuto.model import SessionQuery
from tenuto.model.scope import session_key
from tenuto.stores.redis import RedisStore
from tenuto.stores.redis._records import FORMAT
from tests.peek import redis_quarantine
from tests.samples import ANN, BOB, batch, begin, talk, texts


async def _scribble(store: RedisStore, field: str, value: str) -> None:
    head = store.keys.session(session_key(ANN, "s"))[0]
    await store.link.call("HSET", head, field, value, key=head)


async def test_a_late_verdict_spares_the_fresh_session(store: RedisStore) -> None:
    """Two processes meet one damaged record; the slower one judges when a fresh session stands there."""
    await talk(store, ANN, "s", "old", "old")
    await _scribble(store, "s", "not numbers")
    with pytest.raises(SessionCorrupt):
        await store.sessions.get(ANN, "s")
    await talk(store, ANN, "s", "fresh", "start")

    await redis_quarantine(store, session_key(ANN, "s"), "a verdict that comes late")

    assert await texts(store, ANN, "s") == ["fresh", "start"]


async def test_facts_that_cannot_be_are_damage(store: RedisStore) -> None:
    """A scope without a tenant reads as JSON and is none: that is a damaged record, not a caller's mistake."""
    await talk(store, ANN, "s", "old", "old")
    await store.sessions.append(ANN, "other", batch("hello"))
    await _scribble(store, "f", '{"scope":{"tenant":""},"session_id":"s","incarnation":"i"}')

    with pytest.raises(SessionCorrupt):
        await store.sessions.get(ANN, "s")

    assert [session.id for session in (await store.sessions.list(ANN, SessionQuery())).sessions] == ["other"]
    assert await store.upkeep.sweep() == ()


async def test_a_session_of_a_newer_release_is_left_alone(store: RedisStore) -> None:
    """In a rolling upgrade the older process neither evicts nor sets aside what it cannot read."""
    await talk(store, BOB, "newest", "hello", "hi")
    await talk(store, ANN, "s", "hello", "hi")
    head = store.keys.session(session_key(ANN, "s"))[0]
    numbers = await store.link.call("HGET", head, "s", key=head)
    newer = (FORMAT + 1).to_bytes(8, "big") + numbers[8:]
    await store.link.call("HSET", head, "s", newer, key=head)

    await store.upkeep.evict(ANN, keep=0)
    with pytest.raises(Unavailable, match="newer format"):
        await store.sessions.get(ANN, "s")
    with pytest.raises(Unavailable, match="newer format"):
        await begin(store, ANN, "s", "three")

    assert await store.link.call("HGET", head, "s", key=head) == newer
