"""The page of routes: every route is shown, and can be tried, without a file from elsewhere."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.journeys.page.page_checks import AXE, WIDE
from tests.journeys.page.visit import PHONE, offline
from tests.npm_clients import install_clients

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_route_is_tried_on_the_page(chromium: Browser) -> None:
    axe = (await install_clients() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    async with offline(chromium) as (visit, service):
        page = visit.page
        await visit.open("/docs#chat")
        route = page.locator("#chat.route")
        await route.get_by_label("Body").fill('{"message": "My dog is called Bruno."}')
        await page.get_by_label("User", exact=True).fill("安")
        await route.get_by_role("button", name="Send").click()

        await expect(route.locator("output")).to_contain_text('"assistant": "general"')
        (session,) = (await service.http.get("/v1/sessions")).json()["sessions"]
        assert (session["message_count"], session["user"]) == (2, "安")

        await page.locator("#get_session summary").click()
        await page.locator("#get_session").get_by_label("session_id").fill(session["id"])
        await page.locator("#get_session").get_by_role("button", name="Send").click()
        await expect(page.locator("#get_session output")).to_contain_text('"message_count": 2')
        await page.evaluate(axe)
        assert await page.evaluate(AXE, ["html", {}]) == []
        await page.emulate_media(color_scheme="dark")
        await page.set_viewport_size(PHONE)
        assert await page.evaluate(AXE, ["html", {}]) == []
        assert await page.evaluate(WIDE) == []

        await page.evaluate("localStorage.setItem('tenuto.language', 'zh')")
        await page.reload()
        await expect(page.get_by_role("heading", name="接口", exact=True)).to_be_visible()
        for words in ("无需 API 密钥", "重启之后也还在", "控制台", "供运维使用"):
            await expect(page.locator(".first").filter(has_text=words)).to_be_visible()
        await expect(route.get_by_label("请求体")).to_be_visible()
        await expect(route.get_by_role("button", name="发送")).to_be_visible()
