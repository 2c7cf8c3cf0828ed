"""The official A2A client on both bindings: contexts are sessions, tasks are our tasks."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

pytest.importorskip("dbos")

from a2a.helpers.proto_helpers import get_artifact_text, get_message_text, new_data_message
from a2a.types import a2a_pb2 as proto
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from tenuto.chat import LiveTurns
from tenuto.errors import StoreUnavailable
from tenuto.llm import Call, Hang, Say, ScriptedModel
from tenuto.model.prompt import PromptPolicy
from tenuto.tasks import Tasks
from tests.attachments import PNG
from tests.chats import patient
from tests.journeys.a2a_clients import BINDINGS, State, answer, client, message, send
from tests.journeys.http_service import ANN, HttpService, code, http_service, playing
from tests.journeys.server_process import running_server
from tests.servers.openai_server import stalling, start_model_server

pytestmark = pytest.mark.requirement("A2")


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_client_keeps_a_context_and_finds_its_tasks(binding: str) -> None:
    async with (
        http_service() as service,
        client(service, ANN, binding) as ann,
        client(service, ANN, binding, streams=True) as streaming,
    ):
        first = await send(ann, message("I live in Bologna with my two cats."))
        asked = message("Where do I live?", context_id=first.context_id)
        events = [event async for event in streaming.send_message(asked)]
        again = await send(ann, asked)
        mine = await send(ann, message("Hello", context_id="a-context-of-mine", history_length=1))
        everything = await ann.list_tasks(proto.ListTasksRequest())
        page = await ann.list_tasks(proto.ListTasksRequest(context_id=first.context_id, page_size=1))
        rest = await ann.list_tasks(
            proto.ListTasksRequest(
                context_id=first.context_id, page_size=1, page_token=page.next_page_token, include_artifacts=True
            )
        )
        done = await ann.list_tasks(proto.ListTasksRequest(status=State.TASK_STATE_WORKING))
        head = await service.http.get(f"/v1/sessions/{first.context_id}/messages", headers=ANN)
        with pytest.raises(TaskNotCancelableError):
            await ann.cancel_task(proto.CancelTaskRequest(id=first.id))
        with pytest.raises(UnsupportedOperationError):
            await anext(streaming.subscribe(proto.SubscribeToTaskRequest(id=first.id)))

    assert first.status.state == State.TASK_STATE_COMPLETED
    assert [get_message_text(one) for one in first.history] == ["I live in Bologna with my two cats.", answer(first)]
    assert events[0].task.status.state == State.TASK_STATE_WORKING
    pieces = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert [piece.last_chunk for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert "".join(get_artifact_text(piece.artifact) for piece in pieces) == answer(again)
    assert "Bologna" in answer(again)
    assert events[-1].status_update.status.state == State.TASK_STATE_COMPLETED
    assert again.id == events[0].task.id, "a message that is sent again is answered once"
    assert [one["text"] for one in head.json()["messages"]] == [
        *(get_message_text(one) for task in (first, again) for one in task.history)
    ]
    assert (mine.context_id, len(mine.history)) == ("a-context-of-mine", 1)
    assert [task.id for task in everything.tasks] == [mine.id, again.id, first.id]
    assert (page.total_size, [task.id for task in page.tasks], [task.id for task in rest.tasks]) == (
        2, [again.id], [first.id],
    )  # fmt: skip
    assert (answer(rest.tasks[0]), len(page.tasks[0].artifacts), rest.next_page_token) == (answer(first), 0, "")
    assert done.total_size == 0


class Answering:
    """The server behind a door; `streams` is set when it begins to send a stream."""

    def __init__(self, service: HttpService) -> None:
        self._app = service.app
        self.streams = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def tell(part: Message) -> None:
            if any(value.startswith(b"text/event-stream") for _, value in part.get("headers", ())):
                self.streams.set()
            await send(part)

        await self._app(scope, receive, tell)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_task_under_way_is_followed_by_many_and_cancelled(binding: str) -> None:
    hang = Hang()
    model = ScriptedModel((Say("Once ", "upon "), hang, Say("a time.")))
    async with http_service(**playing(model)) as service, client(service, ANN, binding) as ann:
        task = await send(ann, message("A tale", return_immediately=True))
        await hang.reached.wait()
        looked = await ann.get_task(proto.GetTaskRequest(id=task.id))

        async def follow(app: Answering) -> list[proto.StreamResponse]:
            async with client(service, ANN, binding, streams=True, app=app) as reader:
                return [event async for event in reader.subscribe(proto.SubscribeToTaskRequest(id=task.id))]

        apps = [Answering(service), Answering(service)]
        readers = [asyncio.create_task(follow(app)) for app in apps]
        for app in apps:
            await app.streams.wait()
        with pytest.raises(UnsupportedOperationError):
            await send(ann, message("And then?", task_id=task.id))
        cancelled = await ann.cancel_task(proto.CancelTaskRequest(id=task.id))
        followed = await asyncio.gather(*readers)
        hang.release.set()
        found = await ann.get_task(proto.GetTaskRequest(id=task.id))
        after = await send(ann, message("Go on", context_id=task.context_id))

    assert looked.status.state == State.TASK_STATE_WORKING
    assert get_message_text(looked.history[0]) == "A tale"
    assert cancelled.status.state == State.TASK_STATE_CANCELED
    assert [get_message_text(one).strip() for one in cancelled.history] == ["A tale", "Once upon"]
    assert answer(cancelled) == answer(found) == "Once upon "
    for events in followed:
        assert answer(events[0].task) == "Once "
        assert get_artifact_text(events[-2].artifact_update.artifact) == "upon "
        assert events[-1].status_update.status.state == State.TASK_STATE_CANCELED
    assert model.cancelled == 1
    assert answer(after) == "Once upon a time."


async def test_a_caller_gets_the_end_that_was_not_stored_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose end the store did not take, or that waits for its session, is looked for again after a pause."""
    monkeypatch.setattr("tenuto.server.a2a.handler._PAUSE", 0.0)
    finish, start, away, starts = Tasks.finish, LiveTurns.start, [StoreUnavailable()], []

    async def finish_later(*args: Any, **fields: Any) -> Any:
        if away:
            raise away.pop()
        return await finish(*args, **fields)

    def count(*args: Any) -> Any:
        starts.append(args)
        return start(*args)

    monkeypatch.setattr(Tasks, "finish", finish_later)
    monkeypatch.setattr(LiveTurns, "start", count)
    model = ScriptedModel("One.", hang := Hang(), "Three.")
    async with (
        http_service(**playing(model, policies=patient(busy_wait=timedelta(0)))) as service,
        client(service, ANN) as ann,
    ):
        first = await asyncio.wait_for(send(ann, message("Count")), 20)
        slow = asyncio.create_task(send(ann, message("Go on", context_id=first.context_id)))
        await hang.reached.wait()
        starts.clear()
        third = await send(ann, message("And on", context_id=first.context_id, return_immediately=True))
        for _ in range(500):
            await asyncio.sleep(0)
        tried = len(starts)
        hang.release.set()
        await slow
        ended = await asyncio.wait_for(send(ann, message("And on", context_id=first.context_id)), 20)

    assert (first.status.state, answer(first), away) == (State.TASK_STATE_COMPLETED, "One.", [])
    assert third.status.state == State.TASK_STATE_WORKING
    assert 0 < tried < 5
    assert ended.status.state == State.TASK_STATE_COMPLETED


@pytest.mark.requirement("A8", "T1")
async def test_other_tenants_wrong_bodies_and_clients_without_a_key_find_nothing() -> None:
    """A task or context of another tenant or user is like one that never was."""
    async with http_service(locked=True) as service:
        keys = [
            await service.key("acme", user="ann"),
            await service.key("acme", user="bob"),
            await service.key("evil", user="ann"),
        ]
        for binding in BINDINGS:
            async with client(service, keys[0], binding) as ann:
                ours = await send(ann, message("I live in Bologna."))
            for theirs in keys[1:]:
                async with client(service, theirs, binding, streams=True) as eve:
                    for task in (ours.id, "t-0123456789abcdef01234567", "\ud7ff/../é"):
                        for call in (
                            eve.get_task(proto.GetTaskRequest(id=task)),
                            eve.cancel_task(proto.CancelTaskRequest(id=task)),
                            anext(eve.subscribe(proto.SubscribeToTaskRequest(id=task))),
                            send(eve, message("hi", task_id=task)),
                        ):
                            with pytest.raises(TaskNotFoundError, match=r"^Task not found$"):
                                await call
                    before = await eve.list_tasks(proto.ListTasksRequest())
                    assert ours.id not in [task.id for task in before.tasks]
                    hijacked = await send(eve, message("Where do I live?", context_id=ours.context_id))
                    assert "Bologna" not in answer(hijacked)
            async with client(service, keys[0], binding) as ann:
                for request, error in (
                    (message(" "), InvalidParamsError),
                    (message("x" * 2_000_000), InvalidParamsError),
                    (message("hi", context_id="a\x00b"), InvalidParamsError),
                    (message("hi", task_id=ours.id, context_id="another"), InvalidParamsError),
                    (message("hi", task_id=ours.id), UnsupportedOperationError),
                ):
                    with pytest.raises(error):
                        await send(ann, request)
                with pytest.raises(PushNotificationNotSupportedError):
                    await ann.create_task_push_notification_config(
                        proto.TaskPushNotificationConfig(task_id=ours.id, url="http://localhost/")
                    )

        card = (await service.http.get("/.well-known/agent-card.json")).json()
        assert card["securityRequirements"] == [{"schemes": {"bearer": {}}}]
        assert code(await service.http.post("/a2a/general", json={})) == (401, "invalid_credential")
        assert code(await service.http.get("/a2a/general/tasks")) == (401, "invalid_credential")
        assert code(await service.http.post("/a2a/unknown", json={}, headers=keys[0])) == (404, "assistant_not_found")
        for body in (b"", b"{", b"[]", b"1", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 100_000, b'{"method": 1}'):
            for path in ("/a2a/general", "/a2a/general/message:send"):
                response = await service.http.post(path, content=body, headers={**keys[0], "A2A-Version": "1.0"})
                assert "error" in response.json(), (path, body)
                assert response.status_code < 500, (path, body)


@pytest.mark.requirement("E14")
async def test_an_agent_that_asks_waits_for_the_answer_in_the_same_task(subtests: pytest.Subtests) -> None:
    """A question of an agent, or a human step of a plan, is input-required."""
    script = (Call("answer", {"field": "contract"}),), (Call("answer", {"ask": "Since when?"}),)
    ends = (Call("answer", {"text": "Then you may go.", "sources": []}),)
    model = ScriptedModel(*script, ends)
    async with http_service(models={"m": model}, model="m", summarizer_model="offline") as service:
        with subtests.test("an assistant asks"):
            async with client(service, ANN, agent="/a2a/legal") as ann:
                asks = await send(ann, message("I want out of my lease"))
                found = await ann.get_task(proto.GetTaskRequest(id=asks.id))
                ended = await send(ann, message("May", task_id=asks.id))
                listed = await ann.list_tasks(proto.ListTasksRequest())
            assert (asks.status.state, found.status.state) == (State.TASK_STATE_INPUT_REQUIRED,) * 2
            assert get_message_text(asks.status.message).startswith("Since when?")
            assert (ended.id, ended.status.state) == (asks.id, State.TASK_STATE_COMPLETED)
            assert answer(ended).startswith("Then you may go.")
            assert len(ended.history) == 4
            assert [task.id for task in listed.tasks] == [asks.id], "the task that the turn ran is a part of it"
        with subtests.test("a plan asks"):
            plan = {"steps": [{"id": "approval", "human_input": "Send this?"}]}
            response = await service.http.post("/v1/tasks", json={"type": "review", "plan": plan}, headers=ANN)
            task_id = response.json()["id"]
            async with client(service, ANN, streams=True) as ann:
                events = [event async for event in ann.subscribe(proto.SubscribeToTaskRequest(id=task_id))]
                picture = proto.Message(message_id="p", role=proto.ROLE_USER, task_id=task_id)
                picture.parts.append(proto.Part(raw=PNG, media_type="image/png"))
                with pytest.raises(ContentTypeNotSupportedError):
                    await send(ann, proto.SendMessageRequest(message=picture))
                said = new_data_message({"send": True, "copies": 2}, role=proto.ROLE_USER, task_id=task_id)
                after = [event async for event in ann.send_message(proto.SendMessageRequest(message=said))]
            last = events[-1].status_update.status if events[-1].HasField("status_update") else events[-1].task.status
            assert (last.state, get_message_text(last.message)) == (State.TASK_STATE_INPUT_REQUIRED, "Send this?")
            assert after[-1].status_update.status.state == State.TASK_STATE_COMPLETED
            kept = await service.http.get(f"/v1/tasks/{task_id}", headers=ANN)
            assert kept.json()["result"] == {"approval": {"send": True, "copies": 2}}


@pytest.mark.requirement("A1")
async def test_a_task_of_a_killed_server_is_answered_by_the_next(tmp_path: Path) -> None:
    """After kill -9 a task is found, and its turn goes on under the same key."""
    store = tmp_path / "sessions.db"
    with start_model_server() as provider:
        provider.answers(stalling("Once upon"))
        model = {"TENUTO_MODEL": "openai:served", "TENUTO_MODEL_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "k"}
        with running_server(store, **model, TENUTO_SUMMARIZER_MODEL="offline") as first:
            body = {
                "message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "I live in Bologna."}]},
                "configuration": {"returnImmediately": True},
            }
            headers = {**ANN, "A2A-Version": "1.0"}
            task = first.http.post("/a2a/general/message:send", json=body, headers=headers).json()["task"]
            first.end(signal.SIGKILL)

    async with http_service(store=f"sqlite:///{store}") as service, client(service, ANN, streams=True) as ann:
        found = await ann.get_task(proto.GetTaskRequest(id=task["id"]))
        events = [event async for event in ann.subscribe(proto.SubscribeToTaskRequest(id=task["id"]))]
        ended = await ann.get_task(proto.GetTaskRequest(id=task["id"]))

    assert found.status.state == State.TASK_STATE_WORKING
    assert events[-1].status_update.status.state == State.TASK_STATE_COMPLETED
    assert [get_message_text(one) for one in ended.history] == ["I live in Bologna.", "Noted."]


@pytest.mark.requirement("A1")
async def test_a_long_message_that_waits_is_whole_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record holds the beginning of a text alone."""
    monkeypatch.setattr("tenuto.chat.live._GRACE", 0.0)
    store, text = f"sqlite:///{tmp_path / 'sessions.db'}", "é" * 10_000 + "x" * 10_000 + "."
    async with (
        http_service(**playing(ScriptedModel(hang := Hang())), store=store) as service,
        client(service, ANN) as ann,
    ):
        first = await send(ann, message("A tale", return_immediately=True))
        await hang.reached.wait()
        waits = await send(ann, message(text, context_id=first.context_id, return_immediately=True))

    async with (
        http_service(**playing(ScriptedModel("Done.")), store=store) as service,
        client(service, ANN, streams=True) as ann,
    ):
        async for _ in ann.subscribe(proto.SubscribeToTaskRequest(id=waits.id)):
            pass
        ended = await ann.get_task(proto.GetTaskRequest(id=waits.id))

    assert [get_message_text(one) for one in ended.history] == [text, "Done."]


async def test_a_message_names_the_character_that_answers() -> None:
    async with http_service() as service, client(service, ANN, agent="/a2a/npc") as ann:
        card = (await service.http.get("/a2a/npc/.well-known/agent-card.json", headers=ANN)).json()
        request = message("Hello")
        request.message.metadata["persona"] = card["skills"][-1]["id"]
        task = await send(ann, request)
        said = await service.tenuto.sessions.messages(service.tenuto.scope(tenant="acme", user="ann"), task.context_id)

    assert len(card["skills"]) > 1
    assert said.messages[-1].persona == card["skills"][-1]["id"]


async def test_a_client_of_the_former_version_is_answered() -> None:
    said = {"kind": "message", "messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "Hello"}]}
    call = {"jsonrpc": "2.0", "id": 7, "method": "message/send", "params": {"message": said}}
    async with http_service() as service:
        card = (await service.http.get("/a2a/general/.well-known/agent-card.json", headers=ANN)).json()
        body = (await service.http.post(card["url"], json=call, headers=ANN)).json()
        outside = await service.http.get("/.well-known/agent-card.json", headers={"Host": "evil.example"})

    assert (body["id"], body["result"]["status"]["state"]) == (7, "completed")
    assert card["preferredTransport"] == "JSONRPC"
    assert code(outside) == (403, "host_not_allowed")


async def test_an_answer_says_what_it_had_to_do_without() -> None:
    """As the client waits for it, as it comes in pieces, and when the task is read later."""
    model = ScriptedModel(Say("Green."), Say("Green."))
    async with (
        http_service(**playing(model, prompt=PromptPolicy(budget=1200, reply_tokens=100))) as service,
        client(service, ANN) as ann,
        client(service, ANN, streams=True) as streaming,
    ):
        long = "The gate stands open and the garden behind it is green. " * 200
        task = await send(ann, message(long))
        events = [event async for event in streaming.send_message(message(long))]
        later = await ann.get_task(proto.GetTaskRequest(id=task.id))

    pieces = [event.artifact_update for event in events if event.HasField("artifact_update")]
    told = [task.artifacts[0], later.artifacts[0], pieces[-1].artifact]
    assert [MessageToDict(artifact.metadata) for artifact in told] == [{"degraded": ["cut"]}] * 3
