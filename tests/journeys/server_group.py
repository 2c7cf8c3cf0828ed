"""Several server processes on one store, with a model that says what a test tells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.journeys.server_process import ServerProcess, running_server
from tests.servers.told_model import ToldModel, start_told_model


@dataclass
class Servers:
    """Servers on one store, with one model."""

    processes: list[ServerProcess]
    model: ToldModel

    @property
    def first(self) -> ServerProcess:
        return self.processes[0]

    @property
    def second(self) -> ServerProcess:
        return self.processes[1]

    @property
    def third(self) -> ServerProcess:
        return self.processes[2]


@contextmanager
def some_servers(number: int, url: str, folder: Path, **settings: str) -> Iterator[Servers]:
    """So many servers on this store, each with a journal of its own."""
    with ExitStack() as stack:
        model = stack.enter_context(start_told_model())
        asks = {
            "TENUTO_MODEL": "openai:told",
            "TENUTO_MODEL_BASE_URL": model.url,
            "TENUTO_MODEL_API_KEY": "x",
            # Each call of the model is that of a turn: none is for a title or for what to remember.
            "TENUTO_SUMMARIZER_MODEL": "offline",
            "TENUTO_ON_MISSING": "adopt",
            # How long a server that is stopped gives its answers.
            "TENUTO_SHUTDOWN_TIMEOUT": "2s",
            **settings,
        }
        processes = [
            stack.enter_context(
                running_server(
                    folder / "unused", "--store", url, TENUTO_JOURNAL=str(folder / f"journal{place}"), **asks
                )
            )
            for place in range(number)
        ]
        yield Servers(processes, model)
