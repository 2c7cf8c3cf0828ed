"""The page of sessions: a table of any length, and what one does about its rows."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Browser, Locator, Page, Request, expect

from tenuto.model import AppendBatch, NewSession, Scope, Usage
from tenuto.sessions.events import EventKind, SessionEvent
from tests.journeys.http_service import HttpService, says
from tests.journeys.page.visit import PATIENCE, PHONE, HeldRoutes, Visit, offline, until_painted
from tests.timeouts import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")

MANY = 10_000
# How many rows may be elements at once, where about 13 are on screen.
MOST_ROWS = 40
SCROLLED = "([top]) => document.querySelector('.sessions-page .scroll').scrollTo(0, top)"
# Scrolls until a row is drawn: one cannot scroll past the rows that are there, and the next page is on its way.
REACHED = """
([top, title]) => {
  document.querySelector(".sessions-page .scroll").scrollTo(0, top);
  return [...document.querySelectorAll(".window > [role=row] .title a")].some(link => link.textContent === title);
}
"""
# Titles by place, of the whole list: scrolled through from top to bottom.
LISTED = """
async () => {
  const scroller = document.querySelector(".sessions-page .scroll");
  const frame = () => new Promise(requestAnimationFrame);
  const found = [];
  for (let top = 0; top <= scroller.scrollHeight; top += 300) {
    scroller.scrollTo(0, top);
    await frame();
    await frame();
    for (const row of document.querySelectorAll(".window > [role=row]"))
      found[row.ariaRowIndex - 2] = row.querySelector(".title a").textContent;
  }
  return found;
}
"""


async def many(service: HttpService, number: int) -> None:
    """So many sessions, made by the store itself: turns would take minutes."""
    ann = Scope(tenant="local", user="ann")
    for each in range(number):
        new = NewSession(title=f"Trip {each}", metadata={"assistant": "general"})
        batch = AppendBatch(id=f"{each}", messages=(), usage=Usage(tokens=5, cost_nanos=1_000_000), create=new)
        await service.tenuto.store.sessions.append(ann, f"s{each}", batch)


def rows(page: Page) -> Locator:
    return page.locator(".window > [role=row]")


async def test_ten_thousand_sessions_scroll_without_loading_all(chromium: Browser) -> None:
    """The rows on screen are elements, and a row that has the focus keeps it; pages come as one scrolls."""
    async with offline(chromium) as (visit, service):
        await many(service, MANY)
        pages: list[Request] = []
        visit.page.on("request", lambda sent: pages.append(sent) if "/v1/sessions?" in sent.url else None)
        await visit.open("/#/sessions")
        first = visit.page.get_by_role("link", name="Trip 9999", exact=True)
        await expect(visit.page.locator("main header:visible")).to_contain_text("10,000 sessions · ")
        await expect(rows(visit.page).first).to_have_text(
            "Trip 9999ann · General · 0 messagesannGeneral05$0.001nowin 30 days"
        )
        await first.focus()

        for top in (2_000, 6_000, 10_000):
            title = f"Trip {9999 - top // 48 - 2}"
            await visit.page.wait_for_function(REACHED, arg=[top, title], timeout=PATIENCE)
            await expect(visit.page.get_by_role("link", name=title, exact=True)).to_be_visible()
            assert await rows(visit.page).count() < MOST_ROWS
        await expect(first).to_be_focused()
        assert len(pages) < 8

        # None of them was searched before: the page asks until all are.
        await visit.page.get_by_role("searchbox").fill("trips 77")
        await expect(rows(visit.page)).to_have_count(1, timeout=PATIENCE)
        assert await visit.page.evaluate(LISTED) == ["Trip 77"]


async def test_a_row_fits_its_page_at_any_width(chromium: Browser) -> None:
    """No column is cut off, with the list of pages beside the table and without."""
    async with offline(chromium) as (visit, service):
        await many(service, 1)
        await visit.open("/#/sessions")
        await expect(rows(visit.page)).to_have_count(1)

        for width in range(320, 1601, 40):
            await visit.page.set_viewport_size({"width": width, "height": 800})
            wide = await visit.page.locator(".sessions-page .scroll").evaluate(
                "one => [one.scrollWidth, one.clientWidth]"
            )
            assert wide[0] <= wide[1], width
        await visit.page.set_viewport_size(PHONE)
        fork = rows(visit.page).get_by_role("button", name="Fork")
        await expect(fork).to_be_hidden()
        await visit.page.get_by_role("button", name="Actions for").click()
        await expect(fork).to_be_visible()


async def test_a_long_list_that_changes_meanwhile_has_no_gap(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        await many(service, 160)
        # Held from the beginning: a page may ask for more rows before it is scrolled.
        held = HeldRoutes()
        await visit.page.route("**/v1/sessions?*cursor=*", held)
        await visit.open("/#/sessions")
        await expect(rows(visit.page).first).to_contain_text("Trip 159")
        await visit.page.evaluate(SCROLLED, [2_000])
        late = await held.next()

        # A list that was brought anew meanwhile takes the page that was on its way,
        await service.http.post("/v1/sessions", json={"title": "Madrid"})
        await service.http.patch("/v1/sessions/s20", json={"title": "Porto"})
        async with visit.page.expect_response("**/v1/sessions?*"):
            await visit.look_again()
        await until_painted(visit.page)
        async with visit.page.expect_response("**/v1/sessions?*cursor=*"):
            await late.continue_()
        # A list that is shorter yet would not scroll as far as further rows are asked for.
        await until_painted(visit.page)
        await visit.page.unroute("**/v1/sessions?*cursor=*")
        trips = [f"Trip {number}" for number in reversed(range(160)) if number != 20]
        table = visit.page.get_by_role("table")
        async with asyncio.timeout(LONG):
            # Rows that come after a scroll may end below what was in sight.
            while await table.get_attribute("aria-rowcount") == "-1":
                await visit.page.evaluate(SCROLLED, [60_000])
                await until_painted(visit.page)
        assert await visit.page.evaluate(LISTED) == ["Porto", "Madrid", *trips]

        # and one of other titles does not.
        await visit.page.route("**/v1/sessions?*cursor=*", held)
        await visit.page.reload()
        await expect(rows(visit.page).first).to_contain_text("Porto")
        await visit.page.evaluate(SCROLLED, [2_000])
        late = await held.next()
        await visit.page.get_by_role("searchbox").fill("Trip 7")
        await expect(rows(visit.page)).to_have_count(1)
        async with visit.page.expect_event("requestfinished"):
            await late.continue_()
        await until_painted(visit.page)
        await expect(rows(visit.page)).to_have_count(1)


async def titles(service: HttpService) -> list[str]:
    return [session["title"] for session in (await service.http.get("/v1/sessions")).json()["sessions"]]


async def hear(event: SessionEvent, gone: asyncio.Event) -> None:
    if event.kind is EventKind.DELETED:
        gone.set()


async def deleted(visit: Visit, title: str) -> None:
    await visit.page.get_by_role("button", name=f"Delete “{title}”").click()
    await expect(visit.page.get_by_role("link", name=title, exact=True)).to_have_count(0)


async def test_a_deletion_can_be_undone_and_else_happens_also_when_the_page_is_left(chromium: Browser) -> None:
    """Until the time is over the server keeps everything; afterwards nothing comes back."""
    async with offline(chromium) as (visit, service):
        visit.allow("404")
        await visit.page.clock.install()
        await many(service, 6)
        await visit.open("/#/sessions")

        await deleted(visit, "Trip 5")
        await visit.look_again()
        await expect(rows(visit.page)).to_have_count(5)
        await visit.page.keyboard.press("Control+z")
        await expect(rows(visit.page)).to_have_count(6)
        await deleted(visit, "Trip 5")
        await visit.page.get_by_role("button", name="Undo").click()
        await expect(rows(visit.page)).to_have_count(6)

        # By keyboard, the offer has the focus, and as long as it has it, the time stands still.
        await visit.page.mouse.move(0, 0)
        undo = visit.page.get_by_role("button", name="Undo")
        await visit.page.get_by_role("button", name="Delete “Trip 5”").press("Enter")
        await expect(undo).to_be_focused()
        await visit.page.clock.fast_forward(60_000)
        assert len(await titles(service)) == 6
        await undo.press("Enter")
        await expect(rows(visit.page)).to_have_count(6)
        await expect(undo).to_be_hidden()

        await deleted(visit, "Trip 4")
        assert len(await titles(service)) == 6
        async with visit.page.expect_response("**/v1/sessions/s4"):
            await visit.page.clock.fast_forward(11_000)
        assert await titles(service) == ["Trip 5", "Trip 3", "Trip 2", "Trip 1", "Trip 0"]

        await deleted(visit, "Trip 3")
        async with visit.page.expect_response("**/v1/sessions/s3"):
            await deleted(visit, "Trip 2")
        await visit.page.reload()
        await expect(rows(visit.page)).to_have_count(3)
        assert await titles(service) == ["Trip 5", "Trip 1", "Trip 0"]

        # Where the page ended before the server heard of it, the next start says it again.
        await visit.page.add_init_script("""sessionStorage.setItem("tenuto.deleting", '["s1"]')""")
        await visit.page.reload()
        await expect(rows(visit.page)).to_have_count(2)
        assert await titles(service) == ["Trip 5", "Trip 0"]

        gone = asyncio.Event()
        service.tenuto.add_listener(lambda event: hear(event, gone))
        await deleted(visit, "Trip 0")
        await visit.open("/healthz")
        async with asyncio.timeout(PATIENCE / 1000):
            await gone.wait()
        assert await titles(service) == ["Trip 5"]


async def test_sessions_are_renamed_forked_exported_and_deleted_in_their_table(chromium: Browser) -> None:
    async with offline(chromium, accept_downloads=True) as (visit, service):
        for session in ("a", "b", "c"):
            await service.http.post("/v1/sessions", json={"id": session, "title": session.upper()})
            await service.http.post(f"/v1/sessions/{session}/messages", json=says(f"I am {session}."))
        await visit.open("/#/sessions")
        page = visit.page

        await page.get_by_role("button", name="Rename “B”").click()
        await page.get_by_role("textbox", name="Title").fill("B <i>/2")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("link", name="B <i>/2", exact=True)).to_be_visible()

        await page.get_by_role("button", name="Export “B <i>/2”").click()
        async with page.expect_download() as download:
            await page.get_by_role("dialog").get_by_role("button", name="Markdown").click()
        file = await download.value
        assert file.suggested_filename == "B  i  2.md"
        assert "I am b." in (await file.path()).read_text()

        for title in ("A", "C"):
            await page.get_by_role("checkbox", name=f"Select “{title}”", exact=True).check()
        selection = page.get_by_role("group", name="Selected sessions")
        await expect(selection).to_contain_text("2 selected")
        await selection.get_by_role("button", name="Delete").click()
        await expect(rows(page)).to_have_count(1)
        await expect(selection).to_be_hidden()
        sums = page.locator("main header:visible")
        await expect(sums).to_contain_text("1 session · 1 message")
        await expect(page.get_by_text("Deleted 2 sessions.", exact=True)).to_be_visible()
        async with page.expect_response("**/v1/sessions/c"):
            await page.get_by_role("button", name="Delete now").click()
        await expect(sums).to_contain_text("1 session · 1 message")

        await page.get_by_role("button", name="Fork “B <i>/2”").click()
        await expect(page.locator(".said")).to_have_text(["I am b."])
        assert await titles(service) == ["B <i>/2", "B <i>/2"]
        assert not page.url.endswith("/b")
        await page.get_by_role("main").get_by_role("link", name="B <i>/2").click()
        await expect(page).to_have_url(re.compile("#/chat/b$"))
        await expect(page.locator(".origin")).to_be_hidden()
