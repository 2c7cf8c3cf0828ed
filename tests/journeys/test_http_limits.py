"""How often one caller may ask, and what a store that is away or full answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from tenuto.errors import DecryptionFailed, StoreFull, StoreReadOnly, Unavailable
from tenuto.ports import utc_now
from tenuto.recall.embedding import CachedEmbedder
from tests.journeys.http_service import ANN, HttpService, at, bearer, code, http_service, says
from tests.letter_memories import LetterEmbedder


async def test_a_key_that_asks_too_often_is_told_when_to_come_back() -> None:
    async with http_service(locked=True, requests_per_minute=3) as service:
        busy, calm = await service.key(), await service.key()

        statuses = [(await service.http.get("/v1/sessions", headers=busy)).status_code for _ in range(4)]
        response = await service.http.get("/v1/sessions", headers=busy)

        assert statuses == [200, 200, 200, 429]
        assert code(response) == (429, "rate_limited")
        assert response.json()["retry_after"] == 20
        assert response.headers["retry-after"] == "20"
        assert (await service.http.get("/v1/sessions", headers=calm)).status_code == 200

        service.ticks.now += 20

        assert (await service.http.get("/v1/sessions", headers=busy)).status_code == 200
        assert (await service.http.get("/v1/sessions", headers=busy)).status_code == 429


async def test_a_minutes_worth_comes_back_in_a_minute_and_not_more() -> None:
    async with http_service(locked=True, requests_per_minute=2) as service:
        key = await service.key()
        service.ticks.now += 3600

        statuses = [(await service.http.get("/v1/sessions", headers=key)).status_code for _ in range(3)]

        assert statuses == [200, 200, 429]


async def test_limits_are_those_of_all_processes_of_a_store(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": f"sqlite:///{tmp_path / 'shared.db'}", "wrong_credentials_per_minute": 20}
    async with (
        http_service(locked=True, requests_per_minute=20, **settings) as one,
        http_service(requests_per_minute=20, **settings) as other,
    ):
        key, services = await one.key(), (one, other)

        statuses = [(await services[n % 2].http.get("/v1/sessions", headers=key)).status_code for n in range(24)]
        wrong = [
            (await services[n % 2].http.get("/v1/sessions", headers=bearer("tnt_0_x"))).status_code for n in range(24)
        ]

    assert statuses == [200] * 20 + [429] * 4
    assert wrong == [401] * 20 + [429] * 4


async def test_health_is_asked_without_limit() -> None:
    async with http_service(locked=True, requests_per_minute=1) as service:
        assert {(await service.http.get("/healthz")).status_code for _ in range(5)} == {200}


@pytest.mark.parametrize(("per_minute", "last"), [(2, 429), (None, 200), (0, 200)])
async def test_the_open_door_has_a_limit_only_where_one_is_set(per_minute: int | None, last: int) -> None:
    async with http_service(requests_per_minute=per_minute) as service:
        statuses = [(await service.http.get("/v1/sessions")).status_code for _ in range(3)]

        assert statuses == [200, 200, last]


@asynccontextmanager
async def embedding(embedder: LetterEmbedder, **settings: Any) -> AsyncIterator[HttpService]:
    """A server that needs a key, with this embedder."""
    async with http_service(locked=True, embedder="none", **settings) as service:
        cached = CachedEmbedder(embedder, clock=utc_now, time_limit=timedelta(minutes=1))
        (await service.tenuto.memories()).vectors.embedder = cached
        yield service


async def test_embeddings_are_bounded_per_text_request_and_key() -> None:
    """In OpenAI's shape, before the embedder sees anything; another key is not affected."""
    letters = LetterEmbedder()
    async with embedding(letters, embedding_tokens_per_minute=9_000) as service:
        busy, calm = await service.key(), await service.key()

        async def ask(key: dict[str, str], texts: Any) -> httpx.Response:
            return await service.http.post("/v1/embeddings", headers=key, json={"input": texts})

        refused = {
            limit: await ask(busy, texts)
            for limit, texts in {
                "2048 texts": ["a"] * 2_049,
                "8192 tokens": "cat " * 8_193,
                "8192 tokens; embed": "x" * 1_000_000,
                "9000 tokens": ["cat " * 1_001] * 9,
            }.items()
        }
        unseen = not letters.asked
        first, later, other = [await ask(key, "cat " * 5_000) for key in (busy, busy, calm)]
        service.ticks.now += int(later.headers["Retry-After"])
        again = await ask(busy, "cat " * 5_000)

    for limit, answer in refused.items():
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "input")
        assert limit in error["message"]
    assert unseen
    assert (first.status_code, other.status_code) == (200, 200)
    assert (later.status_code, later.json()["error"]["type"]) == (429, "rate_limit_error")
    assert again.status_code == 200


async def test_embeddings_end_with_their_client() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    class Endless(LetterEmbedder):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            begun.set()
            try:
                return await asyncio.Future()
            finally:
                ended.set()

    async with embedding(Endless()) as service:
        key = await service.key()
        body = json.dumps({"input": "cat"}).encode()
        incoming = iter([{"type": "http.request", "body": body}])

        async def receive() -> dict[str, Any]:
            message = next(incoming, None)
            if message is None:
                await begun.wait()
            return message or {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            """The client reads nothing any more."""

        headers = [(name.lower().encode(), value.encode()) for name, value in key.items()]
        place = {"type": "http", "method": "POST", "path": "/v1/embeddings", "query_string": b"", "headers": headers}
        with suppress(ClientDisconnect):
            async with asyncio.timeout(20):
                await service.app({**place, "http_version": "1.1", "client": ("127.0.0.1", 1)}, receive, send)

    assert ended.is_set()


@pytest.mark.requirement("B11")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unavailable("session store"), "unavailable"),
        (StoreFull(), "store_full"),
        (StoreReadOnly(), "store_read_only"),
        (DecryptionFailed("needs another key"), "decryption_failed"),
    ],
    ids=lambda value: str(value),
)
async def test_a_store_that_cannot_is_503_with_a_time_to_come_back(
    service: HttpService, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})

    refused = await _append_while(service, monkeypatch, error)
    accepted = await service.http.post(at("s", "messages"), headers=ANN, json=says("x"))

    assert code(refused) == (503, expected)
    assert refused.headers["retry-after"] == "2"
    assert accepted.status_code == 201


async def _append_while(service: HttpService, monkeypatch: pytest.MonkeyPatch, error: Exception) -> httpx.Response:
    async def failing(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(service.tenuto.store.sessions, "append", failing)
        return await service.http.post(at("s", "messages"), headers=ANN, json=says("x"))


async def away(*_: object, **__: object) -> None:
    raise Unavailable("session store")


async def sealed(*_: object, **__: object) -> None:
    raise DecryptionFailed("needs another key")


async def test_while_the_store_is_away_nobody_slips_in(locked: HttpService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where keys are needed, one that cannot be looked up opens nothing, and no key at all neither."""
    locked.ticks.now += 2
    monkeypatch.setattr(locked.tenuto.store.state, "list_state", away)
    monkeypatch.setattr(locked.tenuto.store.state, "read_state", away)

    assert code(await locked.http.get("/v1/sessions")) == (401, "invalid_credential")
    assert code(await locked.http.get("/v1/sessions", headers=bearer("tnt_0_x"))) == (503, "unavailable")
    assert (await locked.http.get("/healthz")).json()["auth"] == "closed: API keys"


@pytest.mark.requirement("C13")
async def test_an_open_door_stays_open_to_this_machine_during_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether keys exist is in the store too, and those who need no store go on answering."""
    async with http_service() as service, service.from_elsewhere("192.168.1.5") as stranger:
        with monkeypatch.context() as patched:
            patched.setattr(service.tenuto.store.state, "list_state", away)
            for _ in range(3):
                service.ticks.now += 1000
                assert (await service.http.get("/v1/sessions")).status_code == 200
                assert code(await stranger.get("/v1/sessions")) == (403, "host_not_allowed")
        await service.keys.create(tenant="acme")
        service.ticks.now += 2

        assert code(await service.http.get("/v1/sessions")) == (401, "invalid_credential")


async def test_what_cannot_be_unsealed_is_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key exists then: the door neither stays open nor trusts what it saw before."""
    async with http_service() as open_door, http_service(locked=True) as service:
        key = await service.key()
        assert (await service.http.get("/v1/sessions", headers=key)).status_code == 200
        for ajar in (open_door, service):
            ajar.ticks.now += 2
            monkeypatch.setattr(ajar.tenuto.store.state, "list_state", sealed)
            monkeypatch.setattr(ajar.tenuto.store.state, "read_state", sealed)

        assert code(await open_door.http.get("/v1/sessions")) == (503, "decryption_failed")
        assert code(await service.http.get("/v1/sessions", headers=key)) == (503, "decryption_failed")


async def test_a_known_key_holds_for_a_quarter_of_an_hour_without_the_store(
    locked: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, unknown = await locked.key(), await locked.key()
    revoked, secret = await locked.keys.create(tenant="acme")
    for key in (known, bearer(secret)):
        assert (await locked.http.get("/v1/sessions", headers=key)).status_code == 200
    await locked.keys.revoke(revoked.id)
    locked.ticks.now += 2
    assert code(await locked.http.get("/v1/sessions", headers=bearer(secret))) == (401, "invalid_credential")

    with monkeypatch.context() as patched:
        patched.setattr(locked.tenuto.store.state, "read_state", away)
        locked.ticks.now += 890
        assert (await locked.http.get("/v1/sessions", headers=known)).status_code == 200
        for stranger in (unknown, bearer(secret)):
            assert code(await locked.http.get("/v1/sessions", headers=stranger)) == (503, "unavailable")
        locked.ticks.now += 8
        assert code(await locked.http.get("/v1/sessions", headers=known)) == (503, "unavailable")

    assert (await locked.http.get("/v1/sessions", headers=known)).status_code == 200


async def test_readiness_does_not_wait_for_a_store_that_hangs(
    service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hanging() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(service.tenuto.store.upkeep, "ping", hanging)
    monkeypatch.setattr("tenuto.server.health._TIMEOUT_SECONDS", 0.05)

    assert code(await service.http.get("/readyz")) == (503, "unavailable")
    assert (await service.http.get("/healthz")).status_code == 200


@pytest.fixture
async def small() -> AsyncIterator[HttpService]:
    """A door that takes messages of at most 3,000 bytes."""
    async with http_service(max_message_bytes=3000) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        yield service


@pytest.mark.parametrize(
    ("fits", "more"),
    [("x" * 3000, "x"), ("严" * 1000, "x"), ('"\n' * 1500, "x"), ("😀" * 750, "x")],
    ids=["ASCII", "CJK", "escaped in JSON", "emoji"],
)
async def test_a_message_may_say_exactly_as_much_as_the_limit_allows(small: HttpService, fits: str, more: str) -> None:
    """The words count, in UTF-8; not their JSON, and not what tenuto notes beside them."""
    ways: dict[str, Callable[[str], dict[str, Any]]] = {
        "/v1/chat": lambda text: {"message": text},
        at("s", "messages"): lambda text: says(text),
        at("s", "turns"): lambda text: {"message": says(text)},
    }
    for path, body in ways.items():
        keyed = {**ANN, "Idempotency-Key": path * 10}
        response = await small.http.post(path, headers=keyed, json=body(fits + more))
        taken = await small.http.post(path, headers=keyed, json=body(fits))

        assert code(response) == (413, "too_large"), path
        assert response.json()["limit_bytes"] == 3000
        assert taken.status_code in (200, 201), path


async def test_what_comes_along_with_a_message_has_the_same_limit_again(small: HttpService) -> None:
    """Metadata and further fields are counted together, as JSON."""
    around = len('[{"a":""},{}]')

    response = await small.http.post(
        at("s", "messages"), headers=ANN, json=says("x" * 3000, metadata={"a": "x" * (3000 - around)})
    )
    refused = [
        await small.http.post(at("s", "messages"), headers=ANN, json=says("x", **more))
        for more in ({"metadata": {"a": "x" * (3001 - around)}}, {"phase": "x" * 3000}, {"phase": "严" * 1000})
    ]

    assert response.status_code == 201
    assert [code(answer) for answer in refused] == [(413, "too_large")] * 3


async def test_parts_of_other_kinds_count_as_json(small: HttpService) -> None:
    """A tool's arguments are no words; together with the words they must fit."""
    call = {"type": "tool_call", "id": "c", "name": "add", "arguments": {"a": ""}}
    around = len(json.dumps(call, separators=(",", ":")))

    def said(letters: int, words: int) -> dict[str, object]:
        padded = {**call, "arguments": {"a": "x" * letters}}
        return {"role": "assistant", "parts": [{"type": "text", "text": "y" * words}, padded]}

    response = await small.http.post(at("s", "messages"), headers=ANN, json=said(1000, 2000 - around))
    refused = await small.http.post(at("s", "messages"), headers=ANN, json=said(1000, 2001 - around))

    assert response.status_code == 201
    assert code(refused) == (413, "too_large")
