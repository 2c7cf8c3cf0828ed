"""A small model on this machine: slow, one request at a time, prose where an answer has a form, calls written as text.

`SLOWNESS=1` gives it its true delays, which take some minutes.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

pytest.importorskip("dbos")

from tests.journeys.http_service import ANN, http_service
from tests.servers.slow_provider import start_slow_provider

SCALE = float(os.environ.get("SLOWNESS", "0.002"))
PROSE = "Well, that depends on your case, but in general it is fine to ask."


def answer(body: dict[str, Any]) -> str:
    """A title for its request, a call of the shop as text, and otherwise prose."""
    tools = [tool["function"]["name"] for tool in body.get("tools", [])]
    if is_for_title(body):
        return "Trains and Phones"
    if "search_goods" in tools and all(message["role"] != "tool" for message in body["messages"]):
        call = json.dumps({"name": "search_goods", "parameters": {"text": "phone"}})
        return f"```json\n{call}\n```\nThe best phone costs 1 €."
    return PROSE


def is_for_title(body: dict[str, Any]) -> bool:
    return "Title Case" in body["messages"][0]["content"]


async def events_of(service: Any, **body: Any) -> list[dict[str, Any]]:
    response = await service.http.post("/v1/chat", json={**body, "stream": True}, headers=ANN, timeout=None)
    assert response.status_code == 200
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line.startswith("{")]


async def test_chat_shop_guide_and_help_desk_stay_usable() -> None:
    with start_slow_provider(answer, SCALE) as provider:
        async with http_service(model="openai:small", model_base_url=provider.url, model_api_key="none") as service:

            async def say(message: str, **body: Any) -> dict[str, Any]:
                asked = {"message": message, **body}
                response = await service.http.post("/v1/chat", json=asked, headers=ANN, timeout=None)
                assert response.status_code == 200, response.text
                reply: dict[str, Any] = response.json()
                return reply

            chat = await say("May I take my train later?")
            shop = await say("cheap phones?", assistant="goods")
            streamed = await events_of(service, message="cheap phones?", assistant="goods")
            guide = await say("Who founded the hall?", assistant="npc")
            shell = await say("My employer ended my contract without notice.", assistant="legal")
            await service.tenuto.upkeep.drain()
            titled = await say("And the next one?", session_id=chat["session_id"])

    assert (chat["answer"].strip(), chat["degraded"]) == (PROSE, [])
    assert (shop["answer"].strip(), shop["degraded"]) == (PROSE, [])
    assert shop["data"]["goods"]
    assert streamed[-1]["data"]["goods"]
    assert not any(event.get("error") for event in streamed)
    assert not any("{" in event.get("text", "") for event in streamed)
    assert (guide["answer"].strip(), guide["data"]["evidence"] != []) == (PROSE, True)
    assert shell["degraded"] == ["fallback_model"]
    assert "[LAB-04]" in shell["answer"]
    assert titled["title"] == "Trains and Phones"
