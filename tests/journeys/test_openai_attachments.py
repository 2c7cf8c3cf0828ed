"""The OpenAI SDK, unmodified: pictures, sounds and files in chat completions, responses and conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tenuto.llm import Say, ScriptedModel
from tests.attachments import PDF, PNG, WAV, base64, data_url, png
from tests.journeys.http_service import bearer, playing
from tests.journeys.openai_clients import OpenAIService, openai_served

PICTURE = {"type": "input_image", "image_url": data_url(PNG, "image/png"), "detail": "high"}
FILE = {"type": "input_file", "filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")}
SOUND = {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}}
LINK = {"type": "input_image", "image_url": "https://example.com/tea.png", "detail": "auto"}
PROVIDERS = {"type": "input_file", "file_id": "file-1"}
SHOWN: list[dict[str, Any]] = [PICTURE, FILE, SOUND, LINK, PROVIDERS]


@pytest.fixture
async def served() -> AsyncIterator[OpenAIService]:
    async with openai_served(max_attachment_bytes=20_000) as opened:
        yield opened


def without_nulls(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}


async def test_items_come_back_as_they_were_sent_and_listings_hold_references(served: OpenAIService) -> None:
    """What was listed can be sent again, in another conversation as well."""
    ann = served.ann
    call: Any = {"type": "function_call", "call_id": "c", "name": "draw", "arguments": "{}"}
    output: Any = {"type": "function_call_output", "call_id": "c", "output": [PICTURE]}
    items: Any = [{"role": "user", "content": SHOWN}, call, output]
    made = await ann.conversations.create(items=items)

    listed = [item.to_dict(warnings=False) async for item in ann.conversations.items.list(made.id, order="asc")]
    again = await ann.conversations.create(items=listed)  # type: ignore[arg-type]

    assert base64(PNG)[:40] not in str(listed)
    for conversation in (made.id, again.id):
        ids: list[Any] = [item.id async for item in ann.conversations.items.list(conversation, order="asc")]
        read: list[Any] = [
            (await ann.conversations.items.retrieve(each, conversation_id=conversation)).to_dict(warnings=False)
            for each in ids
        ]
        assert [without_nulls(part) for part in read[0]["content"]] == SHOWN
        assert [without_nulls(part) for part in read[2]["output"]] == [PICTURE]
        url = f"/v1/sessions/{conversation}/attachments"
        found = (await served.service.http.get(url, headers=bearer(served.key))).json()["attachments"]
        assert [one["size"] for one in found] == [len(PNG), len(PDF), len(WAV)]


async def test_each_route_takes_pictures() -> None:
    model = ScriptedModel([Say("A cup.")])
    async with openai_served(**playing(model)) as opened:
        ann, http, key = opened.ann, opened.service.http, bearer(opened.key)
        chat: Any = [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": data_url(PNG, "image/png"), "detail": "low"}},
            SOUND,
            {"type": "file", "file": {"file_data": base64(PDF), "filename": "a.pdf"}},
        ]
        messages: Any = [{"role": "user", "content": chat}]
        named = {"Tenuto-Session": "s"}
        await ann.chat.completions.create(model="helper", messages=messages, extra_headers=named)
        await ann.chat.completions.create(model="helper", messages=messages)
        shown: Any = [{"role": "user", "content": SHOWN}]
        first = await ann.responses.create(model="helper", input=shown)
        second = await ann.responses.create(model="helper", input="And?", previous_response_id=first.id)
        inputs: list[Any] = [item.to_dict(warnings=False) async for item in ann.responses.input_items.list(first.id)]

        stored = (await http.get("/v1/sessions/s/messages", headers=key)).json()["messages"][0]["parts"]
        assert [part["type"] for part in stored] == ["text", "image", "audio", "file"]
        assert stored[1]["detail"] == "low"
        assert [part["type"] for part in inputs[0]["content"]] == [part["type"] for part in SHOWN]
        assert second.output_text == "A cup."


AN_IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
UNSOUND_CHAT: dict[str, tuple[str, Any, str]] = {
    "unknown": ("user", {"type": "video_url", "video_url": {}}, "type"),
    "of another API": ("user", {"type": "input_image", "image_url": "https://example.com/a.png"}, "type"),
    "a system's picture": ("system", AN_IMAGE, "type"),
    "no type": ("user", {"text": "hi"}, "type"),
    "no text": ("user", {"type": "text", "text": 5}, "text"),
    "a file of the server": ("user", {**AN_IMAGE, "image_url": {"url": "file:///etc/passwd"}}, "image_url.url"),
    "no base64": ("user", {**AN_IMAGE, "image_url": {"url": "data:image/png;base64,?"}}, "image_url.url"),
    "no format": ("user", {**SOUND, "input_audio": {"data": base64(WAV), "format": "x"}}, "input_audio.format"),
}
UNSOUND_RESPONSES: dict[str, tuple[Any, str]] = {
    "unknown": ({"type": "input_video"}, "type"),
    "of another API": (AN_IMAGE, "type"),
    "nothing": ({"type": "input_image"}, ""),
    "empty": ({"type": "input_image", "image_url": "data:image/png;base64,"}, "image_url"),
    "an absent attachment": ({"type": "input_image", "file_id": f"att_{'0' * 32}_s"}, "file_id"),
}


async def test_parts_that_cannot_be_taken_are_refused_by_their_place(served: OpenAIService) -> None:
    ann = served.ann
    fine: Any = {"type": "text", "text": "look"}
    for name, (role, part, field) in UNSOUND_CHAT.items():
        messages: Any = [{"role": "user", "content": "hi"}, {"role": role, "content": [fine, part]}]
        with pytest.raises(openai.BadRequestError) as refused:
            await ann.chat.completions.create(model="general", messages=messages)
        assert refused.value.param == f"messages[1].content[1].{field}", name
    for name, (part, field) in UNSOUND_RESPONSES.items():
        for inside, item in (
            ("content", {"role": "user", "content": [part]}),
            ("output", {"type": "function_call_output", "call_id": "c", "output": [part]}),
        ):
            given: Any = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, item]
            with pytest.raises(openai.BadRequestError) as refused:
                await ann.responses.create(model="general", input=given)
            assert refused.value.param == f"input[1].{inside}[0].{field}".rstrip("."), name
    content: Any = [{"type": "input_image", "image_url": data_url(png(20_001), "image/png")}]
    with pytest.raises(openai.APIStatusError) as too_large:
        await ann.responses.create(model="general", input=[{"role": "user", "content": content}])
    assert (too_large.value.status_code, too_large.value.code) == (413, "too_large")
    assert too_large.value.param == "input[0].content[0].image_url"


async def test_an_earlier_refusal_reaches_the_model() -> None:
    model = ScriptedModel([Say("Why not.")])
    async with openai_served(**playing(model)) as opened:
        messages: Any = [
            {"role": "user", "content": "Draw it."},
            {"role": "assistant", "content": "", "refusal": "I cannot draw."},
            {"role": "user", "content": "Why?"},
        ]
        await opened.ann.chat.completions.create(model="helper", messages=messages)

        assert "I cannot draw." in str(model.requests[-1])
