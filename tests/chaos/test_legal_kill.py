"""A server killed in the middle of a legal turn: its task goes on at the step where it stopped."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

pytest.importorskip("dbos")

from tests.journeys.server_process import ServerProcess, running_server
from tests.servers.process import wait_until
from tests.timeouts import LONG

pytestmark = pytest.mark.requirement("E1", "E14", "E17", "T16")


WHO = {"X-Tenant-ID": "acme", "X-User-ID": "ann", "Idempotency-Key": "k"}
BODY = {"message": "My wages are late", "assistant": "legal", "session_id": "s"}
# An expert that stands still when it is called for the first time.
EXPERT = """
import asyncio
from pathlib import Path
import tenuto

CALLS = Path({calls!r})

@tenuto.agent("labour-law-expert")
async def advise(ctx: tenuto.AgentContext) -> dict:
    with CALLS.open("a") as calls:
        calls.write(ctx.step_key + "\\n")
    if CALLS.read_text().count(ctx.step_key) == 1:
        await asyncio.sleep(600)
    return {{"text": "Ask in writing.", "sources": ["LAB-11"]}}
"""


def say(server: ServerProcess) -> httpx.Response:
    return server.http.post("/v1/chat", json=BODY, headers=WHO)


def test_a_turn_survives_the_server_that_is_killed_while_it_answers(tmp_path: Path) -> None:
    calls, folder = tmp_path / "calls", tmp_path / "agents"
    folder.mkdir()
    (folder / "expert.py").write_text(EXPERT.format(calls=str(calls)))
    with ThreadPoolExecutor(1) as beside, running_server(tmp_path / "t.db", TENUTO_AGENTS=str(folder)) as first:
        asking = beside.submit(say, first)
        wait_until(lambda: calls.exists() and bool(calls.read_text()), "the expert was not called")
        first.end(signal.SIGKILL)
        assert isinstance(asking.exception(timeout=LONG), httpx.HTTPError)
    with running_server(tmp_path / "t.db", TENUTO_AGENTS=str(folder)) as second:
        answer, again = say(second), say(second)
        tasks = second.http.get("/v1/tasks", params={"session_id": "s"}, headers=WHO).json()["tasks"]

    assert answer.status_code == 200, answer.text
    assert answer.json()["answer"].startswith("Ask in writing.")
    assert (again.json()["replayed"], again.json()["answer"]) == (True, answer.json()["answer"])
    assert [task["id"] for task in tasks] == [answer.json()["data"]["task_id"]]
    assert len(calls.read_text().split()) == 2
