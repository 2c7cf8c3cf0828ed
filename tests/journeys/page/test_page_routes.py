"""The page of routes: every route is shown, and can be tried, without a file from elsewhere."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.journeys.page.visit import offline

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_route_is_tried_on_the_page(chromium: Browser) -> None:
    async with offline(chromium) as (visit, door):
        await visit.open("/docs")
        route = visit.page.locator("#operations-chat-chat")
        await route.get_by_role("button", name="POST /v1/chat").first.click()
        await route.get_by_role("button", name="Try it out").click()
        await route.locator("textarea").fill('{"message": "My dog is called Bruno."}')
        await route.get_by_role("button", name="Execute").click()

        await expect(route.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
        (session,) = (await door.http.get("/v1/sessions")).json()["sessions"]
        assert session["message_count"] == 2
