"""Private data on the page: what was taken out is shown as a label, and never by its value."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Route, expect

from tenuto.llm import Call, Echo
from tenuto.llm.scripted import Script
from tenuto.model.privacy import Mode, Sink
from tenuto.privacy import PiiRule, PiiType, Span
from tests.chats import Adder
from tests.journeys.http_service import HttpService, http_service
from tests.journeys.page.visit import PHONE, Visit, scripted
from tests.samples import CARD, shows_card

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAIL = "ann.lee@example.com"
SAID = f"My mail is {MAIL}, my card is {CARD}."
KEY = base64.b64encode(b"k" * 32).decode()
REDACT: dict[str, Any] = {"privacy_message": Mode.REDACT}
PSEUDONYM: dict[str, Any] = {"privacy_message": Mode.PSEUDONYM, "privacy_key": KEY}

# What one gets by marking all of an element and copying.
COPIED = "one => { getSelection().selectAllChildren(one); return getSelection().toString(); }"


@asynccontextmanager
async def guarded(browser: Browser, *scripts: Script, **policy: Any) -> AsyncIterator[tuple[Visit, HttpService]]:
    """A visit to a server with that policy, whose assistant repeats what it hears unless it has a script."""
    async with scripted(browser, *(scripts or (Echo(),)), **policy) as (visit, _, service):
        yield visit, service


async def heard_after_a_reload(visit: Visit, text: str) -> Locator:
    """The answer to this text as the page shows what is stored of it."""
    await visit.say(text)
    await visit.hear()
    await visit.page.reload()
    return await visit.hear()


async def everything(visit: Visit) -> str:
    """All that the page holds: texts, attributes, the window's title."""
    page: str = await visit.page.content()
    return page + await visit.page.title()


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(
    ("policy", "labels", "kept", "fate"),
    [
        (REDACT, ["e-mail", "card"], "My mail is [REDACTED_EMAIL], my card is [REDACTED_CC].", "by the privacy policy"),
        (PSEUDONYM, ["e-mail 1", "card 1"], "My mail is [EMAIL_1], my card is [CC_1].", "is in the vault"),
    ],
    ids=["redact", "pseudonym"],
)
async def test_what_was_taken_out_is_a_label_after_a_reload_and_its_value_is_nowhere(
    chromium: Browser, policy: dict[str, Any], labels: list[str], kept: str, fate: str
) -> None:
    """On the page: what is stored has passed the policy, and one sees what became of each value."""
    async with guarded(chromium, **policy) as (visit, _):
        await visit.say(SAID)
        answer = await visit.hear()
        await expect(answer.locator(".prose")).to_contain_text(MAIL)
        await expect(answer.locator(".taken")).to_have_text("4 values redacted before storing: 2 e-mail, 2 card")

        await visit.page.reload()
        await visit.hear()

        said = visit.page.locator(".said")
        await expect(said).to_have_text(kept)
        assert await said.locator(".mark").evaluate_all("all => all.map((one) => one.dataset.label)") == labels
        await expect(said.get_by_role("img", name=f"{labels[0]}: ")).to_have_attribute(
            "aria-label", re.compile(f"{fate}$")
        )
        await expect(visit.answers.locator(".prose .mark")).to_have_count(2)
        await expect(visit.answers.locator(".taken")).to_contain_text("4 values redacted")
        assert await said.evaluate(COPIED) == kept
        held = await everything(visit)
        assert MAIL not in held
        assert not shows_card(held)


async def test_a_label_tells_its_fate_to_pointer_and_keyboard_alike(chromium: Browser) -> None:
    async with guarded(chromium, **REDACT) as (visit, _):
        await visit.say(SAID)
        await visit.hear()
        await visit.page.reload()
        await expect(visit.page.locator(".said .mark")).to_have_count(2)
        mail, card = await visit.page.locator(".said .mark").all()
        tip = visit.page.locator(".tip")

        await mail.hover()
        await expect(tip).to_have_text("e-mail: redacted by the privacy policy")
        await mail.focus()
        await visit.page.keyboard.press("Tab")
        await expect(card).to_be_focused()
        await expect(tip).to_have_text("card: redacted by the privacy policy")
        await visit.page.keyboard.press("Escape")
        await expect(tip).to_be_hidden()


async def test_a_message_can_be_edited_and_regenerated_though_other_words_were_stored(chromium: Browser) -> None:
    """The page knows which stored message its own words became, without a reload."""
    async with guarded(chromium, Echo(), **PSEUDONYM) as (visit, service):
        await visit.say(f"{SAID} And [EMAIL_7] is a mark I typed.")
        await visit.hear()

        edit = visit.page.get_by_role("button", name="Edit and send again")
        await edit.click()
        await visit.page.get_by_role("textbox", name="Edit and send again").fill("Nothing about me.")
        await visit.page.get_by_role("button", name="Send", exact=True).first.click()

        await expect(visit.page.locator(".said")).to_have_text(["Nothing about me."])
        await expect((await visit.hear()).locator(".taken")).to_be_hidden()
        [session] = (await service.http.get("/v1/sessions")).json()["sessions"]
        assert session["message_count"] == 2

        await visit.page.reload()
        await visit.hear()


async def test_whoever_edits_words_with_marks_is_told_that_the_values_are_not_sent_again(chromium: Browser) -> None:
    async with guarded(chromium, **REDACT) as (visit, _):
        await heard_after_a_reload(visit, SAID)

        await visit.page.get_by_role("button", name="Edit and send again").click()

        await expect(visit.page.locator(".editing .hint")).to_contain_text("Placeholders are sent without the values")


@pytest.mark.requirement("T18")
async def test_markup_around_and_inside_marks_is_text(chromium: Browser) -> None:
    """A label is an element, and no text becomes one."""
    evil = (
        f'<img src=x onerror="window.hurt=1">{MAIL}<script>window.hurt=1</script> '
        f"`<i>{CARD}</i>` **<b>{MAIL}</b>** [REDACTED_<b>] [REDACTED_EMAIL onclick=1] [STEP_1]"
    )
    async with guarded(chromium, **REDACT) as (visit, service):
        await visit.say(evil)
        await visit.hear()
        [session] = (await service.http.get("/v1/sessions")).json()["sessions"]
        await service.http.patch(f"/v1/sessions/{session['id']}", json={"title": f"<b>{MAIL}</b> & co"})
        await visit.page.reload()
        answer = await visit.hear()

        await expect(visit.page.locator(".said")).to_contain_text('onerror="window.hurt=1">[REDACTED_EMAIL]<script>')
        await expect(answer.locator("code")).to_have_text("<i>[REDACTED_CC]</i>")
        await expect(answer.locator("code .mark")).to_have_attribute("data-label", "card")
        await expect(answer.locator("strong .mark")).to_have_attribute("data-label", "e-mail")
        await expect(visit.page.locator(".said .mark")).to_have_count(3)
        await expect(visit.page.locator(".sessions .title")).to_have_text("<b>[REDACTED_EMAIL]</b> & co")
        await expect(visit.page.locator(".sessions .mark")).not_to_have_attribute("tabindex", "0")
        await expect(visit.page.get_by_role("heading", level=1).locator(".mark")).to_be_visible()
        assert await visit.page.title() == "<b>[e-mail]</b> & co · tenuto"
        assert await visit.page.locator("main img, .sessions img, main script, main b, main i").count() == 0
        assert await visit.page.evaluate("window.hurt") is None


async def test_marks_stand_in_lines_of_code_without_breaking_them(chromium: Browser) -> None:
    lines = f"```\nto = '{MAIL}'\nsend(to)\n```"
    async with guarded(chromium, lines, **REDACT) as (visit, _):
        answer = await heard_after_a_reload(visit, "Write me a script.")

        await expect(answer.locator("pre")).to_have_text("to = '[REDACTED_EMAIL]'\nsend(to)", use_inner_text=True)
        boxes = await answer.locator("pre").evaluate(
            "one => [one.querySelector('.mark').getClientRects().length, one.scrollWidth <= one.clientWidth]"
        )
        assert boxes == [1, True]


async def test_withheld_and_erased_texts_say_so(chromium: Browser) -> None:
    async with guarded(chromium) as (visit, service):
        await visit.say("Hello [WITHHELD] and [ERASED].")
        answer = await visit.hear()

        labels = await answer.locator(".mark").evaluate_all("all => all.map((one) => one.dataset.label)")
        assert labels == ["withheld", "erased"]
        await expect(answer.get_by_role("img", name="withheld by the privacy policy")).to_be_visible()
        # Without a vault a number stands for nothing, and a text that looks like a pseudonym is only text.
        await visit.say("Which one is [EMAIL_1]?")
        await expect((await visit.hear(2)).locator(".mark")).to_have_count(0)
        assert (await service.http.get("/v1/privacy")).json()["vault"] is False


async def test_the_account_of_an_answer_tells_what_it_may_not_hold(chromium: Browser) -> None:
    """By default messages stay as they are, as the model saw them; what the trace itself holds of tools is marked."""
    script = [Call("add", {"a": 1, "b": 2, "for": MAIL})]
    async with guarded(chromium, script, "Three.", tools=(Adder(),)) as (visit, _):
        await visit.say(SAID)
        answer = await visit.hear()
        await expect(answer.locator(".taken")).to_be_hidden()

        await answer.get_by_role("button", name="What the model saw").click()
        await answer.locator(".tool summary").click()

        taken = answer.locator(".insight dd").filter(has_text="e-mail")
        await expect(taken).to_have_text("2 e-mail, 1 card")
        await expect(answer.locator(".insight pre .mark").first).to_have_attribute("data-label", "e-mail")
        assert MAIL not in await answer.locator(".insight pre").first.inner_html()
        assert MAIL in await answer.locator(".insight").inner_html()


async def test_an_answer_given_while_the_detector_was_away_says_so(chromium: Browser) -> None:
    """Degraded is visible: the port that the detector should listen on is closed."""
    async with guarded(chromium, privacy_detector="http://127.0.0.1:9/analyze", **REDACT) as (visit, _):
        await visit.say("My friend Ann Lee lives in the old town of Lucerne.")
        answer = await visit.hear()

        await expect(answer.locator('[data-degraded="detector"]')).to_have_text("the privacy detector did not answer")
        await visit.page.get_by_role("link", name="Privacy", exact=True).click()
        await expect(visit.page.locator('[data-fact="detector"]')).to_contain_text("does not answer")


async def test_the_page_tells_what_holds_for_the_tenant(chromium: Browser, tmp_path: Path) -> None:
    file = tmp_path / "privacy.toml"
    file.write_text(
        '[tenants.local]\nmessage = "pseudonym"\nmodel = "block"\nalso = ["ORDER_ID"]\n'
        '[[tenants.local.patterns]]\nname = "CASE_FILE"\npattern = "CASE-[0-9]{6}"\n'
    )
    async with guarded(chromium, privacy_file=str(file), privacy_key=KEY) as (visit, service):
        await visit.page.get_by_role("link", name="Privacy", exact=True).press("Enter")
        panel = visit.page.get_by_role("region", name="Policy")
        await expect(panel).to_be_visible()
        body = (await service.http.get("/v1/privacy")).json()
        rows = panel.locator("tbody tr")

        modes = dict(await rows.evaluate_all("all => all.map((one) => [one.dataset.sink, one.dataset.mode])"))
        assert modes == body["modes"] == {sink.value: modes[sink.value] for sink in Sink}
        await expect(panel.locator('[data-sink="message"]')).to_contain_text("pseudonyms")
        await expect(panel.locator('[data-sink="model"]')).to_contain_text("refused")
        await expect(panel.locator('[data-sink="title"]')).to_contain_text("redacted")
        await expect(panel.locator(".types li").filter(has_text="order number")).to_be_visible()
        await expect(panel.locator(".types li").filter(has_text="case file")).to_be_visible()
        await expect(panel.locator('[data-fact="vault"]')).to_contain_text("encrypted")
        await expect(panel.locator('[data-fact="encryption"]')).to_have_text("off")


async def test_a_tenants_own_pattern_is_a_label_by_its_name(chromium: Browser, tmp_path: Path) -> None:
    file = tmp_path / "privacy.toml"
    file.write_text('[[patterns]]\nname = "CASE_FILE"\npattern = "CASE-[0-9]{12}"\n')
    async with guarded(chromium, privacy_file=str(file), **PSEUDONYM) as (visit, _):
        await heard_after_a_reload(visit, "Look at CASE-123456123456 please.")

        await expect(visit.page.locator(".said .mark")).to_have_attribute("data-label", "case file 1")
        assert "123456123456" not in await everything(visit)


async def test_without_the_route_the_page_works_and_says_that_the_policy_is_not_told(chromium: Browser) -> None:
    async def missing(route: Route) -> None:
        await route.fulfill(status=404, content_type="application/problem+json", body='{"code": "not_found"}')

    async with guarded(chromium, **REDACT) as (visit, _):
        await visit.page.route("**/v1/privacy", missing)
        await visit.page.reload()
        await visit.say(SAID)
        await visit.hear()

        await visit.page.get_by_role("link", name="Privacy", exact=True).click()
        await expect(visit.page.get_by_role("region", name="Policy")).to_contain_text("did not send its policy")
        visit.allow("404")


async def test_refused_words_are_told_in_a_sentence(chromium: Browser) -> None:
    async with guarded(chromium, privacy_message=Mode.BLOCK) as (visit, _):
        await visit.say(SAID)
        await expect(visit.answers.get_by_role("alert")).to_contain_text("This text contains private data")
        visit.allow("400", "422")


async def test_marks_and_policy_speak_chinese_and_fit_a_narrow_dark_screen(chromium: Browser) -> None:
    wishes = {"viewport": PHONE, "color_scheme": "dark", "locale": "zh-CN"}
    async with guarded(chromium, wishes=wishes, **PSEUDONYM) as (visit, _):
        answer = await heard_after_a_reload(visit, f"我的邮箱是{MAIL}，卡号{CARD}，密码是Maple77!。")

        labels = await visit.page.locator(".said .mark").evaluate_all("all => all.map((one) => one.dataset.label)")
        assert labels == ["邮箱 1", "卡号 1", "密码"]
        await expect(answer.locator(".taken")).to_have_text("保存前脱敏了 6 个值：2 个邮箱、2 个卡号、2 个密码")
        await visit.page.get_by_role("button", name="显示导航").click()
        await visit.page.get_by_role("link", name="隐私", exact=True).click()
        panel = visit.page.get_by_role("region", name="策略")
        await expect(panel.locator('[data-sink="message"]')).to_contain_text("化名")
        for part in ("html", "main", ".private .scroll", ".foot"):
            wide = await visit.page.locator(part).evaluate("one => [one.scrollWidth, one.clientWidth]")
            assert wide[0] <= wide[1], part


@pytest.mark.usefixtures("modules")
async def test_every_type_sink_and_mode_has_a_word_in_both_languages(chromium: Browser) -> None:
    async with guarded(chromium) as (visit, _):
        english, chinese, names = await visit.page.evaluate(
            "async () => { const of = (name) => import(`/console/words/${name}.js`); const more = await of('privacy');"
            " return [{ ...(await of('en')).en, ...more.en }, { ...(await of('zh')).zh, ...more.zh },"
            " (await import('/console/marks.js')).NAMES]; }"
        )

    shown = {Span(0, 0, kind, rule).name for kind in PiiType for rule in PiiRule}
    spoken = {f"mark.{name}" for name in shown} | {f"sink.{sink}" for sink in Sink} | {f"mode.{mode}" for mode in Mode}
    assert set(names) == shown
    assert spoken <= set(english)
    assert spoken <= set(chinese)


@pytest.mark.usefixtures("modules")
async def test_stored_words_are_known_again_by_all_but_their_marks(chromium: Browser) -> None:
    """Pure: which stored message the words on screen became."""
    pairs = [
        ("hello", "hello", True),
        ("hello", "hello ", False),
        ("my [EMAIL_1] and [CC_1]", f"my {MAIL} and {CARD}", True),
        ("my [EMAIL_1] and [CC_1]!", f"my {MAIL} and {CARD}", False),
        ("[REDACTED_SECRET]", "password: Maple77!", True),
        ("see ［EMAIL_7］ and [EMAIL_1]", f"see [EMAIL_7] and {MAIL}", True),
        ("a[EMAIL_1]a", "a", False),
        ("x [EMAIL_1] y [EMAIL_2] z", f"x {MAIL} w {MAIL} z", False),
    ]
    async with guarded(chromium) as (visit, _):
        found = await visit.page.evaluate(
            "async (pairs) => { const { fits } = await import('/console/marks.js');"
            " return pairs.map(([stored, said]) => fits(stored, said)); }",
            [[stored, said] for stored, said, _ in pairs],
        )

    assert found == [same for _, _, same in pairs]


@pytest.mark.requirement("A14", "T18")
async def test_a_scan_a_fix_an_erasure_and_its_receipt(chromium: Browser, tmp_path: Path) -> None:
    """A report without values; a user is erased by typing the id twice; ids are text, and so is the audit."""
    user, store = "ann<b>&co", f"sqlite:///{tmp_path / 'chat.db'}"
    who = {"X-User-ID": user}
    async with http_service(store=store, privacy_title=Mode.KEEP) as service:
        await service.http.post("/v1/sessions", headers=who, json={"id": "s", "title": f"Mail of {MAIL}"})
        await service.http.post("/v1/sessions/s/messages", headers=who, json={"role": "user", "text": SAID})
    async with guarded(chromium, store=store) as (visit, service):
        page = visit.page
        await page.get_by_role("link", name="Privacy", exact=True).click()
        scan, erasure, check, audit = (
            page.locator(f"[data-section={name}]") for name in ("scan", "erasure", "check", "audit")
        )
        await expect(audit).to_contain_text("Nothing yet")

        await scan.get_by_role("button", name="Scan now").click()
        await expect(scan).to_contain_text("Sessions scanned: 1, memories: 0. 1 value violates the policy.")
        await expect(scan.locator("tr[data-sink=title]")).to_have_text("Titlese-mail1against the policy")
        await expect(scan.locator("tr[data-sink=message]").first).to_contain_text("allowed")
        assert MAIL not in await page.locator("main").inner_text()
        await scan.get_by_role("button", name="Redact violations").click()
        await page.get_by_role("dialog").get_by_role("button", name="Redact").click()
        await expect(scan).to_contain_text("1 record was redacted.")
        await expect(audit.locator("li[data-act=fixed]")).to_contain_text("open server")

        send = erasure.get_by_role("button", name="Erase permanently")
        await erasure.get_by_label("User id").fill(user)
        await erasure.get_by_label("Type the id again").fill("ann")
        await expect(send).to_be_disabled()
        await erasure.get_by_label("Type the id again").fill(user)
        await send.click()
        await expect(erasure.locator("[data-fact=counts]")).to_contain_text("sessions: 1, messages: 1")
        async with page.expect_download() as saving:
            await erasure.get_by_role("button", name="Download the receipt").click()
        await (await saving.value).save_as(tmp_path / "receipt.json")
        await expect(audit.locator("li[data-act=erased]")).to_have_count(1)

        await check.get_by_label("Receipt").set_input_files(tmp_path / "receipt.json")
        await check.get_by_label("User id").fill(user)
        await check.get_by_role("button", name="Verify").click()
        await expect(check.locator("[role=status]")).to_contain_text("Valid")
        await check.get_by_label("User id").fill("bob")
        await check.get_by_role("button", name="Verify").click()
        await expect(check.locator("[role=status]")).to_have_text("Not valid: it is about another user.")
        assert (await service.http.get("/v1/sessions/s", headers=who)).status_code == 404
