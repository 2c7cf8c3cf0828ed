"""The page behind a load balancer: each request meets another server process of one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.journeys.page.visit import Visit, visiting
from tests.journeys.server_group import Servers, some_servers
from tests.servers.round_robin import RoundRobin, round_robin
from tests.servers.told_model import Call
from tests.timeouts import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def balanced(browser: Browser, folder: Path) -> AsyncIterator[tuple[Visit, Visit, RoundRobin, Servers]]:
    """Two tabs of one browser at two servers; what asks for a running turn never meets the one that runs it."""
    with some_servers(2, f"sqlite:///{folder / 'shared.db'}", folder) as servers:
        first, second = [one.http.base_url for one in servers.processes]
        async with (
            round_robin((first.host, first.port or 80), (second.host, second.port or 80)) as balancer,
            visiting(browser, balancer.url) as visit,
        ):
            tab = Visit(await visit.page.context.new_page(), balancer.url)
            yield await visit.open(), tab, balancer, servers
            assert tab.unexpected() == [], tab.unexpected()


async def called(servers: Servers) -> Call:
    return await asyncio.to_thread(servers.model.call)


async def test_two_tabs_follow_stop_and_change_answers_of_whichever_process(chromium: Browser, tmp_path: Path) -> None:
    async with balanced(chromium, tmp_path) as (one, two, balancer, servers):
        await one.say("Count")
        await balancer.turns.get()
        call = await called(servers)
        call.say("One ", "two ")
        await expect(one.answers.locator(".prose")).to_have_text(["One two"])

        await two.open(one.page.url.removeprefix(balancer.url))
        stop = two.page.get_by_role("button", name="Stop")
        await expect(two.answers.locator(".prose")).to_have_text(["One two"])
        await expect(stop).to_be_visible()
        await one.page.reload()
        await expect(one.answers.locator(".prose")).to_have_text(["One two"])
        call.say("three ")
        for tab in (one, two):
            await expect(tab.answers.locator(".prose")).to_have_text(["One two three"])
            await expect(tab.page.get_by_role("button", name="Edit and send again")).to_be_hidden()
        await stop.click()
        for tab in (one, two):
            await expect((await tab.hear()).locator(".badges")).to_contain_text("stopped")
            await expect(tab.answers.locator(".prose")).to_have_text(["One two three"])
        assert await asyncio.to_thread(call.left.wait, LONG)

        # The second tab is told nothing more, and so offers to change what is not the last answer any more.
        await two.page.route("**/v1/events*", lambda route: route.abort())
        two.allow("net::ERR_FAILED", "409 (Conflict)")
        await two.page.reload()
        await two.hear()
        await one.say("Go on")
        call = await called(servers)
        call.say("Four ")
        await expect(one.answers.locator(".prose")).to_have_text(["One two three", "Four"])
        asked = await balancer.turns.get()
        async with two.page.expect_response("**/v1/chat") as waiting:
            await two.page.get_by_role("button", name="Regenerate").click()
            await expect(two.answers.first).to_have_attribute("data-status", "running")
            assert asked != await balancer.turns.get()
            call.say("five.")
            call.end()
        assert (await waiting.value).status == 409
        await one.hear(2)
        await expect(two.page.locator(".transcript .column > [role=alert]")).to_contain_text("Nothing was removed")
        for tab in (one, two):
            await expect(tab.answers.locator(".prose")).to_have_text(["One two three", "Four five."])

        # Now it has seen it.
        await two.page.locator(".words").nth(1).hover()
        await two.page.get_by_role("button", name="Edit and send again").nth(1).click()
        field = two.page.get_by_role("textbox", name="Edit and send again")
        await field.fill("Instead")
        await field.press("Enter")
        call = await called(servers)
        call.say("Six.")
        call.end()
        for tab in (one, two):
            await expect(tab.page.locator(".said")).to_have_text(["Count", "Instead"])
            await expect(tab.answers.locator(".prose")).to_have_text(["One two three", "Six."])

        # A form that is older than an answer that somebody else has asked for waits for it.
        await one.page.locator(".words").first.hover()
        await one.page.get_by_role("button", name="Edit and send again").first.click()
        field = one.page.get_by_role("textbox", name="Edit and send again")
        await field.fill("Count on")
        await two.say("More")
        call = await called(servers)
        call.say("Seven.")
        await expect(one.answers.nth(2).locator(".prose")).to_have_text("Seven.")
        await field.press("Enter")
        await expect(one.page.locator(".editing [role=alert]")).to_contain_text("still answering")
        call.end()
        await one.hear(3)
        await field.press("Enter")
        call = await called(servers)
        call.say("Eight.")
        call.end()
        await expect(one.page.locator(".said")).to_have_text(["Count on"])
        await expect(one.answers.locator(".prose")).to_have_text(["Eight."])
        assert servers.model.asked.empty()
