"""What changes in the caller's sessions, as it happens."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from msgspec.structs import replace

import tenuto
from tenuto.access import KeyRole, jwt_verifier
from tenuto.llm import Hang, Say, ScriptedModel
from tenuto.llm.scripted import Script
from tenuto.model import Changes, Scope
from tenuto.server import session_events
from tenuto.sessions import EventKind
from tests.chats import patient
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, at, bearer, code, http_service, playing

HERE = Scope(tenant="acme", user="ann")


async def test_a_second_client_is_told_what_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns and changes of one's own sessions, also by other processes in the session that is named."""
    monkeypatch.setattr(session_events, "_LOOK_EVERY", 0.01)
    store = f"sqlite:///{tmp_path / 'state.db'}"
    async with http_service(store=store, **playing(ScriptedModel("One.", "Two."))) as service:
        await service.http.post("/v1/chat", headers=ANN, json={"message": "hi", "session_id": "s"})
        hub: session_events.SessionEvents = service.app.state.session_events
        named = await service.tenuto.sessions.get(HERE, "s")
        mine, hers = await hub.follow(HERE, named), await hub.follow(Scope(tenant="evil", user="ann"))
        opened = [await anext(mine), await anext(hers)]

        reply = (await service.http.post("/v1/chat", headers=ANN, json={"message": "ho", "session_id": "s"})).json()
        told = [await anext(mine) for _ in range(2)]
        async with tenuto.open(store) as elsewhere:
            await elsewhere.sessions.patch(HERE, "s", Changes(title="Elsewhere"))
            foreign = await anext(mine)
        await service.http.delete(at("s"), headers=ANN)
        gone = await anext(mine)
        await service.http.post("/v1/sessions", headers=EVE, json={"id": "e"})
        other = await anext(hers)

        monkeypatch.setattr(session_events, "_LASTS", 0.0)
        stream = await service.http.get("/v1/events", headers=ANN)
        response = await service.http.get("/v1/events?session_id=e", headers=ANN)
        monkeypatch.setattr(session_events, "_MOST_STREAMS", 1)
        refused = await service.http.get("/v1/events", headers=ANN)

    assert opened == [session_events.Ready()] * 2
    turns = [each for each in told if isinstance(each, session_events.TurnBegun)]
    assert [(turn.session_id, turn.trace_id) for turn in turns] == [("s", reply["trace_id"])]
    changes = [each for each in told if isinstance(each, session_events.SessionChange)]
    assert "messages" in changes[-1].changed
    assert foreign == session_events.SessionChange(session_id="s", kind=EventKind.UPDATED)
    assert gone == session_events.SessionChange(session_id="s", kind=EventKind.DELETED)
    assert isinstance(other, session_events.SessionChange)
    assert other.session_id == "e"
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text == "event: ready\ndata: {}\n\n"
    assert code(response) == (404, "session_not_found")
    assert code(refused)[0] == 429


async def test_a_named_session_is_followed_until_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id may be given to another user's session, which a stream that named the old one learns nothing of."""
    monkeypatch.setattr(session_events, "_LOOK_EVERY", 0.01)
    store = f"sqlite:///{tmp_path / 'state.db'}"
    async with (
        http_service(store=store, **playing(ScriptedModel("One.", "Two."))) as service,
        tenuto.open(store) as elsewhere,
    ):
        hub: session_events.SessionEvents = service.app.state.session_events
        named = [(await service.tenuto.sessions.create(HERE, session_id=name))[0] for name in ("here", "there")]
        streams = [await hub.follow(HERE, each) for each in named]
        await service.http.delete(at("here"), headers=ANN)
        await elsewhere.sessions.delete(HERE, "there")
        await elsewhere.sessions.create(replace(HERE, user="bob"), session_id="there")
        told = [[await anext(stream) for _ in range(count)] for stream, count in zip(streams, (2, 3), strict=True)]
        for name in ("here", "there"):
            await service.http.post("/v1/chat", headers=BOB, json={"message": "hi", "session_id": name})
        await elsewhere.sessions.patch(replace(HERE, user="bob"), "there", Changes(title="Bob's"))
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "last"})
        for events, stream in zip(told, streams, strict=True):
            events.append(await anext(stream))

    gone, far = (session_events.SessionChange(session_id=each.id, kind=EventKind.DELETED) for each in named)
    last = session_events.SessionChange(session_id="last", kind=EventKind.CREATED)
    assert told == [[session_events.Ready(), gone, last], [session_events.Ready(), gone, far, last]]


async def test_streams_are_counted_when_admitted_and_end_with_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is revoked is told nothing more, and its streams give their places back."""
    monkeypatch.setattr(session_events, "_MOST_STREAMS", 2)
    async with http_service(locked=True) as service, asyncio.timeout(30):
        admin = await service.key(role=KeyRole.ADMIN)
        key, secret = await service.keys.create(tenant="acme", user="ann")
        hub: session_events.SessionEvents = service.app.state.session_events
        asked = [asyncio.create_task(service.http.get("/v1/events", headers=bearer(secret))) for _ in range(5)]
        refused = [await each for each in itertools.islice(asyncio.as_completed(asked), 3)]
        open_streams = len(hub._streams)
        await service.http.delete(f"/v1/keys/{key.id}", headers=admin)
        ended = [each for each in await asyncio.gather(*asked) if each not in refused]

    assert [each.status_code for each in refused] == [429] * 3
    assert [(each.status_code, each.text) for each in ended] == [(200, "event: ready\ndata: {}\n\n")] * 2
    assert (open_streams, len(hub._streams), hub._owners._here.total()) == (2, 0, 0)


_COMPLETION = {"messages": [{"role": "user", "content": "Count"}], "stream": True}
_A2A = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Count"}]}}
_UI_MESSAGE = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Count"}]}
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat", {"message": "Count", "stream": True}),
    "completion": ("/v1/chat/completions", _COMPLETION),
    "completion in a session": ("/v1/chat/completions", _COMPLETION),
    "message": ("/v1/messages", {**_COMPLETION, "model": "helper", "max_tokens": 99}),
    "message in a session": ("/v1/messages", {**_COMPLETION, "model": "helper", "max_tokens": 99}),
    "response": ("/v1/responses", {"input": "Count", "stream": True}),
    "unstored response": ("/v1/responses", {"input": "Count", "stream": True, "store": False}),
    "ai-sdk": ("/v1/ai-sdk/chat", {"id": "ui", "messages": [_UI_MESSAGE]}),
    "ag-ui": ("/v1/ag-ui/helper", {"threadId": "t", "runId": "r", "messages": [{**_UI_MESSAGE, "content": "Count"}]}),
    "a2a": ("/a2a/helper", {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": _A2A}),
    "a2a rest": ("/a2a/helper/message:stream", {"message": {**_A2A["message"], "messageId": "n"}}),
}


# How each kind of stream says that its credential no longer holds.
_PROBLEM = 'event: error\ndata: {"type":"urn:tenuto:problem:invalid_credential"'
LAPSED = {
    "chat": _PROBLEM,
    "completion": '"type":"authentication_error","param":null,"code":"invalid_api_key"',
    "completion in a session": '"type":"authentication_error","param":null,"code":"invalid_api_key"',
    "message": '{"type":"error","error":{"type":"authentication_error"',
    "message in a session": '{"type":"error","error":{"type":"authentication_error"',
    "response": "event: response.failed",
    "unstored response": "event: response.failed",
    "ai-sdk": '{"type":"error","errorText":"invalid_credential: ',
    "ag-ui": '{"type":"RUN_ERROR",',
    "a2a": "event: error",
    "a2a rest": "event: error",
}


async def test_answers_under_way_end_with_their_key(subtests: pytest.Subtests) -> None:
    """A key that is revoked hears no further word but why, in the shape of its stream; a turn can be joined by another
    key."""
    hangs = {name: Hang() for name in ANSWERS}
    scripts: list[Script] = [[Say("One "), hang] for hang in hangs.values()]
    model = ScriptedModel(*scripts)
    async with http_service(locked=True, **playing(model, policies=patient())) as service, asyncio.timeout(60):
        admin = await service.key(role=KeyRole.ADMIN)
        for name, (path, body) in ANSWERS.items():
            with subtests.test(name):
                key, secret = await service.keys.create(tenant="acme", user="ann")
                asked = await _reach(service, hangs[name], name, bearer(secret), path, body)
                await service.http.delete(f"/v1/keys/{key.id}", headers=admin)

                ended = await asked

                events = ended.text.replace("\r", "").removesuffix("data: [DONE]\n\n").rstrip().split("\n\n")
                assert ended.status_code == 200, ended.text
                assert LAPSED[name] in events[-1]
                assert "invalid_credential" in events[-1] or "invalid_api_key" in events[-1]
        key, secret = await service.keys.create(tenant="acme", user="ann")
        joined = asyncio.create_task(service.http.get("/v1/ai-sdk/chat/ui/stream", headers=bearer(secret)))
        for _ in range(100):  # A store in memory waits for nothing, so it reads by now.
            await asyncio.sleep(0)
        await service.http.delete(f"/v1/keys/{key.id}", headers=admin)
        assert ((await joined).status_code, "One" in joined.result().text) == (200, True)
        assert "invalid_credential" in joined.result().text


async def test_a_token_that_expires_ends_streams_of_events_alone(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """An answer was admitted as a whole, so a client with a token of a few minutes hears a long one to its end."""
    hangs = {name: Hang() for name in ANSWERS}
    scripts: list[Script] = [[Say("One "), hang, Say("two.")] for hang in hangs.values()]
    model, secret = ScriptedModel(*scripts), "a secret that is long enough for tests"
    claims = {"tenant_id": "acme", "sub": "ann", "exp": int(time.time()) + 300}
    token = bearer(jwt.encode(claims, secret, "HS256"))
    played = playing(model, policies=patient())
    async with http_service(jwt_secret=secret, **played) as service, asyncio.timeout(60):
        listening = asyncio.create_task(service.http.get("/v1/events", headers=token))
        asked = {
            name: await _reach(service, hangs[name], name, token, path, body) for name, (path, body) in ANSWERS.items()
        }
        monkeypatch.setattr(jwt_verifier, "_LEEWAY_SECONDS", -3600)
        response = await service.http.get("/v1/sessions", headers=token)
        service.app.state.service.gate.forget("another key")
        await listening
        for name, hang in hangs.items():
            hang.release.set()
            with subtests.test(name):
                answered = await asked[name]
                assert (answered.status_code, "two." in answered.text) == (200, True), answered.text
                assert "invalid_" not in answered.text

    assert code(response) == (401, "invalid_credential")


async def _reach(
    service: HttpService, hang: Hang, name: str, credential: dict[str, str], path: str, body: dict[str, Any]
) -> asyncio.Task[httpx.Response]:
    """Ask for an answer, and wait until its model hangs."""
    headers = {**credential, "A2A-Version": "1.0"}
    if name == "completion in a session":
        headers["Tenuto-Session"] = "completed"
    asked = asyncio.create_task(service.http.post(path, headers=headers, json=body))
    reached = asyncio.create_task(hang.reached.wait())
    await asyncio.wait((asked, reached), return_when=asyncio.FIRST_COMPLETED)
    assert reached.done(), asked.result().text
    return asked
