"""Keys on the page, pages that are not for everyone, and hostile names and texts on all of them."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, Route, expect

from tenuto.access import KeyRole
from tests.journeys.http_service import HttpService, bearer, http_service
from tests.journeys.page.visit import Visit, listening, offline, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = '<img src=x onerror="window.hurt=1">'


async def become(visit: Visit, key: str) -> None:
    """Use this key, by the dialog that asks for one."""
    dialog = visit.page.get_by_role("dialog")
    await dialog.get_by_label(re.compile("key", re.IGNORECASE)).fill(key)
    await dialog.get_by_role("button", name="Save").click()


@pytest.mark.requirement("T18")
async def test_the_first_key_is_asked_for_and_the_page_goes_on_with_it(chromium: Browser) -> None:
    """Names of keys and users are text. The secret is shown once and is gone with a reload."""
    async with offline(chromium) as (visit, service):
        page = visit.page
        await page.get_by_role("link", name="Keys").click()
        form = page.get_by_role("form", name="Create a key")
        await expect(page.locator(".hint.strong")).to_contain_text("The first key ends that")
        await expect(form.get_by_label("Role")).to_have_value("admin")
        await form.get_by_label("Name").fill(EVIL)
        await form.get_by_role("button", name="Create a key").click()

        await expect(page.locator(".secret")).to_contain_text("tnt_")
        secret = await page.locator(".secret").text_content() or ""
        visit.allow("401")
        await visit.look_again()
        await expect(page.get_by_text("The server needs a valid API key.")).to_be_visible()
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await page.get_by_label("Key", exact=True).fill("tnt_wrong")
        await page.get_by_role("button", name="Continue").click()
        await expect(page.get_by_text("This is not the key above.")).to_be_visible()
        await page.get_by_label("Key", exact=True).fill(secret)
        await page.get_by_role("button", name="Continue").click()

        first = page.locator(".key-list li")
        await expect(first.locator(".key-name")).to_have_text(EVIL)
        await expect(first).to_contain_text("used by this page")
        await page.reload()
        await expect(first).to_contain_text("last used")
        assert secret not in await page.content()
        assert (await service.http.get("/v1/sessions")).status_code == 401

        await form.get_by_label("Name").fill("laptop")
        await form.get_by_label("Only for user").fill(f"ann{EVIL}")
        await form.get_by_role("button", name="Create a key").press("Enter")
        await page.get_by_role("button", name="I have it").click()
        await expect(first).to_have_count(2)
        await expect(first.nth(0)).to_contain_text(f"user ann{EVIL}")

        await page.get_by_role("button", name="Revoke laptop").click()
        await page.evaluate("location.hash = '#/chat'")
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await page.go_back()
        await page.get_by_role("button", name="Revoke laptop").click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await expect(first.nth(0)).to_contain_text("revoked")
        assert await page.locator("main img").count() == 0
        assert await page.evaluate("window.hurt") is None


@pytest.mark.requirement("T1")
async def test_a_user_who_is_no_admin_is_told_so_and_how_to_get_in(chromium: Browser) -> None:
    """On every page that is about the whole tenant or server."""
    async with http_service(locked=True) as service, listening(service) as base, visiting(chromium, base) as visit:
        _, ann = await service.keys.create(tenant="acme", user="ann")
        _, admin = await service.keys.create(tenant="acme", role=KeyRole.ADMIN)
        visit.allow("401", "403")
        await visit.open("/#/keys")
        await expect(visit.page.get_by_role("dialog")).to_contain_text("This server needs an API key")
        await become(visit, "tnt_wrong")
        await expect(visit.page.get_by_role("dialog")).to_contain_text("The server refused this key")
        await become(visit, ann)

        await expect(visit.page.locator(".api-keys .notice")).to_contain_text("API keys are managed by admins")
        await expect(visit.page.locator(".key-form")).to_be_hidden()
        for page, role in (("Health", "operator"), ("Usage", "admin"), ("Privacy", "admin")):
            await visit.page.get_by_role("link", name=page, exact=True).click()
            notice = visit.page.locator(".page .notice").filter(has_text=f"the role {role}")
            await expect(notice.get_by_role("button")).to_be_visible()
        await visit.page.get_by_role("link", name="Keys", exact=True).click()
        await visit.page.locator(".api-keys .notice .text-button").click()
        await become(visit, admin)

        await expect(visit.page.locator(".key-list li")).to_have_count(2)


async def after(event: asyncio.Event, route: Route) -> None:
    """Let a request pass once the event is set."""
    await event.wait()
    await route.continue_()


async def test_a_key_that_is_asked_for_in_mid_sentence_takes_no_keystroke(chromium: Browser) -> None:
    """The rest of the sentence is not typed into the key, and Enter does not send it as one."""
    async with http_service(locked=True) as service, listening(service) as base, visiting(chromium, base) as visit:
        key, old = await service.keys.create(tenant="acme", user="ann")
        _, admin = await service.keys.create(tenant="acme", role=KeyRole.ADMIN)
        visit.allow("401")
        await visit.open()
        await become(visit, old)
        await visit.field.press_sequentially("My train leaves")
        assert (await service.http.delete(f"/v1/keys/{key.id}", headers=bearer(admin))).is_success

        await visit.look_again()
        dialog = visit.page.get_by_role("dialog")
        await expect(dialog).to_contain_text("The server refused this key")
        await visit.page.keyboard.type(" at 7:40.")
        await visit.page.keyboard.press("Enter")

        await expect(dialog).to_be_visible()
        await expect(dialog.get_by_label("API key")).to_have_value(old)
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(visit.field).to_have_value("My train leaves")


@pytest.mark.parametrize("first", ["message", "list"])
async def test_a_message_refused_with_its_key_waits_for_the_next_key(chromium: Browser, first: str) -> None:
    """A token expires in mid-conversation: what was written is not stored, so the page keeps it, and
    what waits in line, also where another request was refused before the message. A user who leaves by the dialog takes
    it along."""
    async with http_service(locked=True) as service, listening(service) as base, visiting(chromium, base) as visit:
        key, old = await service.keys.create(tenant="acme", user="ann")
        _, new = await service.keys.create(tenant="acme", user="ann")
        _, bob = await service.keys.create(tenant="acme", user="bob")
        _, admin = await service.keys.create(tenant="acme", role=KeyRole.ADMIN)
        visit.allow("401", "404")
        await visit.open()
        async with visit.page.expect_response("**/v1/sessions?*"):
            await become(visit, old)
        released = {"message": asyncio.Event(), "list": asyncio.Event()}
        # The lists that the first message asks for are held, too: one of them would be refused at a moment of its own.
        await visit.page.route("**/v1/sessions?*", lambda route: after(released["list"], route))
        await visit.say("My train leaves at 7:40.")
        await visit.hear()
        await visit.page.route("**/v1/chat", lambda route: after(released["message"], route))
        assert (await service.http.delete(f"/v1/keys/{key.id}", headers=bearer(admin))).is_success

        await visit.say("And my bus at 8:15.")
        await visit.field.fill("And my boat at 9.")
        await visit.field.press("Enter")
        await expect(visit.page.locator(".queue li")).to_have_count(1)
        released[first].set()
        await visit.look_again()
        await expect(visit.page.get_by_role("dialog")).to_contain_text("The server refused this key")
        await become(visit, "tnt_wrong")
        for one in released.values():
            one.set()
        await expect(visit.page.get_by_role("dialog")).to_contain_text("The server refused this key")
        await become(visit, new)

        await expect(visit.field).to_have_value("And my bus at 8:15.")
        await expect(visit.page.locator(".queue li")).to_contain_text("And my boat at 9.")
        await visit.page.get_by_role("button", name=re.compile("Dark|Light")).click()
        await expect(visit.field).to_have_value("And my bus at 8:15.")
        await visit.page.get_by_title("Credentials").click()
        await become(visit, bob)
        await visit.page.get_by_role("link", name="New session").click()
        await expect(visit.field).to_have_value("")
        assert await visit.page.evaluate("sessionStorage.getItem('tenuto.queue')") is None


@pytest.mark.requirement("T18")
async def test_nothing_that_was_named_or_said_becomes_markup_on_any_page(chromium: Browser) -> None:
    """Hostile titles, ids, memories, tasks, boards, keys and users, as an admin sees them. Trusted types hold."""
    async with http_service(locked=True) as service, listening(service) as base, visiting(chromium, base) as visit:
        key, secret = await service.keys.create(tenant="acme", user=EVIL, role=KeyRole.ADMIN, name=EVIL)
        addresses = await hostile(service, bearer(secret))
        await visit.open()
        await become(visit, secret)

        for address in addresses:
            await visit.page.evaluate("address => { location.hash = address; }", address)
            place = visit.page.locator(f"nav [data-page={address.split('/')[1]}]")
            if await place.count():
                await expect(place).to_have_attribute("aria-current", "page")
            await expect(visit.page.locator("main").get_by_text(EVIL).filter(visible=True).first).to_be_visible()
            made = await visit.page.locator("main, nav, dialog").locator("img, script, [onerror], iframe").count()
            assert (address, made) == (address, 0)
        visit.allow("Trusted", "Content Security Policy", "401")
        for attack in (
            "document.body.innerHTML = '<b>x</b>'",
            "eval('1')",
            "document.body.append(Object.assign(document.createElement('script'), { text: 'window.hurt = 1' }))",
        ):
            await visit.page.evaluate(f"() => {{ try {{ {attack}; }} catch {{}} }}")
        assert await visit.page.evaluate("[window.hurt, document.querySelector('main') === null]") == [None, False]
        assert key.id in await visit.page.content()


async def hostile(service: HttpService, who: dict[str, str]) -> list[str]:
    """Have EVIL stand wherever a caller can put it; returns the addresses that show it."""
    step = {"id": "ask", "output_key": EVIL, "human_input": EVIL}
    session = (await service.http.post("/v1/chat", headers=who, json={"message": EVIL})).json()
    await service.http.patch(f"/v1/sessions/{session['session_id']}", headers=who, json={"title": EVIL})
    await service.http.post("/v1/memories", headers=who, json={"text": EVIL})
    task = await service.http.post(
        "/v1/tasks", headers=who, json={"type": EVIL, "goal": EVIL, "plan": {"steps": [step]}}
    )
    board = f"/v1/tasks/{task.json()['id']}/board/{quote(EVIL, safe='')}"
    # A header carries no angle brackets of another encoding: the agent is named in the body.
    await service.http.put(board, headers=who, json={"value": EVIL, "agent": EVIL})
    traces = (await service.http.get("/v1/traces", headers=who)).json()["traces"]
    named = [f"chat/{session['session_id']}", f"traces/{traces[0]['trace_id']}", f"tasks/{task.json()['id']}"]
    return [f"#/{page}" for page in (*named, "sessions", "traces", "memories", "tasks", "keys")]
