"""The pages of traces: turns by what they are, and one of them step by step."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect

from tenuto.llm import Call, Fail, ScriptedModel
from tenuto.model.generation import ModelDone
from tests.chats import Adder
from tests.journeys.http_service import http_service, playing
from tests.journeys.page.visit import DESK, PHONE, listening, offline, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Where each bar begins and ends, in hundredths of the whole.
BARS = """
() => [...document.querySelectorAll(".waterfall .bar")].map((bar) => {
  const [one, all] = [bar, bar.parentNode].map((each) => each.getBoundingClientRect());
  return [(one.left - all.left) / all.width, (one.right - all.left) / all.width].map((part) => Math.round(part * 100));
})
"""


async def test_turns_are_found_and_one_is_shown_step_by_step(chromium: Browser) -> None:
    """The steps of a turn in the order they ran, each model call with its tokens and cost, tools below their step."""
    done = ModelDone(model="scripted", input_tokens=100, output_tokens=20, cost_nanos=1_500_000)
    model = ScriptedModel([Call("add", {"a": 1, "b": 2})], "<b>3</b>", [Fail()], ended=done)
    async with (
        http_service(**playing(model, tools=(Adder(),))) as service,
        listening(service) as base,
        visiting(chromium, base) as visit,
    ):
        page = visit.page
        await visit.open("/#/traces")
        await expect(page.get_by_role("heading", name="No traces yet")).to_be_visible()
        await expect(page.locator(".command")).to_contain_text("/v1/traces")
        for session, text in (("a", "1+2?"), ("b", "Go")):
            body = {"message": text, "session_id": session}
            await service.http.post("/v1/chat", json=body, headers={"X-User-ID": f"user-{session}"})

        await visit.look_again()
        await page.set_viewport_size(PHONE)
        row = page.locator(".trace-table tbody tr").first
        for cell, text in (("user", "user-b"), ("assistant", "helper"), ("outcome", "model failed")):
            await expect(row.locator(f".{cell}")).to_have_text(text)
            await expect(row.locator(f".{cell}")).to_be_visible()
        wide = await page.locator("main").evaluate("one => [one.scrollWidth, one.clientWidth]")
        assert wide[0] <= wide[1]
        await page.set_viewport_size(DESK)
        asked = page.locator(".trace-table .request")
        await expect(asked).to_have_text(["Request", "Go", "1+2?"])
        await expect(page.locator(".trace-table .outcome")).to_have_text(["Outcome", "model failed", "answered"])
        await page.get_by_label("Outcome").select_option("failed")
        await expect(asked).to_have_text(["Request", "Go"])
        await page.get_by_role("button", name="Clear filters").click()
        await page.get_by_label("User", exact=True).fill("user-a")
        await page.get_by_label("User", exact=True).press("Enter")
        await expect(asked).to_have_text(["Request", "1+2?"])
        await page.get_by_label("Time").select_option("24")
        await page.locator(".filters").get_by_label(re.compile("^Model")).select_option("scripted")
        await expect(asked).to_have_text(["Request", "1+2?"])
        await page.locator(".filters").get_by_label("Assistant").select_option("general")
        await expect(page.get_by_text("No turns match.")).to_be_visible()
        await page.get_by_role("button", name="Clear filters").click()
        await page.get_by_label("Time").select_option("custom")
        await page.get_by_label("To", exact=True).fill("2020-01-01T00:00")
        await page.get_by_label("To", exact=True).press("Tab")
        await expect(page.get_by_text("No turns match.")).to_be_visible()
        await page.get_by_label("To", exact=True).fill("")
        await page.get_by_label("To", exact=True).press("Tab")
        await expect(asked).to_have_text(["Request", "Go", "1+2?"])
        await page.get_by_role("link", name="Sessions").click()
        await page.get_by_role("link", name="Traces of “1+2?”").click()
        await expect(asked).to_have_text(["Request", "1+2?"])
        await page.get_by_role("link", name="1+2?", exact=True).click()

        steps = page.locator(".waterfall tbody tr")
        await expect(steps).to_have_count(7)
        names = await steps.evaluate_all("(rows) => rows.map((row) => row.dataset.step)")
        assert names == ["begin", "assemble", "model", "tools", "add", "model", "trace"]
        calls = page.locator(".waterfall [data-step=model] .tokens")
        await expect(calls).to_have_text(["100 in, 20 out"] * 2)
        await expect(page.locator(".waterfall [data-step=model] .cost")).to_have_text(["$0.0015"] * 2)
        bars = await page.evaluate(BARS)
        assert bars[0][0] == 0
        assert [begin for begin, _ in bars] == sorted(begin for begin, _ in bars)
        assert max(end for _, end in bars) in (100, 101)
        await expect(page.locator(".trace-body")).to_contain_text("<b>3</b>")
        await page.get_by_role("button", name="What the model saw").click()
        await expect(page.locator(".insight .entries")).to_be_visible()
        await page.get_by_role("link", name="turn 1").click()
        await expect(page.locator(".said")).to_have_text(["1+2?"])


async def test_an_assistant_has_its_title_wherever_it_is_named(chromium: Browser) -> None:
    async with offline(chromium) as (visit, _):
        await visit.say("My train leaves at 7:40.")
        await visit.hear()

        await visit.open("/#/traces")
        await visit.page.locator(".trace-table").get_by_role("link").click()
        await expect(visit.page.locator(".trace-facts")).to_contain_text("AssistantGeneral")
        await visit.open("/#/usage")
        await expect(visit.page.get_by_role("rowheader", name="General")).to_be_visible()
