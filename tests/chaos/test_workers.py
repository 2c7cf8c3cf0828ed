"""Several workers on one port: killed, replaced and stopped while clients talk."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx

from tests.journeys.http_service import ANN, at
from tests.journeys.server_process import WAIT, ServerProcess, running_server

CLIENTS = 4


@dataclass
class Load:
    """Clients with connections that last. Each talks in a session of its own; what was acknowledged is noted."""

    server: ServerProcess
    retries: bool
    said: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def talk(self, session: str) -> None:
        messages = self.said[session]
        with httpx.Client(base_url=self.server.http.base_url, timeout=WAIT, headers=ANN) as http:
            while not self._over.is_set():
                text = f"message {len(messages)}"
                if self._say(http, session, text):
                    messages.append(text)

    def _say(self, http: httpx.Client, session: str, text: str) -> bool:
        body = {"session_id": session, "message": text}
        for _ in range(WAIT):
            try:
                answer = http.post("/v1/chat", json=body, headers={"Idempotency-Key": f"{session}-{text}"})
            except httpx.TransportError as error:
                if not self.retries:
                    self.failures.append(repr(error))
                    return False
                continue
            if answer.status_code == 200:
                return True
            self.failures.append(answer.text)
            return False
        self.failures.append("given up")
        return False

    @contextmanager
    def running(self) -> Iterator[None]:
        self.said = {uuid4().hex: [] for _ in range(CLIENTS)}
        for session in self.said:
            self.server.http.post("/v1/sessions", json={"id": session}, headers=ANN)
        threads = [threading.Thread(target=self.talk, args=(session,)) for session in self.said]
        for thread in threads:
            thread.start()
        try:
            yield
            before = {session: len(messages) for session, messages in self.said.items()}
            _wait(
                lambda: bool(self.failures) or all(len(self.said[session]) > count for session, count in before.items())
            )
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def check(self) -> None:
        """Nothing failed; what was acknowledged is stored once and in order."""
        assert self.failures == []
        for session, messages in self.said.items():
            page = self.server.http.get(at(session, "messages?limit=1000"), headers=ANN).json()
            assert [each["text"] for each in page["messages"] if each["role"] == "user"] == messages


def _wait(condition: Callable[[], bool]) -> None:
    """Until it holds: another process tells nothing when it does."""
    give_up = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def _lines(server: ServerProcess, words: str) -> list[str]:
    return [line for line in server.log if words in line]


def _ups(server: ServerProcess) -> dict[str, str]:
    return dict(re.findall(r'tenuto_worker_up{worker="(.)"} (.)', server.http.get("/metrics").text))


def test_workers_are_killed_replaced_and_stopped_under_load(tmp_path: Path) -> None:
    with running_server(tmp_path / "state.db", "--workers", "2") as server:
        assert server.http.get("/v1/status").json()["process"]["workers"] == 2
        assert _ups(server) == {"1": "1", "2": "1"}

        load = Load(server, retries=True)
        with load.running():
            pid = re.search(r"worker 2 is process (\d+)", "".join(server.log))
            assert pid is not None
            os.kill(int(pid[1]), signal.SIGKILL)
            _wait(lambda: len(_lines(server, "worker 2 is process")) == 2 and _ups(server) == {"1": "1", "2": "1"})
        load.check()
        assert len(_lines(server, "worker 2 ended (by signal 9) and is started again")) == 1

        load = Load(server, retries=False)
        with load.running():
            server.process.send_signal(signal.SIGHUP)
            _wait(lambda: bool(_lines(server, 'the workers are replaced"')))
        load.check()

        assert server.end(signal.SIGTERM) == 0
        assert not _lines(server, "is killed")
