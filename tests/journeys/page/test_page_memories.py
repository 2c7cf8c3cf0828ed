"""What is remembered, on the page: read, searched with the reasons, edited and forgotten; in what the model saw."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.journeys.http_service import HttpService, bearer, http_service
from tests.journeys.page.visit import PHONE, Visit, listening, offline, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOME = "I live in Bologna with my two cats."
EVIL = "I like <img src=x onerror=alert(1)> and <b>bold</b> claims."


async def remember(service: HttpService, text: str, kind: str = "fact", **who: str) -> dict[str, Any]:
    added = await service.http.post("/v1/memories", json={"text": text, "kind": kind}, headers=who)
    assert added.status_code in (200, 201), added.text
    memory: dict[str, Any] = added.json()
    return memory


async def stored(service: HttpService) -> list[str]:
    page = (await service.http.get("/v1/memories")).json()
    return [memory["text"] for memory in page["memories"]]


def texts(visit: Visit) -> Locator:
    return visit.page.locator(".memory-text:visible")


async def test_memories_are_listed_searched_edited_and_forgotten(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        for text, kind in ((HOME, "fact"), (EVIL, "fact"), ("Keep answers short.", "preference")):
            await remember(service, text, kind)
        await visit.page.get_by_role("link", name="Memories").click()
        # Preferences first, then the newest; nothing that was said becomes markup.
        await expect(texts(visit)).to_have_text(["Keep answers short.", EVIL, HOME])
        assert await visit.page.locator(".memories img, .memories b").count() == 0

        search = visit.page.get_by_role("searchbox", name="Search memories")
        await search.fill("Where do I live in Bologna?")
        await expect(texts(visit).first).to_have_text(HOME)
        arms = visit.page.locator("li", has_text=HOME).locator(".arm:visible")
        await expect(arms).to_have_count(2)
        await expect(arms.first).to_have_attribute("aria-label", re.compile(r"words [1-9]\d* %"))
        await search.fill("")
        await expect(texts(visit)).to_have_count(3)

        await visit.page.get_by_role("button", name=f"Edit “{HOME}”").click()
        await visit.page.get_by_role("textbox", name="Text of this memory").fill("I live in Ferrara.")
        await visit.page.keyboard.press("Enter")
        await expect(texts(visit).filter(has_text="Ferrara")).to_have_count(1)
        assert "I live in Ferrara." in await stored(service)

        for answer, left in (("Cancel", 3), ("Forget", 2)):
            await visit.page.get_by_role("button", name="Forget “I live in Ferrara.”").click()
            await visit.page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
            await expect(texts(visit)).to_have_count(left)
        assert sorted(await stored(service)) == [EVIL, "Keep answers short."]


async def test_something_to_remember_is_written_by_keyboard(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        await visit.open("/#/memories")
        await visit.page.get_by_role("textbox", name="Something to remember").fill("Answer in Italian.")
        await visit.page.get_by_label("Kind").select_option("preference")
        await visit.page.get_by_role("textbox", name="Something to remember").press("Enter")

        await expect(visit.page.locator("[data-section='memories.preferences'] .memory-text")).to_have_text(
            ["Answer in Italian."]
        )
        await visit.page.get_by_role("button", name="Edit “Answer in Italian.”").press("Enter")
        await visit.page.keyboard.press("Escape")
        await expect(visit.page.get_by_role("button", name="Edit “Answer in Italian.”")).to_be_focused()
        assert await stored(service) == ["Answer in Italian."]

        # What is refused is told beside the list, and the words stay.
        visit.allow("404")
        await visit.page.get_by_role("button", name="Edit “Answer in Italian.”").press("Enter")
        await service.http.delete("/v1/memories", params={"all": "true"})
        await visit.page.get_by_role("textbox", name="Text of this memory").fill("Answer in French.")
        await visit.page.keyboard.press("Enter")
        await expect(visit.page.locator(".memories [role=alert]:visible")).to_have_count(1)
        await expect(visit.page.get_by_role("textbox", name="Text of this memory")).to_have_value("Answer in French.")


async def test_what_the_model_saw_names_memories_by_their_text(chromium: Browser) -> None:
    """Also one that was forgotten since; and a memory leads to the conversation that it comes from."""
    async with offline(chromium) as (visit, service):
        await visit.say(HOME)
        await visit.hear()
        await service.tenuto.upkeep.drain()
        first = visit.page.url
        await visit.page.get_by_role("link", name="Memories").click()
        await visit.page.get_by_role("link", name="from this session").click()
        await expect(visit.page).to_have_url(first)

        await visit.page.get_by_role("link", name="New session").click()
        await visit.say("Where do I live?")
        answer = await visit.hear()
        await expect(answer).to_contain_text(HOME)
        await answer.get_by_role("button", name="What the model saw").click()
        await expect(answer.locator("tr[data-kind=memory]")).to_contain_text(HOME)

        await service.http.delete("/v1/memories", params={"all": True})
        visit.allow("404")
        await visit.page.reload()
        await (await visit.hear()).get_by_role("button", name="What the model saw").click()
        await expect(visit.page.locator("tr[data-kind=memory]")).to_contain_text("no longer stored")


async def test_another_person_finds_nothing_of_the_first(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        await remember(service, HOME, **{"X-User-ID": "ann"})
        await visit.page.evaluate("sessionStorage.setItem('tenuto.user', 'ann')")
        await visit.open("/#/memories")
        await visit.page.reload()
        await expect(texts(visit)).to_have_text([HOME])

        await visit.page.get_by_role("main").get_by_role("button", name="ann").click()
        await visit.page.get_by_label("User", exact=True).fill("bob")
        await visit.page.get_by_role("dialog").get_by_role("button", name="Save").click()

        await expect(visit.page.get_by_text("Nothing yet.")).to_be_visible()
        await expect(texts(visit)).to_have_count(0)
        await expect(visit.page.locator("main .owner")).to_have_text("bob")


async def test_a_key_of_a_tenant_is_asked_for_a_user(chromium: Browser) -> None:
    async with http_service(locked=True, embedder="none") as service, listening(service) as base:
        _, secret = await service.keys.create(tenant="acme")
        await service.http.post("/v1/memories", headers={**bearer(secret), "X-User-ID": "ann"}, json={"text": HOME})
        async with visiting(chromium, base) as visit:
            visit.allow("401", "400")
            await visit.open("/#/memories")
            await visit.page.get_by_label("API key or token").fill(secret)
            await visit.page.get_by_role("dialog").get_by_role("button", name="Save").click()
            notice = visit.page.get_by_text("Memories belong to a user")
            await expect(notice).to_be_visible()
            await expect(visit.page.get_by_role("textbox", name="Something to remember")).to_be_disabled()
            await expect(visit.page.get_by_role("button", name="Remember")).to_be_disabled()
            await notice.get_by_role("button", name="Name a user").click()
            await visit.page.get_by_label("User (optional)").fill("ann")
            await visit.page.get_by_role("dialog").get_by_role("button", name="Save").click()

            await expect(texts(visit)).to_have_text([HOME])
            await expect(visit.page.get_by_role("button", name="Remember")).to_be_enabled()


async def test_the_view_fits_a_narrow_screen_in_chinese(chromium: Browser) -> None:
    async with offline(chromium, viewport=PHONE, locale="zh-CN") as (visit, service):
        await remember(service, "我住在上海，养了一只叫豆豆的猫。" * 20)
        await visit.open("/#/memories")

        await expect(visit.page.get_by_role("heading", name="记忆")).to_be_visible()
        await expect(texts(visit)).to_have_count(1)
        width = await visit.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]


async def test_a_person_links_and_parts_users_with_codes(chromium: Browser) -> None:
    """One is shown here and used elsewhere, one the other way round; what is remembered follows at once."""
    async with offline(chromium) as (visit, service):
        people, scope = service.tenuto.people, service.tenuto.scope
        await remember(service, HOME, **{"X-User-ID": "ann"})
        await remember(service, "I play the cello.", **{"X-User-ID": "ou_ann"})
        await visit.page.clock.install()
        await visit.page.evaluate("sessionStorage.setItem('tenuto.user', 'ann')")
        await visit.open("/#/memories")
        await visit.page.reload()
        section = visit.page.locator("[data-section=person]")
        await section.get_by_role("button", name="Show a code").click()
        await expect(section.locator("output")).to_have_text(re.compile("^[0-9A-Z]{5}-[0-9A-Z]{5}$"))
        code = await section.locator("output").text_content()

        await people.use_code(scope(user="ou_ann"), code or "", by="themselves")
        await visit.page.clock.fast_forward(3000)
        await expect(section.locator("output")).to_be_hidden()
        await expect(section.locator(".memory-text")).to_have_text(["ann", "ou_ann"])
        await expect(visit.page.locator("li", has_text="cello")).to_contain_text("as ou_ann")

        await section.get_by_role("button", name="Part ou_ann from the others").click()
        await visit.page.get_by_role("dialog").get_by_role("button", name="Part", exact=True).click()
        await expect(section.locator(".memory-text")).to_have_count(0)
        await expect(texts(visit)).to_have_text([HOME])

        visit.allow("404")
        field = section.get_by_role("textbox", name="Code from elsewhere")
        await field.fill("7K3QD-M2XVA")
        await field.press("Enter")
        await expect(section.get_by_role("alert")).to_be_visible()
        await field.fill((await people.show_code(scope(user="ou_ann"))).text)
        await field.press("Enter")
        await expect(section.locator(".memory-text")).to_have_count(2)
        await expect(section.get_by_role("alert")).to_be_hidden()


async def test_users_who_are_one_person_are_shown_in_chinese(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        await service.tenuto.people.link(service.tenuto.scope(user="ann"), "ou_ann", by="otto")
        async with visiting(chromium, visit.base, locale="zh-CN") as chinese:
            await chinese.open()
            await chinese.page.evaluate("sessionStorage.setItem('tenuto.user', 'ann')")
            await chinese.open("/#/memories")
            await chinese.page.reload()
            section = chinese.page.locator("[data-section=person]")

            await expect(section.get_by_role("heading")).to_have_text("关联账号")
            await expect(section.get_by_role("button", name="显示关联码")).to_be_visible()
            await expect(section.get_by_text("由管理员关联")).to_have_count(2)
