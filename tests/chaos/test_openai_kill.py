"""SIGKILL of a server between the first event of a response and its end: the user's item stays, the key resumes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.journeys.server_process import ServerProcess, running_server
from tests.servers.openai_server import stalling, start_model_server

WHO = {"X-Tenant-ID": "acme", "X-User-ID": "ann"}


def items(server: ServerProcess, conversation: str) -> list[str]:
    page = server.http.get(f"/v1/conversations/{conversation}/items?order=asc", headers=WHO).json()
    return [part["text"] for item in page["data"] for part in item["content"]]


def first_event(answer: httpx.Response) -> dict[str, str]:
    line = next(line for line in answer.iter_lines() if line.startswith("data: "))
    response: dict[str, str] = json.loads(line.removeprefix("data: "))["response"]
    return response


@pytest.mark.requirement("A1")
def test_a_response_that_was_cut_off_is_told_so_and_resumed_by_its_key(tmp_path: Path) -> None:
    """What was acknowledged is stored, however the process ends."""
    headers = {**WHO, "Idempotency-Key": "k"}
    with start_model_server() as provider:
        provider.answers(stalling("Half of"))
        model = {"TENUTO_MODEL": "openai:gpt-test", "TENUTO_MODEL_BASE_URL": provider.url, "TENUTO_MODEL_API_KEY": "x"}
        with running_server(tmp_path / "t.db", **model) as first:
            made = first.http.post("/v1/conversations", headers=WHO, json={}).json()["id"]
            asked = {"input": "Tell me everything", "conversation": made}
            with first.http.stream("POST", "/v1/responses", json={**asked, "stream": True}, headers=headers) as answer:
                begun = first_event(answer)
                assert begun["status"] == "in_progress"
                first.end(signal.SIGKILL)
    with running_server(tmp_path / "t.db") as second:
        body = second.http.get(f"/v1/responses/{begun['id']}", headers=WHO).json()
        assert (body["status"], body["error"]["code"]) == ("failed", "server_error")
        assert items(second, made) == ["Tell me everything"]
        resumed = second.http.post("/v1/responses", json=asked, headers=headers).json()
        again = second.http.post("/v1/responses", json=asked, headers=headers).json()

        assert resumed["status"] == "completed"
        assert (again["id"], again["output"]) == (resumed["id"], resumed["output"])
        assert len(items(second, made)) == 2
