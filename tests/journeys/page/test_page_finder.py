"""Anything is opened by its name, with the keyboard alone."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, Route, expect

from tests.journeys.page.page_checks import NAMELESS
from tests.journeys.page.visit import offline

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_session_that_comes_while_the_window_is_open_stands_in_it(chromium: Browser) -> None:
    """The list is asked for anew after an answer; a window that is opened before shows it once it is there."""
    async with offline(chromium) as (visit, _):
        listing = asyncio.Event()

        async def hold(route: Route) -> None:
            await listing.wait()
            await route.continue_()

        await visit.page.route("**/v1/sessions?*", hold)
        await visit.say("My train leaves at 7:40.")
        await visit.hear()
        await visit.page.keyboard.press("Control+k")
        recent = visit.page.get_by_role("group", name="Recent sessions").get_by_role("option")
        await expect(visit.page.get_by_role("option", name="Health")).to_be_visible()
        await expect(recent).to_have_count(0)
        listing.set()
        await expect(recent).to_have_count(1)


async def test_sessions_pages_tasks_and_assistants_are_opened_by_name(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        await visit.say("My train leaves at 7:40.")
        await visit.hear()
        talk, page = visit.page.url, visit.page
        await service.http.post("/v1/tasks", json={"type": "letter", "goal": "Answer the landlord"})
        field, chosen = page.get_by_role("combobox", name="Open by name"), page.get_by_role("option", selected=True)

        async def find(text: str) -> None:
            await page.keyboard.press("Control+k")
            await expect(field).to_be_focused()
            await field.press_sequentially(text)

        await find("")
        await expect(page.get_by_role("group", name="Recent sessions").get_by_role("option")).to_have_count(1)
        assert await page.evaluate(NAMELESS) == []
        await field.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(visit.field).to_be_focused()

        await find("heal")
        await expect(chosen).to_have_text("Health")
        await field.press("Enter")
        await expect(page.get_by_role("heading", name="Health", level=1)).to_be_focused()

        await find("train leaves")
        await expect(chosen).to_contain_text("My train leaves")
        active = await field.get_attribute("aria-activedescendant")
        assert await chosen.get_attribute("id") == active
        await field.press("Enter")
        await expect(page).to_have_url(talk)
        await visit.hear()

        await find(talk[-6:])
        await expect(chosen).to_contain_text("My train leaves")
        await field.press("Escape")

        await find("landlord")
        await expect(chosen).to_contain_text("Answer the landlord")
        await field.press("Enter")
        await expect(page.get_by_role("heading", name="Answer the landlord")).to_be_visible()

        await find("s")
        for key, text in (("ArrowDown", "Sessions"), ("ArrowUp", "New session")):
            await field.press(key)
            await expect(chosen).to_have_text(text)
        await field.fill("Shop")
        await expect(chosen).to_contain_text("Shop")
        await field.press("Enter")
        await expect(page.get_by_role("radio", name="Shop")).to_be_checked()
        await find("nothing like that")
        await expect(page.get_by_text("Nothing matches.")).to_be_visible()
