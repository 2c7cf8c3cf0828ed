"""Pictures, sounds and files on the page: pasted, dropped or chosen, sent, seen, kept by edits, saved and deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, FilePayload, Locator, expect

from tenuto.llm import Hang, Say
from tests.attachments import PNG, SVG, WAV, base64, png
from tests.journeys.http_service import http_service
from tests.journeys.page.page_checks import AXE, NAMELESS, WIDE
from tests.journeys.page.visit import PHONE, HeldRoutes, Visit, listening, scripted, visiting
from tests.npm_clients import install_clients
from tests.providers.provider import KEY, ScriptedProvider
from tests.providers.script import Answer, Text

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Hands files to an element as the clipboard or the mouse does; browsers let no test press their own keys for it.
HAND = """
([selector, event, files]) => {
  const transfer = new DataTransfer();
  for (const { name, type, data } of files) {
    const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { type }));
  }
  const how = { bubbles: true, cancelable: true };
  const made = event === "paste"
    ? new ClipboardEvent("paste", { ...how, clipboardData: transfer })
    : new DragEvent(event, { ...how, dataTransfer: transfer });
  return !document.querySelector(selector).dispatchEvent(made);
}
"""
PICTURE = {"name": "tea.png", "type": "image/png", "data": base64(png(width=900, height=600))}
NOTES = {"name": "notes.html", "type": "text/html", "data": base64(b"<script>window.hurt=1</script>")}
SOUND = FilePayload(name="note.wav", mimeType="audio/wav", buffer=WAV)


async def hand(visit: Visit, event: str, *files: dict[str, str]) -> bool:
    """Whether the page took them."""
    selector = ".composer textarea" if event == "paste" else ".transcript, .beginning"
    taken: bool = await visit.page.evaluate(HAND, [selector, event, files])
    return taken


def attached(visit: Visit) -> Locator:
    return visit.page.get_by_role("list", name="Attachments").filter(visible=True).locator(".name")


async def drawn(picture: Locator) -> list[Any]:
    await expect(picture).to_be_visible()
    size: list[Any] = await picture.evaluate("one => [one.alt, one.naturalWidth, one.src.split(':')[0]]")
    return size


async def test_what_is_attached_is_sent_seen_again_kept_by_an_edit_and_deleted(
    chromium: Browser, provider: ScriptedProvider
) -> None:
    provider.plays(*(Answer(Text(f"{number} cups.")) for number in range(1, 4)))
    settings: dict[str, Any] = {
        "model": "openai-chat:gpt-4.1",
        "model_api_key": KEY,
        "model_base_url": provider.openai_url,
        "summarizer_model": "offline",
    }
    axe = (await install_clients() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    async with http_service(**settings) as service, listening(service) as base, visiting(chromium, base) as visit:
        page = visit.page
        await visit.open("/")
        await expect(visit.field).to_be_visible()
        assert await hand(visit, "paste", PICTURE)
        assert await hand(visit, "dragover", NOTES)
        assert await hand(visit, "drop", NOTES, {"name": "folder", "type": "", "data": ""})
        await expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("folder")
        async with page.expect_file_chooser() as chosen:
            await page.get_by_role("button", name="Attach files").click()
        await (await chosen.value).set_files([SOUND, FilePayload(name="other.wav", mimeType="audio/wav", buffer=WAV)])
        await expect(attached(visit)).to_have_text(["tea.png", "notes.html", "note.wav", "other.wav"])
        await page.get_by_role("button", name="Take back “other.wav”").click()
        assert (await drawn(page.locator(".attached img")))[1:] == [900, "blob"]
        assert await page.evaluate(NAMELESS) == []
        await page.get_by_role("link", name="New session").click()
        await expect(attached(visit)).to_have_text(["tea.png", "notes.html", "note.wav"])
        await visit.say("What is it?")

        answer = await visit.hear()
        await expect(answer.locator("[data-degraded=attachment]")).to_have_text("answered without a picture or file")
        assert PICTURE["data"] in str(provider.accepted[-1])
        await page.reload()
        await visit.hear()
        media = page.locator(".words .attachments")
        assert await drawn(media.locator("img")) == ["tea.png", 900, "blob"]
        await expect(media.locator("li .about")).to_contain_text(["tea.png", "notes.html 30", "note.wav"])
        assert await media.locator("audio").get_attribute("aria-label") == "note.wav"
        assert await media.locator("iframe, object, svg:not(.icon)").count() == 0
        async with page.expect_download() as saving:
            await page.get_by_role("button", name="Save “notes.html”").click()
        saved = await saving.value
        assert saved.suggested_filename == "notes.html"
        assert await asyncio.to_thread(Path(await saved.path()).read_bytes) == b"<script>window.hurt=1</script>"
        await media.get_by_role("button", name="tea.png", exact=True).click()
        assert (await drawn(page.get_by_role("dialog").locator("img")))[1] == 900
        await page.evaluate(axe)
        assert await page.evaluate(AXE, ["html", {}]) == []
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.emulate_media(color_scheme="dark")
        await page.set_viewport_size(PHONE)
        assert await page.evaluate(AXE, ["html", {}]) == []
        assert await page.evaluate(WIDE) == []

        await page.get_by_role("button", name="Edit and send again").click()
        await page.get_by_role("button", name="Take back “note.wav”").click()
        await page.get_by_role("textbox", name="Edit and send again").fill("And now?")
        await page.keyboard.press("Enter")
        answer = await visit.hear()
        await expect(page.locator(".said")).to_have_text(["And now?"])
        assert PICTURE["data"] in str(provider.accepted[-1])
        await expect(answer.locator(".prose")).to_have_text("2 cups.")
        await answer.get_by_role("button", name="Regenerate").click()
        await expect(answer.locator(".prose")).to_have_text("3 cups.")
        assert PICTURE["data"] in str(provider.accepted[-1])
        [session] = (await service.http.get("/v1/sessions")).json()["sessions"]
        kept = (await service.http.get(f"/v1/sessions/{session['id']}/attachments")).json()["attachments"]
        assert [each["name"] for each in kept] == ["tea.png", "notes.html"]

        other = Visit(await page.context.new_page(), base)
        await other.open(f"/#/chat/{session['id']}")
        await expect(other.page.locator(".words img")).to_be_visible()
        # On a busy machine the page still loads the picture that goes.
        visit.allow("status of 404")
        await page.get_by_role("button", name="Delete “tea.png”").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        for tab in (visit, other):
            await expect(tab.page.locator("[data-type=removed]")).to_have_text("picture removed")
        await page.reload()
        await expect(page.locator("[data-type=removed]")).to_have_text("picture removed")
        assert await page.evaluate("window.hurt") is None


async def test_a_refused_attachment_is_taken_back_with_its_message_and_a_queue_keeps_attachments(
    chromium: Browser,
) -> None:
    """A reload keeps no bytes, and says so instead of sending the rest."""
    pause = Hang()
    scripts = ((Say("Half "), pause, Say("done.")), "Second.", "Third.")
    async with scripted(chromium, *scripts, max_attachment_bytes=5000) as (visit, _, service):
        visit.allow("413", "400")
        held = HeldRoutes()
        await visit.page.route("**/v1/chat", held)
        await hand(visit, "paste", {**PICTURE, "data": base64(png(9000))})
        await visit.field.press("Enter")
        refused = visit.answers.first
        await expect(refused.get_by_role("progressbar")).to_have_accessible_name("Sending 9.1 kB …")
        await (await held.next()).continue_()
        await visit.page.unroute("**/v1/chat")
        await expect(refused.get_by_role("alert")).to_contain_text(
            "larger than the server accepts: attachments[0].data: the attachment is larger than 5000 bytes"
        )
        await refused.get_by_role("button", name="Take back").click()
        await expect(visit.answers).to_have_count(0)
        await expect(attached(visit)).to_have_text(["tea.png"])
        await visit.page.get_by_role("button", name="Take back “tea.png”").click()
        await hand(visit, "drop", {"name": "a.png", "type": "image/png", "data": base64(SVG)})
        await visit.say("Look")
        await expect(refused.get_by_role("alert")).to_contain_text("attachments[0].data: the content is not image/png")
        await refused.get_by_role("button", name="Take back").click()
        await expect(visit.field).to_have_value("Look")
        await visit.page.get_by_role("button", name="Take back “a.png”").click()
        await visit.field.press("Enter")
        await pause.reached.wait()

        await hand(visit, "paste", {**PICTURE, "data": base64(PNG)})
        await visit.field.fill("And this?")
        await visit.field.press("Enter")
        queue = visit.page.get_by_role("region", name="Waiting messages")
        await expect(queue).to_contain_text("1 attachment")
        await hand(visit, "paste", {**PICTURE, "data": base64(PNG)})
        await visit.field.press("Enter")
        await queue.get_by_role("button", name="Take back “tea.png”").click()
        await expect(attached(visit)).to_have_text(["tea.png"])
        pause.release.set()
        await visit.hear(2)
        [session] = (await service.http.get("/v1/sessions")).json()["sessions"]
        messages = (await service.http.get(f"/v1/sessions/{session['id']}/messages")).json()["messages"]
        assert [part["type"] for part in messages[2]["parts"]] == ["text", "image"]

        await visit.page.evaluate(
            "([id, queue]) => sessionStorage.setItem('tenuto.queue', JSON.stringify({ [id]: queue }))",
            [session["id"], [{"key": "k", "text": "Later", "lost": ["b.png"]}]],
        )
        await visit.page.reload()
        await expect(queue).to_contain_text("no longer here: b.png")
        await expect(queue.get_by_role("button", name="Send now")).to_be_hidden()
        await queue.get_by_role("button", name="Take back").click()
        await expect(visit.field).to_have_value("Later")


async def test_what_tools_showed_and_what_is_kept_elsewhere_is_told(chromium: Browser) -> None:
    """A picture in a tool's output, a link that is not fetched, a provider's file, and a picture that was dropped."""
    picture = {"type": "image", "data": base64(PNG), "name": "plot.png"}
    elsewhere = [
        {"type": "image", "url": "https://example.com/tea.png"},
        {"type": "file", "file_id": "file-1", "name": "a.pdf"},
        {"type": "audio", "removed": True},
    ]
    messages = [
        {"role": "user", "parts": [{"type": "text", "text": "Draw it"}, *elsewhere]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "plot", "arguments": {}}]},
        {"role": "tool", "parts": [{"type": "tool_result", "call_id": "c", "output": [picture]}]},
        {"role": "assistant", "text": "There it is."},
    ]
    async with scripted(chromium) as (visit, _, service):
        await service.http.post("/v1/sessions", json={"id": "s"})
        sent = await service.http.post("/v1/sessions/s/messages", json={"messages": messages})
        assert sent.status_code == 201, sent.text

        await visit.open("/#/chat/s")

        assert await drawn(visit.answers.locator(".attachments img")) == ["plot.png", 2, "blob"]
        about = visit.page.locator(".words .attachments .about")
        await expect(about).to_have_text(
            ["https://example.com/tea.png", "a.pdf (at the provider openai)", "sound removed"]
        )
        await expect(about.get_by_role("link")).to_have_attribute("rel", "noopener noreferrer")
