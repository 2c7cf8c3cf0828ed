"""The frame of the console: what a visit transfers, every page in both themes and on a phone, all by keyboard."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, expect
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.journeys.http_service import http_service
from tests.journeys.page.page_checks import AXE, CONSOLE, WIDE
from tests.journeys.page.visit import DESK, PHONE, HeldRoutes, Visit, offline, visiting
from tests.npm_clients import install_clients
from tests.servers.loopback import serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES = re.findall(r'name: "(\w+)"', (CONSOLE / "pages.js").read_text())
MOST_REQUESTS = 10
MOST_BYTES = 60_000
TRANSFERRED = """
() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .map((one) => [new URL(one.name).pathname, one.transferSize])
"""
# Milliseconds from the click on a page's link until that page is in place of the one before.
ROUTE_CHANGE = """
(name) => new Promise((resolve) => {
  const begun = performance.now();
  const shown = () => document.querySelector(`[data-page=${name}][aria-current]`)
    && document.querySelector("main > .page :is(section, form, table)");
  const look = () => (shown() ? resolve(performance.now() - begun) : requestAnimationFrame(look));
  document.querySelector(`[data-page=${name}]`).click();
  look();
})
"""


def behind(prefix: str, app: ASGIApp) -> ASGIApp:
    """The application as a proxy shows it under a path of its own."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"].startswith(prefix), scope["path"]
        raw = scope["raw_path"].removeprefix(prefix.encode())
        await app({**scope, "path": scope["path"].removeprefix(prefix), "raw_path": raw}, receive, send)

    return answer


@pytest.mark.usefixtures("bundle")
async def test_a_first_visit_transfers_little_and_a_reload_almost_nothing(
    chromium: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    """The console as a wheel has it. Document, scripts, style, icon and the calls of the API are counted, with their
    headers; behind a proxy's path."""
    async with (
        http_service() as service,
        serving(behind("/console-of/acme", service.app)) as base,
        visiting(chromium, base) as visit,
    ):
        visit.allow("400")  # On the page of memories, which belong to a user; none is named here.
        requested: list[str] = []  # A stream is not among what was transferred until it ends.
        visit.page.on("request", lambda request: requested.append(request.url))
        await visit.open("/console-of/acme/")
        first = await _settled(visit)
        count = len(requested)
        paint = await visit.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        await visit.page.reload()
        again = await _settled(visit)
        changes = {name: await visit.page.evaluate(ROUTE_CHANGE, name) for name in PAGES}

        assert count <= MOST_REQUESTS, requested
        assert sum(size for _, size in first) <= MOST_BYTES, first
        assert sum(size for path, size in again if "/v1/" not in path) <= 2_000, again
        with capsys.disabled():
            total = f"{count} requests, {sum(size for _, size in first)} bytes"
            told = ", ".join(f"{name} {spent:.0f}" for name, spent in changes.items())
            print(f"\nconsole: {total}; first paint {paint:.0f} ms; route change in ms: {told}")  # noqa: T201 (figures to read)


async def _settled(visit: Visit) -> list[tuple[str, int]]:
    """What was transferred until the page had all it asks for by itself."""
    await expect(visit.page.get_by_role("radio", name="Shop")).to_be_visible()
    await expect(visit.page.get_by_text("No sessions yet.")).to_be_visible()
    return [(path, size) for path, size in await visit.page.evaluate(TRANSFERRED)]


@pytest.mark.usefixtures("modules")
async def test_a_page_that_cannot_be_fetched_says_so_and_can_be_loaded_again(chromium: Browser) -> None:
    async with offline(chromium) as (visit, _):
        visit.allow("ERR_FAILED")
        await visit.page.route("**/pages/tasks.js", lambda route: route.abort())
        await visit.page.get_by_role("link", name="Tasks").click()
        await expect(visit.page.get_by_role("main")).to_contain_text("This page could not be fetched from the server.")

        await visit.page.unroute("**/pages/tasks.js")
        await visit.page.get_by_role("button", name="Reload").click()

        await expect(visit.page.get_by_role("heading", name="No tasks yet")).to_be_visible()


@pytest.mark.usefixtures("modules")
async def test_the_page_in_the_address_is_fetched_before_the_server_has_told_anything(chromium: Browser) -> None:
    async with (
        http_service(memories_without_user=True) as service,
        serving(service.app) as base,
        visiting(chromium, base) as visit,
    ):
        held = HeldRoutes()
        await visit.page.route("**/healthz", held)

        async with visit.page.expect_request("**/pages/tasks.js"), visit.page.expect_request("**/css/tasks.css"):
            await visit.open("/#/tasks")

        await (await held.next()).continue_()
        await expect(visit.page.get_by_role("heading", name="No tasks yet")).to_be_visible()


@asynccontextmanager
async def furnished(browser: Browser) -> AsyncIterator[tuple[Visit, list[str]]]:
    """A visit to a console with something on every page, and the addresses to see."""
    async with offline(browser) as (visit, service):
        said = ("legal", "My landlord keeps the deposit"), ("goods", "Which phones are cheap?")
        answers = [await service.http.post("/v1/chat", json={"message": text, "assistant": who}) for who, text in said]
        session, trace = answers[-1].json()["session_id"], answers[-1].json()["trace_id"]
        await service.http.post("/v1/memories", json={"text": "Likes green tea", "kind": "preference"})
        task = (await service.http.get("/v1/tasks")).json()["tasks"][0]["id"]
        parts = (f"#/tasks/{task}", f"#/traces/{trace}")
        yield visit, ["#/chat", f"#/chat/{session}", *(f"#/{name}" for name in PAGES), *parts]


async def _show(page: Page, address: str) -> None:
    await page.evaluate("(address) => (location.hash = address)", address)
    await expect(page.locator("main h1:visible").first).to_be_visible()
    await expect(page.get_by_text("One moment …").locator("visible=true")).to_have_count(0)
    if address.startswith("#/chat/"):
        await page.get_by_role("button", name="What the model saw").click()
        await expect(page.locator(".entries")).to_be_visible()


@pytest.mark.usefixtures("modules")
async def test_every_page_is_accessible_in_both_themes_and_fits_a_phone(chromium: Browser) -> None:
    """No rule of axe-core finds anything: in the light on a desk, in the dark on a phone, where nothing is too wide."""
    axe = (await install_clients() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    found: dict[tuple[str, str], list[str]] = {}
    async with furnished(chromium) as (visit, addresses):
        await visit.page.evaluate(axe)
        for address in addresses:
            await visit.page.emulate_media(color_scheme="light")
            await visit.page.set_viewport_size(DESK)
            await _show(visit.page, address)
            found[address, "light"] = await visit.page.evaluate(AXE, ["html", {}])
            await visit.page.emulate_media(color_scheme="dark")
            await visit.page.set_viewport_size(PHONE)
            found[address, "dark"] = await visit.page.evaluate(AXE, ["html", {}])
            found[address, "phone"] = await visit.page.evaluate(WIDE)

    assert {place: problems for place, problems in found.items() if problems} == {}


async def test_every_page_is_reached_by_keyboard_alone(chromium: Browser) -> None:
    async with offline(chromium) as (visit, _):
        await expect(visit.page.get_by_text("No sessions yet.")).to_be_visible()
        for number, name in enumerate(PAGES):
            await visit.page.locator(".wordmark").focus()
            for _ in range(number + 3):  # Past what opens anything by name, and the link to a new conversation.
                await visit.page.keyboard.press("Tab")
            await expect(visit.page.locator(f"[data-page={name}]")).to_be_focused()
            await visit.page.keyboard.press("Enter")

            await expect(visit.page.locator("main .page h1").first).to_be_focused()
            await expect(visit.page.locator(f"[data-page={name}]")).to_have_attribute("aria-current", "page")
            await expect(visit.page.locator("main h1:visible")).to_have_count(1)
