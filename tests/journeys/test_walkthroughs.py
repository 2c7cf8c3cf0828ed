"""Pages that a reader follows step by step end as they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.terminal import own_settings
from tests.servers import RedisServer
from tests.servers.openai_server import start_model_server, words
from tests.servers.process import free_port
from tests.walkthrough import walk


def _follow(page: str, folder: Path, *ports: str, replacing: dict[str, str] | None = None, **environ: str) -> None:
    """Follow a page with ports of this test's own; 8765 is where `tenuto serve` listens by itself."""
    real = {port: str(free_port()) for port in ("8765", *ports)} | (replacing or {})
    walk(page, folder, replacing=real, environ=own_settings(TENUTO_PORT=real["8765"], **environ))


@pytest.mark.parametrize(
    ("page", "ports"),
    [("start/tutorial.md", ["8766"]), ("how-to/fastapi.md", ["8000"]), ("how-to/from-mem0.md", [])],
    ids=["tutorial", "fastapi", "mem0"],
)
def test_a_page_works_from_its_first_line_to_its_last(page: str, ports: list[str], tmp_path: Path) -> None:
    _follow(page, tmp_path, *ports)


def test_lists_in_redis_become_sessions(valkey: RedisServer, tmp_path: Path) -> None:
    valkey.flush()
    _follow("how-to/from-redis-lists.md", tmp_path, replacing={"redis://localhost:6379/0": valkey.url})


def test_a_model_on_this_machine_answers(tmp_path: Path) -> None:
    with start_model_server() as server:
        server.answers(words("In Italy."))
        llama = {"http://localhost:8080": server.url}
        _follow("how-to/local-models.md", tmp_path, replacing=llama, OLLAMA_BASE_URL=f"{server.url}/v1")

        answers = [(one["model"], one.get("max_completion_tokens", one.get("max_tokens"))) for one in server.asked]
        assert ("qwen3", None) in answers
        assert ("local", 512) in answers
