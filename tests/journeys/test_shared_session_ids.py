"""Two users of a tenant whose clients choose the same id: each has one conversation, on every door that takes ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tenuto.llm import Hang, Say, ScriptedModel
from tenuto.llm.scripted import Script
from tests.journeys.http_service import ANN, BOB, at, code, http_service, playing


def _ai_sdk(name: str, text: str) -> tuple[str, Any]:
    said = {"id": f"u-{text}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return "/v1/ai-sdk/chat", {"id": name, "messages": [said]}


def _ag_ui(name: str, text: str) -> tuple[str, Any]:
    said = {"id": f"u-{text}", "role": "user", "content": text}
    return "/v1/ag-ui/helper", {"threadId": name, "runId": f"r-{text}", "messages": [said]}


def _completions(name: str, text: str) -> tuple[str, Any]:
    return "/v1/chat/completions", {"model": "helper", "messages": [{"role": "user", "content": text}]}


def _messages(name: str, text: str) -> tuple[str, Any]:
    return "/v1/messages", {"model": "helper", "max_tokens": 99, "messages": [{"role": "user", "content": text}]}


def _a2a(name: str, text: str) -> tuple[str, Any]:
    said = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], "contextId": name}
    return "/a2a/helper", _rpc("SendMessage", {"message": said})


DOORS: Final[Mapping[str, Callable[[str, str], tuple[str, Any]]]] = {
    "ai_sdk": _ai_sdk,
    "ag_ui": _ag_ui,
    "completions": _completions,
    "messages": _messages,
    "a2a": _a2a,
}


async def post(http: httpx.AsyncClient, who: Mapping[str, str], name: str, path: str, body: Any) -> httpx.Response:
    headers = {"Tenuto-Session": name, "Idempotency-Key": str(body), "A2A-Version": "1.0"}
    accept = {"Accept": "application/json, text/event-stream"}
    response = await http.post(path, json=body, headers={**who, **headers, **accept})
    assert response.status_code == 200, response.text
    return response


async def shown(http: httpx.AsyncClient, name: str) -> list[str]:
    """What Bob's page shows of the chat that he calls so."""
    page = (await http.get(f"/v1/ai-sdk/chat/{name}", headers=BOB)).json()["messages"]
    return [one["parts"][0]["text"] for one in page]


@pytest.mark.requirement("A8", "T1")
async def test_the_second_user_of_an_id_has_one_conversation(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """By its id it is continued, shown, joined and stopped, also when the first user's is deleted; a message
    that is sent again is answered once."""
    hangs = [Hang() for _ in DOORS]
    scripts: list[Script] = [each for hang in hangs for each in ("One.", "Two.", "Three.", (Say("Half "), hang))]
    model = ScriptedModel(*scripts)
    async with http_service(**playing(model), store=f"sqlite:///{tmp_path}/store.db") as service:
        http = service.http
        for (name, asking), hang in zip(DOORS.items(), hangs, strict=True):
            with subtests.test(service=name):
                for who, text in ((ANN, "I am Ann"), (BOB, "I am Bob"), (BOB, "I am Bob"), (BOB, "Who am I?")):
                    await post(http, who, name, *asking(name, text))
                assert code(await http.get(at(name), headers=BOB)) == (404, "session_not_found")
                await http.delete(at(name), headers=ANN)
                turn = asyncio.create_task(post(http, BOB, name, *asking(name, "Count")))
                await hang.reached.wait()
                stopped = await http.post(at(name, "stop"), headers=BOB)
                await turn
                joined = await http.get(at(name, "stream"), headers=BOB, params={"after": "0"})

                assert stopped.json()["reply"]["answer"] == "Half "
                assert "Half " in joined.text
                assert await shown(http, name) == [
                    "I am Bob", "Two.", "Who am I?", "Three.", "Count", "Half ",
                ]  # fmt: skip
                assert "I am Bob" in str(model.requests[-1].messages)
                assert "Ann" not in str(model.requests[-1].messages)
        listed = (await http.get("/v1/sessions", headers=BOB)).json()["sessions"]
        tasks = await post(http, BOB, "a2a", "/a2a/helper", _rpc("ListTasks", {"contextId": "a2a"}))

    assert len(listed) == len(DOORS)
    assert tasks.json()["result"]["totalSize"] == 3


@pytest.mark.requirement("A8")
async def test_the_second_user_of_an_id_has_one_session_by_mcp(tmp_path: Path) -> None:
    """Every tool takes the id that its caller chose."""

    async def call(who: Mapping[str, str], tool: str, **arguments: Any) -> Any:
        asked = _rpc("tools/call", {"name": tool, "arguments": arguments})
        return (await post(service.http, who, "mcp", "/mcp", asked)).json()["result"]

    async with http_service(store=f"sqlite:///{tmp_path}/store.db") as service:
        for who, text in ((ANN, "I am Ann"), (BOB, "I am Bob"), (BOB, "Who am I?")):
            await call(who, "create_session", id="mcp")
            await call(who, "append_message", session_id="mcp", text=text)
        texts = [
            [one["text"] for one in (await call(BOB, tool, session_id="mcp"))["structuredContent"]["messages"]]
            for tool in ("get_history", "assemble_context")
        ]
        task = await call(BOB, "open_task", type="trip", session_id="mcp")
        absent = await call(BOB, "get_history", session_id="none")

    assert texts == [["I am Bob", "Who am I?"]] * 2
    assert not task["isError"]
    assert absent["content"][0]["text"].endswith("session_not_found: session not found")


def _rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
