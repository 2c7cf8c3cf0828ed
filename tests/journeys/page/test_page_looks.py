"""How the page looks and is served: narrow screens, the keyboard, both languages, its files and its rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tenuto.model.plan import StepStatus
from tenuto.model.prompt import Disposition, Kind, Reason
from tenuto.model.task import TaskEventType, TaskStatus
from tests.journeys.http_service import HttpService
from tests.journeys.page.page_checks import CONSOLE, NAMELESS
from tests.journeys.page.visit import PHONE, offline

pytestmark = pytest.mark.asyncio(loop_scope="session")

BOOKS = """
async (names) => {
  const books = await Promise.all(names.map((name) => import(`/console/words/${name}.js`)));
  return ["en", "zh"].map((language) => Object.assign({}, ...books.map((book) => book[language])));
}
"""


async def test_the_page_works_on_a_narrow_screen_and_by_keyboard(chromium: Browser) -> None:
    async with offline(chromium, viewport=PHONE, color_scheme="dark") as (visit, _):
        await visit.page.get_by_role("radio", name="Shop").check()
        await visit.field.fill("Which phones")
        await visit.field.press("Shift+Enter")
        await visit.field.press_sequentially("are cheap?")
        await visit.field.press("Enter")
        answer = await visit.hear()
        await expect(visit.page.locator(".said")).to_have_text("Which phones\nare cheap?", use_inner_text=True)
        await answer.get_by_role("button", name="What the model saw").press("Enter")
        await expect(answer.locator(".entries")).to_be_visible()
        for part in ("html", ".transcript", "main"):
            wide = await visit.page.locator(part).evaluate("one => [one.scrollWidth, one.clientWidth]")
            assert wide[0] <= wide[1], part

        await expect(visit.page.get_by_role("navigation")).to_be_hidden()
        await visit.page.get_by_role("button", name="Show navigation").press("Enter")
        await expect(visit.page.locator(".sessions a")).to_be_visible()
        await expect(visit.page.get_by_role("button", name="Hide navigation")).to_be_focused()
        await visit.page.keyboard.press("Escape")
        await expect(visit.page.get_by_role("navigation")).to_be_hidden()
        await expect(visit.page.get_by_role("button", name="Show navigation")).to_be_focused()
        assert await visit.page.evaluate(NAMELESS) == []


@pytest.mark.usefixtures("modules")
async def test_the_page_speaks_both_languages_about_everything(chromium: Browser) -> None:
    async with offline(chromium) as (visit, _):
        english, chinese = await visit.page.evaluate(BOOKS, [path.stem for path in (CONSOLE / "words").iterdir()])

    spoken = {f"kind.{kind}" for kind in Kind} | {f"disposition.{disposition}" for disposition in Disposition}
    spoken |= {f"status.{status}" for status in (*TaskStatus, *StepStatus)}
    spoken |= {f"event.{happened}" for happened in TaskEventType}
    assert set(english) == set(chinese)
    assert spoken | {f"reason.{reason}" for reason in Reason} <= set(english)
    for name, phrase in english.items():
        assert set(re.findall(r"\{\w+\}", phrase)) == set(re.findall(r"\{\w+\}", chinese[name])), name


@pytest.mark.usefixtures("modules")
async def test_the_console_is_served_with_its_types_and_only_its_files(service: HttpService) -> None:
    page = await service.http.get("/")
    names = re.findall(r'(?:src|href)="(console/[^"]+)"', page.text)
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "": "text/html"}
    modules = ("console/words/en.js", "console/views/frame.js")

    assert {Path(name).name for name in names} == {"icon.svg", "app.css", "app.js"}
    for name in (*names, "", *modules):
        file = await service.http.get(f"/{name}")
        plain = await service.http.get(f"/{name}", headers={"Accept-Encoding": "identity"})
        assert (file.headers["content-encoding"], file.headers["vary"]) == ("gzip", "Accept-Encoding")
        assert (file.content, "content-encoding" in plain.headers) == (plain.content, False)
        assert file.headers["content-type"].startswith(kinds[Path(name).suffix[1:]])
        kept = "public, max-age=31536000, immutable" if name in names else "no-cache"
        assert file.headers["cache-control"] == kept
        again = await service.http.get(f"/{name}", headers={"If-None-Match": file.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for accepted, packed in {"gzip;q=0": False, "br, GZIP; q=0.000": False, "br;q=0, gzip;q=0.5": True}.items():
        answer = await service.http.get("/", headers={"Accept-Encoding": accepted})
        assert ("content-encoding" in answer.headers) is packed, accepted
    for name in ("../page.py", "%2e%2e/page.py", "nothing.js", "", "views", "0123456789ab/app.js", "/etc/passwd"):
        assert (await service.http.get(f"/console/{name}")).status_code == 404


async def test_the_page_may_run_and_reach_nothing_but_itself(service: HttpService) -> None:
    policy = (await service.http.get("/")).headers["content-security-policy"]

    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert (rules["img-src"], rules["media-src"]) == ("'self' data: blob:", "blob:")
    assert {rules[name] for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types")} == {"'none'"}
    assert "unsafe" not in policy
