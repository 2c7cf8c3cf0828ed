"""An answer made anew on the page: when it fails or is stopped, the one from before is still there."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tenuto.llm import Fail, Hang, Say
from tests.journeys.page.visit import Visit, scripted, stored

pytestmark = pytest.mark.asyncio(loop_scope="session")
GOOD = [("user", "How many?"), ("assistant", "Seven.")]


async def asked(visit: Visit) -> None:
    """A user has an answer, and asks for another."""
    await visit.say("How many?")
    await visit.hear()
    await visit.page.get_by_role("button", name="Regenerate").click()


async def test_a_failure_leaves_the_answer_from_before_on_the_page_and_in_the_store(chromium: Browser) -> None:
    async with scripted(chromium, "Seven.", Fail(), [Say("Ei"), Fail()], "Eight.") as (visit, _, service):
        await asked(visit)
        answer = visit.answers.first

        for _ in range(2):
            alert = answer.get_by_role("alert")
            await expect(alert).to_contain_text("The model gave no usable answer. The previous answer stays.")
            await expect(answer.locator(".prose")).to_have_text("Seven.")
            assert await stored(service) == GOOD
            await answer.get_by_role("button", name="Try again").click()

        await expect(visit.answers.locator(".prose")).to_have_text(["Eight."])
        await visit.hear()
        assert await stored(service) == [("user", "How many?"), ("assistant", "Eight.")]


async def test_who_stops_a_new_answer_has_the_one_from_before(chromium: Browser) -> None:
    async with scripted(chromium, "Seven.", [Say("Let me "), Hang()]) as (visit, model, service):
        await asked(visit)
        await expect(visit.answers.first.locator(".prose")).to_have_text("Let me")

        await expect(visit.field).to_be_focused()
        await visit.page.locator("[role=log]").focus()
        await visit.page.keyboard.press("Escape")

        await expect(visit.answers.get_by_role("alert")).to_contain_text("Stopped. The previous answer stays.")
        await expect(visit.answers.locator(".prose")).to_have_text(["Seven."])
        await visit.page.reload()
        await expect(visit.answers.locator(".prose")).to_have_text(["Seven."])
        assert model.cancelled == 1
        assert await stored(service) == GOOD
        turns = (await service.http.get("/v1/status")).json()["turns"]
        assert (turns["answered"], turns["failed"], turns["failed_in_a_row"]) == (1, 0, 0)
        assert (await service.http.get("/v1/traces?outcome=failed")).json()["traces"] == []
        await visit.page.get_by_role("link", name="Traces").click()
        await expect(visit.page.locator(".trace-table .outcome")).to_have_text(["Outcome", "stopped", "answered"])
