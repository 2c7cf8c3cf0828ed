"""The list of sessions on the page, and whose it is: find, rename, switch, sign in as another user."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tenuto.llm import Hang, Say, ScriptedModel
from tests.journeys.http_service import bearer, http_service, playing
from tests.journeys.page.visit import HeldRoutes, Visit, listening, offline, scripted, until_painted, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_sessions_are_listed_found_renamed_and_deleted(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        for title in ("Lisbon", "Porto", "Madrid"):
            await service.http.post("/v1/sessions", json={"title": title})
        await visit.page.reload()
        titles = visit.page.locator(".sessions .title")
        await expect(titles).to_have_text(["Madrid", "Porto", "Lisbon"])

        await visit.page.get_by_role("searchbox").fill("o")
        await expect(titles).to_have_text(["Porto", "Lisbon"])
        await visit.page.get_by_role("searchbox").fill("")
        # A row that moves away from under the pointer takes its buttons with it.
        await expect(titles).to_have_text(["Madrid", "Porto", "Lisbon"])
        await titles.nth(1).hover()
        await visit.page.get_by_role("button", name="Rename “Porto”").click()
        await visit.page.get_by_role("textbox", name="Title").fill("Porto in May")
        await visit.page.keyboard.press("Enter")
        await expect(titles.filter(has_text="Porto in May")).to_have_count(1)

        # The one that is open is left, and an undo leads back to it.
        await titles.filter(has_text="Lisbon").click()
        await visit.page.get_by_role("button", name="Delete “Lisbon”").click()
        await expect(visit.page.get_by_role("radiogroup")).to_be_visible()
        await expect(titles).to_have_count(2)
        await visit.page.get_by_role("button", name="Undo").click()
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text("Lisbon")
        # By keyboard Undo is where the focus is, and Escape leads back to the list.
        await visit.page.get_by_role("button", name="Delete “Lisbon”").press("Enter")
        await expect(visit.page.get_by_role("button", name="Undo")).to_be_focused()
        await visit.page.keyboard.press("Escape")
        await expect(visit.page.locator(".sessions a:focus")).to_have_count(1)
        async with visit.page.expect_response("**/v1/sessions/*"):
            await visit.page.get_by_role("button", name="Delete now").click()
        listed = (await service.http.get("/v1/sessions")).json()["sessions"]
        assert sorted(session["title"] for session in listed) == ["Madrid", "Porto in May"]


async def test_a_session_is_found_by_what_was_said_in_it(chromium: Browser) -> None:
    """In the list, on the page of sessions, and in the window that opens anything; the words stand out."""
    async with offline(chromium) as (visit, service):
        for title, text in (
            ("Trip", "We stay at a small hotel in Kyoto"),
            ("旅行", "京都的酒店在车站旁边"),
            ("Work", "Tea"),
        ):
            made = (await service.http.post("/v1/sessions", json={"title": title})).json()
            message = {"messages": [{"role": "user", "text": text}]}
            assert (await service.http.post(f"/v1/sessions/{made['id']}/messages", json=message)).is_success
        await visit.page.reload()
        titles, said = visit.page.locator(".sessions .title"), visit.page.locator(".sessions .excerpt")
        await expect(titles).to_have_count(3)

        await visit.page.get_by_role("searchbox").fill("kyoto hotels")
        await expect(titles).to_have_text(["Trip"])
        await expect(said).to_have_text("We stay at a small hotel in Kyoto")
        await expect(said.locator("mark")).to_have_text(["hotel", "Kyoto"])
        await visit.page.get_by_role("searchbox").fill("京都酒店")
        await expect(titles).to_have_text(["旅行"])
        await expect(said.locator("mark").first).to_have_text("京都")
        await visit.page.get_by_role("searchbox").fill("bus")
        await expect(visit.page.get_by_text("No session has these words.")).to_be_visible()

        await visit.page.get_by_role("searchbox").fill("kyoto")
        await expect(titles).to_have_text(["Trip"])
        await visit.page.get_by_role("link", name="Sessions", exact=True).click()
        await expect(visit.page.locator(".table-row .excerpt")).to_have_text("We stay at a small hotel in Kyoto")
        await visit.page.keyboard.press("Control+k")
        await visit.page.get_by_role("combobox", name="Open by name").fill("kyoto")
        await expect(visit.page.get_by_role("option", selected=True)).to_contain_text(
            "We stay at a small hotel in Kyoto"
        )
        await visit.page.keyboard.press("Enter")
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text("Trip")


async def test_where_the_search_is_off_titles_are_found_and_the_page_says_so(chromium: Browser) -> None:
    async with offline(chromium, session_search=False) as (visit, service):
        for title in ("Kyoto trip", "Work"):
            await service.http.post("/v1/sessions", json={"title": title})
        await visit.page.reload()
        titles, box = visit.page.locator(".sessions .title"), visit.page.get_by_role("searchbox")
        await expect(box).to_have_accessible_name("Search titles of sessions")
        await box.fill("yoto")
        await expect(titles).to_have_text(["Kyoto trip"])
        await visit.page.keyboard.press("Control+k")
        await expect(visit.page.get_by_text("sessions are found by their titles")).to_be_visible()
        await visit.page.get_by_role("combobox", name="Open by name").fill("yoto")
        await expect(visit.page.get_by_role("option", selected=True)).to_contain_text("Kyoto trip")
        await visit.page.keyboard.press("Escape")
        await box.fill("tea")
        await expect(visit.page.get_by_text("What was said is not searched here.")).to_be_visible()
        await visit.page.get_by_role("link", name="Sessions", exact=True).click()
        await expect(visit.page.locator("#main").get_by_text("What was said is not searched here.")).to_be_visible()


async def test_without_a_user_the_list_says_whose_each_session_is(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        for user, title in (("ann", "Lisbon"), ("ben", "Porto")):
            await service.http.post("/v1/sessions", json={"title": title}, headers={"X-User-ID": user})
        await visit.page.reload()
        owners = visit.page.locator(".sessions .owner")
        await expect(owners).to_have_text(["ben", "ann"])
        await expect(owners.first).to_be_visible()

        await visit.page.evaluate("sessionStorage.setItem('tenuto.user', 'ann')")
        await visit.page.reload()
        await expect(visit.page.locator(".sessions .title")).to_have_text(["Lisbon"])
        await expect(owners.first).to_be_hidden()


async def test_talks_have_titles_and_one_switches_between_them(chromium: Browser) -> None:
    async with offline(chromium) as (visit, _):
        await visit.say("My dog is called Bruno.")
        await visit.hear()
        await visit.page.get_by_role("link", name="New session").click()
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


async def test_a_server_with_keys_asks_for_one_and_keeps_it_in_this_tab(chromium: Browser) -> None:
    async with http_service(locked=True) as service, listening(service) as base, visiting(chromium, base) as visit:
        _, secret = await service.keys.create(tenant="acme")
        await visit.open()
        dialog = visit.page.get_by_role("dialog", name="Credentials")
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
        listed = (await service.http.get("/v1/sessions", headers=theirs)).json()["sessions"]
        assert [session["user"] for session in listed] == ["安"]
        kept = await visit.page.evaluate("[JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
        assert [secret in where for where in kept] == [False, True]
        visit.allow("401")


async def sign_in(visit: Visit, key: str = "", user: str = "") -> None:
    """Say who is asking; the dialog opens by itself where a key is needed, and by its button elsewhere."""
    dialog = visit.page.get_by_role("dialog")
    await dialog.get_by_label("API key").fill(key)
    await dialog.get_by_label("User").fill(user)
    await dialog.get_by_role("button", name="Save").click()


@pytest.mark.requirement("A1")
async def test_whoever_signs_in_next_finds_nothing_of_the_one_before(chromium: Browser) -> None:
    """Tenant isolation on the page: titles, searches, drafts and answers on their way leave with their owner."""
    model = ScriptedModel([Say("It is "), Hang()], "Hello Bob.")
    async with (
        http_service(locked=True, **playing(model)) as service,
        listening(service) as base,
        visiting(chromium, base) as visit,
    ):
        _, anns = await service.keys.create(tenant="acme")
        _, bobs = await service.keys.create(tenant="other")
        await service.http.post("/v1/sessions", json={"title": "Porto"}, headers=bearer(bobs))
        await visit.open()
        await sign_in(visit, anns)
        await visit.say("How many?")
        await expect(visit.answers.locator(".prose")).to_have_text("It is")
        titles = visit.page.locator(".sessions .title")
        await visit.page.get_by_role("searchbox").fill("any")
        await expect(titles).to_have_count(1)
        await expect(titles).to_contain_text("any")
        await visit.field.fill("half a thought")

        await visit.page.get_by_title("Credentials").click()
        await sign_in(visit, "tnt_wrong")

        await expect(visit.page.get_by_role("dialog", name="Credentials")).to_be_visible()
        await expect(titles).to_have_count(0)
        await expect(visit.answers).to_have_count(0)
        await expect(visit.page.locator(".unseen[role=status]")).to_have_text("")
        await sign_in(visit, bobs)
        await expect(titles).to_have_text(["Porto"])
        await expect(visit.page.get_by_role("searchbox")).to_have_value("")
        await titles.first.click()
        await expect(visit.field).to_have_value("")
        await visit.say("Hello")
        await expect((await visit.hear()).locator(".prose")).to_have_text("Hello Bob.")
        assert model.cancelled == 0
        visit.allow("401", "404")


async def test_saying_again_who_one_is_stops_no_answer(chromium: Browser) -> None:
    pause = Hang()
    async with scripted(chromium, [Say("It is "), pause, Say("seven.")]) as (visit, model, _):
        await visit.say("How many?")
        await expect(visit.answers.locator(".prose")).to_have_text("It is")

        await visit.page.get_by_title("Credentials").click()
        await sign_in(visit)
        pause.release.set()

        await expect((await visit.hear()).locator(".prose")).to_have_text("It is seven.")
        assert model.cancelled == 0


async def test_a_list_on_its_way_to_somebody_is_not_shown_to_the_next(chromium: Browser) -> None:
    async with http_service(locked=True) as service, listening(service) as base, visiting(chromium, base) as visit:
        _, anns = await service.keys.create(tenant="acme")
        await service.http.post("/v1/sessions", json={"title": "Lisbon"}, headers=bearer(anns))
        held = HeldRoutes()
        await visit.page.route("**/v1/sessions?*", held)
        await visit.open()
        await sign_in(visit, anns)
        late = await held.next()

        await visit.page.get_by_title("Credentials").click()
        await sign_in(visit, "tnt_wrong")
        await expect(visit.page.get_by_role("dialog", name="Credentials")).to_be_visible()
        async with visit.page.expect_event("requestfinished"):
            await late.continue_()
        await until_painted(visit.page)

        await expect(visit.page.locator(".sessions .title")).to_have_count(0)
        visit.allow("401")


async def test_a_list_that_comes_while_the_pointer_is_down_does_not_cost_the_click(chromium: Browser) -> None:
    """Rows that move or are made anew under a pressed pointer would take the click away from where it began."""
    async with offline(chromium) as (visit, service):
        for title in ("Lisbon", "Porto"):
            await service.http.post("/v1/sessions", json={"id": title.lower(), "title": title})
        await visit.page.reload()
        titles = visit.page.locator(".sessions .title")
        await expect(titles).to_have_text(["Porto", "Lisbon"])
        await titles.nth(1).hover()
        await visit.page.mouse.down()
        await service.http.post("/v1/sessions", json={"title": "Madrid"})
        async with visit.page.expect_response("**/v1/sessions?*"):
            await visit.look_again()
        await until_painted(visit.page)

        await visit.page.mouse.up()

        await expect(visit.page.get_by_role("heading", level=1)).to_have_text("Lisbon")
        assert visit.page.url.endswith("#/chat/lisbon")
        await expect(titles).to_have_text(["Madrid", "Porto", "Lisbon"])


async def test_a_list_brought_anew_leaves_the_focus_where_it_is(chromium: Browser) -> None:
    async with offline(chromium) as (visit, service):
        for title in ("Porto", "Madrid"):
            await service.http.post("/v1/sessions", json={"id": title.lower(), "title": title})
        await visit.page.reload()
        row = visit.page.locator(".sessions a").filter(has_text="Porto")
        await row.focus()
        await service.http.patch("/v1/sessions/porto", json={"title": "Porto in May"})

        await visit.look_again()

        # The row moved up.
        await expect(visit.page.locator(".sessions .title")).to_have_text(["Porto in May", "Madrid"])
        await expect(row).to_be_focused()
