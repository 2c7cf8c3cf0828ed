"""How often one caller may ask, and what a store that is away or full answers."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tenuto.errors import StoreFull, StoreReadOnly, Unavailable
from tests.journeys.door import ANN, Door, at, bearer, code, says, served


async def test_a_key_that_asks_too_often_is_told_when_to_come_back() -> None:
    async with served(locked=True, requests_per_minute=3) as door:
        busy, calm = await door.key(), await door.key()

        statuses = [(await door.http.get("/v1/sessions", headers=busy)).status_code for _ in range(4)]
        refused = await door.http.get("/v1/sessions", headers=busy)

        assert statuses == [200, 200, 200, 429]
        assert code(refused) == (429, "rate_limited")
        assert refused.json()["retry_after"] == 20
        assert refused.headers["retry-after"] == "20"
        assert (await door.http.get("/v1/sessions", headers=calm)).status_code == 200

        door.ticks.now += 20

        assert (await door.http.get("/v1/sessions", headers=busy)).status_code == 200
        assert (await door.http.get("/v1/sessions", headers=busy)).status_code == 429


async def test_a_minutes_worth_comes_back_in_a_minute_and_not_more() -> None:
    async with served(locked=True, requests_per_minute=2) as door:
        key = await door.key()
        door.ticks.now += 3600

        statuses = [(await door.http.get("/v1/sessions", headers=key)).status_code for _ in range(3)]

        assert statuses == [200, 200, 429]


async def test_health_is_asked_without_limit() -> None:
    async with served(locked=True, requests_per_minute=1) as door:
        assert {(await door.http.get("/healthz")).status_code for _ in range(5)} == {200}


@pytest.mark.parametrize(("per_minute", "last"), [(2, 429), (None, 200), (0, 200)])
async def test_the_open_door_has_a_limit_only_where_one_is_set(per_minute: int | None, last: int) -> None:
    async with served(requests_per_minute=per_minute) as door:
        statuses = [(await door.http.get("/v1/sessions")).status_code for _ in range(3)]

        assert statuses == [200, 200, last]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unavailable("session store"), "unavailable"),
        (StoreFull(), "store_full"),
        (StoreReadOnly(), "store_read_only"),
    ],
    ids=lambda value: str(value),
)
async def test_a_store_that_cannot_is_503_with_a_time_to_come_back(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    async with served() as door:
        await door.http.post("/v1/sessions", headers=ANN, json={"id": "s"})

        refused = await _append_while(door, monkeypatch, error)
        accepted = await door.http.post(at("s", "messages"), headers=ANN, json=says("x"))

        assert code(refused) == (503, expected)
        assert refused.headers["retry-after"] == "2"
        assert accepted.status_code == 201


async def _append_while(door: Door, monkeypatch: pytest.MonkeyPatch, error: Exception) -> httpx.Response:
    async def failing(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(door.tenuto.store, "append", failing)
        return await door.http.post(at("s", "messages"), headers=ANN, json=says("x"))


async def test_while_the_store_is_away_nobody_slips_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether keys exist is in the store too: not knowing is not the same as open."""

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("session store")

    async with served() as door:
        door.ticks.now += 2
        monkeypatch.setattr(door.tenuto.store, "list_state", away)
        monkeypatch.setattr(door.tenuto.store, "read_state", away)

        assert code(await door.http.get("/v1/sessions")) == (503, "unavailable")
        assert code(await door.http.get("/v1/sessions", headers=bearer("tnt_0_x"))) == (503, "unavailable")
        assert (await door.http.get("/healthz")).json()["auth"] == "unknown: the store does not answer"


async def test_readiness_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hanging() -> None:
        await asyncio.Event().wait()

    async with served() as door:
        monkeypatch.setattr(door.tenuto.store, "ping", hanging)
        monkeypatch.setattr("tenuto.server.health._PATIENCE_SECONDS", 0.05)

        assert code(await door.http.get("/readyz")) == (503, "unavailable")
        assert (await door.http.get("/healthz")).status_code == 200
