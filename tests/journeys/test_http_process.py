"""The server as its users run it: a process of its own, on a real port, stopped, killed and started again."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import httpx
import pytest

import tenuto
from tenuto.access import ApiKeys
from tenuto.ports import utc_now
from tests.built_package import build_package
from tests.journeys.http_service import ANN, at, bearer, code, says
from tests.journeys.server_process import WAIT, ServerProcess, _start, running_server
from tests.journeys.terminal import own_settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for the tests that only talk to it, each about sessions of its own."""
    with running_server(tmp_path_factory.mktemp("shared") / "sessions.db") as server:
        yield server


@pytest.mark.requirement("A1")
def test_a_conversation_survives_a_restart_and_a_kill(tmp_path: Path) -> None:
    """Acknowledged is stored, however the process ends."""
    store = tmp_path / "sessions.db"
    with running_server(store) as first:
        body = first.http.post("/v1/sessions", headers=ANN, json={"title": "Lisbon"}).json()
        first.http.post(at(body["id"], "messages"), headers=ANN, json=says("before the stop"))
        assert first.end(signal.SIGTERM) == 0

    with running_server(store) as second:
        second.http.post(at(body["id"], "messages"), headers=ANN, json=says("before the kill"))
        second.end(signal.SIGKILL)

    with running_server(store) as third:
        head = third.http.get(at(body["id"]), headers=ANN).json()
        page = third.http.get(at(body["id"], "messages"), headers=ANN).json()

    assert head["title"] == "Lisbon"
    assert [message["text"] for message in page["messages"]] == ["before the stop", "before the kill"]


def test_the_built_package_serves_the_console(tmp_path: Path) -> None:
    """From a wheel, and not from this tree: what `pip install` and `uvx` run."""
    environ = own_settings(PYTHONPATH=str(build_package(tmp_path)))
    command = [sys.executable, "-m", "tenuto", "serve", "--port", "0"]

    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            with ServerProcess(process).http as http:
                page = http.get("/").text
                found = {name: http.get(f"/{name}").status_code for name in re.findall(r'"(console/[^"]+)"', page)}
        finally:
            process.kill()

    assert {name.rpartition(".")[2]: status for name, status in found.items()} == {"svg": 200, "css": 200, "js": 200}


def test_a_server_with_a_key_starts_where_others_reach_it(tmp_path: Path) -> None:
    store = tmp_path / "sessions.db"

    async def made() -> str:
        async with tenuto.open(f"sqlite:///{store}") as app:
            return (await ApiKeys(store=app.store.state, clock=utc_now).create(tenant="acme"))[1]

    secret = asyncio.run(made())
    with running_server(store, "--host", "0.0.0.0") as outside:
        port = outside.http.base_url.port
        opened = httpx.get(
            f"http://127.0.0.1:{port}/v1/sessions", headers={**bearer(secret), "Host": "chat.example"}, timeout=WAIT
        )
        assert opened.status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}/v1/sessions", timeout=WAIT).status_code == 401


def test_a_taken_port_is_told_in_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = _start(tmp_path / "sessions.db", "--port", str(taken.getsockname()[1]))
        _, said = process.communicate(timeout=WAIT)

    assert process.returncode != 0
    assert "cannot listen on 127.0.0.1" in " ".join(said.split())
    assert "Traceback" not in said


def test_workers_on_a_store_in_memory_are_refused_in_a_sentence(tmp_path: Path) -> None:
    process = _start(tmp_path / "unused.db", "--store", "memory://", "--workers", "2")
    _, said = process.communicate(timeout=WAIT)

    assert process.returncode == 1
    assert "workers: a store in memory belongs to one process" in " ".join(said.split())


def test_settings_that_do_not_start_end_all_workers(tmp_path: Path) -> None:
    """The first one says why, once."""
    process = _start(tmp_path / "state.db", "--workers", "3", TENUTO_ASSISTANT="nobody")
    _, said = process.communicate(timeout=WAIT)

    assert process.returncode == 1
    assert said.count("nobody") >= 1
    assert "is started again" not in said


def test_ten_megabytes_are_refused_and_the_server_lives(server: ServerProcess) -> None:
    server.http.post("/v1/sessions", headers=ANN, json={"id": "s"})

    huge = server.http.post(at("s", "messages"), headers=ANN, json=says("x" * 10_000_000))
    large = server.http.post(at("s", "messages"), headers=ANN, json=says("x" * 2_000_000))
    streamed = server.http.post(at("s", "messages"), headers=ANN, content=(b" " * 65_536 for _ in range(600)))
    fine = server.http.post(at("s", "messages"), headers=ANN, json=says("x" * 1_000_000))

    assert {code(answer) for answer in (huge, large, streamed)} == {(413, "too_large")}
    assert fine.status_code == 201
    assert server.http.get(at("s"), headers=ANN).json()["message_count"] == 1


def test_a_body_above_the_limit_is_told_so_where_the_connection_ends_with_the_answer(server: ServerProcess) -> None:
    """urllib asks for that, and sends everything before it looks for an answer."""
    for wrong in ("/v1/chat", "/nowhere"):
        address = str(server.http.base_url.join(wrong))
        huge = Request(address, data=b" " * 34_000_000, headers={"Content-Type": "application/json"})

        with pytest.raises(HTTPError) as excinfo:
            urlopen(huge, timeout=WAIT)

        assert excinfo.value.code == (413 if wrong == "/v1/chat" else 404)
        excinfo.value.close()


@pytest.mark.requirement("T18")
def test_odd_ids_and_paths_arrive_as_they_were_sent(server: ServerProcess) -> None:
    """Through a real parser: an encoded slash is part of the id."""
    for odd in ("a/messages", "../../x", "%2F", "😀 ?#", "..", "x" * 10_000):
        server.http.post("/v1/sessions", headers=ANN, json={"id": odd})
        assert server.http.get(at(odd), headers=ANN).json()["id"] == odd
        assert server.http.post(at(odd, "messages"), headers=ANN, json=says("hi")).status_code == 201


@pytest.mark.requirement("T3")
def test_many_turns_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    """Through the door: eight clients take turns on one session, each turn finished before the next begins."""
    with running_server(tmp_path / "sessions.db", TENUTO_BUSY_WAIT="60s") as server:
        server.http.post("/v1/sessions", headers=ANN, json={"id": "s"})

        def talk(client: int) -> None:
            for number in range(5):
                words = {"message": says(f"{client}.{number}")}
                turn = server.http.post(at("s", "turns"), headers=ANN, json=words).json()
                reply = {"message": says(f"re {client}.{number}", "assistant"), "usage": {"tokens": 1}}
                response = server.http.post(f"/v1/turns/{turn['turn_id']}/finish", headers=ANN, json=reply)
                assert response.status_code == 200, response.text

        with ThreadPoolExecutor(8) as clients:
            list(clients.map(talk, range(8)))

        page = server.http.get(at("s", "messages") + "?limit=1000", headers=ANN).json()["messages"]
        head = server.http.get(at("s"), headers=ANN).json()
        asked = [message["text"] for message in page if message["role"] == "user"]
        assert sorted(asked) == sorted(f"{client}.{number}" for client in range(8) for number in range(5))
        assert [f"re {text}" for text in asked] == [m["text"] for m in page if m["role"] == "assistant"]
        assert (head["tokens"], head["message_count"]) == (40, 80)


def test_a_request_under_way_is_answered_before_the_end(tmp_path: Path) -> None:
    with running_server(tmp_path / "sessions.db", TENUTO_BUSY_WAIT="2s") as server:
        turn = server.http.post("/v1/turns", headers=ANN, json={"message": says("first")}).json()
        waiting = server.http.build_request(
            "POST", at(turn["session"]["id"], "turns"), headers=ANN, json={"message": says("second")}
        )

        with socket.create_connection((waiting.url.host, waiting.url.port or 80), timeout=WAIT) as second:
            second.sendall(_on_the_wire(waiting))
            # Answered in order of arrival: when these are, the second turn waits for the first one's lease.
            for _ in range(3):
                server.http.get("/healthz")
            server.process.send_signal(signal.SIGTERM)
            answer = b"".join(iter(lambda: second.recv(65_536), b""))

        assert answer.startswith(b"HTTP/1.1 409 ")
        assert b'"code":"session_busy"' in answer
        assert server.process.wait(timeout=WAIT) == 0


def test_a_stream_without_an_end_does_not_delay_the_servers(tmp_path: Path) -> None:
    """Its client goes on where it was, at the next server. A terminal that is closed stops it as well."""
    closed = signal.SIGTERM if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else signal.SIGHUP
    with running_server(tmp_path / "sessions.db") as server:
        task = server.http.post("/v1/tasks", headers=ANN, json={"type": "review"}).headers["location"]

        with server.http.stream("GET", f"{task}/events", headers=ANN) as events:
            lines = events.iter_lines()  # Held: when it is collected, the connection is closed.
            first = [next(lines), next(lines)]
            assert server.end(closed) == 0

    assert first[1] == "event: task.opened"
    assert not [line for line in server.log if "level=error" in line]
    with running_server(tmp_path / "sessions.db") as server:
        server.http.patch(task, headers=ANN, json={"status": "failed"})
        last = {**ANN, "Last-Event-ID": first[0].removeprefix("id: ")}
        rest = server.http.get(f"{task}/events", headers=last)

    assert re.findall("event: (.+)", rest.text) == ["task.finished"]


def _on_the_wire(request: httpx.Request) -> bytes:
    lines = [f"POST {request.url.raw_path.decode()} HTTP/1.1", *(f"{k}: {v}" for k, v in request.headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + request.content


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TENUTO_MODEL": "nope:foo"}, "model"),
        ({"TENUTO_PROMPT_TOKENS": "1100"}, "budget"),
        ({"TENUTO_ASSISTANTS": "/nowhere"}, "assistants: there is no folder /nowhere"),
        ({"TENUTO_ASSISTANT": "nobody"}, "assistant: there is no 'nobody'"),
    ],
)
def test_a_start_that_fails_says_what_to_mend(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    """Budget smaller than the system prompt, a model or an assistant that cannot be had: a sentence at start."""
    with _start(tmp_path / "sessions.db", **environ) as process:
        _, log = process.communicate(timeout=WAIT)

    assert process.returncode == 1
    assert said in " ".join(log.split())
    assert "Traceback" not in log
    assert "startup failed" not in log
