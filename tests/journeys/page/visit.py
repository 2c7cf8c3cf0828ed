"""A visitor at the page: a real browser, a server on a real port, and everything the browser complained about."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser, Locator, Page, Route, ViewportSize, expect

from tenuto.llm import ScriptedModel
from tenuto.llm.scripted import Script
from tests.journeys.http_service import HttpService, http_service, playing
from tests.servers.loopback import serving

DESK: ViewportSize = {"width": 1180, "height": 800}
PHONE: ViewportSize = {"width": 360, "height": 720}
# Generous: it bounds how long a busy machine may take, and no test that passes waits for it.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)


@dataclass
class Visit:
    """A visitor at the page, and everything the browser had to complain about."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    strayed: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))
        self.page.on("request", self._look_at)

    def _look_at(self, request: Any) -> None:
        if not request.url.removeprefix("blob:").startswith(self.base):
            self.strayed.append(request.url)

    async def open(self, path: str = "/") -> Visit:
        await self.page.goto(self.base + path)
        return self

    @property
    def field(self) -> Locator:
        return self.page.get_by_role("textbox", name=re.compile("Write a message|输入消息"))

    @property
    def answers(self) -> Locator:
        return self.page.locator(".answer")

    async def say(self, text: str) -> None:
        """Say something, once the page takes it: while it loads a talk or hears an answer, Enter sends nothing."""
        await expect(self.page.locator("[role=log]")).to_have_attribute("aria-busy", "false")
        await expect(self.page.locator(".transcript .column > [role=alert]")).to_be_hidden()
        await self.field.fill(text)
        await self.field.press("Enter")

    async def hear(self, number: int = 1) -> Locator:
        """The answer of this number, once it is complete."""
        answer = self.answers.nth(number - 1)
        await expect(answer).to_have_attribute("data-status", "done")
        return answer

    async def look_again(self) -> None:
        """The window gets the focus again."""
        await self.page.evaluate("dispatchEvent(new Event('focus'))")

    def allow(self, *known: str) -> None:
        """Take these complaints as part of the story, whenever they come: browsers report every failed request."""
        self.known += known

    def unexpected(self) -> list[str]:
        """The complaints that are no part of the story."""
        return [one for one in self.complaints if not any(part in one for part in self.known)]


@asynccontextmanager
async def visiting(browser: Browser, base: str, **wishes: Any) -> AsyncIterator[Visit]:
    """A visit; whatever happens in it, nothing leaves the server's origin and nothing goes wrong unseen."""
    context = await browser.new_context(**{"viewport": DESK, "locale": "en-GB", **wishes})
    try:
        visit = Visit(await context.new_page(), base)
        yield visit
        assert visit.unexpected() == [], visit.unexpected()
        assert visit.strayed == []
    finally:
        await context.close()


def listening(service: HttpService) -> AbstractAsyncContextManager[str]:
    """The door on a real port."""
    return serving(service.app)


@asynccontextmanager
async def scripted(
    browser: Browser, *scripts: Script, tools: Sequence[Any] = (), wishes: dict[str, Any] | None = None, **given: Any
) -> AsyncIterator[tuple[Visit, ScriptedModel, HttpService]]:
    """A visit to a server with these settings, whose assistant plays scripts."""
    model = ScriptedModel(*scripts)
    async with (
        http_service(**playing(model, tools=tuple(tools)), **given) as service,
        listening(service) as base,
        visiting(browser, base, **(wishes or {})) as visit,
    ):
        yield await visit.open(), model, service


@asynccontextmanager
async def offline(
    browser: Browser, *, session_search: bool = True, **wishes: Any
) -> AsyncIterator[tuple[Visit, HttpService]]:
    """A visit to a server as it comes: shipped assistants, the offline model."""
    # One person looks at it, who names no user.
    async with (
        http_service(memories_without_user=True, session_search=session_search) as service,
        listening(service) as base,
        visiting(browser, base, **wishes) as visit,
    ):
        yield await visit.open(), service


async def stored(service: HttpService) -> list[tuple[str, str]]:
    """What the one session holds."""
    [session] = (await service.http.get("/v1/sessions")).json()["sessions"]
    page = (await service.http.get(f"/v1/sessions/{session['id']}/messages")).json()["messages"]
    return [(message["role"], message["text"]) for message in page]


@dataclass
class HeldRoutes:
    """Requests that a test lets through when it wants to."""

    waiting: asyncio.Queue[Route] = field(default_factory=asyncio.Queue)

    async def __call__(self, route: Route) -> None:
        await self.waiting.put(route)

    async def next(self) -> Route:
        """The next request, which has to come soon."""
        async with asyncio.timeout(PATIENCE / 1000):
            return await self.waiting.get()


async def until_painted(page: Page) -> None:
    """Once the page has taken in, and shown, what had arrived before."""
    await page.evaluate("fetch('healthz').then((said) => said.json())")
    await page.evaluate("new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown)))")
