"""Turns that outlive a connection: left, joined, retried and stopped over a real port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tenuto.llm import Hang, Say, ScriptedModel
from tenuto.llm.scripted import Script
from tests.chats import patient
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, at, code, http_service, playing
from tests.servers.loopback import serving

pytestmark = pytest.mark.requirement("T1")


Events = list[tuple[str, str, dict[str, Any]]]


@asynccontextmanager
async def open_http(*scripts: Script) -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedModel, HttpService]]:
    """A server on a port, whose assistant plays scripts, and a client."""
    model = ScriptedModel(*scripts)
    async with (
        http_service(**playing(model, policies=patient())) as service,
        serving(service.app) as base,
        httpx.AsyncClient(base_url=base, headers=ANN, timeout=60) as http,
    ):
        yield http, model, service


async def read(response: httpx.Response, until: str = "done") -> Events:
    """Events up to the first of this name: (id, name, data)."""
    events: Events = []
    lines: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            lines[name] = value
        elif "event" in lines:
            events.append((lines.get("id", ""), lines["event"], json.loads(lines["data"])))
            if lines["event"] == until:
                break
            lines = {}
    return events


async def cut(http: httpx.AsyncClient, hang: Hang, **headers: str) -> Events:
    """Ask in session `s`, hear the first piece, and hang up."""
    asked = {"message": "Count", "session_id": "s", "stream": True}
    async with http.stream("POST", "/v1/chat", json=asked, headers=headers) as response:
        heard = await read(response, until="delta")
    await hang.reached.wait()
    return heard


async def log_of(http: httpx.AsyncClient) -> list[tuple[str, str, bool]]:
    page = (await http.get(at("s", "messages"))).json()["messages"]
    return [(one["role"], one["text"], one["metadata"].get("stopped", False)) for one in page]


async def test_a_cut_stream_is_joined_and_the_answer_is_whole() -> None:
    async with open_http([Say("One ", "two "), hang := Hang(), Say("three.")]) as (http, model, _):
        heard = await cut(http, hang)

        last = heard[-1][0]
        async with (
            http.stream("GET", at("s", "stream"), headers={"Last-Event-ID": last}) as behind,
            http.stream("GET", at("s", "stream"), params={"after": "2"}) as numbered,
            http.stream("GET", at("s", "stream"), headers={"Last-Event-ID": "7.2"}) as anew,
        ):
            hidden = [await http.get(at("s", "stream"), headers=who) for who in (BOB, EVE)]
            unknown = await http.get(at("never", "stream"))
            hang.release.set()
            rest, same, whole = [await read(one) for one in (behind, numbered, anew)]
        late = await http.get(at("s", "stream"), headers={"Last-Event-ID": whole[-2][0]})
        idle = [await http.get(at("s", "stream"), headers=seen) for seen in ({}, {"Last-Event-ID": whole[-1][0]})]

        assert heard + rest == whole
        assert same == rest
        assert [event[0] for event in whole] == [f"1.{number}" for number in range(1, 6)]
        assert whole[-1][2]["answer"] == "One two three."
        assert model.cancelled == 0
        assert [code(one)[0] for one in (*hidden, unknown)] == [404] * 3
        assert [one.json()["detail"] for one in hidden] == [unknown.json()["detail"]] * 2
        assert "event: done" in late.text
        assert "event: delta" not in late.text
        assert [one.status_code for one in idle] == [204, 204]
        assert await log_of(http) == [("user", "Count", False), ("assistant", "One two three.", False)]


async def test_a_request_whose_client_left_is_answered_under_its_key() -> None:
    async with open_http([hang := Hang(), Say("Once.")]) as (http, model, _):
        asked: dict[str, Any] = {"json": {"message": "Go", "session_id": "s"}, "headers": {"Idempotency-Key": "k"}}
        left = asyncio.create_task(http.post("/v1/chat", **asked))
        await hang.reached.wait()
        left.cancel()
        await asyncio.wait([left])

        again = asyncio.create_task(http.post("/v1/chat", **asked))
        hang.release.set()

        assert (await again).json()["answer"] == "Once."
        assert (len(model.requests), model.cancelled) == (1, 0)


async def test_a_stop_keeps_what_was_said() -> None:
    async with open_http([Say("One ", "two "), hang := Hang()], "Three.") as (http, model, _):
        await cut(http, hang, **{"Idempotency-Key": "k"})
        hidden = [await http.post(at("s", "stop"), headers=who) for who in (BOB, EVE)]
        joined = asyncio.create_task(http.get(at("s", "stream")))
        stopped = (await http.post(at("s", "stop"))).json()
        again = (await http.post(at("s", "stop"))).json()

        assert [code(one) for one in hidden] == [(404, "session_not_found")] * 2
        assert (stopped["stopped"], stopped["reply"]["answer"], stopped["reply"]["stopped"]) == (True, "One two ", True)
        assert again == {"stopped": True, "outcome": "stopped", "reply": None}
        assert (await joined).status_code in (200, 204)
        assert model.cancelled == 1
        assert await log_of(http) == [("user", "Count", False), ("assistant", "One two ", True)]
        on = (await http.post("/v1/chat", json={"message": "Go on", "session_id": "s"})).json()
        assert (on["answer"], on["stopped"]) == ("Three.", False)
        late = (await http.post(at("s", "stop"))).json()
        assert late == {"stopped": False, "outcome": "answered", "reply": None}
