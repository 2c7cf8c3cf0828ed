"""Attachments over HTTP: sent with messages, shown by them without bytes, read and removed one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tenuto
from tenuto.llm import Say, ScriptedModel
from tenuto.model import Content, Page, attachment_part
from tenuto.model.attachment import MediaInputs
from tenuto.model.parameters import ModelFacts
from tenuto.sessions import AppendRequest
from tests.attachments import PDF, PNG, SVG, SVG_WITH_SCRIPT, WAV, base64, data_url, pdf_bomb, png
from tests.journeys.http_service import ANN, HttpService, at, code, http_service, playing
from tests.journeys.terminal import Shell
from tests.servers.loopback import serving

BOB = {"X-User-ID": "bob"}
PICTURE = {"type": "image", "media_type": "image/png", "data": base64(PNG), "name": "tea.png", "detail": "low"}


@pytest.fixture
async def service(store_url: str) -> AsyncIterator[HttpService]:
    async with http_service(store=store_url, max_attachment_bytes=20_000) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        yield service


async def send(service: HttpService, *parts: Any) -> Any:
    body = {"role": "user", "parts": [{"type": "text", "text": "look"}, *parts]}
    return await service.http.post(at("s", "messages"), headers=ANN, json=body)


async def listed(service: HttpService) -> list[dict[str, Any]]:
    body = (await service.http.get(at("s", "attachments"), headers=ANN)).json()
    found: list[dict[str, Any]] = body["attachments"]
    return found


async def test_a_picture_is_stored_once_shown_by_name_and_read_as_it_was_sent(service: HttpService) -> None:
    sent = [await send(service, PICTURE), await send(service, {"type": "image", "url": data_url(PNG, "image/png")})]

    page = await service.http.get(at("s", "messages"), headers=ANN)
    (attachment,) = await listed(service)
    read = await service.http.get(at("s", "attachments", attachment["id"]), headers=ANN)

    assert [answer.status_code for answer in sent] == [201, 201]
    assert base64(PNG)[:100] not in page.text
    part = {"type": "image", "media_type": "image/png", "attachment": attachment["id"], "size": len(PNG)}
    shown = [message["parts"][1] for message in page.json()["messages"]]
    assert [each.items() >= part.items() for each in shown] == [True, True]
    assert (shown[0]["name"], shown[0]["detail"]) == ("tea.png", "low")
    assert (
        attachment.items() >= {"media_type": "image/png", "size": len(PNG), "name": "tea.png", "seqs": [1, 2]}.items()
    )
    assert read.content == PNG
    assert read.headers["content-type"] == "image/png"
    assert read.headers["content-disposition"] == "attachment; filename*=UTF-8''tea.png"
    assert read.headers.get_list("x-content-type-options") == ["nosniff"]
    assert "sandbox" in read.headers["content-security-policy"]
    again = {**ANN, "If-None-Match": read.headers["etag"]}
    assert (await service.http.get(at("s", "attachments", attachment["id"]), headers=again)).status_code == 304


async def test_a_removed_attachment_leaves_a_mark(service: HttpService) -> None:
    await send(service, PICTURE)
    (attachment,) = await listed(service)
    place = at("s", "attachments", attachment["id"])

    foreign = [await service.http.request(method, place, headers=BOB) for method in ("GET", "DELETE")]
    removed = await service.http.delete(place, headers=ANN)

    assert [code(each) for each in foreign] == [(404, "session_not_found")] * 2
    assert removed.status_code == 200
    assert code(await service.http.get(place, headers=ANN)) == (404, "attachment_not_found")
    (message,) = (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"]
    assert message["parts"][1]["removed"] is True
    assert "name" not in message["parts"][1]


LINK = {"type": "image", "url": "https://example.com/tea.png", "detail": "high"}
TAKEN = {
    "a link": (LINK, LINK),
    "a provider's file": ({"type": "file", "file_id": "file-1"}, {"file_id": "file-1", "provider": "openai"}),
    "OpenAI's picture": ({"type": "input_image", "image_url": "https://example.com/tea.png", "detail": "high"}, LINK),
    "a sound": (
        {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}},
        {"type": "audio", "media_type": "audio/wav", "size": len(WAV)},
    ),
    "a PDF": (
        {"type": "file", "file": {"file_data": base64(PDF), "filename": "a.pdf"}},
        {"type": "file", "media_type": "application/pdf", "name": "a.pdf"},
    ),
    "an SVG": ({"type": "file", "data": base64(SVG), "name": "a.svg"}, {"type": "file", "media_type": "image/svg+xml"}),
    "in a tool's output": (
        {"type": "tool_result", "call_id": "c", "output": [PICTURE]},
        {"type": "tool_result", "call_id": "c"},
    ),
}


@pytest.mark.parametrize(("sent", "shown"), TAKEN.values(), ids=TAKEN)
async def test_each_form_of_a_part_is_taken(sent: dict[str, Any], shown: dict[str, Any]) -> None:
    async with http_service() as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})

        answer = await send(service, sent)

        assert answer.status_code == 201, answer.text
        part = answer.json()["messages"][0]["parts"][1]
        assert part.items() >= shown.items()
        for one in part.get("output", []):
            assert one["attachment"] == (await listed(service))[0]["id"]
            assert "data" not in one


IMAGE = {"type": "image"}
FILE = {"type": "file"}
TOO_LARGE = png(2_000_001)
# What cannot be taken, and the field of the part that the error names.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no bytes": ({**IMAGE, "data": ""}, ".data"),
    "no bytes in a URL": ({**IMAGE, "url": "data:image/png;base64,"}, ".url"),
    "no base64": ({**IMAGE, "data": "what? no!"}, ".data"),
    "half base64": ({**IMAGE, "data": base64(PNG)[:-3]}, ".data"),
    "a text called PNG": ({**IMAGE, "data": base64(b"hello"), "media_type": "image/png"}, ".data"),
    "a JPEG called PNG": ({**IMAGE, "data": base64(b"\xff\xd8\xff\0"), "media_type": "image/png"}, ".data"),
    "two types": ({**IMAGE, "url": data_url(PNG, "image/png"), "media_type": "image/gif"}, ".url"),
    "a sound as a picture": ({**IMAGE, "data": base64(WAV)}, ""),
    "no sound": ({"type": "input_audio", "input_audio": {"data": base64(PNG), "format": "wav"}}, ".input_audio.data"),
    "an unknown format": (
        {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "au"}},
        ".input_audio.format",
    ),
    "an SVG as a picture": ({**IMAGE, "data": base64(SVG), "media_type": "image/svg+xml"}, ""),
    "an SVG with a script": ({**FILE, "data": base64(SVG_WITH_SCRIPT), "name": "a.svg"}, ".data"),
    "a PDF bomb": ({**FILE, "data": base64(pdf_bomb())}, ".data"),
    "a file of the server": ({**IMAGE, "url": "file:///etc/passwd"}, ".url"),
    "another scheme": ({"type": "input_file", "file_url": "ftp://example.com/a"}, ".file_url"),
    "no address": ({"type": "image_url", "image_url": {"url": "tea.png"}}, ".image_url.url"),
    "no object": ({"type": "image_url", "image_url": "https://example.com/tea.png"}, ".image_url"),
    "nothing": (IMAGE, ""),
    "two places": ({**IMAGE, "url": "https://example.com/a.png", "data": base64(PNG)}, ""),
    "a number": ({**IMAGE, "data": 5}, ".data"),
    "an odd name": ({**FILE, "data": base64(PDF), "name": "a\nb"}, ".name"),
    "no id": ({**IMAGE, "attachment": "../x"}, ".attachment"),
    "deep": ({"type": "tool_result", "call_id": "c", "output": [{**IMAGE, "data": "?"}]}, ".output[0].data"),
    "too large": ({**IMAGE, "data": base64(TOO_LARGE)}, ".data"),
    "too large in a URL": ({"type": "input_image", "image_url": data_url(TOO_LARGE, "image/png")}, ".image_url"),
}


async def test_content_that_cannot_be_taken_is_refused_by_the_name_of_its_field() -> None:
    """Nothing is stored, and nothing of the content is repeated."""
    async with http_service(max_attachment_bytes=2_000_000) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        for name, (part, field) in BAD.items():
            answer = await send(service, part)

            told = (413, "too_large") if name.startswith("too large") else (400, "invalid")
            assert code(answer) == told, (name, answer.text)
            assert answer.json()["detail"].startswith(f"parts[1]{field}: "), (name, answer.text)
        unknown = await send(service, {**IMAGE, "attachment": "0" * 32})
        assert code(unknown) == (400, "unknown_attachment")
        assert (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"] == []
        body = {"message": "x", "attachments": [{"data": base64(PNG)}, {"data": "?"}]}
        answer = await service.http.post("/v1/chat", headers=ANN, json=body)
        assert answer.json()["detail"].startswith("attachments[1].data: "), answer.text
        large = await service.http.post(at("s", "messages"), headers=ANN, content=b'{"text": "' + b"x" * 50_000_000)
        assert code(large) == (413, "too_large")


async def test_a_question_shows_pictures_with_or_without_words() -> None:
    model = ScriptedModel([Say("A cup.")])
    async with http_service(**playing(model)) as service:
        link = {"url": "https://example.com/a.pdf", "media_type": "application/pdf"}
        body = {"message": "What is it?", "session_id": "s", "attachments": [{"data": base64(PNG)}, link]}
        first = await service.http.post("/v1/chat", headers=ANN, json=body)
        body = {"session_id": "s", "attachments": [{"data": base64(PNG)}]}
        second = await service.http.post("/v1/chat", headers=ANN, json=body)
        third = await service.http.post("/v1/chat", headers=ANN, json={**body, "edit": 3, "message": "And now?"})

        assert [answer.status_code for answer in (first, second, third)] == [200, 200, 200], second.text
        page = (await service.http.get(at("s", "messages"), headers=ANN)).json()
        said = [one["parts"] for one in page["messages"] if one["role"] == "user"]
        assert [[part["type"] for part in parts] for parts in said] == [["text", "image", "file"], ["text", "image"]]
        assert said[0][2] == {"type": "file", **link}
        assert [one["seqs"] for one in await listed(service)] == [[1, 5]]


async def test_an_edit_keeps_a_picture_that_only_the_edited_message_shows() -> None:
    """An id that the session does not have is refused before anything is removed."""
    async with http_service(**playing(ScriptedModel([Say("A cup.")]))) as service:
        body = {"message": "What is it?", "session_id": "s", "attachments": [{"data": base64(PNG), "name": "tea.png"}]}
        await service.http.post("/v1/chat", headers=ANN, json=body)
        (attachment,) = await listed(service)
        edit = {"message": "And now?", "session_id": "s", "edit": 1}
        wrong = {**edit, "attachments": [{"type": "image", "attachment": "0" * 32}]}

        refused = await service.http.post("/v1/chat", headers=ANN, json=wrong)
        page = (await service.http.get(at("s", "messages"), headers=ANN)).json()

        assert code(refused) == (400, "unknown_attachment")
        assert [message["text"] for message in page["messages"]] == ["What is it?", "A cup."]
        right = {**edit, "attachments": [{"type": "image", "attachment": attachment["id"], "name": "tea.png"}]}
        answer = await service.http.post("/v1/chat", headers=ANN, json=right)
        assert answer.status_code == 200, answer.text
        (said, _) = (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"]
        assert said["parts"][1].items() >= {"attachment": attachment["id"], "size": len(PNG), "width": 2}.items()
        read = await service.http.get(at("s", "attachments", attachment["id"]), headers=ANN)
        assert read.content == PNG


@pytest.mark.parametrize("edit", [{}, {"edit": 1}], ids=["shown again", "edited"])
async def test_a_picture_that_the_session_has_is_named_by_its_id_alone(edit: dict[str, int]) -> None:
    eyes = ModelFacts(media=MediaInputs(content=frozenset({"image/*"})))
    model = ScriptedModel([Say("A cup.")], facts=eyes)
    async with http_service(**playing(model)) as service:
        body = {"message": "What is it?", "session_id": "s", "attachments": [{"data": base64(PNG), "name": "tea.png"}]}
        await service.http.post("/v1/chat", headers=ANN, json=body)
        (attachment,) = await listed(service)
        again = {"message": "And now?", "session_id": "s", "attachments": [{"attachment": attachment["id"]}], **edit}
        answer = await service.http.post("/v1/chat", headers=ANN, json=again)
        page = (await service.http.get(at("s", "messages"), headers=ANN)).json()

    assert answer.status_code == 200
    shown = page["messages"][-2]["parts"][1]
    expected = {"type": "image", "media_type": "image/png", "attachment": attachment["id"], "name": "tea.png"}
    assert {name: shown.get(name) for name in expected} == expected
    assert [part.get("attachment") for part in model.requests[-1].messages[-1].parts] == [None, attachment["id"]]
    assert list(model.requests[-1].contents) == [attachment["id"]]
    assert answer.json()["degraded"] == []


async def test_the_client_sends_reads_and_removes_attachments() -> None:
    """With `ask`, and with messages; the same calls as on an installation in this process."""
    serve = http_service(**playing(ScriptedModel([Say("A cup.")])))
    async with serve as service, serving(service.app) as url, tenuto.connect(url) as remote:
        ann = remote.scope(user="ann")
        picture = Content.of(ann, PNG, "image/png", "tee, grün.png")
        await remote.ask(ann, "What is it?", session_id="s", attachments=[picture])
        shown = replace(remote.draft("Again."), parts=(attachment_part(picture),), contents=(picture,))
        await remote.sessions.append(ann, "s", AppendRequest(messages=(shown,)))

        for sessions in (remote.sessions, service.tenuto.sessions):
            (attachment,) = await sessions.attachments(ann, "s")
            page = await sessions.messages(ann, "s", Page())

            assert await sessions.attachment(ann, "s", picture.id) == picture
            assert (attachment.id, attachment.size, attachment.seqs) == (picture.id, len(PNG), (1, 3))
            assert page.messages[0].parts[1] == {**attachment_part(picture), "width": 2, "height": 2}
        await remote.sessions.remove_attachment(ann, "s", picture.id)
        assert await service.tenuto.sessions.attachments(ann, "s") == ()


@pytest.mark.parametrize("written", ["json", "jsonl", "markdown"])
async def test_an_export_has_each_attachment_once_and_is_imported_by_another_tenant(written: str) -> None:
    async with http_service(locked=True) as service:
        ann, eve = await service.key("acme", user="ann"), await service.key("evil", user="eve")
        await service.http.post("/v1/sessions", headers=ann, json={"id": "s"})
        output = {"type": "tool_result", "call_id": "c", "output": [PICTURE]}
        parts = [[PICTURE], [PICTURE, LINK], [output], [{"type": "file", "data": base64(PDF), "name": "gone.pdf"}]]
        body = {"messages": [{"role": "user", "parts": each} for each in parts]}
        stored = (await service.http.post(at("s", "messages"), headers=ann, json=body)).json()["messages"]
        gone = stored[3]["parts"][0]["attachment"]
        await service.http.delete(at("s", "attachments", gone), headers=ann)

        paper = await service.http.get(at("s", "export"), params={"format": written}, headers=ann)
        copy = await service.http.post("/v1/sessions/import", headers=eve, content=paper.content)
        place = f"/v1/sessions/{copy.json()['id']}"
        (found,) = (await service.http.get(f"{place}/attachments", headers=eve)).json()["attachments"]
        read = await service.http.get(f"{place}/attachments/{found['id']}", headers=eve)
        messages = (await service.http.get(f"{place}/messages", headers=eve)).json()["messages"]

        assert copy.status_code == 201, copy.text
        assert paper.text.count(base64(PNG)[:100]) == 1
        assert read.content == PNG
        assert (found["name"], found["seqs"]) == ("tea.png", [1, 2, 3])
        assert found["id"] != stored[0]["parts"][0]["attachment"]
        assert messages[1]["parts"] == [{**stored[1]["parts"][0], "attachment": found["id"]}, LINK]
        assert messages[3]["parts"][0]["removed"] is True


def _files_with(secret: bytes, folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if secret in file.read_bytes()]


@pytest.mark.parametrize("how", ["attachment", "session", "user"])
async def test_what_is_erased_leaves_no_byte_in_the_file(tmp_path: Path, how: str) -> None:
    store, secret = tmp_path / "s.db", PNG[200:240]
    async with http_service(store=f"sqlite:///{store}") as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        await send(service, PICTURE)
        (attachment,) = await listed(service)
        assert _files_with(secret, tmp_path)

        if how == "user":
            erased = await service.http.delete("/v1/users/ann", headers=ANN)
            assert erased.status_code == 200, erased.text
        else:
            place = at("s", "attachments", attachment["id"]) if how == "attachment" else at("s")
            await service.http.delete(place, headers=ANN)
        await service.tenuto.store.upkeep.compact()

    assert _files_with(secret, tmp_path) == []


@pytest.fixture
async def picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Content:
    """A picture in the session `s` of a SQLite file."""
    monkeypatch.chdir(tmp_path)
    async with tenuto.open() as app:
        ann = app.scope(user="ann")
        picture = Content.of(ann, PNG, "image/png", "tea.png")
        await app.sessions.create(ann, session_id="s")
        await app.ask(ann, "What is it?", session_id="s", assistant="general", attachments=(picture,))
    return picture


def test_the_command_line_lists_exports_and_deletes(shell: Shell, picture: Content) -> None:
    (listed,) = shell.ask("attachments", "list", "s")["attachments"]
    shell.run("attachments", "export", "s", picture.id[:6], "--output", "saved.png")
    table = shell.run("attachments", "list", "s").stdout
    shell.run("attachments", "delete", "s", picture.id, "--yes")

    assert listed == {"id": picture.id, "media_type": "image/png", "size": len(PNG), "name": "tea.png", "seqs": [1]}
    assert (shell.folder / "saved.png").read_bytes() == PNG
    assert "tea.png" in table
    assert shell.ask("attachments", "list", "s")["attachments"] == []


@pytest.mark.parametrize("strict", [False, True])
async def test_an_attachment_that_is_named_by_its_id_alone_reaches_the_model(strict: bool) -> None:
    """In a further message, in an edit of the message that shows it, and in a message that was appended."""
    model = ScriptedModel("A cup.", facts=ModelFacts(media=MediaInputs(content=frozenset({"image/png"}))))
    async with http_service(**playing(model)) as service:

        async def ask(message: str, *attachments: Any, **more: Any) -> Any:
            asked = {"message": message, "attachments": attachments, "require_attachments": strict, **more}
            response = await service.http.post("/v1/chat", headers=ANN, json=asked)
            assert response.status_code == 200, response.text
            return response.json()

        first = await ask("What is it?", {"data": base64(PNG), "media_type": "image/png", "name": "cup.png"})
        session = first["session_id"]
        [known] = (await service.http.get(at(session, "attachments"), headers=ANN)).json()["attachments"]
        again = await ask("And here?", {"attachment": known["id"]}, session_id=session)
        appended = {"role": "user", "parts": [{"type": "image", "attachment": known["id"]}]}
        await service.http.post(at(session, "messages"), headers=ANN, json=appended)
        messages = (await service.http.get(at(session, "messages"), headers=ANN)).json()["messages"]
        edited = await ask("Edited.", {"attachment": known["id"]}, session_id=session, edit=messages[0]["seq"])

    shown = [part for message in messages for part in message["parts"] if part["type"] == "image"]
    assert [part["media_type"] for part in shown] == ["image/png"] * 3
    assert [part["name"] for part in shown] == ["cup.png"] * 3
    assert [len(request.contents) for request in model.requests] == [1, 1, 1]
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    assert [part["type"] for part in parts if part["type"] != "text"] == ["image"]
    assert (again["degraded"], edited["degraded"]) == ([], [])
