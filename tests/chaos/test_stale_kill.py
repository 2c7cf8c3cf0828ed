"""A server is killed while it captures what became stale, or answers: it is captured once, and stays cleared."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import tenuto
from tests.clock import FakeClock
from tests.journeys.http_service import ANN
from tests.journeys.server_process import WAIT, ServerProcess, running_server
from tests.samples import ANN as ANN_SCOPE
from tests.servers.openai_server import Reply, start_model_server, words

pytestmark = pytest.mark.requirement("D10", "D11", "D13", "T15")

ROOFER = "The roofer comes on 3 March at nine."
SETTINGS = {"TENUTO_EMBEDDER": "none", "TENUTO_ON_MISSING": "adopt", "TENUTO_STALE_AFTER": "48h"}


async def talk_of_last_week(store: Path) -> None:
    clock = FakeClock(datetime.now(UTC) - timedelta(days=7))
    async with tenuto.open(f"sqlite:///{store}", clock=clock, embedder="none", on_missing="adopt") as app:
        await app.ask(ANN_SCOPE, "The roof of the barn leaks.", session_id="s")
        await app.ask(ANN_SCOPE, ROOFER, session_id="s")
        await app.upkeep.drain()


def say(server: ServerProcess, text: str, session: str) -> str:
    response = server.http.post("/v1/chat", headers=ANN, json={"message": text, "session_id": session})
    assert response.status_code == 200, response.text
    answer: str = response.json()["answer"]
    return answer


def episodes(server: ServerProcess) -> list[dict[str, Any]]:
    """The episodes, once there are any: a job of a turn or the first sweep of the process captures them."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        listed: list[dict[str, Any]] = server.http.get("/v1/memories", headers=ANN).json()["memories"]
        if found := [one for one in listed if one["kind"] == "episode"]:
            return found
        time.sleep(0.05)
    pytest.fail("nothing was captured: " + "".join(server.log))


@pytest.mark.parametrize("role", ["MODEL", "SUMMARIZER_MODEL"])
async def test_what_a_killed_server_found_stale_is_captured_once_by_the_next(tmp_path: Path, role: str) -> None:
    """It dies in the middle of the answer, or of a slow summary."""
    store = tmp_path / "chat.db"
    await talk_of_last_week(store)
    asked, go = threading.Event(), threading.Event()
    with start_model_server() as provider:

        def answer(body: dict[str, Any]) -> Reply:
            if role == "MODEL" or "summarise" in body["messages"][0]["content"]:
                asked.set()
                go.wait(WAIT)
            return words("Fine.")

        provider.next_reply = answer  # type: ignore[method-assign]
        model = {"TENUTO_MODEL_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "k"}
        model |= {"TENUTO_MODEL": "offline", f"TENUTO_{role}": "openai:served"}
        with running_server(store, **SETTINGS, **model) as server:
            body = {"message": "Good morning to you", "session_id": "s"}
            begun = threading.Thread(target=_send, args=(server, body))
            begun.start()
            assert asked.wait(WAIT), "".join(server.log)
            server.end(signal.SIGKILL)
            go.set()
            begun.join()
    with running_server(store, **SETTINGS, TENUTO_MODEL="offline") as server:
        cleared = say(server, "When does the roofer come?", "s")
        say(server, "Good morning to you", "another")
        found = episodes(server)

    assert "3 March" not in cleared
    assert [(one["session_id"], one["mentions"], ROOFER in one["text"]) for one in found] == [("s", 1, True)]


def _send(server: ServerProcess, body: dict[str, Any]) -> None:
    """Its answer may never come."""
    with suppress(httpx.TransportError):
        server.http.post("/v1/chat", headers=ANN, json=body)
