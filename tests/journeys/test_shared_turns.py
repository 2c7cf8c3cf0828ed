"""Turns that run in one server process and are followed, stopped and repeated at another one of the same store."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journeys.server_group import Servers, some_servers
from tests.journeys.server_process import ServerProcess

WHO = {"X-Tenant-ID": "acme", "X-User-ID": "ann"}
STORES = ("sqlite", "valkey", "redis_cluster", "postgres")
Event = tuple[str, str, dict[str, Any]]


@contextmanager
def _store(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{folder / 'shared.db'}"
    elif name == "postgres":
        server = request.getfixturevalue("postgres")
        database = server.new_database()
        yield database.app_url
        server.drop_database(database)
    else:
        server = request.getfixturevalue(name)
        server.flush()
        yield server.url


@pytest.fixture(scope="module", params=STORES)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Three of them; the last tests of this file end one after the other."""
    folder = tmp_path_factory.mktemp("servers")
    with _store(request.param, request, folder) as url, some_servers(3, url, folder) as servers:
        yield servers


def events_of(response: httpx.Response) -> Iterator[Event]:
    """The events of a stream: (id, name, data)."""
    lines: dict[str, str] = {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            lines[name] = value
        elif "event" in lines:
            yield lines.get("id", ""), lines["event"], json.loads(lines["data"])
            lines = {}


def until(events: Iterator[Event], text: str) -> list[Event]:
    """The events up to the one that completes a text."""
    found, said = [], ""
    for event in events:
        found.append(event)
        said += event[2].get("text", "") if event[1] == "delta" else ""
        if said.endswith(text):
            return found
    raise AssertionError(found)


def text_of(events: list[Event]) -> str:
    return "".join(data["text"] for _, name, data in events if name == "delta")


@contextmanager
def asking(server: ServerProcess, session: str, **headers: str) -> Iterator[Iterator[Event]]:
    body = {"message": "Count", "session_id": session, "stream": True}
    with server.http.stream("POST", "/v1/chat", json=body, headers={**WHO, **headers}) as response:
        yield events_of(response)


@contextmanager
def joining(server: ServerProcess, session: str, **headers: str) -> Iterator[Iterator[Event]]:
    path = f"/v1/sessions/{session}/stream"
    with server.http.stream("GET", path, headers={**WHO, **headers}) as response:
        assert response.status_code == 200, response.read()
        yield events_of(response)


def log_of(server: ServerProcess, session: str) -> list[tuple[str, str, bool]]:
    page = server.http.get(f"/v1/sessions/{session}/messages", headers=WHO).json()["messages"]
    return [(one["role"], one["text"], one["metadata"].get("stopped", False)) for one in page]


def test_a_turn_is_joined_at_another_process(servers: Servers) -> None:
    with asking(servers.first, "join") as own:
        call = servers.model.call()
        call.say("One ", "two ")
        seen = until(own, "two ")
        last_seen = {"Last-Event-ID": seen[-2][0]}
        with joining(servers.second, "join") as other, joining(servers.second, "join", **last_seen) as rest:
            joined = until(other, "two ")
            call.say("three.")
            call.end()
            whole, joined, behind = [*seen, *own], [*joined, *other], list(rest)

    assert text_of(joined) == "One two three."
    assert joined == whole
    assert behind == whole[len(seen) - 1 :]
    after = servers.second.http.get("/v1/sessions/join/stream", headers=WHO)
    assert after.status_code == 204


def test_a_turn_is_stopped_at_another_process(servers: Servers) -> None:
    with asking(servers.first, "stop") as own:
        call = servers.model.call()
        call.say("One ", "two ")
        until(own, "two ")
        stopped = servers.second.http.post("/v1/sessions/stop/stop", headers=WHO).json()
        rest = list(own)

    assert call.left.wait(1)
    assert (stopped["stopped"], stopped["reply"]["answer"]) == (True, "One two ")
    assert rest[-1][1:] == ("done", rest[-1][2])
    assert rest[-1][2]["stopped"]
    assert log_of(servers.second, "stop") == [("user", "Count", False), ("assistant", "One two ", True)]


def test_a_retry_at_another_process_gets_the_answer_of_the_running_turn(servers: Servers) -> None:
    key = {"Idempotency-Key": "same"}
    with asking(servers.first, "retry", **key) as own:
        call = servers.model.call()
        call.say("One ")
        until(own, "One ")
        with asking(servers.second, "retry", **key) as again:
            repeated = until(again, "One ")
            call.say("two.")
            call.end()
            repeated += again
        told = list(own)

    assert text_of(repeated) == "One two."
    assert repeated[-1] == told[-1]
    assert log_of(servers.second, "retry") == [("user", "Count", False), ("assistant", "One two.", False)]
    assert servers.model.asked.empty()


def test_nobody_else_joins_or_stops_a_turn(servers: Servers) -> None:
    others = [{"X-Tenant-ID": "acme", "X-User-ID": "bob"}, {"X-Tenant-ID": "other", "X-User-ID": "ann"}]
    with asking(servers.first, "mine") as own:
        call = servers.model.call()
        call.say("One.")
        until(own, "One.")
        joins = [servers.second.http.get("/v1/sessions/mine/stream", headers=who).status_code for who in others]
        stops = [servers.second.http.post("/v1/sessions/mine/stop", headers=who).status_code for who in others]
        call.end()
        assert list(own)[-1][1] == "done"

    assert joins == stops == [404, 404]


def data_of(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The data of a stream of any protocol."""
    assert response.status_code == 200, response.read()
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def heard(stream: Iterator[dict[str, Any]], text: str, *, field: str = "delta") -> str:
    """What a stream says, up to a text."""
    said = ""
    for data in stream:
        part = data.get(field)
        said += part if isinstance(part, str) else ""
        if said.endswith(text):
            return said
    raise AssertionError(said)


def test_a_page_of_the_ai_sdk_resumes_and_stops_at_another_process(servers: Servers) -> None:
    said = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Count"}]}
    body = {"id": "page", "messages": [said]}
    with servers.first.http.stream("POST", "/v1/ai-sdk/chat", json=body, headers=WHO) as own:
        call = servers.model.call()
        call.say("One ", "two ")
        heard(chunks := data_of(own), "two ")
        with servers.second.http.stream("GET", "/v1/ai-sdk/chat/page/stream", headers=WHO) as other:
            resumed = heard(stream := data_of(other), "two ")
            stopped = servers.second.http.post("/v1/ai-sdk/chat/page/stop", headers=WHO).json()
            ends = [[*stream][-1]["type"], [*chunks][-1]["type"]]

    assert resumed == "One two "
    assert (stopped["stopped"], stopped["reply"]["answer"]) == (True, "One two ")
    assert ends == ["finish", "finish"]
    assert call.left.wait(1)


def test_a_thread_of_ag_ui_is_shown_at_another_process_with_its_run(servers: Servers) -> None:
    asked = {"threadId": "thread", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
    words = [{"id": "m1", "role": "user", "content": "Count"}]
    body = {**asked, "runId": "r1", "messages": words}
    with servers.first.http.stream("POST", "/v1/ag-ui/general", json=body, headers=WHO) as own:
        call = servers.model.call()
        call.say("One ")
        heard(events := data_of(own), "One ")
        shown = {**asked, "runId": "r2", "messages": []}
        with (
            servers.second.http.stream("POST", "/v1/ag-ui/general", json=shown, headers=WHO) as other,
            servers.second.http.stream("POST", "/v1/ag-ui/general", json=body, headers=WHO) as repeated,
        ):
            streams = [data_of(other), data_of(repeated)]
            so_far = [heard(stream, "One ") for stream in streams]
            call.say("two.")
            call.end()
            rest = [[*stream] for stream in (*streams, events)]

    assert so_far == ["One ", "One "]
    assert [end[-1]["type"] for end in rest] == ["RUN_FINISHED"] * 3
    assert [
        "".join(one.get("delta", "") for one in events if isinstance(one.get("delta"), str)) for events in rest
    ] == ["two."] * 3
    assert log_of(servers.first, "thread") == [("user", "Count", False), ("assistant", "One two.", False)]


def test_a_response_is_streamed_and_cancelled_at_another_process(servers: Servers) -> None:
    body = {"model": "general", "input": "Count", "background": True}
    made = servers.first.http.post("/v1/responses", json=body, headers=WHO).json()
    call = servers.model.call()
    call.say("One ", "two ")
    path = f"/v1/responses/{made['id']}"
    with servers.second.http.stream("GET", path, params={"stream": "true"}, headers=WHO) as other:
        said = heard(stream := data_of(other), "two ")
        waiting = servers.second.http.get(path, headers=WHO).json()
        cancelled = servers.second.http.post(f"{path}/cancel", headers=WHO).json()
        last = [*stream][-1]

    assert call.left.wait(1)
    assert said == "One two "
    assert (waiting["status"], cancelled["status"]) == ("in_progress", "cancelled")
    assert cancelled["output"][0]["content"][0]["text"] == "One two "
    assert last["response"]["status"] == "cancelled"
    assert servers.first.http.get(path, headers=WHO).json() == servers.second.http.get(path, headers=WHO).json()


def test_a_task_of_a2a_is_followed_and_cancelled_at_another_process(servers: Servers) -> None:
    words = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Count"}]}
    body = {"message": words, "configuration": {"returnImmediately": True}}
    agent, who = "/a2a/general", {**WHO, "A2A-Version": "1.0"}
    sent = servers.first.http.post(f"{agent}/message:send", json=body, headers=who)
    assert sent.status_code == 200, sent.text
    task = sent.json()["task"]["id"]
    call = servers.model.call()
    call.say("One ", "two ")
    with servers.second.http.stream("GET", f"{agent}/tasks/{task}:subscribe", headers=who) as other:
        events = data_of(other)
        for event in events:
            if "artifactUpdate" in event:
                break
        cancelled = servers.second.http.post(f"{agent}/tasks/{task}:cancel", headers=who)
        rest = [*events]

    assert call.left.wait(1)
    assert cancelled.status_code == 200, cancelled.text
    assert cancelled.json()["status"]["state"] == "TASK_STATE_CANCELED"
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    found = servers.first.http.get(f"{agent}/tasks/{task}", headers=who).json()
    assert found["status"]["state"] == "TASK_STATE_CANCELED"
    assert found["artifacts"][0]["parts"][0]["text"] == "One two "


def test_a_second_tab_is_told_of_a_turn_of_another_process(servers: Servers) -> None:
    servers.first.http.post("/v1/sessions", json={"id": "tabs"}, headers=WHO)
    with servers.second.http.stream("GET", "/v1/events", params={"session_id": "tabs"}, headers=WHO) as tab:
        events = events_of(tab)
        assert next(events)[1] == "ready"
        with asking(servers.first, "tabs") as own:
            call = servers.model.call()
            call.say("One.")
            started = until(own, "One.")[0][2]
            begun = next(data for _, name, data in events if name == "turn")
            with joining(servers.second, "tabs") as joined:
                assert text_of(until(joined, "One.")) == "One."
            call.end()
            assert [*own][-1][1] == "done"

    assert begun == {"session_id": "tabs", "turn": started["turn"], "trace_id": started["trace_id"]}


def test_what_the_policy_redacts_is_in_no_log_of_a_turn(tmp_path: Path) -> None:
    """The caller of the turn reads it as it is said; a reader elsewhere as it is stored, once it is whole."""
    store = f"sqlite:///{tmp_path / 'shared.db'}"
    with some_servers(2, store, tmp_path, TENUTO_PRIVACY_MESSAGE="redact") as servers:
        with asking(servers.first, "s") as own:
            call = servers.model.call()
            call.say("Write to ", "ann@example", ".com!")
            said = until(own, ".com!")
            with joining(servers.second, "s") as other:
                assert next(other)[1] == "start"
                call.end()
                rest = [*other]
            assert [*own][-1][1] == "done"
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("shared.db*"))

    assert text_of(said) == "Write to ann@example.com!"
    assert text_of(rest) == rest[-1][2]["answer"] == "Write to [REDACTED_EMAIL]!"
    assert b"ann@example" not in stored


def test_a_conversation_goes_round_three_processes(servers: Servers) -> None:
    """Each request is another process's, as behind a round robin."""
    count = [f"{number} " for number in range(40)]
    # With a title, for which the model is not asked then.
    servers.first.http.post("/v1/sessions", json={"id": "round", "title": "Counting"}, headers=WHO)
    for turn in range(1, 4):
        asked, joined, resumed = (servers.processes[(turn + place) % 3] for place in range(3))
        with asking(asked, "round") as own:
            call = servers.model.call()
            call.say(*count[:10])
            seen = until(own, count[9])
            with joining(joined, "round") as other, joining(resumed, "round", **{"Last-Event-ID": seen[5][0]}) as rest:
                until(other, count[0])
                call.say(*count[10:])
                call.end()
                behind, whole = [*rest], [*seen, *own]
        # At the process of the turn before, which still keeps its own: that is not behind this one.
        late = resumed.http.get("/v1/sessions/round/stream", headers={**WHO, "Last-Event-ID": f"{turn}.2"})
        # It came too late for this one, which is said by what the store has.
        stop = joined.http.post("/v1/sessions/round/stop", headers=WHO).json()

        assert [data["text"] for _, name, data in whole if name == "delta"] == count
        assert behind == whole[6:]
        assert late.status_code == 204
        assert stop == {"stopped": False, "outcome": "answered", "reply": None}


def test_a_server_that_is_stopped_tells_those_who_read_its_turns_and_those_of_others(servers: Servers) -> None:
    """A rolling restart; the server is gone afterwards."""
    key = {"Idempotency-Key": "leaves"}
    with asking(servers.third, "here", **key) as here:
        own = servers.model.call()
        own.say("One ")
        until(here, "One ")
        with asking(servers.second, "there") as there:
            other = servers.model.call()
            other.say("Two ")
            until(there, "Two ")
            with joining(servers.second, "here") as here_elsewhere, joining(servers.third, "there") as there_elsewhere:
                until(here_elsewhere, "One ")
                until(there_elsewhere, "Two ")
                assert servers.third.end(signal.SIGTERM) == 0
                ends = [[*stream] for stream in (here, here_elsewhere, there_elsewhere)]
            with joining(servers.second, "there") as again:
                assert text_of(until(again, "Two ")) == "Two "
                other.end()
        with asking(servers.second, "here", **key) as anew:
            retry = servers.model.call()
            retry.say("One two.")
            retry.end()
            assert text_of([*anew]) == "One two."

    assert own.left.is_set()
    assert [(last[1], last[2]["code"]) for (last,) in ends] == [
        ("error", "turn_interrupted"),
        ("error", "turn_interrupted"),
        ("error", "server_stopping"),
    ]
    assert ends[0][0][2]["session_id"] == "here"


def test_the_stream_of_a_killed_process_ends_with_an_error_and_can_be_read_again(servers: Servers) -> None:
    """The process is gone afterwards."""
    key = {"Idempotency-Key": "killed"}
    with asking(servers.first, "killed", **key) as own:
        call = servers.model.call()
        call.say("One ", "two ")
        until(own, "two ")
        with joining(servers.second, "killed") as other:
            until(other, "two ")
            servers.first.end(signal.SIGKILL)
            (end,) = list(other)
    with joining(servers.second, "killed") as again:
        found = list(again)
    with asking(servers.second, "killed", **key) as anew:
        retry = servers.model.call()
        retry.say("One two three.")
        retry.end()
        assert text_of(list(anew)) == "One two three."

    assert (end[1], end[2]["code"]) == ("error", "turn_interrupted")
    assert text_of(found) == "One two "
    assert found[-1][2]["code"] == "turn_interrupted"
    assert log_of(servers.second, "killed") == [("user", "Count", False), ("assistant", "One two three.", False)]
