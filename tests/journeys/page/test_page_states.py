"""Around the talk, in states between the usual ones: who answers, the title, the account, what was taken out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Route, ViewportSize, expect

from tenuto.llm import Fail, Hang, Say
from tenuto.llm.scripted import Script
from tenuto.model.privacy import Mode
from tests.journeys.http_service import http_service
from tests.journeys.page.visit import DESK, PHONE, Visit, listening, scripted, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")
TAKEN = "1 value redacted before storing: 1 e-mail"


@asynccontextmanager
async def redacting(browser: Browser, script: Script) -> AsyncIterator[Visit]:
    """A user has sent an address to an assistant whose server keeps none."""
    async with scripted(browser, script, privacy_message=Mode.REDACT) as (visit, _, _door):
        await visit.say("My mail is ann@example.com.")
        yield visit


async def test_what_was_taken_out_is_told_though_nobody_answered(chromium: Browser) -> None:
    async with redacting(chromium, Fail()) as visit:
        await expect(visit.answers.first).to_have_attribute("data-status", "failed")
        await expect(visit.page.locator(".taken:visible")).to_have_text(TAKEN)

        await visit.page.reload()

        await expect(visit.page.get_by_role("button", name="Answer this")).to_be_visible()
        await expect(visit.page.locator(".taken:visible")).to_have_text(TAKEN)


async def test_words_that_were_answered_have_it_told_once(chromium: Browser) -> None:
    async with redacting(chromium, "Noted.") as visit:
        await visit.hear()

        await expect(visit.page.locator(".taken:visible")).to_have_text([TAKEN])


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
async def test_the_account_of_an_answer_stays_when_the_next_one_fails(
    chromium: Browser, viewport: ViewportSize
) -> None:
    async with scripted(chromium, "Seven.", Fail(), "Eight.", wishes={"viewport": viewport}) as (visit, _, _door):
        await visit.say("How many?")
        answer = await visit.hear()
        await answer.get_by_role("button", name="Regenerate").click()
        await expect(answer).to_have_attribute("data-status", "failed")

        await answer.get_by_role("button", name="What the model saw").click()

        await expect(answer.locator(".insight")).to_contain_text("question")
        await answer.get_by_role("button", name="Try again").click()
        await visit.hear()
        await expect(answer.locator(".prose")).to_have_text("Eight.")
        await expect(answer.locator(".insight")).to_be_hidden()


async def test_what_a_model_saw_that_failed_can_be_looked_at(chromium: Browser) -> None:
    async with scripted(chromium, [Say("Half"), Fail()]) as (visit, _, _door):
        await visit.say("How many?")
        answer = visit.answers.first
        await expect(answer).to_have_attribute("data-status", "failed")

        await answer.get_by_role("button", name="What the model saw").click()

        await expect(answer.locator(".insight")).to_contain_text("question")


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
async def test_an_assistant_without_a_title_is_called_by_its_name(chromium: Browser, locale: str) -> None:
    async with scripted(chromium, "Seven.", wishes={"locale": locale}) as (visit, _, _door):
        await expect(visit.page.locator(".name", has_text="helper")).to_be_visible()
        await expect(visit.page.locator("header .whom")).to_have_text("helper")
        placeholder = "Write to helper …" if locale == "en-GB" else "写给helper……"
        await expect(visit.field).to_have_attribute("placeholder", placeholder)

        await visit.say("How many?")
        answer = await visit.hear()

        await expect(answer.locator(".speaker")).to_have_text("helper")


async def test_the_title_stands_above_a_talk_as_soon_as_the_list_has_it(chromium: Browser) -> None:
    pause = Hang()
    async with scripted(chromium, [Say("Once "), pause, Say("upon a time.")]) as (visit, _, _door):
        await visit.say("Tell me a long story")
        await pause.reached.wait()

        await expect(visit.page.locator(".sessions")).to_contain_text("Tell me a long story")
        await expect(visit.page.locator("h1")).to_have_text("Tell me a long story")
        await expect(visit.page).to_have_title("Tell me a long story · tenuto")
        pause.release.set()
        await visit.hear()


@pytest.mark.requirement("C12")
async def test_one_who_remembers_nothing_is_talked_to_on_and_leaves_an_empty_page(chromium: Browser) -> None:
    """MEMORY_ENABLED=false."""
    async with (
        http_service(memory_enabled=False, assistant="npc") as service,
        listening(service) as base,
        visiting(chromium, base) as visit,
    ):
        await visit.open()
        await visit.say("What are the family rules?")
        await visit.hear()
        await visit.say("What are the family rules?")
        answer = await visit.hear(2)

        await expect(answer.locator(".prose")).to_contain_text("E-RULE-01")
        await expect(answer.get_by_role("button", name="Regenerate")).to_be_hidden()
        await visit.page.reload()
        await expect(visit.page.get_by_text("Who would you like to talk to?")).to_be_visible()


async def test_a_privacy_policy_that_did_not_come_at_first_comes_when_one_looks_again(chromium: Browser) -> None:
    async def away(route: Route) -> None:
        await route.abort()

    async with http_service() as service, listening(service) as base, visiting(chromium, base) as visit:
        await visit.page.route("**/v1/privacy", away)
        await visit.open("/#/privacy")
        policy = visit.page.get_by_role("region", name="Policy")
        await expect(policy).to_contain_text("did not send its policy")

        await visit.page.unroute("**/v1/privacy", away)
        await visit.look_again()

        await expect(policy.locator("[data-sink=message]")).to_be_visible()
        visit.allow("net::ERR_FAILED")
