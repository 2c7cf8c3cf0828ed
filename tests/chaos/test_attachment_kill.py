"""A server or its store ends between a picture and its answer: no byte is lost, and none is stored twice."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.attachments import PNG, base64, png
from tests.chaos.replaying import SECRET, WHO, until_replayed
from tests.journeys.server_process import ServerProcess, running_server
from tests.servers import start_redis
from tests.servers.openai_server import stalling, start_model_server
from tests.shared_stores import SHARED, SharedStore

pytestmark = pytest.mark.requirement("T7", "C10")


def ask(server: ServerProcess, picture: bytes, key: str) -> dict[str, Any]:
    shown = {"type": "image", "media_type": "image/png", "data": base64(picture)}
    body = {"message": "What is it?", "session_id": "s", "attachments": [shown]}
    answer = server.http.post("/v1/chat", json=body, headers={**WHO, "Idempotency-Key": key})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def stored(server: ServerProcess) -> tuple[list[str], list[tuple[bytes, list[int]]]]:
    """The roles of the messages, and the attachments with the messages that show them."""
    messages = server.http.get("/v1/sessions/s/messages", headers=WHO).json()["messages"]
    listed = server.http.get("/v1/sessions/s/attachments", headers=WHO).json()["attachments"]
    read = [server.http.get(f"/v1/sessions/s/attachments/{one['id']}", headers=WHO).content for one in listed]
    return [message["role"] for message in messages], list(zip(read, [one["seqs"] for one in listed], strict=True))


@pytest.mark.parametrize("shared", SHARED, ids=lambda shared: shared.name)
def test_a_server_that_is_killed_before_its_answer_has_stored_the_picture(
    shared: SharedStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = ("--store", shared.url(request.getfixturevalue, tmp_path))
    settings = {"TENUTO_ON_MISSING": "adopt", "TENUTO_JWT_SECRET": SECRET}
    shown = {"type": "image", "media_type": "image/png", "data": base64(PNG)}
    body = {"message": "What is it?", "session_id": "s", "attachments": [shown], "stream": True}
    with start_model_server() as provider:
        provider.answers(stalling("Half of"))
        model = {"TENUTO_MODEL": "openai:gpt-test", "TENUTO_MODEL_BASE_URL": provider.url, "TENUTO_MODEL_API_KEY": "x"}
        with (
            running_server(tmp_path / "a", *store, **settings, **model) as first,
            first.http.stream("POST", "/v1/chat", json=body, headers={**WHO, "Idempotency-Key": "k"}) as streamed,
        ):
            assert "event: delta" in streamed.iter_lines()
            first.end(signal.SIGKILL)
    with running_server(tmp_path / "b", *store, **settings) as second:
        before = stored(second)
        told = ask(second, PNG, "k")
        after = stored(second)

    assert before == (["user"], [(PNG, [1])])
    assert told["degraded"] == ["attachment"], "the model of the second server takes none, and says so"
    assert after == (["user", "assistant"], [(PNG, [1])])


def test_a_picture_that_came_in_an_outage_is_stored_once_the_store_is_back(tmp_path: Path) -> None:
    """After the server that took it was killed as well."""
    journal = str(tmp_path / "journal")
    settings = {
        "TENUTO_ON_MISSING": "adopt",
        "TENUTO_JOURNAL": journal,
        "TENUTO_BREAKER_RESET": "1s",
        "TENUTO_JWT_SECRET": SECRET,
        "TENUTO_METRICS_TOKEN": SECRET,
    }
    with start_redis(fsync="always") as store:
        options = ("--store", store.url)
        with running_server(tmp_path, *options, **settings) as first:
            ask(first, PNG, "k1")
            until_replayed(first)
            store.kill()
            away = [ask(first, picture, key) for picture, key in ((PNG, "k2"), (png(1), "k3"))]
            assert first.end(signal.SIGKILL) == -signal.SIGKILL
        store.start()
        with running_server(tmp_path, *options, **settings) as second:
            until_replayed(second)
            again = ask(second, png(1), "k3")
            roles, attachments = stored(second)

    assert all("journal" in told["degraded"] for told in away)
    assert again["replayed"]
    assert roles == ["user", "assistant"] * 3
    assert attachments == [(PNG, [1, 3]), (png(1), [5])]
