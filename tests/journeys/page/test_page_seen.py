"""The chat page: what an answer looks like, what the model saw of the conversation, and two tabs in step."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tenuto.llm import Hang, Say
from tests.journeys.page.visit import Visit, scripted

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANSWER = """# Offer

| Fruit | Price |
|:--|--:|
| *plum* | 3 |

> Quoted, with a [shop](https://shop.example/plums) and [EMAIL_1].
> > Twice.

1. one
   - inner **[REDACTED_EMAIL]**

     ```
     WIDE
     ```

     | WIDE |
     |---|

```python
def f(x):  # [REDACTED_EMAIL]
    return "<b>"
```
""".replace("WIDE", "wide_" * 60)
HOSTILE = """<img src=x onerror=alert(1)> <script>alert(2)</script>

[a](javascript:alert(3)) [b](data:text/html,x) ![c](https://elsewhere.example/pixel.png) <https://ok.example>

[REDACTED_EMAIL](https://phish.example) [REDACTED_EMAIL]: https://phish.example

[https://shop.example](https://p.example/login) [p.example](https://p.example/login) https://shop.example@p.example
"""
LINKS = [
    "c (elsewhere.example)",
    "https://ok.example",
    *["https://phish.example"] * 2,
    "https://shop.example (p.example)",
    "p.example",
    "https://shop.example@p.example (p.example)",
]
# What costs much time to parse is not parsed; what an answer may well be is.
BOUNDS = """async () => {
  const { markdown } = await import("/console/markdown.js");
  const list = (depth) => Array.from({ length: depth }, (_, level) => `${"  ".repeat(level)}- a`).join("\\n");
  const texts = [">".repeat(12), list(12), `${"- ".repeat(12)}a`, list(11), ">".repeat(11), "a ".repeat(25_001)];
  return texts.map((text) => markdown(text) === null);
}"""


@pytest.mark.usefixtures("modules")
async def test_an_answer_is_formatted_and_shows_what_the_model_saw(chromium: Browser) -> None:
    """Markdown as nodes, copied as written; each part of the prompt with its text."""
    deep = ">" * 20 + " deep"
    wishes = {"permissions": ["clipboard-read", "clipboard-write"]}
    async with scripted(chromium, ANSWER, HOSTILE, deep, wishes=wishes) as (visit, _, _):
        await visit.say("Format it:\n```python\nx = 1\n```")
        await expect(visit.page.locator(".said figure code")).to_have_text("x = 1")
        prose = (await visit.hear()).locator(".prose")
        await expect(prose.locator("td[data-align=right]")).to_have_text("3")
        await expect(prose.locator("td em")).to_have_text("plum")
        await expect(prose.locator("blockquote blockquote")).to_have_text("Twice.")
        await expect(prose.locator("ol > li > ul > li strong .mark")).to_have_text("[REDACTED_EMAIL]")
        for part, scrolls in ((".transcript", False), (".prose li pre", True), (".prose li .table", True)):
            wider = await visit.page.locator(part).evaluate("one => one.scrollWidth > one.clientWidth")
            assert (part, wider) == (part, scrolls)
        await expect(prose.locator("a")).to_have_attribute("rel", "noopener noreferrer")
        await expect(prose.locator("a .target")).to_have_text(" (shop.example)")
        await expect(prose.locator("figure [data-scope=keyword]")).to_have_text(["def", "return"])
        await expect(prose.locator("figure .mark")).to_have_text("[REDACTED_EMAIL]")
        await prose.get_by_role("button", name="Copy").last.click()
        assert await _copied(visit) == 'def f(x):  # [REDACTED_EMAIL]\n    return "<b>"'
        await visit.answers.first.get_by_role("button", name="Copy the answer").click()
        assert await _copied(visit) == ANSWER

        await visit.say("Now be hostile")
        prose = (await visit.hear(2)).locator(".prose")
        await expect(prose).to_contain_text("<script>alert(2)</script>")
        links = prose.locator("a")
        await expect(links).to_have_text(LINKS)
        assert await visit.page.evaluate(BOUNDS) == [True, True, True, False, False, True]
        assert await links.evaluate_all("all => all.every(link => link.protocol === 'https:')")
        assert await prose.locator("img, script").count() == 0
        await expect(prose.locator(".mark")).to_have_count(2)

        await visit.say("And nest it")
        last = await visit.hear(3)
        await expect(last.locator(".prose")).to_have_text(deep)
        await last.get_by_role("button", name="What the model saw").click()
        rows = last.locator(".entries tbody tr")
        await expect(rows.filter(has_text="system")).to_contain_text("You help.")
        await expect(rows.filter(has_text="question")).to_contain_text("And nest it")
        folded = rows.filter(has_text="#2 ").locator("details")
        await folded.locator("summary").click()
        await expect(folded.locator(".whole")).to_contain_text("Quoted, with a [shop]")
        tokens = [int(each) for each in await rows.evaluate_all("rows => rows.map(row => row.dataset.tokens)")]
        await expect(last.locator(".entries tfoot .figure")).to_have_text(f"{sum(tokens):,}")
        shares = await last.locator(".bar:not(.zoom) span").evaluate_all("all => all.map(one => one.dataset.tokens)")
        legend = await last.locator(".legend b").all_inner_texts()
        assert [f"{int(each):,}" for each in shares] == legend
        await expect(last.locator(".sum")).to_contain_text(f"{sum(tokens):,} of {sum(map(int, shares)):,}")


async def _copied(visit: Visit) -> str:
    return str(await visit.page.evaluate("navigator.clipboard.readText()"))


async def test_two_tabs_stay_in_step(chromium: Browser) -> None:
    """A second tab joins an answer that the first began, and follows edits, titles and removals."""
    pause = Hang()
    slow = (Say("Half "), pause, Say("and half."))
    async with scripted(chromium, "First.", slow, "Another.") as (visit, _, service):
        await visit.say("Hello")
        await visit.hear()
        other = Visit(await visit.page.context.new_page(), visit.base)
        await other.page.goto(visit.page.url)
        await other.hear()

        await visit.say("Take your time")
        await expect(other.page.locator(".said")).to_have_text(["Hello", "Take your time"])
        await expect(other.answers.nth(1).locator(".prose")).to_have_text("Half")
        await expect(other.answers.nth(1)).to_have_attribute("data-status", "running")
        await pause.reached.wait()
        pause.release.set()
        await expect((await other.hear(2)).locator(".prose")).to_have_text("Half and half.")
        await visit.hear(2)

        await other.page.get_by_role("button", name="Edit and send again").last.click()
        await other.page.get_by_role("textbox", name="Edit and send again").fill("Something else")
        await other.page.keyboard.press("Enter")
        await expect(visit.page.locator(".said")).to_have_text(["Hello", "Something else"])
        await expect((await visit.hear(2)).locator(".prose")).to_have_text("Another.")

        [session] = (await service.http.get("/v1/sessions")).json()["sessions"]
        await service.http.patch(f"/v1/sessions/{session['id']}", json={"title": "In step"})
        for tab in (visit, other):
            await expect(tab.page.locator(".sessions a, .session a").first).to_contain_text("In step")
        visit.allow("404")
        # One of them connects again, and finds out with that.
        ending = service.app.state.session_events._streams.pop()
        ending._ends_at = 0.0
        ending._some.set()
        await service.http.delete(f"/v1/sessions/{session['id']}")
        for tab in (visit, other):
            await expect(tab.page.locator(".column > [role=alert]")).to_contain_text("does not exist")
