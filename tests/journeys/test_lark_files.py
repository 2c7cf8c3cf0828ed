"""Pictures, sounds and files that people send to a bot on Lark: downloaded, shown to the model, and stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenuto.llm import Say, ScriptedModel
from tenuto.model import Content, Message, Page
from tenuto.model.attachment import MediaInputs
from tenuto.model.parameters import ModelFacts
from tests.attachments import PDF, PNG, WAV, png
from tests.journeys.lark_bot import ALICE, Bot, bot
from tests.lark_platform import Chat, LarkPlatform, start_lark_platform

pytestmark = pytest.mark.requirement("D1")

EYES = ModelFacts(media=MediaInputs(content=frozenset({"image/*", "audio/*", "application/pdf"})))
PICTURE, FILE, SOUND, SECOND = "img_v3_0001", "file_v3_0001", "file_v3_0002", "img_v3_0009"
MISSING = "（有 {} 个文件未读取：无法下载，或不支持该类型。）"
TOO_LARGE = "（有 {} 个文件未读取：单个最大 10 MB，合计最大 32 MB。）"
UNSEEN = "（聊天中有些图片或文件我无法查看，以上回答未参考它们。）"


@pytest.fixture
async def platform() -> AsyncIterator[LarkPlatform]:
    async with start_lark_platform() as platform:
        platform.files.update({PICTURE: PNG, FILE: PDF, SOUND: WAV, SECOND: png(1)})
        yield platform


def seeing(*scripts: Any) -> ScriptedModel:
    return ScriptedModel(*(scripts or (Say("好的。"),)), facts=EYES)


def shown(model: ScriptedModel) -> list[bytes]:
    """The contents in the newest prompt."""
    asked = [request for request in model.requests if request.tool_context is not None]
    return sorted([content.data for content in asked[-1].contents.values()])


async def stored(tenuto: Bot, chat: Chat) -> tuple[list[Message], list[Content]]:
    """The messages of a chat, and its attachments."""
    app = tenuto.service.tenuto
    scope = app.scope(tenant=tenuto.platform.app.tenant_key, user=ALICE, channel="lark")
    (session,) = (await app.sessions.list(scope)).sessions
    page = await app.sessions.messages(session.scope, session.id, Page(limit=50))
    listed = await app.sessions.attachments(session.scope, session.id)
    return list(page.messages), [await app.sessions.attachment(session.scope, session.id, one.id) for one in listed]


async def test_pictures_files_sounds_and_rich_posts_reach_the_model_and_the_session(platform: LarkPlatform) -> None:
    chat, model = platform.p2p(ALICE), seeing()
    async with bot(platform, model) as tenuto:
        for kind, data in (("image", [PNG]), ("file", [PNG, PDF]), ("audio", [PNG, PDF, WAV])):
            assert await tenuto.answer(chat, ALICE, "", kind=kind) == "好的。"
            assert shown(model) == sorted(data)
        post = await tenuto.answer(chat, ALICE, "它们一样吗？", kind="post", pictures=[PICTURE, SECOND])
        messages, contents = await stored(tenuto, chat)

    assert post == "好的。"
    assert shown(model) == sorted([PNG, PDF, WAV, png(1)])
    assert [content.data for content in contents] == [PNG, PDF, WAV, png(1)]
    assert [part.get("name") for part in messages[2].parts] == ["plan.pdf"]
    assert [part["type"] for part in messages[6].parts] == ["text", "image", "image"]
    assert all("degraded" not in message.metadata for message in messages)
    assert platform.requests["file"] == 5


async def test_what_cannot_be_read_is_said_in_the_chat_and_marked(
    platform: LarkPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.gateway.files._AGAIN", (0.0, 0.0))
    chat, model = platform.p2p(ALICE), seeing()
    del platform.files[SECOND]
    async with bot(platform, model) as tenuto:
        half = await tenuto.answer(chat, ALICE, "是什么？", kind="post", pictures=[PICTURE, SECOND])
        messages, contents = await stored(tenuto, chat)
        platform.files[PICTURE] = b"\x89PNG" + bytes(10 * 1024 * 1024)
        large = await tenuto.answer(chat, ALICE, "", kind="image")
        platform.files[PICTURE] = b""
        empty = await tenuto.answer(chat, ALICE, "", kind="image")
        platform.fail("file", status=503, times=2)
        chat = platform.p2p(ALICE)
        patient = await tenuto.answer(chat, ALICE, "", kind="file")
        platform.fail("file", status=503, times=3)
        away = await tenuto.answer(chat, ALICE, "", kind="file")

    assert half == f"好的。\n\n{MISSING.format(1)}"
    assert messages[1].metadata["degraded"] == ["attachment"]
    assert [part.get("removed") for part in messages[0].parts] == [None, None, True]
    assert [content.data for content in contents] == [PNG]
    assert (large, empty, patient, away) == (TOO_LARGE.format(1), MISSING.format(1), "好的。", MISSING.format(1))
    assert len(model.requests) == 2, "nothing is asked where nothing was read"


async def test_a_model_without_eyes_says_that_it_saw_nothing(platform: LarkPlatform) -> None:
    chat = platform.p2p(ALICE)
    async with bot(platform, ScriptedModel(Say("好的。"))) as tenuto:
        answers = [await tenuto.answer(chat, ALICE, "", kind="image"), await tenuto.answer(chat, ALICE, "谢谢")]

    assert answers == [f"好的。\n\n{UNSEEN}", "好的。"]


async def test_a_revoked_token_is_renewed_for_a_file_and_films_are_acknowledged(platform: LarkPlatform) -> None:
    chat, model = platform.p2p(ALICE), seeing()
    async with bot(platform, model) as tenuto:
        await tenuto.answer(chat, ALICE, "你好")
        platform.api.expire_tokens()
        assert await tenuto.answer(chat, ALICE, "", kind="image") == "好的。"
        film = await tenuto.answer(chat, ALICE, "", kind="media")

    assert film == "已收到，但我无法读取这类消息。请用文字描述。"
    assert platform.requests["token"] == 2
