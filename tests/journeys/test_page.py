"""The page at `/` as people use it, in a real browser: talk, reload, come back, look at what the model saw."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from playwright.async_api import Browser, Locator, Page, Route, async_playwright, expect

from tenuto.llm import Call, Echo, Fail, Hang, Say, ScriptedModel
from tenuto.llm.scripted import Script
from tenuto.model.prompt import Fate, Kind, Reason
from tests.browser import ARGUMENTS, MISSING, find
from tests.journeys.door import Door, bearer, served
from tests.journeys.test_http_process import running
from tests.talking import Adder, helper

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK = {"width": 1180, "height": 800}
PHONE = {"width": 360, "height": 720}
# Generous: it bounds how long a busy machine may take, and no test that passes waits for it.
PATIENCE = 30_000
expect.set_options(timeout=PATIENCE)


@dataclass
class Visit:
    """Somebody at the page, and everything the browser had to complain about."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    strayed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))
        self.page.on("request", self._look_at)

    def _look_at(self, request: Any) -> None:
        if not request.url.startswith(self.base):
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
        await self.field.fill(text)
        await self.field.press("Enter")

    async def hear(self, number: int = 1) -> Locator:
        """The answer of this number, once it is complete."""
        answer = self.answers.nth(number - 1)
        await expect(answer).to_have_attribute("data-status", "done")
        return answer

    def allow(self, *known: str) -> None:
        """Take these complaints as part of the story: browsers report every failed request."""
        self.complaints = [one for one in self.complaints if not any(part in one for part in known)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """A browser for this file; each visit has a profile of its own."""
    program = find()
    if program is None:
        pytest.fail(f"{MISSING} `python -m tests.browser` fetches one.", pytrace=False)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program.path, args=ARGUMENTS, env={**os.environ, **program.environ}
        )
        yield browser
        await browser.close()


@asynccontextmanager
async def visiting(browser: Browser, base: str, **wishes: Any) -> AsyncIterator[Visit]:
    """A visit; whatever happens in it, nothing leaves the server's origin and nothing goes wrong unseen."""
    context = await browser.new_context(**{"viewport": DESK, "locale": "en-GB", **wishes})
    try:
        visit = Visit(await context.new_page(), base)
        yield visit
        assert visit.complaints == []
        assert visit.strayed == []
    finally:
        await context.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the tests."""
        yield


@asynccontextmanager
async def listening(door: Door) -> AsyncIterator[str]:
    """The door on a real port."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        config = uvicorn.Config(door.app, lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[port]))
        try:
            yield f"http://127.0.0.1:{port.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def scripted(
    browser: Browser, *scripts: Script, tools: Sequence[Any] = (), wishes: dict[str, Any] | None = None
) -> AsyncIterator[tuple[Visit, ScriptedModel, Door]]:
    """A visit to a server whose assistant plays scripts."""
    model = ScriptedModel(*scripts)
    settings: dict[str, Any] = {"model": "scripted", "small_model": "offline", "assistant": "helper"}
    async with (
        served(models={"scripted": model}, assistants=[helper(tools=tuple(tools))], **settings) as door,
        listening(door) as base,
        visiting(browser, base, **(wishes or {})) as visit,
    ):
        yield await visit.open(), model, door


@asynccontextmanager
async def offline(browser: Browser, **wishes: Any) -> AsyncIterator[tuple[Visit, Door]]:
    """A visit to a server as it comes: shipped assistants, the offline model."""
    async with served() as door, listening(door) as base, visiting(browser, base, **wishes) as visit:
        yield await visit.open(), door


async def stored(door: Door) -> list[tuple[str, str]]:
    """What the one session holds."""
    [session] = (await door.http.get("/v1/sessions")).json()["sessions"]
    page = (await door.http.get(f"/v1/sessions/{session['id']}/messages")).json()["messages"]
    return [(message["role"], message["text"]) for message in page]


async def test_an_answer_streams_in_and_is_there_after_a_reload(chromium: Browser) -> None:
    pause = Hang()
    async with scripted(chromium, [Say("Hold ", "on, "), pause, Say("it is **seven**.")]) as (visit, _, _):
        await visit.say("How many?")
        answer = visit.answers.first
        await expect(answer.locator(".prose")).to_have_text("Hold on,")
        await expect(answer).to_have_attribute("data-status", "running")
        await pause.reached.wait()
        pause.release.set()
        await visit.hear()
        await expect(answer.locator("strong")).to_have_text("seven")

        await visit.page.reload()

        await expect(visit.page.locator(".said")).to_have_text(["How many?"])
        await expect(visit.answers.locator(".prose")).to_have_text(["Hold on, it is seven."])
        assert re.search(r"#/chat/.+", visit.page.url)


@pytest.mark.timeout(120)  # two servers are started in it
async def test_a_conversation_goes_on_after_the_server_was_killed_and_started_again(
    chromium: Browser, tmp_path: Path
) -> None:
    store = tmp_path / "sessions.db"
    with running(store) as first:
        base = str(first.http.base_url).rstrip("/")
        async with visiting(chromium, base) as visit:
            await visit.open()
            await visit.say("My favourite colour is green.")
            await visit.hear()
            first.end(signal.SIGKILL)
            await visit.say("What is my favourite colour?")
            broken = visit.answers.nth(1)
            await expect(broken.get_by_role("alert")).to_contain_text("The server cannot be reached.")

            with running(store, "--port", base.rsplit(":", 1)[1]) as second:
                second.http.get("/healthz")
                await broken.get_by_role("button", name="Try again").click()
                await expect((await visit.hear(2)).locator(".prose")).to_contain_text("green")
                await visit.page.reload()
                await expect(visit.page.locator(".said")).to_have_count(2)
                await visit.hear(2)
            visit.allow("ERR_CONNECTION")


async def test_markup_in_messages_titles_and_answers_is_text(chromium: Browser) -> None:
    """T18: what people write is never markup."""
    evil = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script> **<b>bold</b>** `<i>`'
    async with scripted(chromium, Echo()) as (visit, _, door):
        await visit.say(evil)
        answer = await visit.hear()
        await expect(visit.page.locator(".said")).to_have_text(evil)
        await expect(answer.locator(".prose")).to_contain_text('<img src=x onerror="window.hurt=1"><script>')
        await expect(answer.locator("strong")).to_have_text("<b>bold</b>")

        session = (await door.http.get("/v1/sessions")).json()["sessions"][0]["id"]
        await door.http.patch(f"/v1/sessions/{session}", json={"title": evil})
        await visit.page.reload()

        await visit.hear()
        await expect(visit.page.locator(".sessions .title")).to_have_text(evil)
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text(evil)
        assert await visit.page.locator("main img, .sessions img, main script, main b, main i").count() == 0
        assert await visit.page.evaluate("window.hurt") is None


async def test_sessions_are_listed_found_renamed_and_deleted(chromium: Browser) -> None:
    async with offline(chromium) as (visit, door):
        for title in ("Lisbon", "Porto", "Madrid"):
            await door.http.post("/v1/sessions", json={"title": title})
        await visit.page.reload()
        titles = visit.page.locator(".sessions .title")
        await expect(titles).to_have_text(["Madrid", "Porto", "Lisbon"])

        await visit.page.get_by_role("searchbox").fill("o")
        await expect(titles).to_have_text(["Porto", "Lisbon"])
        await visit.page.get_by_role("searchbox").fill("")
        await titles.nth(1).hover()
        await visit.page.get_by_role("button", name="Rename “Porto”").click()
        await visit.page.get_by_role("textbox", name="Title").fill("Porto in May")
        await visit.page.keyboard.press("Enter")
        await expect(titles.filter(has_text="Porto in May")).to_have_count(1)

        for answer, left in (("Cancel", 3), ("Delete", 2)):
            await titles.filter(has_text="Lisbon").hover()
            await visit.page.get_by_role("button", name="Delete “Lisbon”").click()
            await visit.page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
            await expect(titles).to_have_count(left)
        listed = (await door.http.get("/v1/sessions")).json()["sessions"]
        assert sorted(session["title"] for session in listed) == ["Madrid", "Porto in May"]


async def test_talks_have_titles_and_one_switches_between_them(chromium: Browser) -> None:
    async with offline(chromium) as (visit, _):
        await visit.say("My dog is called Bruno.")
        await visit.hear()
        await visit.page.get_by_role("link", name="New conversation").click()
        await expect(visit.page.get_by_role("radiogroup")).to_be_visible()
        await visit.say("The train leaves at noon.")
        await visit.hear()

        rows = visit.page.locator(".sessions a")
        await expect(rows).to_have_count(2)
        await expect(rows.filter(has_text="rain")).to_have_attribute("aria-current", "page")
        await rows.filter(has_text="Bruno").click()

        await expect(visit.page.locator(".said")).to_have_text(["My dog is called Bruno."])
        await visit.say("What is my dog called?")
        await expect((await visit.hear(2)).locator(".prose")).to_contain_text("Bruno")


async def test_an_answer_goes_on_while_one_looks_elsewhere(chromium: Browser) -> None:
    pause = Hang()
    async with scripted(chromium, [Say("It is "), pause, Say("seven.")], "Hello.") as (visit, model, _):
        await visit.say("How many?")
        await expect(visit.answers.locator(".prose")).to_have_text("It is")
        await visit.page.get_by_role("link", name="New conversation").click()
        await visit.say("Something else")
        await expect((await visit.hear()).locator(".prose")).to_have_text("Hello.")

        pause.release.set()
        await visit.page.locator(".sessions a").filter(has_text="any").click()

        await expect((await visit.hear()).locator(".prose")).to_have_text("It is seven.")
        assert model.cut_short == 0


async def test_the_bar_adds_up_to_the_budget_and_goods_are_cards(chromium: Browser) -> None:
    """B16 on the page: a question, a follow-up over its result, and the account of the prompt."""
    async with offline(chromium) as (visit, door):
        await visit.page.get_by_role("radio", name="Shop").check()
        await visit.say("Which phones are cheap?")
        first = await visit.hear()
        await visit.say("the best value among them")
        answer = await visit.hear(2)
        cards = await first.get_by_role("list", name="Goods").get_by_role("listitem").all_inner_texts()
        best = await answer.get_by_role("list", name="Goods").get_by_role("listitem").all_inner_texts()
        assert len(cards) == 5
        assert all("¥" in card for card in cards)
        assert len(best) == 1
        await expect(answer.locator(".runs")).to_contain_text("searched the shop")

        await answer.get_by_role("button", name="What the model saw").click()

        trace = (await door.http.get("/v1/traces")).json()["traces"][0]
        bar = answer.get_by_role("img", name="The budget")
        shares = await figures(bar.locator("span"))
        entries = await figures(answer.locator(".entries tbody tr"))
        assert sum(shares.values()) == trace["context"]["budget"]
        assert sum(entries.values()) == trace["context"]["total"]
        assert {"system", "question", "message", "free", "reply"} <= set(shares)
        widths = await bar.locator("span").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
        assert sum(widths) == pytest.approx(await bar.evaluate("one => one.getBoundingClientRect().width"), abs=1)
        await expect(answer.locator(".steps li")).to_have_count(len(trace["steps"]))
        await expect(answer.locator(".tool")).to_contain_text("search_goods")


async def figures(parts: Locator) -> dict[str, int]:
    """Tokens by kind."""
    await expect(parts.first).to_be_attached()
    found: dict[str, int] = {}
    for kind, tokens in await parts.evaluate_all("all => all.map(one => [one.dataset.kind, +one.dataset.tokens])"):
        found[kind] = found.get(kind, 0) + tokens
    return found


async def test_an_answer_can_be_stopped_and_had_after_all(chromium: Browser) -> None:
    """C9: the model is cancelled, the words are kept once, and a retry answers them."""
    async with scripted(chromium, [Say("Let me "), Hang()], "Seven.") as (visit, model, door):
        await visit.say("How many?")
        answer = visit.answers.first
        await expect(answer.locator(".prose")).to_have_text("Let me")

        await visit.page.get_by_role("button", name="Stop").click()

        await expect(answer.get_by_role("alert")).to_contain_text("Stopped.")
        await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
        await answer.get_by_role("button", name="Try again").click()
        await expect((await visit.hear()).locator(".prose")).to_have_text("Seven.")
        assert model.cut_short == 1
        assert await stored(door) == [("user", "How many?"), ("assistant", "Seven.")]


async def test_words_without_an_answer_can_be_answered_after_a_reload(chromium: Browser) -> None:
    async with scripted(chromium, [Hang()], "Seven.") as (visit, _, door):
        await visit.say("How many?")
        await visit.page.get_by_role("button", name="Stop").click()
        await expect(visit.answers.get_by_role("alert")).to_contain_text("Stopped.")
        await visit.page.reload()

        await visit.page.get_by_role("button", name="Answer this").click()

        await visit.hear()
        assert await stored(door) == [("user", "How many?"), ("assistant", "Seven.")]


async def test_a_failure_is_a_sentence_and_trying_again_says_it_once(chromium: Browser) -> None:
    async with scripted(chromium, Fail(), "Seven.") as (visit, _, door):
        await visit.say("How many?")
        answer = visit.answers.first
        await expect(answer.get_by_role("alert")).to_contain_text("No model answered. Your words are kept.")

        await answer.get_by_role("button", name="Try again").click()

        await visit.hear()
        assert await stored(door) == [("user", "How many?"), ("assistant", "Seven.")]


async def test_an_answer_is_made_anew_and_words_are_said_differently(chromium: Browser) -> None:
    async with scripted(chromium, "One.", "Two.", "Three.", "Four.") as (visit, _, door):
        await visit.say("first")
        await visit.hear()
        await visit.say("second")
        await visit.hear(2)
        await visit.page.get_by_role("button", name="Answer anew").click()
        await expect(visit.answers.nth(1).locator(".prose")).to_have_text("Three.")
        await visit.hear(2)

        await visit.page.locator(".words").first.hover()
        await visit.page.get_by_role("button", name="Edit and send again").first.click()
        field = visit.page.get_by_role("textbox", name="Edit and send again")
        await expect(field).to_have_value("first")
        await field.fill("instead")
        await field.press("Enter")

        await expect(visit.answers.locator(".prose")).to_have_text(["Four."])
        await visit.hear()
        assert await stored(door) == [("user", "instead"), ("assistant", "Four.")]


async def test_a_failed_tool_shows_in_the_answer(chromium: Browser) -> None:
    """Promise 8: degraded is visible."""
    broken = Adder(fault=RuntimeError("no"))
    async with scripted(chromium, Call("add", {"a": 1, "b": 2}), "I cannot add.", tools=[broken]) as (visit, _, _):
        await visit.say("1+2?")
        answer = await visit.hear()

        await expect(answer.locator(".runs")).to_contain_text("failed")
        await expect(answer.locator(".badges")).to_contain_text("a tool failed")


async def test_a_character_answers_in_chinese_and_shows_its_evidence(chromium: Browser) -> None:
    """C10 on the page, in a browser that prefers Chinese."""
    async with offline(chromium, locale="zh-CN") as (visit, _):
        await visit.page.get_by_role("radio", name="遗址人物").check()
        await visit.page.get_by_label("人物", exact=True).select_option("严氏先祖")
        await visit.say("严氏家训有哪些？")
        answer = await visit.hear()

        await expect(answer.locator(".speaker")).to_have_text("严氏先祖")
        await expect(answer.locator(".evidence")).to_contain_text("有据可依")
        await expect(answer.locator(".piece").first).to_have_attribute("data-id", re.compile("^E-"))
        await answer.get_by_role("button", name="模型看到了什么").click()
        await expect(answer.locator(".entries")).to_contain_text("依据")
        await visit.page.get_by_role("button", name="切换到英文").click()
        await expect(visit.page.get_by_role("button", name="What the model saw")).to_be_visible()
        assert await visit.page.evaluate("document.documentElement.lang") == "en"


async def test_a_server_with_keys_asks_for_one_and_keeps_it_in_this_tab(chromium: Browser) -> None:
    async with served(locked=True) as door, listening(door) as base, visiting(chromium, base) as visit:
        _, secret = await door.keys.create(tenant="acme")
        await visit.open()
        dialog = visit.page.get_by_role("dialog", name="Who is asking")
        await dialog.get_by_label("API key").fill("tnt_wrong")
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog).to_be_visible()
        await dialog.get_by_label("API key").fill(secret)
        await dialog.get_by_label("User").fill("安")
        await dialog.get_by_role("button", name="Save").click()

        await visit.say("Hello")
        await visit.hear()
        await visit.page.reload()
        await visit.hear()

        theirs = [(b"Authorization", f"Bearer {secret}".encode()), (b"X-User-ID", "安".encode())]
        listed = (await door.http.get("/v1/sessions", headers=theirs)).json()["sessions"]
        assert [session["user"] for session in listed] == ["安"]
        kept = await visit.page.evaluate("[JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
        assert [secret in where for where in kept] == [False, True]
        visit.allow("401")


async def sign_in(visit: Visit, key: str = "", user: str = "") -> None:
    """Say who is asking; the dialog opens by itself where a key is needed, and by its button elsewhere."""
    dialog = visit.page.get_by_role("dialog", name="Who is asking")
    await dialog.get_by_label("API key").fill(key)
    await dialog.get_by_label("User").fill(user)
    await dialog.get_by_role("button", name="Save").click()


async def test_whoever_signs_in_next_finds_nothing_of_the_one_before(chromium: Browser) -> None:
    """A1, tenant isolation on the page: titles, searches, drafts and answers on their way leave with their owner."""
    model = ScriptedModel([Say("It is "), Hang()], "Hello Bob.")
    settings: dict[str, Any] = {"model": "scripted", "small_model": "offline", "assistant": "helper"}
    async with (
        served(locked=True, models={"scripted": model}, assistants=[helper()], **settings) as door,
        listening(door) as base,
        visiting(chromium, base) as visit,
    ):
        _, anns = await door.keys.create(tenant="acme")
        _, bobs = await door.keys.create(tenant="other")
        await door.http.post("/v1/sessions", json={"title": "Porto"}, headers=bearer(bobs))
        await visit.open()
        await sign_in(visit, anns)
        await visit.say("How many?")
        await expect(visit.answers.locator(".prose")).to_have_text("It is")
        titles = visit.page.locator(".sessions .title")
        await visit.page.get_by_role("searchbox").fill("any")
        await expect(titles).to_have_count(1)
        await expect(titles).to_contain_text("any")
        await visit.field.fill("half a thought")

        await visit.page.get_by_title("Who is asking").click()
        await sign_in(visit, "tnt_wrong")

        await expect(visit.page.get_by_role("dialog", name="Who is asking")).to_be_visible()
        await expect(titles).to_have_count(0)
        await expect(visit.answers).to_have_count(0)
        await expect(visit.page.locator("[role=status]")).to_have_text("")
        await sign_in(visit, bobs)
        await expect(titles).to_have_text(["Porto"])
        await expect(visit.page.get_by_role("searchbox")).to_have_value("")
        await titles.first.click()
        await expect(visit.field).to_have_value("")
        await visit.say("Hello")
        await expect((await visit.hear()).locator(".prose")).to_have_text("Hello Bob.")
        assert model.cut_short == 1
        visit.allow("401", "404")


async def test_saying_again_who_one_is_stops_no_answer(chromium: Browser) -> None:
    pause = Hang()
    async with scripted(chromium, [Say("It is "), pause, Say("seven.")]) as (visit, model, _):
        await visit.say("How many?")
        await expect(visit.answers.locator(".prose")).to_have_text("It is")

        await visit.page.get_by_title("Who is asking").click()
        await sign_in(visit)
        pause.release.set()

        await expect((await visit.hear()).locator(".prose")).to_have_text("It is seven.")
        assert model.cut_short == 0


@dataclass
class Held:
    """Requests that a test lets through when it wants to."""

    waiting: asyncio.Queue[Route] = field(default_factory=asyncio.Queue)

    async def __call__(self, route: Route) -> None:
        await self.waiting.put(route)


async def drawn(page: Page) -> None:
    """Once the page has taken in, and shown, what had arrived before."""
    await page.evaluate("fetch('healthz').then((said) => said.json())")
    await page.evaluate("new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown)))")


async def test_a_list_on_its_way_to_somebody_is_not_shown_to_the_next(chromium: Browser) -> None:
    async with served(locked=True) as door, listening(door) as base, visiting(chromium, base) as visit:
        _, anns = await door.keys.create(tenant="acme")
        await door.http.post("/v1/sessions", json={"title": "Lisbon"}, headers=bearer(anns))
        held = Held()
        await visit.page.route("**/v1/sessions?*", held)
        await visit.open()
        await sign_in(visit, anns)
        late = await held.waiting.get()

        await visit.page.get_by_title("Who is asking").click()
        await sign_in(visit, "tnt_wrong")
        await expect(visit.page.get_by_role("dialog", name="Who is asking")).to_be_visible()
        async with visit.page.expect_event("requestfinished"):
            await late.continue_()
        await drawn(visit.page)

        await expect(visit.page.locator(".sessions .title")).to_have_count(0)
        visit.allow("401")


@pytest.mark.parametrize("lost", [False, True], ids=["an answer", "a failure"])
async def test_a_page_of_the_list_that_a_search_overtook_is_not_shown(chromium: Browser, lost: bool) -> None:
    async with offline(chromium) as (visit, door):
        for number in range(60):
            await door.http.post("/v1/sessions", json={"title": f"Trip {number}"})
        held = Held()
        await visit.page.route("**/v1/sessions?*cursor=*", held)
        await visit.page.reload()
        titles = visit.page.locator(".sessions .title")
        await expect(titles).to_have_count(50)
        await visit.page.get_by_role("button", name="Show more").click()
        late = await held.waiting.get()

        await visit.page.get_by_role("searchbox").fill("Trip 7")
        await expect(titles).to_have_text(["Trip 7"])
        async with visit.page.expect_event("requestfailed" if lost else "requestfinished"):
            await (late.abort() if lost else late.continue_())
        await drawn(visit.page)

        await expect(titles).to_have_text(["Trip 7"])
        await expect(visit.page.locator(".shelf .notice")).to_be_hidden()
        visit.allow("ERR_FAILED")


async def test_a_list_that_was_brought_anew_has_no_gap(chromium: Browser) -> None:
    async with offline(chromium) as (visit, door):
        for number in range(120):
            await door.http.post("/v1/sessions", json={"title": f"Trip {number}"})
        await visit.page.reload()
        titles = visit.page.locator(".sessions .title")
        await visit.page.get_by_role("button", name="Show more").click()
        await expect(titles).to_have_count(100)
        held = Held()
        await visit.page.route("**/v1/sessions?*", held)
        await visit.page.evaluate("dispatchEvent(new Event('focus'))")
        anew = await held.waiting.get()
        await visit.page.get_by_role("button", name="Show more").click()
        late = await held.waiting.get()

        await anew.continue_()
        await expect(titles).to_have_count(50)
        async with visit.page.expect_event("requestfinished"):
            await late.continue_()
        await drawn(visit.page)

        await expect(titles).to_have_count(50)
        await visit.page.unroute("**/v1/sessions?*")
        for shown in (100, 120):
            await visit.page.get_by_role("button", name="Show more").click()
            await expect(titles).to_have_count(shown)
        await expect(titles).to_have_text([f"Trip {number}" for number in reversed(range(120))])


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
        await visit.page.get_by_role("button", name="Show conversations").press("Enter")
        await expect(visit.page.locator(".sessions a")).to_be_visible()
        await expect(visit.page.get_by_role("button", name="Hide conversations")).to_be_focused()
        await visit.page.keyboard.press("Escape")
        await expect(visit.page.get_by_role("navigation")).to_be_hidden()
        await expect(visit.page.get_by_role("button", name="Show conversations")).to_be_focused()
        assert await visit.page.evaluate(NAMELESS) == []


NAMELESS = """
() => [...document.querySelectorAll("button, input, textarea, select, a")]
  .filter((one) => !one.ariaLabel && !one.textContent.trim() && !(one.labels?.length > 0))
  .map((one) => one.outerHTML)
"""


async def test_the_page_speaks_both_languages_about_everything(chromium: Browser) -> None:
    async with offline(chromium) as (visit, _):
        english, chinese = await visit.page.evaluate(
            "async () => [(await import('/console/words/en.js')).en, (await import('/console/words/zh.js')).zh]"
        )

    spoken = {f"kind.{kind}" for kind in Kind} | {f"fate.{fate}" for fate in Fate}
    assert set(english) == set(chinese)
    assert spoken | {f"reason.{reason}" for reason in Reason} <= set(english)
    for name, phrase in english.items():
        assert set(re.findall(r"\{\w+\}", phrase)) == set(re.findall(r"\{\w+\}", chinese[name])), name


async def test_the_console_is_served_with_its_types_and_only_its_files() -> None:
    async with served() as door:
        page = await door.http.get("/")
        names = re.findall(r'(?:src|href)="(console/[^"]+)"', page.text)
        kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

        assert {Path(name).name for name in names} >= {"app.js", "icon.svg", "base.css", "talk.css"}
        for name in names:
            file = await door.http.get(f"/{name}")
            assert file.headers["content-type"].startswith(kinds[Path(name).suffix])
            assert file.headers["cache-control"] == "no-cache"
            again = await door.http.get(f"/{name}", headers={"If-None-Match": file.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        for name in ("../page.py", "%2e%2e/page.py", "nothing.js", "", "views", "/etc/passwd"):
            assert (await door.http.get(f"/console/{name}")).status_code == 404


async def test_the_page_may_run_and_reach_nothing_but_itself() -> None:
    async with served() as door:
        policy = (await door.http.get("/")).headers["content-security-policy"]

    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert {rules[name] for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types")} == {"'none'"}
    assert "unsafe" not in policy
