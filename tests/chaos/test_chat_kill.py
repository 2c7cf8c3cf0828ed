"""A server ends between two turns, or in the middle of one: the conversation goes on, nothing is lost or said twice."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journeys.server_process import ServerProcess, running_server
from tests.servers.openai_server import stalling, start_model_server
from tests.shared_stores import SHARED, SharedStore
from tests.timeouts import LONG

WHO = {"X-Tenant-ID": "acme", "X-User-ID": "ann"}


def say(server: ServerProcess, message: str, session: str | None, key: str) -> dict[str, object]:
    body = {"message": message, "assistant": "npc", "persona": "ancestor_yan"}
    answer = server.http.post(
        "/v1/chat", json=body | ({"session_id": session} if session else {}), headers={**WHO, "Idempotency-Key": key}
    )
    assert answer.status_code == 200, answer.text
    told: dict[str, object] = answer.json()
    return told


@pytest.mark.requirement("C10")
def test_a_server_killed_between_turns_goes_on_where_it_was(tmp_path: Path) -> None:
    """Over three processes, each of them killed."""
    session: str | None = None
    words = {"家训有哪些？": "孝悌为本", "第一条是什么意思？": "孝顺父母", "有没有具体的故事？": "严承孝"}
    for number, (question, expected) in enumerate(words.items()):
        with running_server(tmp_path / "t.db") as server:
            told = say(server, question, session, f"k{number}")
            again = say(server, question, session, f"k{number}")
            server.end(signal.SIGKILL)
        assert expected in str(told["answer"])
        assert (again["replayed"], again["answer"]) == (True, told["answer"])
        session = str(told["session_id"])
    with running_server(tmp_path / "t.db") as server:
        log = server.http.get(f"/v1/sessions/{session}/messages", headers=WHO).json()["messages"]
    assert [message["text"] for message in log if message["role"] == "user"] == list(words)


def ask_until_store_answers(server: ServerProcess, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    """The first answer that is not of an outage: on a busy machine a store may answer too late for a request."""
    ends = time.monotonic() + LONG
    while True:
        answer: httpx.Response = server.http.post("/v1/chat", json=body, headers=headers)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > ends:
            return answer
        time.sleep(0.5)


@pytest.mark.parametrize("shared", SHARED, ids=lambda shared: shared.name)
def test_a_session_is_free_at_once_when_the_server_that_holds_it_is_killed(
    shared: SharedStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A frozen holder keeps its lease; a killed one does not, and the same key resumes its turn, nothing said twice."""
    store = ("--store", shared.url(request.getfixturevalue, tmp_path))
    settings = {"TENUTO_ON_MISSING": "adopt", "TENUTO_BUSY_WAIT": "0s"}
    body, headers = {"message": "Tell me everything", "session_id": "s"}, {**WHO, "Idempotency-Key": "k"}
    with start_model_server() as provider:
        provider.answers(stalling("Half of"))
        model = {"TENUTO_MODEL": "openai:gpt-test", "TENUTO_MODEL_BASE_URL": provider.url, "TENUTO_MODEL_API_KEY": "x"}
        with (
            running_server(tmp_path / "a", *store, TENUTO_JOURNAL=str(tmp_path / "ja"), **settings, **model) as first,
            running_server(tmp_path / "b", *store, TENUTO_JOURNAL=str(tmp_path / "jb"), **settings) as second,
            first.http.stream("POST", "/v1/chat", json={**body, "stream": True}, headers=headers) as streamed,
        ):
            assert "event: delta" in streamed.iter_lines()
            first.process.send_signal(signal.SIGSTOP)
            frozen = ask_until_store_answers(second, body, headers)
            first.end(signal.SIGKILL)
            told = ask_until_store_answers(second, body, headers)
            log = second.http.get("/v1/sessions/s/messages", headers=WHO).json()["messages"]

    assert (frozen.status_code, frozen.json()["code"]) == (409, "session_busy")
    assert told.status_code == 200, told.text
    assert told.json()["offline"]
    assert [(message["role"], message["text"]) for message in log][:1] == [("user", "Tell me everything")]
    assert [message["role"] for message in log] == ["user", "assistant"]


def test_a_page_whose_server_ends_in_mid_answer_is_answered_by_the_next(tmp_path: Path) -> None:
    """Its turn has no reader any more, and the model never ends: a server that is told to stop gives it up in time."""
    said = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "My cat is called Tom."}]}
    body = {"id": "c", "messages": [said]}
    with start_model_server() as provider:
        provider.answers(stalling("Half of"))
        model = {"TENUTO_MODEL": "openai:gpt-test", "TENUTO_MODEL_BASE_URL": provider.url, "TENUTO_MODEL_API_KEY": "x"}
        with running_server(tmp_path / "t.db", **model) as first:
            with first.http.stream("POST", "/v1/ai-sdk/chat", json=body, headers=WHO) as streamed:
                assert any("text-delta" in line for line in streamed.iter_lines())
            ended = first.end(signal.SIGTERM)
    with running_server(tmp_path / "t.db") as second:
        again = second.http.post("/v1/ai-sdk/chat", json=body, headers=WHO)
        log = second.http.get("/v1/sessions/c/messages", headers=WHO).json()["messages"]

    assert ended == 0
    assert again.text.endswith("data: [DONE]\n\n")
    assert [(message["role"], message["id"] == "u1") for message in log] == [("user", True), ("assistant", False)]
