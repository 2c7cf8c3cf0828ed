"""What is said while captures are slow: all of it is remembered, once, through a kill as well."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.http_service import ANN
from tests.journeys.server_process import WAIT, ServerProcess, running_server
from tests.servers.openai_server import ModelServer, Reply, start_model_server, words

pytestmark = pytest.mark.requirement("D10", "D13", "T15")

STATEMENTS = [f"I keep {number} boats in harbour number {number}." for number in range(1, 31)]


class SlowProvider:
    """Embeds statements and notes them, once `go` is set; the first it answers at once. Questions never wait."""

    def __init__(self, server: ModelServer) -> None:
        self.go = threading.Event()
        self._first = threading.Lock()
        self.address = f"{server.url}/v1"
        server.embeds = self._embed
        server.next_reply = self._answer(server.next_reply)  # type: ignore[method-assign]

    def _wait(self) -> None:
        if not self._first.acquire(blocking=False):
            self.go.wait(WAIT)

    def _embed(self, text: str) -> list[float]:
        if text in STATEMENTS:
            self._wait()
        return [float(text.count(letter)) + 0.1 for letter in "0123456789"]

    def _answer(self, embedding: Any) -> Any:
        def answer(body: dict[str, Any]) -> Reply:
            if "input" in body:
                reply: Reply = embedding(body)
                return reply
            if "notes" not in body["messages"][0]["content"]:
                return words("Boats")
            self._wait()
            messages = body["messages"][-1]["content"].split("Message ")[1:]
            said = [next((one for one in STATEMENTS if one in message), "") for message in messages]
            notes = [[{"kind": "fact", "about": "user", "whose": "I", "quote": one, "lasting": True}] for one in said]
            each = [{"message": number, "notes": one} for number, one in enumerate(notes, start=1)]
            return words(json.dumps({"messages": each}))

        return answer


@pytest.fixture
def provider() -> Iterator[SlowProvider]:
    with start_model_server() as server:
        slow = SlowProvider(server)
        yield slow
        slow.go.set()


def say(server: ServerProcess, statements: list[str], session_id: str = "boats") -> None:
    """A turn for each, in one session; the question behind a statement is not remembered."""
    for text in statements:
        body = {"message": f"{text} What is the weather like?", "session_id": session_id}
        response = server.http.post("/v1/chat", headers=ANN, json=body)
        assert response.status_code == 200, response.text


def remembered(server: ServerProcess) -> list[dict[str, Any]]:
    """What is remembered once nothing is unread any more."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        memories: list[dict[str, Any]] = server.http.get("/v1/memories?limit=100", headers=ANN).json()["memories"]
        jobs = server.http.get("/v1/status").json()["jobs"]
        if jobs["unread"] == jobs["waiting"] == jobs["running"] == 0:
            return memories
        time.sleep(0.05)
    pytest.fail("captures never ended: " + "".join(server.log))


@pytest.mark.parametrize("slow", ["embedder", "model"])
@pytest.mark.parametrize("killed", [None, signal.SIGKILL, signal.SIGTERM])
def test_nothing_said_is_skipped_while_captures_are_slow(
    tmp_path: Path, provider: SlowProvider, slow: str, killed: signal.Signals | None
) -> None:
    chosen = {"embedder": {"TENUTO_EMBEDDER": "openai:served"}, "model": {"TENUTO_SUMMARIZER_MODEL": "openai:served"}}
    environ = {"TENUTO_MODEL": "offline", "TENUTO_ON_MISSING": "adopt", "OPENAI_API_KEY": "k", **chosen[slow]}
    store, half = tmp_path / "chat.db", len(STATEMENTS) // 2
    with running_server(store, **environ, TENUTO_MODEL_BASE_URL=provider.address) as server:
        say(server, STATEMENTS[:half] if killed else STATEMENTS)
        behind = server.http.get("/v1/status").json()["jobs"]
        metrics = server.http.get("/metrics").text
        if killed:
            server.process.send_signal(killed)
        if killed is not signal.SIGKILL:
            provider.go.set()
        if killed:
            server.process.wait(timeout=WAIT)
            provider.go.set()
        found = [] if killed else remembered(server)
    if killed:
        # The first one said nothing in this session, and the user does not come back to the other.
        with running_server(store, **environ, TENUTO_MODEL_BASE_URL=provider.address) as server:
            say(server, STATEMENTS[half:], "harbours")
            found = remembered(server)

    # A model is asked about ten at once.
    assert behind["unread"] >= half - 10
    assert behind["unread_seconds"] > 0
    assert f"tenuto_capture_backlog {float(behind['unread'])}" in metrics
    assert sorted(one["text"] for one in found) == sorted(STATEMENTS)
    assert {one["mentions"] for one in found} == {1}
