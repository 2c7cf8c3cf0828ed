"""The store goes away under an open page: the talk goes on and says so, and the page says when it is over."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.journeys.http_service import http_service
from tests.journeys.page.visit import Visit, listening, stored, visiting
from tests.servers import start_redis
from tests.timeouts import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")
BANNER = "The store is unavailable at the moment."


@pytest.mark.requirement("T7")
async def test_a_talk_goes_on_while_the_store_is_away_and_the_page_says_so(chromium: Browser, tmp_path: Path) -> None:
    with start_redis(fsync="no") as server:
        async with (
            http_service(store=server.url, breaker_reset=timedelta(milliseconds=20), journal=str(tmp_path)) as service,
            listening(service) as base,
            visiting(chromium, base) as visit,
        ):
            visit.allow("503")
            await visit.open()
            banner = visit.page.locator(".outage")
            await visit.say("My favourite colour is green.")
            await visit.hear()
            await expect(banner).to_be_hidden()

            server.kill()
            await visit.say("What did I say my favourite colour was?")
            answer = await visit.hear(2)
            await expect(answer.locator(".prose")).to_contain_text("green")
            await expect(answer.locator('[data-degraded="journal"]')).to_have_text(
                "written to the journal: the store was unavailable"
            )
            await expect(banner).to_contain_text(BANNER)

            server.start()
            await _until_it_is_over(visit)
            await visit.page.reload()  # What was journaled has its number now.
            await expect(visit.page.get_by_role("button", name="Edit and send again")).to_have_count(2)
            assert [role for role, _ in await stored(service)] == ["user", "assistant"] * 2


async def _until_it_is_over(visit: Visit) -> None:
    """The page looks by itself every few seconds, and whenever its window gets the focus."""
    async with asyncio.timeout(LONG):
        while await visit.page.locator(".outage").is_visible():
            await visit.look_again()
            await asyncio.sleep(0.1)
