"""`POST /v1/chat` and `/v1/responses` of real server processes with 64 clients: requests per second, p99, CPU.

The servers are `tenuto serve` with every default on one store. Their model is the offline one: it acknowledges a
statement without reading the conversation, so that it answers at once and nothing but the server is measured. Clients
hold one connection and one session each, and stay with one server. Titles and summaries are made meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, perf_counter, sleep
from typing import Any, Final

import psutil

from bench.grounds import Ground
from bench.plan import Plan

CLIENTS: Final = 64
PROCESSES: Final = (1, 2)
FORMS: Final = {"OpenAI": "JSON", "OpenAI SSE": "SSE"}
"""The forms of the OpenAI route, and those of ours that they are compared with."""
_FORMS: Final = (*FORMS.values(), *FORMS)
_ROOT: Final = Path(__file__).parents[1]
_PATIENCE: Final = 90.0
_HISTORY: Final = 60
_FIRST_TURNS: Final = 2
# Statements: to a question or a request the offline model would look for an answer.
_TEXT: Final = (
    "The parcel left the depot at noon and should be with you by Thursday. There are three rooms left, and the one on "
    "the courtyard is the quietest. My flight was moved to the evening, so dinner has to wait until nine. "
) * 2
_ADDRESS: Final = re.compile(r"listening on http://\S+:(\d+)")


@dataclass(slots=True)
class Served:
    """One arrangement; a figure for each round. Seconds, and processor seconds of all servers for one request."""

    backend: str
    processes: int
    form: str
    rates: list[float] = field(default_factory=list)
    p50s: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    errors: int = 0

    @property
    def spread(self) -> float:
        """How many times the median the slowest hundredth takes."""
        return median(slow / usual for slow, usual in zip(self.p99s, self.p50s, strict=True))

    def add(self, took: Sequence[float], seconds: float, cpu: float) -> None:
        """Keep the figures of a slice."""
        self.rates.append(len(took) / seconds)
        self.p50s.append(median(took))
        self.p99s.append(quantiles(took, n=100)[98])
        self.cpus.append(cpu / len(took))


class Client:
    """A session, and a connection that is kept over a slice: servers close those that are idle for seconds."""

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self.switch(name, name)

    def switch(self, user: str, session: str) -> None:
        """Go on as this user in this session."""
        self._session = session
        self._head = (
            f"Host: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"X-Tenant-ID: bench\r\nX-User-ID: {user}\r\n"
        )

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def prepare(self) -> None:
        """Give the session a history and its first turns."""
        await self.connect()
        roles = ("user", "assistant")
        await self._post("/v1/sessions", {"id": self._session})
        history = [{"role": roles[n % 2], "text": f"{n}. {_TEXT}"} for n in range(_HISTORY)]
        await self._post(f"/v1/sessions/{self._session}/messages", {"messages": history})
        for _ in range(_FIRST_TURNS):
            await self.chat("JSON")
        await self.close()

    async def chat(self, form: str) -> None:
        """One turn, read to its end."""
        streamed = form.endswith("SSE")
        if form in FORMS:
            said = {"input": _TEXT, "conversation": self._session, "model": "general", "stream": streamed}
            answer = await self._post("/v1/responses", said)
        else:
            said = {"message": _TEXT, "session_id": self._session, "stream": streamed}
            answer = await self._post("/v1/chat", said)
        if streamed and b"event: done" not in answer and b"event: response.completed" not in answer:
            raise RuntimeError("a stream ended without its last event")

    async def close(self) -> None:
        """Disconnect."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _post(self, path: str, body: dict[str, Any]) -> bytes:
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(raw)}\r\n\r\n"
        self._writer.write(head.encode() + raw)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        content = await (self._chunks() if b"chunked" in answer else self._whole(answer))
        if not answer.startswith(b"http/1.1 20"):
            raise RuntimeError(f"{path.rpartition('/')[2]}: {answer[:40]!r} {content[:200]!r}")
        return content

    async def _whole(self, head: bytes) -> bytes:
        length = re.search(rb"content-length: (\d+)", head)
        return await self._reader.readexactly(int(length[1]) if length else 0)

    async def _chunks(self) -> bytes:
        chunks = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            chunks.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readexactly(2)
        return b"".join(chunks)


def measure_serving(up: Ground, plan: Plan, folder: Path) -> list[Served]:
    """Two servers on one store; of one process speaks what all clients ask the first."""
    with ExitStack() as stack:
        url = up.new_url()
        places = range(max(PROCESSES))
        servers = [stack.enter_context(start_server(url, folder / f"{up.backend}-serve-{n}")) for n in places]
        return asyncio.run(_measure(up.backend, servers, plan))


async def _measure(backend: str, servers: Sequence[tuple[int, psutil.Process]], plan: Plan) -> list[Served]:
    found = [Served(backend, processes, form) for processes in PROCESSES for form in _FORMS]
    clients = {
        processes: [Client(servers[n % processes][0], f"serve-{processes}-{n}") for n in range(CLIENTS)]
        for processes in PROCESSES
    }
    for some in clients.values():
        await asyncio.gather(*(client.prepare() for client in some))
    for number in range(plan.rounds):
        for place in range(len(found)):
            one = found[(place + number) % len(found)]
            await _slice(one, clients[one.processes], [process for _, process in servers], plan.serve_slice)
    return found


async def _slice(one: Served, clients: Sequence[Client], servers: Sequence[psutil.Process], seconds: float) -> None:
    took: list[float] = []
    await asyncio.gather(*(client.connect() for client in clients))
    before, started = _cpu(servers), perf_counter()

    async def keep_asking(client: Client) -> None:
        while (begun := perf_counter()) < started + seconds:
            try:
                await client.chat(one.form)
            except RuntimeError:
                one.errors += 1
            else:
                took.append(perf_counter() - begun)

    await asyncio.gather(*map(keep_asking, clients))
    one.add(took, perf_counter() - started, _cpu(servers) - before)
    await asyncio.gather(*(client.close() for client in clients))


def _cpu(servers: Sequence[psutil.Process]) -> float:
    return sum(sum(server.cpu_times()[:2]) for server in servers)


@contextmanager
def start_server(url: str, log: Path) -> Iterator[tuple[int, psutil.Process]]:
    """A server on a free port of loopback; its log tells which."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TENUTO_", "MEMORY_"))}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tenuto", "serve", "--store", url, "--port", "0"],
            cwd=_ROOT,
            env={**clean, "PYTHONPATH": str(_ROOT / "src"), "TENUTO_JOURNAL": str(log.with_suffix(".journal"))},
            stdout=file,
            stderr=file,
        )
    try:
        yield _port(process, log), psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    until = monotonic() + _PATIENCE
    while monotonic() < until and process.poll() is None:
        if found := _ADDRESS.search(log.read_text(errors="replace")):
            return int(found[1])
        sleep(0.05)
    raise RuntimeError(f"the server does not listen: {log.read_text(errors='replace')[-300:]}")
