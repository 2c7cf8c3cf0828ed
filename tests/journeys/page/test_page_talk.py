"""Talking on the page: answers stream in, stop, fail, are made anew, and show what the model saw."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import APIResponse, Browser, Locator, Route, expect

from tenuto.errors import ModelKeyRefused
from tenuto.llm import Call, Echo, Fail, Hang, Say, Think
from tests.chats import Adder
from tests.journeys.page.visit import offline, scripted, stored, visiting
from tests.journeys.server_process import running_server
from tests.servers.process import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")


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


async def test_reasoning_is_folded_above_its_answer(chromium: Browser) -> None:
    """While it comes in, and after a reload."""
    pause = Hang()
    async with scripted(chromium, [Think("Seven ", "days."), pause, Say("Seven.")]) as (visit, _, _):
        await visit.say("How many?")
        thought = visit.answers.locator(".reasoning")
        await expect(thought.locator(".plain")).to_have_text("Seven days.")
        await expect(thought.locator(".plain")).to_be_hidden()
        pause.release.set()
        answer = await visit.hear()
        await expect(answer.locator(".prose")).to_have_text("Seven.")

        await visit.page.reload()
        await thought.locator("summary").click()

        await expect(thought.locator(".plain")).to_be_visible()
        await expect(thought.locator(".plain")).to_have_text("Seven days.")


async def test_a_conversation_goes_on_after_the_server_was_killed(chromium: Browser, tmp_path: Path) -> None:
    # Chosen by the system, another process could get the port while the server is down.
    store, port = tmp_path / "sessions.db", str(free_port())
    with running_server(store, "--port", port) as first:
        base = str(first.http.base_url).rstrip("/")
        async with visiting(chromium, base) as visit:
            await visit.open()
            await visit.say("My favourite colour is green.")
            await visit.hear()
            first.end(signal.SIGKILL)
            await visit.say("What is my favourite colour?")
            broken = visit.answers.nth(1)
            await expect(broken.get_by_role("alert")).to_contain_text("The server cannot be reached.")

            with running_server(store, "--port", port) as second:
                second.http.get("/healthz")
                await broken.get_by_role("button", name="Try again").click()
                await expect((await visit.hear(2)).locator(".prose")).to_contain_text("green")
                await visit.page.reload()
                await expect(visit.page.locator(".said")).to_have_count(2)
                await visit.hear(2)
            # Also what was on its way when the server died.
            visit.allow("net::ERR_")


@pytest.mark.requirement("T18")
async def test_markup_in_messages_titles_and_answers_is_text(chromium: Browser) -> None:
    """What people write is never markup."""
    evil = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script> **<b>bold</b>** `<i>`'
    async with scripted(chromium, Echo()) as (visit, _, service):
        await visit.say(evil)
        answer = await visit.hear()
        await expect(visit.page.locator(".said")).to_have_text(evil)
        await expect(answer.locator(".prose")).to_contain_text('<img src=x onerror="window.hurt=1"><script>')
        await expect(answer.locator("strong")).to_have_text("<b>bold</b>")

        session = (await service.http.get("/v1/sessions")).json()["sessions"][0]["id"]
        await service.http.patch(f"/v1/sessions/{session}", json={"title": evil})
        await visit.page.reload()

        await visit.hear()
        await expect(visit.page.locator(".sessions .title")).to_have_text(evil)
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text(evil)
        assert await visit.page.locator("main img, .sessions img, main script, main b, main i").count() == 0
        assert await visit.page.evaluate("window.hurt") is None


async def test_an_answer_goes_on_while_one_looks_elsewhere(chromium: Browser) -> None:
    pause = Hang()
    async with scripted(chromium, [Say("It is "), pause, Say("seven.")], "Hello.") as (visit, model, _):
        await visit.say("How many?")
        await expect(visit.answers.locator(".prose")).to_have_text("It is")
        await visit.page.get_by_role("link", name="New session").click()
        await expect(visit.page.locator(".said")).to_have_count(0)
        await visit.say("Something else")
        await expect((await visit.hear()).locator(".prose")).to_have_text("Hello.")

        pause.release.set()
        await visit.page.locator(".sessions a").filter(has_text="any").click()

        await expect((await visit.hear()).locator(".prose")).to_have_text("It is seven.")
        assert model.cancelled == 0


@pytest.mark.requirement("B16")
async def test_the_bar_adds_up_to_the_budget_and_goods_are_cards(chromium: Browser) -> None:
    """On the page: a question, a follow-up over its result, and the account of the prompt."""
    async with offline(chromium) as (visit, service):
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

        trace = (await service.http.get("/v1/traces")).json()["traces"][0]
        bar = answer.get_by_role("img", name="The budget")
        shares = await figures(bar.locator("span"))
        entries = await figures(answer.locator(".entries tbody tr"))
        assert sum(shares.values()) == trace["context"]["budget"]
        assert sum(entries.values()) == trace["context"]["total"]
        assert {"system", "question", "message", "free", "reply"} <= set(shares)
        widths = await bar.locator("span").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
        assert sum(widths) == pytest.approx(await bar.evaluate("one => one.getBoundingClientRect().width"), abs=1)
        await expect(answer.locator(".steps li")).to_have_count(len(trace["steps"]))
        await expect(answer.locator(".entries tr[data-kind=message] .which").first).to_have_text(
            re.compile("#1 · user")
        )
        await expect(answer.locator(".insight dd").first).to_have_text("offline")
        await expect(visit.page.locator(".expiry")).to_have_text("expires within the hour")
        await expect(answer.locator(".tool")).to_contain_text("search_goods")


async def figures(parts: Locator) -> dict[str, int]:
    """Tokens by kind."""
    await expect(parts.first).to_be_attached()
    found: dict[str, int] = {}
    for kind, tokens in await parts.evaluate_all("all => all.map(one => [one.dataset.kind, +one.dataset.tokens])"):
        found[kind] = found.get(kind, 0) + tokens
    return found


async def test_a_reload_goes_on_with_the_answer_and_a_stop_keeps_it(chromium: Browser) -> None:
    """The model is cancelled, and what was said stays, also after another reload."""
    async with scripted(chromium, [Say("Let me "), Hang()], "Seven.") as (visit, model, service):
        await visit.say("How many?")
        await expect(visit.answers.locator(".prose")).to_have_text("Let me")
        await visit.page.reload()
        await expect(visit.answers.locator(".prose")).to_have_text(["Let me"])
        assert model.cancelled == 0

        await visit.page.get_by_role("button", name="Stop").click()

        await expect((await visit.hear()).locator(".badges")).to_contain_text("stopped")
        await expect(visit.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
        assert model.cancelled == 1
        assert await stored(service) == [("user", "How many?"), ("assistant", "Let me ")]
        [trace] = (await service.http.get("/v1/traces")).json()["traces"]
        assert (trace["answer"], trace["error"], trace["stopped"]) == ("Let me ", None, True)
        await visit.page.reload()
        await expect((await visit.hear()).locator(".badges")).to_contain_text("stopped")
        await visit.page.get_by_role("button", name="Regenerate").click()
        await expect(visit.answers.locator(".prose")).to_have_text(["Seven."])


async def test_words_without_an_answer_can_be_answered_after_a_reload(chromium: Browser) -> None:
    async with scripted(chromium, [Hang()], "Seven.") as (visit, _, service):
        await visit.say("How many?")
        await visit.page.get_by_role("button", name="Stop").click()
        await expect(visit.answers.get_by_role("alert")).to_contain_text("Stopped before")
        await visit.page.reload()

        await visit.page.get_by_role("button", name="Answer this").click()

        await visit.hear()
        assert await stored(service) == [("user", "How many?"), ("assistant", "Seven.")]


async def test_an_answer_that_got_lost_on_its_way_is_had_again_and_the_talk_goes_on(chromium: Browser) -> None:
    """By its key it was answered already, so that no start comes with it, and the session is known by its end."""

    async def lost(route: Route) -> None:
        await route.fetch()
        await route.abort()

    async with scripted(chromium, "Seven.", "Eight.") as (visit, _, service):
        await visit.page.route("**/v1/chat", lost)
        await visit.say("How many?")
        again = visit.answers.first.get_by_role("button", name="Try again")
        await expect(again).to_be_visible()
        await visit.page.unroute("**/v1/chat", lost)

        await again.click()
        await visit.hear()
        await expect(visit.page).to_have_url(re.compile("#/chat/.+"))
        await visit.say("And now?")
        await visit.hear(2)

        assert [text for _, text in await stored(service)] == ["How many?", "Seven.", "And now?", "Eight."]
        visit.allow("net::ERR_FAILED")


async def test_a_failure_is_a_sentence_and_trying_again_says_it_once(chromium: Browser) -> None:
    why = "The model’s provider refused the key or its permissions."
    refused = Fail(ModelKeyRefused("scripted", "refuses our key (401)"))
    async with scripted(chromium, Fail(), refused, "Seven.") as (visit, _, service):
        await visit.say("How many?")
        answer = visit.answers.first
        await expect(answer.get_by_role("alert")).to_contain_text(
            "The model gave no usable answer. Your message is stored."
        )

        await answer.get_by_role("button", name="Try again").click()

        await expect(answer.get_by_role("alert")).to_contain_text(f"{why} Your message is stored.")
        await visit.page.reload()
        unanswered = visit.page.locator(".missing")
        await expect(unanswered).to_contain_text(f"This message has no answer yet. {why}")
        await expect(unanswered.locator(".cause")).to_contain_text("the model scripted refuses our key (401)")
        await unanswered.get_by_role("button", name="Answer this").click()
        await visit.hear()
        assert await stored(service) == [("user", "How many?"), ("assistant", "Seven.")]


async def test_an_answer_is_made_anew_and_words_are_said_differently(chromium: Browser) -> None:
    async with scripted(chromium, "One.", "Two.", "Three.", "Four.") as (visit, _, service):
        await visit.say("first")
        await visit.hear()
        await visit.say("second")
        await visit.hear(2)
        await visit.page.get_by_role("button", name="Regenerate").click()
        await expect(visit.answers.nth(1).locator(".prose")).to_have_text("Three.")
        await visit.hear(2)

        await visit.page.locator(".words").first.hover()
        await visit.page.get_by_role("button", name="Edit and send again").first.click()
        field = visit.page.get_by_role("textbox", name="Edit and send again")
        await expect(field).to_have_value("first")
        await expect(visit.page.locator(".editing .hint")).to_have_text("This deletes 3 later messages.")
        await field.fill("instead")
        await field.press("Enter")

        await expect(visit.answers.locator(".prose")).to_have_text(["Four."])
        await visit.hear()
        assert await stored(service) == [("user", "instead"), ("assistant", "Four.")]

        await visit.page.locator(".words").first.hover()
        await visit.page.get_by_role("button", name="Edit and send again").first.click()
        await field.fill("otherwise")
        await visit.page.get_by_role("button", name="Send and keep the old conversation").click()
        await expect(visit.page.locator(".said")).to_have_text(["otherwise"])
        await visit.hear()
        await visit.page.get_by_role("link", name="Open it").click()
        await expect(visit.page.locator(".said")).to_have_text(["instead"])
        await expect(visit.page.get_by_role("heading", level=1)).to_contain_text("Before the edit: ")


async def test_what_is_written_during_an_answer_is_sent_in_order_after_it(chromium: Browser) -> None:
    """What waits can be taken back, and a failure or a reload holds it up without losing it."""
    pause = Hang()
    async with scripted(chromium, [Say("One."), pause], Fail(), "Three.") as (visit, _, service):
        await visit.say("first")
        await expect(visit.answers.locator(".prose")).to_have_text("One.")
        waits = visit.page.get_by_role("region", name="Waiting messages").get_by_role("listitem").locator(".waits")
        for text in ("second", "never", "third"):
            await visit.field.fill(text)
            await visit.field.press("Enter")
        await expect(waits).to_have_text(["second", "never", "third"])
        await visit.page.get_by_role("button", name="Take back “never”").click()
        await expect(visit.field).to_have_value("never")
        await expect(visit.field).to_be_focused()
        await visit.field.fill("")

        pause.release.set()
        await expect(visit.answers.nth(1).get_by_role("alert")).to_contain_text("The model gave no usable answer.")
        await expect(waits).to_have_text(["third"])
        await visit.page.reload()
        await expect(visit.page.get_by_text("Not sent yet.")).to_be_visible()
        await visit.page.get_by_role("button", name="Send now").click()

        await expect(visit.answers.last.locator(".prose")).to_have_text("Three.")
        await expect(waits).to_have_count(0)
        said = [
            ("user", "first"),
            ("assistant", "One."),
            ("user", "second"),
            ("user", "third"),
            ("assistant", "Three."),
        ]
        assert await stored(service) == said


async def test_words_can_be_changed_although_others_followed_at_once(chromium: Browser) -> None:
    """What was said while the numbers of earlier words were still on their way does not take them away."""
    async with scripted(chromium, "One.", "Two.", "Three.") as (visit, _, service):
        held: asyncio.Queue[Route] = asyncio.Queue()
        await visit.page.route("**/messages?*after=*", held.put)
        await visit.say("first")
        await visit.hear()
        late = await held.get()
        await visit.say("second")
        await visit.hear(2)
        await late.continue_()
        await (await held.get()).continue_()
        pens = visit.page.get_by_role("button", name="Edit and send again")
        await expect(pens).to_have_count(2)

        await visit.page.locator(".words").first.hover()
        await pens.first.click()
        field = visit.page.get_by_role("textbox", name="Edit and send again")
        await expect(field).to_have_value("first")
        await field.fill("instead")
        await visit.page.unroute("**/messages?*after=*")
        await field.press("Enter")

        await expect(visit.answers.locator(".prose")).to_have_text(["Three."])
        await visit.hear()
        assert await stored(service) == [("user", "instead"), ("assistant", "Three.")]


async def test_news_from_before_an_answer_do_not_take_it_off_the_screen(chromium: Browser) -> None:
    """Another client says something, and the page that it is on arrives after our own turn."""
    async with scripted(chromium, "One.", "Two.") as (visit, _, service):
        await visit.say("first")
        await visit.hear()
        await expect(visit.page.get_by_role("button", name="Edit and send again")).to_have_count(1)
        [session] = (await service.http.get("/v1/sessions")).json()["sessions"]
        held: asyncio.Queue[tuple[Route, APIResponse]] = asyncio.Queue()

        async def hold(route: Route) -> None:
            await held.put((route, await route.fetch()))

        await visit.page.route(re.compile(r"/messages\?(?!.*after)"), hold, times=1)
        path = f"/v1/sessions/{session['id']}/messages"
        sent = await service.http.post(path, json={"messages": [{"role": "user", "text": "by mail"}]})
        assert sent.status_code < 300, sent.text
        route, old = await held.get()

        await visit.say("second")
        await visit.hear(2)
        await route.fulfill(response=old)

        await expect(visit.page.locator(".words")).to_have_count(3)
        await expect(visit.answers.locator(".prose")).to_have_text(["One.", "Two."])


async def test_a_failed_tool_shows_in_the_answer(chromium: Browser) -> None:
    """Degraded is visible."""
    broken = Adder(fault=RuntimeError("no"))
    async with scripted(chromium, Call("add", {"a": 1, "b": 2}), "I cannot add.", tools=[broken]) as (visit, _, _):
        await visit.say("1+2?")
        answer = await visit.hear()

        await expect(answer.locator(".runs")).to_contain_text("failed")
        await expect(answer.locator(".badges")).to_contain_text("a tool failed")


@pytest.mark.requirement("C10")
async def test_a_character_answers_in_chinese_and_shows_its_evidence(chromium: Browser) -> None:
    """On the page, in a browser that prefers Chinese."""
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
        await visit.page.get_by_role("button", name="English").click()
        await expect(visit.page.get_by_role("button", name="What the model saw")).to_be_visible()
        assert await visit.page.evaluate("document.documentElement.lang") == "en"


@pytest.mark.parametrize(("locale", "tells"), [("en-GB", "Quotes back"), ("zh-CN", "引用")])
async def test_a_first_visit_says_what_happens_here(chromium: Browser, locale: str, tells: str) -> None:
    """What is stored and shown, and that the offline model answers; a suggestion is asked with a click."""
    async with offline(chromium, locale=locale) as (visit, _):
        first = visit.page.locator(".first li")
        await expect(first).to_have_count(3)
        await expect(visit.page.locator("label:has(input[value=general]) .about")).to_contain_text(tells)
        example = visit.page.locator(".example").first
        asked = await example.inner_text()
        await example.click()
        await visit.hear()
        await expect(visit.page.locator(".said")).to_have_text([asked])
        await visit.open("/#/chat")
        await expect(visit.page.locator(".lead")).to_be_visible()
        await expect(first.first).to_be_hidden()


PAINTED = "all => all.filter(one => one.checkVisibility({ contentVisibilityAuto: true })).length"


async def test_readers_and_keyboards_keep_their_place(chromium: Browser) -> None:
    """Earlier messages come above what is read; a link leads past the list; language and colours leave the focus."""
    async with offline(chromium) as (visit, service):
        page = visit.page
        await service.http.post("/v1/sessions", json={"id": "long"})
        lines = [{"role": role, "text": f"{n}: مرحبا\n" * 3} for n in range(40) for role in ("user", "assistant")]
        await service.http.post("/v1/sessions/long/messages", json={"messages": lines})
        await visit.open("/#/chat/long")
        first = page.locator(".said").filter(has_text="15:")
        earlier = page.get_by_role("button", name="Show earlier messages")
        await earlier.scroll_into_view_if_needed()
        before = await first.bounding_box()
        await earlier.click()
        await expect(page.locator(".said")).to_have_count(40)
        after = await first.bounding_box()
        assert before is not None
        assert after is not None
        assert abs(after["y"] - before["y"]) <= 2
        assert await visit.field.evaluate("field => { field.value = 'مرحبا'; return field.matches(':dir(rtl)'); }")
        assert await first.evaluate("said => said.matches(':dir(rtl)')")
        # Of a long talk, only what is near the screen or the end is laid out and painted.
        painted = await page.locator(".said").evaluate_all(PAINTED)
        assert 0 < painted < 40

        await page.locator(".skip").press("Enter")
        await expect(page.get_by_role("main")).to_be_focused()
        await page.get_by_role("button", name="中文").press("Enter")
        await expect(page.get_by_role("button", name="English")).to_be_focused()
        await page.get_by_role("button", name="深色").press("Enter")
        await expect(page.get_by_role("button", name="浅色")).to_be_focused()
