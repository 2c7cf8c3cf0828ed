"""A server process as one of several workers: its place among them, and what they ask each other.

Each worker answers on a Unix socket in the supervisor's folder, so that whichever one a scrape or a page meets answers
for all: metrics name the worker of each sample, and the status is that of all together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)
WORKER: Final = "_TENUTO_WORKER"
"""The variable that tells a process its place; without the prefix of settings, which it is none of."""
READY: Final = b"r"
_ANSWER_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class WorkerPlace:
    """Which worker of how many a process is, its listening socket, the socket to its supervisor, and their folder."""

    number: int
    of: int
    listening: socket.socket
    control: socket.socket
    folder: Path

    def encode(self) -> str:
        """The value of the variable; the sockets are inherited under their numbers."""
        return f"{self.number}:{self.of}:{self.listening.fileno()}:{self.control.fileno()}:{self.folder}"

    @classmethod
    def take(cls) -> WorkerPlace | None:
        """The place of this process; `None` for one without a supervisor. Its own children have none."""
        value = os.environ.pop(WORKER, None)
        if value is None:
            return None
        number, of, listening, control, folder = value.split(":", 4)
        sockets = [socket.socket(fileno=int(each)) for each in (listening, control)]
        for each in sockets:
            each.setblocking(False)
            each.set_inheritable(False)
        return cls(number=int(number), of=int(of), listening=sockets[0], control=sockets[1], folder=Path(folder))

    @property
    def does_upkeep(self) -> bool:
        """Whether it sweeps: one worker does so for all."""
        return self.number == 1

    def report_ready(self, on_orphaned: Callable[[], None]) -> None:
        """Tell the supervisor that this worker serves; call back if the supervisor is gone."""
        loop = asyncio.get_running_loop()

        def on_end() -> None:
            loop.remove_reader(self.control)
            on_orphaned()

        # The supervisor sends nothing: what can be read is its end.
        loop.add_reader(self.control, on_end)
        with contextlib.suppress(OSError):
            self.control.send(READY)


class Peers:
    """The workers of a supervisor, this one among them."""

    def __init__(self, place: WorkerPlace) -> None:
        self.of = place.of
        self._place = place

    @contextlib.asynccontextmanager
    async def answering(self, answers: Mapping[str, Callable[[], Awaitable[bytes]]]) -> AsyncIterator[None]:
        """Meanwhile, answer what the others ask by these names, in place of the worker that had this number before."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    question = (await reader.readline()).decode().strip()
                if question in answers:
                    writer.write(await answers[question]())
                    await writer.drain()
            except (OSError, TimeoutError, ValueError):
                pass  # The other one has gone.
            finally:
                writer.close()

        path = self._path(self._place.number)
        # Replaced in one step: a scrape meets the one before or this one.
        fresh = path.with_suffix(f".{os.getpid()}")
        async with await asyncio.start_unix_server(answer, fresh):
            fresh.rename(path)
            yield

    async def ask(self, question: str) -> dict[int, bytes]:
        """What each of them answers, by its number; one that does not answer is missing."""
        numbers = range(1, self.of + 1)
        answers = await asyncio.gather(*[self._ask(number, question) for number in numbers])
        return {number: answer for number, answer in zip(numbers, answers, strict=True) if answer}

    async def _ask(self, number: int, question: str) -> bytes:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS * 2):
                reader, writer = await asyncio.open_unix_connection(self._path(number))
                try:
                    writer.write(f"{question}\n".encode())
                    return await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return b""

    def _path(self, number: int) -> Path:
        return self._place.folder / str(number)


def log_address(listening: socket.socket) -> None:
    """Tell where the server listens."""
    host, port = listening.getsockname()[:2]
    _log.info("listening on http://%s:%s", f"[{host}]" if ":" in host else host, port)
