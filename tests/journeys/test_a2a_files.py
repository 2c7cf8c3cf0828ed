"""Pictures, sounds and files in messages of A2A: they reach the model, and a task shows them as links."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dbos")

from a2a.types import a2a_pb2 as proto
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict

from tenuto.llm import Hang, Say, ScriptedModel
from tenuto.model.attachment import MediaInputs
from tenuto.model.parameters import ModelFacts
from tests.attachments import PDF, PNG, SVG, base64, png
from tests.journeys.a2a_clients import BINDINGS, State, answer, client, send
from tests.journeys.http_service import ANN, at, http_service, playing
from tests.journeys.server_process import running_server
from tests.servers.openai_server import stalling, start_model_server

pytestmark = pytest.mark.requirement("A2")

EYES = ModelFacts(media=MediaInputs(content=frozenset({"image/*"}), links=frozenset({"image"})))
PICTURE = proto.Part(raw=PNG, media_type="image/png", filename="tea.png")
LINK = proto.Part(url="https://example.com/tea.png", media_type="image/png")


def showing(*parts: proto.Part, **fields: Any) -> proto.SendMessageRequest:
    """A message with these parts, under an id of its own."""
    metadata = fields.pop("metadata", {})
    said = proto.Message(message_id=str(hash(repr((parts, fields, metadata)))), role=proto.ROLE_USER, parts=parts)
    said.metadata.update(metadata)
    said.MergeFrom(proto.Message(**fields))
    return proto.SendMessageRequest(message=said)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_files_reach_the_model_and_the_task_links_to_them(binding: str) -> None:
    model = ScriptedModel(Say("A cup."), facts=EYES)
    async with http_service(**playing(model)) as service, client(service, ANN, binding) as ann:
        request = showing(proto.Part(text="What is it?"), PICTURE, LINK)
        task = await send(ann, request)
        again = await send(ann, request)
        alone = await send(ann, showing(PICTURE, context_id=task.context_id))
        found = await ann.get_task(proto.GetTaskRequest(id=task.id))
        words, picture, link = found.history[0].parts
        read = await service.http.get(picture.url, headers=ANN)
        stored = (await service.http.get(at(task.context_id, "attachments"), headers=ANN)).json()["attachments"]
        await service.http.delete(at(task.context_id, "attachments", stored[0]["id"]), headers=ANN)
        gone = await ann.get_task(proto.GetTaskRequest(id=task.id))

    assert (answer(task), again.id, "metadata" in MessageToDict(task.artifacts[0])) == ("A cup.", task.id, False)
    assert [len(request.contents) for request in model.requests] == [1, 1]
    assert words.text == "What is it?"
    assert (picture.media_type, picture.filename, read.content) == ("image/png", "tea.png", PNG)
    assert link == LINK
    assert [part.WhichOneof("content") for part in alone.history[0].parts] == ["url"]
    assert [one["seqs"] for one in stored] == [[1, 3]], "the same picture is stored once"
    assert [part.text for part in gone.history[0].parts[1:2]] == ["[image removed]"]


async def test_a_model_without_eyes_degrades_the_answer_or_refuses_where_it_must() -> None:
    async with http_service(**playing(ScriptedModel(Say("I cannot see it.")))) as service, client(service, ANN) as ann:
        degraded = await send(ann, showing(PICTURE))
        strict = await send(ann, showing(PICTURE, metadata={"require_attachments": True}))

    assert MessageToDict(degraded.artifacts[0].metadata) == {"degraded": ["attachment"]}
    assert strict.status.state == State.TASK_STATE_FAILED
    assert strict.status.message.parts[0].text == "attachments: image/png is not taken by scripted"


async def test_files_that_cannot_be_taken_are_refused_by_the_name_of_their_field() -> None:
    async with (
        http_service(**playing(ScriptedModel()), max_attachment_bytes=5_000) as service,
        client(service, ANN) as ann,
    ):
        for part, error in (
            (proto.Part(raw=PDF, media_type="image/png"), "message.parts[0].raw: "),
            (proto.Part(raw=png(6_000), media_type="image/png"), "message.parts[0].raw"),
            (proto.Part(raw=SVG, media_type="image/svg+xml", filename="a\nb"), "message.parts[0].filename: "),
            (proto.Part(raw=PNG, media_type="no type"), "message.parts[0].mediaType: "),
            (proto.Part(url="file:///etc/passwd"), "message.parts[0].url: "),
            (proto.Part(), "message.parts[0]: expected one of text, data, raw, url"),
        ):
            with pytest.raises(InvalidParamsError) as refused:
                await send(ann, showing(part))
            assert error in str(refused.value)
        with pytest.raises(InvalidParamsError, match="require_attachments: expected bool"):
            await send(ann, showing(PICTURE, metadata={"require_attachments": "yes"}))


async def test_a_client_of_the_former_version_sends_files() -> None:
    file = {"bytes": base64(PNG), "mimeType": "image/png", "name": "tea.png"}
    said = {"kind": "message", "messageId": "1", "role": "user", "parts": [{"kind": "file", "file": file}]}
    call = {"jsonrpc": "2.0", "id": 7, "method": "message/send", "params": {"message": said}}
    async with http_service(**playing(ScriptedModel(Say("A cup."), facts=EYES))) as service:
        task = (await service.http.post("/a2a/helper", json=call, headers=ANN)).json()["result"]
        shown = task["history"][0]["parts"][0]["file"]
        read = await service.http.get(shown["uri"], headers=ANN)

    assert task["status"]["state"] == "completed"
    assert (shown["name"], shown["mimeType"], read.content) == ("tea.png", "image/png", PNG)


@pytest.mark.requirement("A1")
async def test_a_kill_between_a_picture_and_its_answer_loses_no_byte(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"
    with start_model_server() as provider:
        provider.answers(stalling("Once upon"))
        model = {"TENUTO_MODEL": "openai:served", "TENUTO_MODEL_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "k"}
        with running_server(store, **model, TENUTO_SUMMARIZER_MODEL="offline") as first:
            parts = [{"text": "What is it?"}, {"raw": base64(PNG), "mediaType": "image/png"}]
            body = {
                "message": {"messageId": "1", "role": "ROLE_USER", "parts": parts},
                "configuration": {"returnImmediately": True},
            }
            task = first.http.post(
                "/a2a/general/message:send", json=body, headers={**ANN, "A2A-Version": "1.0"}
            ).json()["task"]
            stored = at(task["contextId"], "attachments")
            while not first.http.get(stored, headers=ANN).json().get("attachments"):
                pass
            first.end(signal.SIGKILL)

    seeing = ScriptedModel(Say("A cup."), facts=EYES)
    async with (
        http_service(
            models={"m": seeing}, model="m", summarizer_model="offline", store=f"sqlite:///{store}"
        ) as service,
        client(service, ANN, streams=True) as ann,
    ):
        async for _ in ann.subscribe(proto.SubscribeToTaskRequest(id=task["id"])):
            pass
        ended = await ann.get_task(proto.GetTaskRequest(id=task["id"]))
        read = await service.http.get(ended.history[0].parts[1].url, headers=ANN)

    assert (answer(ended), len(ended.history)) == ("A cup.", 2)
    assert [content.data for content in seeing.requests[0].contents.values()] == [PNG]
    assert read.content == PNG


@pytest.mark.requirement("A1")
async def test_a_picture_that_was_not_stored_before_a_restart_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that waits for another turn has its file in the process alone."""
    monkeypatch.setattr("tenuto.chat.live._GRACE", 0.0)
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    async with (
        http_service(**playing(ScriptedModel(hang := Hang())), store=store) as service,
        client(service, ANN) as ann,
    ):
        tale = showing(proto.Part(text="A tale"))
        tale.configuration.return_immediately = True
        first = await send(ann, tale)
        await hang.reached.wait()
        picture = showing(PICTURE, context_id=first.context_id)
        picture.configuration.return_immediately = True
        waits = await send(ann, picture)

    async with http_service(**playing(ScriptedModel("Done.")), store=store) as service, client(service, ANN) as ann:
        ended = await send(ann, showing(proto.Part(text="And on"), context_id=first.context_id))
        failed = await ann.get_task(proto.GetTaskRequest(id=waits.id))
        while failed.status.state == State.TASK_STATE_WORKING:
            failed = await ann.get_task(proto.GetTaskRequest(id=waits.id))

    assert answer(ended) == "Done."
    assert failed.status.state == State.TASK_STATE_FAILED
    assert "send it again" in failed.status.message.parts[0].text
