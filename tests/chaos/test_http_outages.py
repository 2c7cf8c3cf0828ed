"""The store dies behind the HTTP door: who needs no memory goes on answering, for as long as it takes."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.chaos.surfaces import outage_told, rpc
from tests.journeys.http_service import ANN, BOB, HttpService, at, bearer, code, http_service, says
from tests.journeys.session_requests import SESSION_REQUESTS, SessionRequest
from tests.servers import PostgresServer, RedisServer
from tests.timeouts import LONG, wait_until

pytestmark = pytest.mark.usefixtures("tried_again_at_once", "trustful")

QUESTION = {"npc_id": "ancestor_yan", "query": "严氏家训有哪些？", "session_id": "visit-1"}
TALK = {"assistant": "npc", "persona": "ancestor_yan", "message": "严氏家训有哪些？", "session_id": "visit-1"}
# More than the seconds that a door trusts what it saw, so that each call would look again.
APART = 3.0
CALLS = 12
METRICS = "a token of the monitoring"
HEADER = "tenuto-degraded"
JSON = "application/json"
A2A_MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
# Every other request with the id of a session, where `ID` stands in path and body; `TRACE` is its first turn's.
NAMING: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/v1/sessions/ID/attributes/a", None),
    ("DELETE", "/v1/sessions/ID/attributes/a", None),
    ("POST", "/v1/sessions", {"id": "ID"}),
    ("GET", "/v1/events?session_id=ID", None),
    ("POST", "/v1/chat", {"message": "hi", "session_id": "ID"}),
    ("POST", "/v1/chat", {"message": "hi", "session_id": "ID", "stream": True}),
    ("POST", "/v1/chat", {"regenerate": True, "session_id": "ID"}),
    ("POST", "/v1/turns", {"session_id": "ID", "message": says("hi")}),
    ("GET", "/v1/traces?session_id=ID", None),
    ("GET", "/v1/traces/TRACE", None),
    ("GET", "/v1/traces/TRACE?text=true", None),
    ("GET", "/v1/npc/traces/TRACE", None),
    ("GET", "/v1/ai-sdk/chat/ID", None),
    ("GET", "/v1/ai-sdk/chat/ID/stream", None),
    ("POST", "/v1/ai-sdk/chat/ID/stop", None),
    ("GET", "/v1/conversations/ID", None),
    ("POST", "/v1/conversations/ID", {"metadata": {"a": "b"}}),
    ("DELETE", "/v1/conversations/ID", None),
    ("GET", "/v1/conversations/ID/items", None),
    ("POST", "/v1/conversations/ID/items", {"items": [{"role": "user", "content": "hi"}]}),
    ("GET", "/v1/conversations/ID/items/msg_1", None),
    ("DELETE", "/v1/conversations/ID/items/msg_1", None),
    ("GET", "/v1/conversations?after=ID", None),
    ("POST", "/v1/responses", {"input": "hi", "conversation": "ID"}),
    ("POST", "/v1/responses", {"input": "hi", "conversation": "ID", "stream": True}),
    ("POST", "/v1/responses", {"input": "hi", "conversation": "ID", "store": False}),
    ("POST", "/v1/responses", {"input": "hi", "previous_response_id": "resp_TRACE"}),
    ("POST", "/v1/responses/input_tokens", {"input": "hi", "conversation": "ID"}),
    ("GET", "/v1/responses/resp_TRACE", None),
    ("DELETE", "/v1/responses/resp_TRACE", None),
    ("POST", "/v1/responses/resp_TRACE/cancel", None),
    ("GET", "/v1/responses/resp_TRACE/input_items", None),
    ("POST", "/mcp", rpc("tools/call", {"name": "append_message", "arguments": {"session_id": "ID", "text": "hi"}})),
    ("POST", "/mcp", rpc("tools/call", {"name": "get_history", "arguments": {"session_id": "ID"}})),
    ("POST", "/mcp", rpc("tools/call", {"name": "assemble_context", "arguments": {"session_id": "ID"}})),
    ("POST", "/mcp", rpc("tools/call", {"name": "open_task", "arguments": {"type": "t", "session_id": "ID"}})),
    ("POST", "/a2a/general", rpc("SendMessage", {"message": {**A2A_MESSAGE, "contextId": "ID"}})),
]


@asynccontextmanager
async def _door(
    server: RedisServer | PostgresServer, *, locked: bool = False, **given: Any
) -> AsyncIterator[HttpService]:
    url = server.url if isinstance(server, RedisServer) else server.app_url
    async with http_service(store=url, locked=locked, metrics_token=METRICS, **given) as service:
        yield service


async def _asked(service: HttpService, headers: dict[str, str]) -> list[httpx.Response]:
    """Many questions in both shapes, with time between them."""
    answers: list[httpx.Response] = []
    for _ in range(CALLS // 2):
        service.ticks.now += APART
        answers.append(await service.http.post("/v1/npc/chat", headers=headers, json=QUESTION))
        service.ticks.now += APART
        answers.append(await service.http.post("/v1/chat", headers=headers, json=TALK))
    return answers


@pytest.mark.requirement("C13")
async def test_a_character_answers_while_the_store_of_an_open_door_is_dead(
    server: RedisServer | PostgresServer,
) -> None:
    """Without memory, and it says so; what needs the store is refused."""
    async with _door(server) as service:
        before = await service.http.post("/v1/npc/chat", json=QUESTION)

        server.kill()
        answers = await _asked(service, {})
        response = await service.http.get("/v1/sessions")

        assert (before.status_code, before.json()["degraded"]) == (200, [])
        assert [answer.status_code for answer in answers] == [200] * CALLS
        assert all("store" in answer.json()["degraded"] for answer in answers)
        assert all(answer.json()["trace_id"] is None for answer in answers)
        assert code(response) == (503, "circuit_open")
        assert int(response.headers["Retry-After"]) > 0


@pytest.mark.requirement("C13")
async def test_a_known_key_reaches_characters_while_the_store_is_dead(server: RedisServer | PostgresServer) -> None:
    """A key that cannot be looked up is told to come back, not let in and not called wrong."""
    async with _door(server, locked=True) as service:
        known, unknown = await service.key(), await service.key()
        await service.http.post("/v1/npc/chat", headers=known, json=QUESTION)

        server.kill()
        answers = await _asked(service, known)
        stranger = await service.http.post("/v1/npc/chat", headers=unknown, json=QUESTION)
        nobody = await service.http.post("/v1/npc/chat", json=QUESTION)

        assert [answer.status_code for answer in answers] == [200] * CALLS
        assert code(stranger) == (503, "circuit_open")
        assert code(nobody) == (401, "invalid_credential")


@pytest.mark.requirement("A21", "T7")
async def test_an_outage_shows_at_every_door_till_its_end(server: RedisServer | PostgresServer, tmp_path: Path) -> None:
    """Ready for turns with a journal, and saying so; what needs the store waits for nothing."""
    settings: dict[str, Any] = {"breaker_reset": timedelta(milliseconds=20), "memories_without_user": True}
    async with _door(server, journal=str(tmp_path), **settings) as service:
        response = await service.http.post("/v1/chat", json={"message": "My favourite colour is green."})
        before = await service.http.get("/readyz")
        server.kill()
        said = {"message": "What is my favourite colour?", "session_id": response.json()["session_id"]}
        answers = [await service.http.post("/v1/chat", json=said) for _ in range(6)]
        lists = [await service.http.get("/v1/sessions") for _ in range(6)]
        await service.http.post("/v1/chat", json={"message": "hi", "session_id": "unseen00", "assistant": "general"})
        journal = service.tenuto.stores.journal
        # Rows are counted every 50 ms.
        await wait_until(lambda: journal is not None and journal.status.waiting == 6)
        head = await service.http.get(f"/v1/sessions/{response.json()['session_id']}")
        during = await _read_operators_doors(service)
        server.start()
        await _until_ready(service)
        sessions, after = await service.http.get("/v1/sessions"), await _read_operators_doors(service)

    assert [answer.json()["degraded"] for answer in answers] == [["recall", "journal"]] * 6
    assert "green" in answers[0].json()["answer"]
    assert {each.status_code for each in lists} == {503}
    assert (head.status_code, head.json().get("active_tasks", "absent")) == (200, None)
    assert sessions.status_code == 200
    degraded = [each.headers.get(HEADER) for each in (before, answers[-1], during.ready, sessions)]
    assert degraded == [None, "store", "store", None]
    _assert_ready_for_turns(before, during)
    _assert_status_tells_the_outage(during, after)
    assert after.status["store"]["version"].startswith(
        "PostgreSQL " if isinstance(server, PostgresServer) else ("Redis ", "Valkey ")
    )


class _OperatorsDoors(NamedTuple):
    """What the doors for operators show at one moment."""

    ready: httpx.Response
    metrics: dict[str, float]
    status: dict[str, Any]


async def _read_operators_doors(service: HttpService) -> _OperatorsDoors:
    ready = await service.http.get("/readyz")
    metrics = (await service.http.get("/metrics", headers=bearer(METRICS))).text
    lines = [line.rpartition(" ") for line in metrics.splitlines() if not line.startswith("#")]
    status = (await service.http.get("/v1/status")).json()
    return _OperatorsDoors(ready, {name: float(value) for name, _, value in lines}, status)


def _assert_ready_for_turns(before: httpx.Response, during: _OperatorsDoors) -> None:
    assert before.json() == {"status": "ready"}
    assert during.ready.status_code == 200
    assert during.ready.json() == {
        "status": "degraded",
        "store": "unavailable",
        "journal": {"waiting": 6, "quarantined": 0},
    }


def _assert_status_tells_the_outage(during: _OperatorsDoors, after: _OperatorsDoors) -> None:
    """The status tells it, the metrics tell the same, and afterwards what was refused stays counted."""
    status, journal = during.status, during.status["journal"]
    assert [finding["code"] for finding in status["findings"]] == ["store_unavailable", "journal_waiting"]
    assert (status["level"], status["store"]["version"]) == ("error", None)
    assert status["breaker"]["state"] != "closed"
    assert (journal["waiting"], journal["refused"]) == (6, 1)
    assert journal["oldest_seconds"] >= 0
    shown = {
        "tenuto_journal_waiting": 6,
        "tenuto_journal_refused_total": 1,
        "tenuto_journal_outage_start_seconds": datetime.fromisoformat(journal["since"]).timestamp(),
        'tenuto_store_circuit_state{state="closed"}': 0,
        'tenuto_turns_degraded_total{what="journal"}': 6,
    }
    assert {name: during.metrics.get(name) for name in shown} == shown
    assert (after.status["journal"]["since"], after.status["journal"]["refused"]) == (None, 1)


@pytest.mark.requirement("A7", "T7")
async def test_in_an_outage_a_foreign_session_is_like_an_absent_one(
    server: RedisServer | PostgresServer, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Byte for byte 503, whether it is cached or has journaled turns; its owner goes on reading it."""
    absent, traces = "absent00", {}
    async with _door(server, journal=str(tmp_path)) as service:
        for session_id in ("cached00", "waiting0"):
            await service.http.post("/v1/sessions", headers=ANN, json={"id": session_id})
            response = await service.http.post(
                "/v1/chat", headers=ANN, json={"message": "hi", "session_id": session_id}
            )
            traces[session_id] = response.json()["trace_id"]
        traces[absent] = _of_session(traces["cached00"], absent)
        await _until_ready(service)
        for session_id in ("cached00", "waiting0"):
            await service.http.get(at(session_id, "messages"), headers=ANN)
        server.kill()
        journaled = await service.http.post("/v1/chat", headers=ANN, json={"message": "hi", "session_id": "waiting0"})
        own = [
            await service.http.get(at(session_id, "messages"), headers=ANN) for session_id in ("cached00", "waiting0")
        ]
        while service.tenuto.stores.circuit.closed:  # type: ignore[union-attr]
            await service.http.get("/v1/sessions")

        requests = {f"{method} {path} {body}": partial(_send, method, path, body) for method, path, body in NAMING}
        for name, ask in {**{name: partial(_ask, ask) for name, ask in SESSION_REQUESTS.items()}, **requests}.items():
            with subtests.test(name):
                answers = [await ask(service.http, session_id, trace_id) for session_id, trace_id in traces.items()]

                outcomes = {_but_ids(answer, session_id) for session_id, answer in zip(traces, answers, strict=True)}
                assert len(outcomes) == 1, outcomes
                assert outage_told(answers[0]), answers[0].text
        assert [answer.status_code for answer in own] == [200, 200], journaled.text


async def _ask(ask: SessionRequest, http: httpx.AsyncClient, session_id: str, _: str) -> httpx.Response:
    return await ask(http, at(session_id), BOB)


async def _send(
    method: str, path: str, body: dict[str, Any] | None, http: httpx.AsyncClient, session_id: str, trace_id: str
) -> httpx.Response:
    def named(text: str) -> str:
        return text.replace("TRACE", trace_id).replace("ID", session_id)

    content = named(json.dumps(body)) if body is not None else None
    headers = {**BOB, "Accept": "application/json, text/event-stream", "A2A-Version": "1.0", "Content-Type": JSON}
    return await http.request(method, named(path), headers=headers, content=content)


def _but_ids(answer: httpx.Response, session_id: str) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
    headers = tuple(item for item in answer.headers.items() if item[0] != "x-request-id")
    return answer.status_code, answer.content.replace(session_id.encode(), b"ID"), headers


def _of_session(trace_id: str, session_id: str) -> str:
    """The same trace id as of another session."""
    _, *rest = json.loads(urlsafe_b64decode(trace_id + "=" * (-len(trace_id) % 4)))
    named = json.dumps([session_id, *rest], separators=(",", ":"))
    return urlsafe_b64encode(named.encode()).decode().rstrip("=")


async def test_without_a_journal_a_server_is_not_ready(server: RedisServer | PostgresServer, tmp_path: Path) -> None:
    """Where the journal's folder cannot be had, an outage is told as before."""
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    async with _door(server, journal=str(blocked)) as service:
        server.kill()
        response = await service.http.get("/readyz")
        turn = await service.http.post("/v1/chat", json={"message": "Hello!"})

        assert code(response)[0] == 503
        assert code(turn)[0] == 503


@pytest.mark.parametrize("locked", [False, True], ids=["open", "keys"])
async def test_a_server_that_begins_in_an_outage_is_not_ready_while_it_lets_nobody_in(
    server: RedisServer | PostgresServer, tmp_path: Path, locked: bool
) -> None:
    """It has not seen who may come in, so a balancer is told to ask another one."""
    given: dict[str, Any] = {"breaker_reset": timedelta(milliseconds=20), "journal": str(tmp_path)}
    async with _door(server, locked=locked, **given) as service:
        key = await service.key() if locked else {}
        before = await service.http.post("/v1/chat", headers=key, json={"message": "Hello!"})
        server.kill()
        response = await service.http.post("/v1/chat", headers=key, json={"message": "Still there?"})
        known = await service.http.get("/readyz")

    async with _door(server, **given) as service:
        refused, turn = (
            await service.http.get("/readyz"),
            await service.http.post("/v1/chat", json={"message": "Hello!"}),
        )
        server.start()
        await _until_ready(service)

        assert (before.json()["degraded"], response.json()["degraded"][-1:]) == ([], ["journal"])
        assert known.status_code == 200
        assert (code(refused)[0], code(turn)[0]) == (503, 503)


async def _until_ready(service: HttpService) -> None:
    """Until the store answers and the journal is empty."""
    async with asyncio.timeout(LONG):
        while True:
            ready = await service.http.get("/readyz")
            if (
                ready.json().get("status") == "ready"
                and "journal_waiting 0.0" in (await service.http.get("/metrics", headers=bearer(METRICS))).text
            ):
                return
            await asyncio.sleep(0.05)


async def test_in_an_outage_an_app_goes_on_with_the_chats_that_are_known(
    server: RedisServer | PostgresServer, tmp_path: Path
) -> None:
    """What would need the store is refused: a chat that may be there, and an answer that replaces one."""
    async with _door(server, journal=str(tmp_path), apps="open-webui") as service:

        async def ask(*texts: str, chat: str = "c", **headers: str) -> httpx.Response:
            messages = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
            named = {"X-OpenWebUI-Chat-Id": chat, "X-OpenWebUI-User-Id": "u", **headers}
            body = {"model": "general", "messages": messages}
            return await service.http.post("/v1/chat/completions", json=body, headers=named)

        first = (await ask("one")).json()["choices"][0]["message"]["content"]
        server.kill()
        known = await ask("one", first, "two")
        refused = [await ask("one", first, "two"), await ask("other", first, "two"), await ask("one", chat="unseen")]
        task = await ask("one", **{"X-OpenWebUI-Task": "title_generation"})

    assert (known.status_code, known.headers["Tenuto-History"]) == (200, "continued")
    assert [answer.status_code for answer in refused] == [503] * 3
    assert (task.status_code, task.headers["Tenuto-App-Task"]) == (200, "title")
