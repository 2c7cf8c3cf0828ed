"""What a privacy policy makes of pictures, sounds and files, sink by sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenuto.app import Tenuto, open_app
from tenuto.chat import ChatRequest
from tenuto.errors import InvalidSetting, PrivateData
from tenuto.llm import ScriptedModel
from tenuto.model import Content, Page
from tenuto.model.attachment import MediaInputs, attachment_part
from tenuto.model.parameters import ModelFacts
from tenuto.model.privacy import AttachmentMode
from tenuto.privacy.record_redaction import redact_export_pages
from tenuto.settings import Settings
from tests.attachments import PNG
from tests.samples import ANN

DROP, BLOCK = AttachmentMode.DROP, AttachmentMode.BLOCK
PICTURE = Content.of(ANN, PNG, "image/png", "tea.png")
SHOWN = ChatRequest(text="What tea is this?", parts=(attachment_part(PICTURE),), contents=(PICTURE,))
SEES = ModelFacts(media=MediaInputs(content=frozenset({"image/png"})))


def opened(model: ScriptedModel, **settings: Any) -> Any:
    return open_app(
        Settings(store="memory://", model="seer", summarizer_model="offline", **settings),
        models={"seer": model},
        run_upkeep=False,
    )


async def stored_parts(app: Tenuto, session_id: str) -> list[Any]:
    return [part for one in (await app.sessions.messages(ANN, session_id, Page())).messages for part in one.parts]


async def test_what_is_not_stored_is_seen_once_by_the_model_and_leaves_a_mark() -> None:
    model = ScriptedModel("Green tea.", facts=SEES)

    async with opened(model, privacy_attachments_message=DROP) as app:
        reply = await app.ask(ANN, SHOWN)
        later = await app.ask(ANN, ChatRequest(text="And now?", session_id=reply.session_id))
        parts = await stored_parts(app, reply.session_id)
        attachments = await app.sessions.attachments(ANN, reply.session_id)

    assert [*model.requests[0].contents.values()] == [PICTURE]
    assert not model.requests[1].contents
    assert (reply.degraded, later.degraded) == ((), ("attachment",))
    assert {"type": "image", "media_type": "image/png", "size": len(PNG), "removed": True} in parts
    assert (attachments, "tea.png" in json.dumps(parts)) == ((), False)


async def test_what_a_model_does_not_get_has_a_placeholder() -> None:
    model = ScriptedModel("I do not know.", facts=SEES)

    async with opened(model, privacy_attachments_model=DROP) as app:
        reply = await app.ask(ANN, SHOWN)
        stored = await app.sessions.attachment(ANN, reply.session_id, PICTURE.id)

    assert "[picture: tea.png, image/png, 3 kB; not shown]" in model.requests[0].messages[-1].text
    assert not model.requests[0].contents
    assert (reply.degraded, stored) == (("attachment",), PICTURE)


@pytest.mark.parametrize("sink", ["message", "model"])
async def test_what_is_blocked_is_refused_before_anything_is_stored(sink: str) -> None:
    model = ScriptedModel("Never asked.", facts=SEES)

    async with opened(model, **{f"privacy_attachments_{sink}": BLOCK}) as app:
        with pytest.raises(PrivateData) as refused:
            await app.ask(ANN, SHOWN)
        sessions = (await app.sessions.list(ANN)).sessions

    assert refused.value.types == ("ATTACHMENT",)
    assert (model.requests, sessions) == ([], ())


async def test_an_export_can_leave_them_out() -> None:
    async with opened(ScriptedModel("Tea.", facts=SEES), privacy_attachments_export=DROP) as app:
        reply = await app.ask(ANN, SHOWN)
        session = await app.sessions.get(ANN, reply.session_id)
        pages = redact_export_pages(app.redactor, session, app.sessions.iter_pages(ANN, session))
        exported = [part async for page in pages for message in page for part in message.parts]

    assert [part for part in exported if part["type"] == "image"] == [
        {"type": "image", "media_type": "image/png", "size": len(PNG), "removed": True}
    ]


@pytest.mark.parametrize(("mode", "named"), [(AttachmentMode.KEEP, True), (DROP, False)])
async def test_summaries_name_them_where_the_policy_says_so(mode: AttachmentMode, named: bool) -> None:
    model = ScriptedModel("It is green tea from China. " * 40, facts=SEES)

    async with opened(model, privacy_attachments_memory=mode, prompt_tokens=1600, reply_tokens=100) as app:
        reply = await app.ask(ANN, SHOWN)
        for number in range(12):
            text = f"What about tea number {number}? " * 10
            await app.ask(ANN, ChatRequest(text=text, session_id=reply.session_id))
            await app.upkeep.drain()
        parts = await stored_parts(app, reply.session_id)

    (first, *_) = [part["text"] for part in parts if part["type"] == "summary"]
    assert ("picture: tea.png, image/png" in first) is named


def test_only_what_brings_a_message_can_be_blocked() -> None:
    with pytest.raises(InvalidSetting, match="privacy_attachments_export"):
        Settings(privacy_attachments_export=BLOCK).privacy()


def test_a_policy_file_has_them_by_tenant(tmp_path: Path) -> None:
    from tenuto.privacy.policy_file import load_policy_file

    path = tmp_path / "policies.toml"
    path.write_text('attachments_export = "drop"\n[tenants.acme]\nattachments_model = "block"\n')

    general, tenants = load_policy_file(path, Settings().privacy())

    assert (general.attachments_export, general.attachments_model) == (DROP, AttachmentMode.KEEP)
    assert (tenants["acme"].attachments_export, tenants["acme"].attachments_model) == (DROP, BLOCK)
    path.write_text('attachments_model = "redact"\n')
    with pytest.raises(InvalidSetting, match="expected one of keep, drop, block"):
        load_policy_file(path, Settings().privacy())
