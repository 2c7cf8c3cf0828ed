"""SIGKILL between two turns, and in the middle of one: the conversation goes on, nothing is lost or said twice."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.journeys.test_http_process import Running, running
from tests.servers.openai_server import stalling, start_model_server

WHO = {"X-Tenant-ID": "acme", "X-User-ID": "ann"}


def say(server: Running, message: str, session: str | None, key: str) -> dict[str, object]:
    body = {"message": message, "assistant": "npc", "persona": "ancestor_yan"}
    answer = server.http.post(
        "/v1/chat", json=body | ({"session_id": session} if session else {}), headers={**WHO, "Idempotency-Key": key}
    )
    assert answer.status_code == 200, answer.text
    told: dict[str, object] = answer.json()
    return told


def test_a_server_killed_between_turns_goes_on_where_it_was(tmp_path: Path) -> None:
    """C10 over three processes, each of them killed."""
    session: str | None = None
    words = {"家训有哪些？": "孝悌为本", "第一条是什么意思？": "孝顺父母", "有没有具体的故事？": "严承孝"}
    for number, (question, expected) in enumerate(words.items()):
        with running(tmp_path / "t.db") as server:
            told = say(server, question, session, f"k{number}")
            again = say(server, question, session, f"k{number}")
            server.end(signal.SIGKILL)
        assert expected in str(told["answer"])
        assert (again["replayed"], again["answer"]) == (True, told["answer"])
        session = str(told["session_id"])
    with running(tmp_path / "t.db") as server:
        log = server.http.get(f"/v1/sessions/{session}/messages", headers=WHO).json()["messages"]
    assert [message["text"] for message in log if message["role"] == "user"] == list(words)


def test_a_server_killed_while_the_model_speaks_keeps_the_words_and_the_retry_answers(tmp_path: Path) -> None:
    """The dead process's lease ends within `busy_wait`; the same key then resumes the turn and stores nothing twice."""
    body = {"message": "Tell me everything", "session_id": "s", "stream": True}
    headers = {**WHO, "Idempotency-Key": "k"}
    settings = {"TENUTO_ON_MISSING": "adopt"}
    with start_model_server() as provider:
        provider.answers(stalling("Half of"))
        model = {"TENUTO_MODEL": "openai:gpt-test", "TENUTO_MODEL_BASE_URL": provider.url, "TENUTO_MODEL_API_KEY": "x"}
        with (
            running(tmp_path / "t.db", **settings, **model) as server,
            server.http.stream("POST", "/v1/chat", json=body, headers=headers) as answer,
        ):
            assert "event: delta" in answer.iter_lines()
            server.process.kill()
    with running(tmp_path / "t.db", **settings) as server:
        told = server.http.post("/v1/chat", json={**body, "stream": False}, headers=headers).json()
        log = server.http.get("/v1/sessions/s/messages", headers=WHO).json()["messages"]

    assert told["offline"]
    assert [message["role"] for message in log] == ["user", "assistant"]
    assert log[0]["text"] == "Tell me everything"
