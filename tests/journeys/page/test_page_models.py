"""Which model answers is chosen on the page, and a turn tells what was asked of it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.journeys.http_service import http_service
from tests.journeys.page.visit import listening, visiting
from tests.providers.provider import KEY, ScriptedProvider
from tests.providers.script import Answer, Text

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_person_chooses_the_model_of_the_next_answers(chromium: Browser, provider: ScriptedProvider) -> None:
    provider.plays(Answer(Text("Hello.")))
    settings: dict[str, Any] = {
        "model": "openai-chat:gpt-4.1",
        "model_api_key": KEY,
        "model_base_url": provider.openai_url,
        "summarizer_model": "offline",
        "allowed_models": "openai-chat:gpt-4.1-mini",
        "model_aliases": "small=openai-chat:gpt-4.1-mini",
    }
    async with http_service(**settings) as service, listening(service) as base, visiting(chromium, base) as visit:
        page = visit.page
        await visit.open("/")
        choice = page.get_by_label("Model", exact=True)
        await expect(choice.locator("option")).to_have_text(
            ["the assistant’s own", "small", "openai-chat:gpt-4.1", "openai-chat:gpt-4.1-mini"]
        )

        for number, chosen in enumerate(("", "small", ""), 1):
            await choice.select_option(chosen)
            await visit.say("Hi")
            await visit.hear(number)
        assert [body["model"] for body in provider.accepted] == ["gpt-4.1", "gpt-4.1-mini", "gpt-4.1"]

        asked = {"message": "Hi", "parameters": {"temperature": 0.5, "stop": ["."]}}
        trace = (await service.http.post("/v1/chat", json=asked)).json()["trace_id"]
        await visit.open(f"/#/traces/{trace}")
        await expect(page.locator(".trace-facts")).to_contain_text('temperature: 0.5, stop: ["."]')
