"""Turns that run in one server process and are followed, stopped and repeated at another one of the same store."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journeys.server_process import ServerProcess, running_server
from tests.servers.told_model import ToldModel, start_told_model

WHO = {"X-Tenant-ID": "acme", "X-User-ID": "ann"}
# How long a server that is stopped gives its answers.
SHORT = {"TENUTO_SHUTDOWN_TIMEOUT": "2s"}
STORES = ("sqlite", "valkey", "redis_cluster", "postgres")
Event = tuple[str, str, dict[str, Any]]


@dataclass
class Pair:
    """Two servers on one store, with one model."""

    first: ServerProcess
    second: ServerProcess
    model: ToldModel


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


@contextmanager
def some_servers(
    names: tuple[str, ...], url: str, folder: Path, **settings: str
) -> Iterator[tuple[list[ServerProcess], ToldModel]]:
    """Servers on this store, each with a journal of its own, and their model."""
    with ExitStack() as stack:
        model = stack.enter_context(start_told_model())
        asks = {
            "TENUTO_MODEL": "openai:told",
            "TENUTO_MODEL_BASE_URL": model.url,
            "TENUTO_MODEL_API_KEY": "x",
            # Each call of the model is that of a turn: none is for a title or for what to remember.
            "TENUTO_SUMMARIZER_MODEL": "offline",
            "TENUTO_ON_MISSING": "adopt",
            **settings,
        }
        servers = [
            stack.enter_context(
                running_server(folder / "unused", "--store", url, TENUTO_JOURNAL=str(folder / name), **asks)
            )
            for name in names
        ]
        yield servers, model


@contextmanager
def two_servers(url: str, folder: Path, **settings: str) -> Iterator[Pair]:
    """Two of them."""
    with some_servers(("ja", "jb"), url, folder, **settings) as ((first, second), model):
        yield Pair(first, second, model)


@pytest.fixture(scope="module", params=STORES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with _store(request.param, request, folder) as url, two_servers(url, folder) as pair:
        yield pair


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


def test_a_turn_is_joined_at_another_process(pair: Pair) -> None:
    with asking(pair.first, "join") as own:
        call = pair.model.call()
        call.say("One ", "two ")
        seen = until(own, "two ")
        last_seen = {"Last-Event-ID": seen[-2][0]}
        with joining(pair.second, "join") as other, joining(pair.second, "join", **last_seen) as rest:
            joined = until(other, "two ")
            call.say("three.")
            call.end()
            whole, joined, behind = [*seen, *own], [*joined, *other], list(rest)

    assert text_of(joined) == "One two three."
    assert joined == whole
    assert behind == whole[len(seen) - 1 :]
    after = pair.second.http.get("/v1/sessions/join/stream", headers=WHO)
    assert after.status_code == 204


def test_a_turn_is_stopped_at_another_process(pair: Pair) -> None:
    with asking(pair.first, "stop") as own:
        call = pair.model.call()
        call.say("One ", "two ")
        until(own, "two ")
        stopped = pair.second.http.post("/v1/sessions/stop/stop", headers=WHO).json()
        rest = list(own)

    assert call.left.wait(1)
    assert (stopped["stopped"], stopped["reply"]["answer"]) == (True, "One two ")
    assert rest[-1][1:] == ("done", rest[-1][2])
    assert rest[-1][2]["stopped"]
    assert log_of(pair.second, "stop") == [("user", "Count", False), ("assistant", "One two ", True)]


def test_a_retry_at_another_process_gets_the_answer_of_the_running_turn(pair: Pair) -> None:
    key = {"Idempotency-Key": "same"}
    with asking(pair.first, "retry", **key) as own:
        call = pair.model.call()
        call.say("One ")
        until(own, "One ")
        with asking(pair.second, "retry", **key) as again:
            repeated = until(again, "One ")
            call.say("two.")
            call.end()
            repeated += again
        told = list(own)

    assert text_of(repeated) == "One two."
    assert repeated[-1] == told[-1]
    assert log_of(pair.second, "retry") == [("user", "Count", False), ("assistant", "One two.", False)]
    assert pair.model.asked.empty()


def test_nobody_else_joins_or_stops_a_turn(pair: Pair) -> None:
    others = [{"X-Tenant-ID": "acme", "X-User-ID": "bob"}, {"X-Tenant-ID": "other", "X-User-ID": "ann"}]
    with asking(pair.first, "mine") as own:
        call = pair.model.call()
        call.say("One.")
        until(own, "One.")
        joins = [pair.second.http.get("/v1/sessions/mine/stream", headers=who).status_code for who in others]
        stops = [pair.second.http.post("/v1/sessions/mine/stop", headers=who).status_code for who in others]
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


def test_a_page_of_the_ai_sdk_resumes_and_stops_at_another_process(pair: Pair) -> None:
    said = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Count"}]}
    body = {"id": "page", "messages": [said]}
    with pair.first.http.stream("POST", "/v1/ai-sdk/chat", json=body, headers=WHO) as own:
        call = pair.model.call()
        call.say("One ", "two ")
        heard(chunks := data_of(own), "two ")
        with pair.second.http.stream("GET", "/v1/ai-sdk/chat/page/stream", headers=WHO) as other:
            resumed = heard(stream := data_of(other), "two ")
            stopped = pair.second.http.post("/v1/ai-sdk/chat/page/stop", headers=WHO).json()
            ends = [[*stream][-1]["type"], [*chunks][-1]["type"]]

    assert resumed == "One two "
    assert (stopped["stopped"], stopped["reply"]["answer"]) == (True, "One two ")
    assert ends == ["finish", "finish"]
    assert call.left.wait(1)


def test_a_thread_of_ag_ui_is_shown_at_another_process_with_its_run(pair: Pair) -> None:
    asked = {"threadId": "thread", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
    words = [{"id": "m1", "role": "user", "content": "Count"}]
    body = {**asked, "runId": "r1", "messages": words}
    with pair.first.http.stream("POST", "/v1/ag-ui/general", json=body, headers=WHO) as own:
        call = pair.model.call()
        call.say("One ")
        heard(events := data_of(own), "One ")
        shown = {**asked, "runId": "r2", "messages": []}
        with (
            pair.second.http.stream("POST", "/v1/ag-ui/general", json=shown, headers=WHO) as other,
            pair.second.http.stream("POST", "/v1/ag-ui/general", json=body, headers=WHO) as repeated,
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
    assert log_of(pair.first, "thread") == [("user", "Count", False), ("assistant", "One two.", False)]


def test_a_response_is_streamed_and_cancelled_at_another_process(pair: Pair) -> None:
    body = {"model": "general", "input": "Count", "background": True}
    made = pair.first.http.post("/v1/responses", json=body, headers=WHO).json()
    call = pair.model.call()
    call.say("One ", "two ")
    path = f"/v1/responses/{made['id']}"
    with pair.second.http.stream("GET", path, params={"stream": "true"}, headers=WHO) as other:
        said = heard(stream := data_of(other), "two ")
        waiting = pair.second.http.get(path, headers=WHO).json()
        cancelled = pair.second.http.post(f"{path}/cancel", headers=WHO).json()
        last = [*stream][-1]

    assert call.left.wait(1)
    assert said == "One two "
    assert (waiting["status"], cancelled["status"]) == ("in_progress", "cancelled")
    assert cancelled["output"][0]["content"][0]["text"] == "One two "
    assert last["response"]["status"] == "cancelled"
    assert pair.first.http.get(path, headers=WHO).json() == pair.second.http.get(path, headers=WHO).json()


def test_a_task_of_a2a_is_followed_and_cancelled_at_another_process(pair: Pair) -> None:
    words = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Count"}]}
    body = {"message": words, "configuration": {"returnImmediately": True}}
    agent, who = "/a2a/general", {**WHO, "A2A-Version": "1.0"}
    sent = pair.first.http.post(f"{agent}/message:send", json=body, headers=who)
    assert sent.status_code == 200, sent.text
    task = sent.json()["task"]["id"]
    call = pair.model.call()
    call.say("One ", "two ")
    with pair.second.http.stream("GET", f"{agent}/tasks/{task}:subscribe", headers=who) as other:
        events = data_of(other)
        for event in events:
            if "artifactUpdate" in event:
                break
        cancelled = pair.second.http.post(f"{agent}/tasks/{task}:cancel", headers=who)
        rest = [*events]

    assert call.left.wait(1)
    assert cancelled.status_code == 200, cancelled.text
    assert cancelled.json()["status"]["state"] == "TASK_STATE_CANCELED"
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    found = pair.first.http.get(f"{agent}/tasks/{task}", headers=who).json()
    assert found["status"]["state"] == "TASK_STATE_CANCELED"
    assert found["artifacts"][0]["parts"][0]["text"] == "One two "


def test_a_second_tab_is_told_of_a_turn_of_another_process(pair: Pair) -> None:
    pair.first.http.post("/v1/sessions", json={"id": "tabs"}, headers=WHO)
    with pair.second.http.stream("GET", "/v1/events", params={"session_id": "tabs"}, headers=WHO) as tab:
        events = events_of(tab)
        assert next(events)[1] == "ready"
        with asking(pair.first, "tabs") as own:
            call = pair.model.call()
            call.say("One.")
            started = until(own, "One.")[0][2]
            begun = next(data for _, name, data in events if name == "turn")
            with joining(pair.second, "tabs") as joined:
                assert text_of(until(joined, "One.")) == "One."
            call.end()
            assert [*own][-1][1] == "done"

    assert begun == {"session_id": "tabs", "turn": started["turn"], "trace_id": started["trace_id"]}


@pytest.mark.parametrize("store", STORES)
def test_the_stream_of_a_killed_process_ends_with_an_error_and_can_be_read_again(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    key = {"Idempotency-Key": "k"}
    with _store(store, request, tmp_path) as url, two_servers(url, tmp_path) as pair:
        with asking(pair.first, "s", **key) as own:
            call = pair.model.call()
            call.say("One ", "two ")
            until(own, "two ")
            with joining(pair.second, "s") as other:
                until(other, "two ")
                pair.first.end(signal.SIGKILL)
                (end,) = list(other)
        with joining(pair.second, "s") as again:
            found = list(again)
        with asking(pair.second, "s", **key) as anew:
            retry = pair.model.call()
            retry.say("One two three.")
            retry.end()
            assert text_of(list(anew)) == "One two three."
        log = log_of(pair.second, "s")

    assert (end[1], end[2]["code"]) == ("error", "turn_interrupted")
    assert text_of(found) == "One two "
    assert found[-1][2]["code"] == "turn_interrupted"
    assert log == [("user", "Count", False), ("assistant", "One two three.", False)]


def test_what_the_policy_redacts_is_in_no_log_of_a_turn(tmp_path: Path) -> None:
    """The caller of the turn reads it as it is said; a reader elsewhere as it is stored, once it is whole."""
    store = tmp_path / "shared.db"
    with two_servers(f"sqlite:///{store}", tmp_path, TENUTO_PRIVACY_MESSAGE="redact") as pair:
        with asking(pair.first, "s") as own:
            call = pair.model.call()
            call.say("Write to ", "ann@example", ".com!")
            said = until(own, ".com!")
            with joining(pair.second, "s") as other:
                assert next(other)[1] == "start"
                call.end()
                rest = [*other]
            assert [*own][-1][1] == "done"
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("shared.db*"))

    assert text_of(said) == "Write to ann@example.com!"
    assert text_of(rest) == rest[-1][2]["answer"] == "Write to [REDACTED_EMAIL]!"
    assert b"ann@example" not in stored


def test_a_server_that_is_stopped_tells_those_who_read_its_turns_and_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, key = f"sqlite:///{tmp_path / 'shared.db'}", {"Idempotency-Key": "k"}
    with two_servers(url, tmp_path, **SHORT) as pair, asking(pair.first, "here", **key) as here:
        own = pair.model.call()
        own.say("One ")
        until(here, "One ")
        with asking(pair.second, "there") as there:
            other = pair.model.call()
            other.say("Two ")
            until(there, "Two ")
            with joining(pair.second, "here") as here_elsewhere, joining(pair.first, "there") as there_elsewhere:
                until(here_elsewhere, "One ")
                until(there_elsewhere, "Two ")
                assert pair.first.end(signal.SIGTERM) == 0
                ends = [[*stream] for stream in (here, here_elsewhere, there_elsewhere)]
            with joining(pair.second, "there") as again:
                assert text_of(until(again, "Two ")) == "Two "
                other.end()
        with asking(pair.second, "here", **key) as anew:
            retry = pair.model.call()
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


def test_a_conversation_goes_round_three_processes(tmp_path: Path) -> None:
    """Each request is another process's, as behind a round robin."""
    url, count = f"sqlite:///{tmp_path / 'shared.db'}", [f"{number} " for number in range(40)]
    with some_servers(("ja", "jb", "jc"), url, tmp_path) as (servers, model):
        # With a title, for which the model is not asked then.
        servers[0].http.post("/v1/sessions", json={"id": "round", "title": "Counting"}, headers=WHO)
        for turn in range(1, 4):
            asked, joined, resumed = (servers[(turn + place) % 3] for place in range(3))
            with asking(asked, "round") as own:
                call = model.call()
                call.say(*count[:10])
                seen = until(own, count[9])
                with (
                    joining(joined, "round") as other,
                    joining(resumed, "round", **{"Last-Event-ID": seen[5][0]}) as rest,
                ):
                    until(other, count[0])
                    call.say(*count[10:])
                    call.end()
                    behind, whole = [*rest], [*seen, *own]
            # At the process of the turn before, which still keeps its own: that is not behind this one.
            late = resumed.http.get("/v1/sessions/round/stream", headers={**WHO, "Last-Event-ID": f"{turn}.2"})

            assert [data["text"] for _, name, data in whole if name == "delta"] == count
            assert behind == whole[6:]
            assert late.status_code == 204
