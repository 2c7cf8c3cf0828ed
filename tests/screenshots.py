"""Pictures of the console for the docs: `python -m tests.screenshots [folder]` makes them anew in `docs/images`.

A server in this process has talked with a few users for two weeks; each page is seen in both themes, as WebP.
"""

from __future__ import annotations

import asyncio
import os
import sys
from base64 import b64decode
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright, expect

from tenuto.ports import utc_now
from tests.browser import ARGUMENTS, MISSING, find
from tests.journeys.http_service import HttpService, http_service
from tests.journeys.page.visit import DESK, PHONE, listening

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOST_BYTES = 60_000
QUALITY = 78
TALKS = (
    ("ann", "general", ("My name is Ann, and my train leaves at 7:40.", "When does my train leave?")),
    ("bob", "goods", ("Which phones are cheap?", "And a keyboard under 300?")),
    ("eve", "npc", ("What are the family rules?",)),
    ("ann", "legal", ("My landlord keeps the deposit",)),
    ("bob", "general", ("Remind me that the invoice is due on Friday.", "When is the invoice due?")),
    ("bob", "legal", ("Can my employer change my working hours?",)),
    ("eve", "general", ("The garden party is on the 14th of June.",)),
    ("ann", "npc", ("How is salt made here?",)),
    ("ann", "goods", ("A keyboard under 300", "Which phones are cheap?")),
)
OF_ANN = ("chat", "memories")
MEMORIES = (("Prefers trains to planes", "preference"), ("Lives in Leeds", "fact"), ("Is allergic to nuts", "fact"))
PLAN = [
    {"id": "draft", "agent": "assistant:general", "output_key": "letter"},
    {"id": "check", "agent": "assistant:legal", "after": ["draft"], "required": False},
    {"id": "approval", "human_input": "Send this letter?", "after": ["draft", "check"]},
]


class _PastClock:
    """The time of day, some days ago at first, and now in the end."""

    behind = timedelta(days=13)

    def __call__(self) -> datetime:
        return utc_now() - self.behind


async def _talk(service: HttpService, user: str, assistant: str, texts: Sequence[str]) -> str:
    """Have a talk. Returns its session."""
    session: str | None = None
    for text in texts:
        body = {"message": text, "assistant": assistant, "session_id": session}
        response = await service.http.post("/v1/chat", json=body, headers={"X-User-ID": user})
        session = response.raise_for_status().json()["session_id"]
    assert session is not None
    return session


async def _furnish(service: HttpService, clock: _PastClock) -> dict[str, str]:
    """Two weeks of talks, and a task. Returns the address of each picture."""
    for day in range(13, 0, -1):
        clock.behind = timedelta(days=day)
        for number in range(1 + day * 5 % 4):
            await _talk(service, *TALKS[(day * 4 + number) % len(TALKS)])
    clock.behind = timedelta(0)
    sessions = [await _talk(service, *talk) for talk in TALKS]
    for text, kind in MEMORIES:
        await service.http.post("/v1/memories", json={"text": text, "kind": kind}, headers={"X-User-ID": "ann"})
    letter = {"type": "letter", "goal": "Write to the landlord", "plan": {"steps": PLAN}}
    task = (await service.http.post("/v1/tasks", json=letter)).raise_for_status().json()["id"]
    trace = (await service.http.get("/v1/traces")).json()["traces"][0]["trace_id"]
    pages = {name: f"#/{name}" for name in ("sessions", "memories", "health", "usage")}
    return {"chat": f"#/chat/{sessions[0]}", **pages, "trace": f"#/traces/{trace}", "task": f"#/tasks/{task}"}


async def _picture(page: Page, name: str, folder: Path) -> None:
    session = await page.context.new_cdp_session(page)
    shot = await session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    picture = b64decode(shot["data"])
    (folder / f"{name}.webp").write_bytes(picture)
    note = "" if len(picture) <= MOST_BYTES else "  too large"
    sys.stdout.write(f"{name}.webp {len(picture)} bytes{note}\n")


async def _visit(browser: Browser, base: str, places: dict[str, str], theme: str, folder: Path) -> None:
    context = await browser.new_context(viewport=DESK, locale="en-GB", color_scheme=theme)  # type: ignore[arg-type]
    page = await context.new_page()
    await page.goto(base)
    for name, address in places.items():
        await page.evaluate("(user) => sessionStorage.setItem('tenuto.user', user)", "ann" if name in OF_ANN else "")
        await page.goto(f"{base}/{address}")
        await page.reload()
        await expect(page.locator("main h1:visible").first).to_be_visible()
        if name == "chat":
            await page.get_by_role("button", name="What the model saw").last.click()
            await expect(page.locator(".insight").last).to_be_visible()
            await page.locator(".said").last.evaluate("(said) => said.scrollIntoView({ block: 'start' })")
        await expect(page.get_by_text("One moment …").locator("visible=true")).to_have_count(0)
        await page.wait_for_timeout(600)
        await _picture(page, f"{name}-{theme}", folder)
    await page.set_viewport_size(PHONE)
    await page.goto(f"{base}/{places['chat']}")
    await page.reload()
    await page.wait_for_timeout(600)
    await _picture(page, f"phone-{theme}", folder)
    await context.close()


async def main(folder: Path) -> None:
    """Make the pictures."""
    program = find()
    if program is None:
        raise SystemExit(MISSING)
    clock = _PastClock()
    async with http_service(clock=clock) as service, listening(service) as base, async_playwright() as playwright:
        places = await _furnish(service, clock)
        browser = await playwright.chromium.launch(
            executable_path=program.path, args=ARGUMENTS, env={**os.environ, **program.environ}
        )
        for theme in ("light", "dark"):
            await _visit(browser, base, places, theme, folder)
        await browser.close()


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    chosen.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(chosen))
