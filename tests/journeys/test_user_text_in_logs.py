"""What a user says reaches no log line, no metric and no error, whoever repeats it and however it fails.

A real server at log level debug, with a real client of a model's provider: a word is said in the question, comes back
in tool calls, in what a tool and a provider complain about, and in the answer. Then everything the server told anybody
else is searched for it.
"""

from __future__ import annotations

import json
import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tenuto.server.logs import KeyValueFormatter
from tests.journeys.http_service import ANN
from tests.journeys.server_process import ServerProcess, running_server
from tests.servers.openai_server import (
    A_PAGE,
    GARBAGE,
    ModelServer,
    Reply,
    anthropic_words,
    calls,
    refusal,
    start_model_server,
    words,
)

SECRET = "heliotrope"
TOML = """
system.en = "You look things up."
tools = ["look", "wait"]
"""
TOOLS = '''
def look(word: str) -> str:
    """Look a word up."""
    raise LookupError("nothing about " + word)


async def wait(word: str) -> str:
    """Take an error of ours."""
    from tenuto.errors import Unavailable

    raise Unavailable("dictionary", "knows no " + word)
'''


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    with start_model_server() as server:
        yield server


@contextmanager
def serving(folder: Path, provider: ModelServer, **environ: str) -> Iterator[ServerProcess]:
    """A server whose assistant has tools that quote what they are asked, and which logs everything it can."""
    assistants = folder / "assistants"
    assistants.mkdir()
    (assistants / "teller.toml").write_text(TOML)
    (assistants / "teller.py").write_text(TOOLS)
    settings = {
        "TENUTO_LOG_LEVEL": "debug",
        "TENUTO_ASSISTANTS": str(assistants),
        "TENUTO_ASSISTANT": "teller",
        "TENUTO_MODEL": "openai:served",
        "TENUTO_MODEL_BASE_URL": f"{provider.url}/v1",
        "TENUTO_MODEL_API_KEY": "sk-amaranth-not-a-real-key",
        "PYTHONASYNCIODEBUG": "1",
    }
    with running_server(folder / "sessions.db", **{**settings, **environ}) as server:
        yield server


def ask(server: ServerProcess, session: str | None = None, **body: object) -> httpx.Response:
    fields = {"message": f"Tell me of {SECRET}", "session_id": session, **body}
    given = {name: value for name, value in fields.items() if value is not None}
    return server.http.post("/v1/chat", headers=ANN, json=given)


def failed_in_every_way(server: ServerProcess, provider: ModelServer, session: str) -> list[str]:
    """What the server says when the model fails, whole and streamed."""
    told = []
    for reply in FAILURES.values():
        provider.answers(reply)
        told.append(ask(server, session).text)
        streamed = ask(server, session, stream=True).text
        told += [event for event in streamed.split("\n\n") if event.startswith("event: error")]
    assert len(told) == 2 * len(FAILURES), told
    return told


def misused(server: ServerProcess, session: str) -> list[str]:
    """What the server says to requests that make no sense."""
    return [
        ask(server, session, assistant=SECRET).text,
        ask(server, session, persona=SECRET).text,
        ask(server, f"{SECRET}-{SECRET}").text,
        ask(server, session, **{f"{SECRET} {SECRET}": 1}).text,
        ask(server, session, language=SECRET).text,
        ask(server, session, profile={"note": SECRET * 200_000}).text,
        server.http.post("/v1/chat", headers=ANN, content=f'{{"message": "{SECRET}').text,
        server.http.get(f"/v1/traces/{SECRET}", headers=ANN).text,
        server.http.get(f"/{SECRET}?q={SECRET}", headers=ANN).text,
    ]


def nowhere(server: ServerProcess, *told: str) -> None:
    """Make sure that neither what was told nor the log holds the secret."""
    log = "".join(server.log)
    for place in (*told, log):
        assert SECRET not in place
    assert "amaranth" not in log
    assert not [line for line in server.log if not line.startswith("time=")], "a line that nobody formatted"


LOOKED_UP = calls(("c1", "look", json.dumps({"word": SECRET})), ("c2", "wait", json.dumps({"word": SECRET})))
FAILURES: dict[str, Reply] = {
    "refused": refusal(400, f"I will not talk of {SECRET}"),
    "overloaded": refusal(529, f"{SECRET} again?"),
    "garbage": GARBAGE,
    "a page": A_PAGE,
    "half": words(f"It is {SECRET}, and ", finish=None, cut=True),
    "empty": words(" "),
}


def test_what_users_say_is_in_no_log_no_metric_and_no_error(tmp_path: Path, provider: ModelServer) -> None:
    """The answers themselves hold it, so that the search is known to look for the right thing."""
    provider.answers(
        LOOKED_UP,
        calls(("c3", SECRET, "{}"), ("c4", "look", f'{{"word": ["{SECRET}"]}}'), ("c5", "look", f"{{{SECRET}")),
        words(f"{SECRET} is ", "a flower."),
    )

    with serving(tmp_path, provider, TENUTO_EMBEDDER="local") as server:
        answered = ask(server).json()
        assert SECRET in answered["answer"]
        told = failed_in_every_way(server, provider, answered["session_id"])
        told += misused(server, answered["session_id"])
        meters = server.http.get("/metrics").text
        assert server.end(signal.SIGTERM) == 0

    assert any('msg="tool look failed: LookupError' in line for line in server.log)
    assert 'tenuto_turns_total{assistant="teller",outcome="model_failed"}' in meters
    nowhere(server, meters, *told)


def test_a_provider_whose_client_logs_whole_prompts_is_kept_quiet(tmp_path: Path, provider: ModelServer) -> None:
    """Anthropic's client writes each request's options at level debug."""
    provider.answers(anthropic_words(f"{SECRET} is a flower."))
    environ = {"TENUTO_MODEL": "anthropic:claude-haiku-5-5", "TENUTO_MODEL_BASE_URL": provider.url}

    with serving(tmp_path, provider, **environ) as server:
        assert SECRET in ask(server).json()["answer"]
        assert server.end(signal.SIGTERM) == 0

    nowhere(server)


def test_a_foreign_line_is_cut_where_it_begins_to_show_values() -> None:
    """asyncio shows exceptions and results that were not retrieved, and those hold users' text."""
    lost = f"Task exception was never retrieved\nfuture: <Task finished exception=ValueError('{SECRET}')>"
    slow = f"Executing <Task finished result='{SECRET}'> took 0.2 seconds"
    lines = [
        KeyValueFormatter().format(logging.LogRecord("asyncio", logging.ERROR, "", 0, text, None, None))
        for text in (lost, slow)
    ]

    assert lines[0].endswith('msg="Task exception was never retrieved"')
    assert lines[1].endswith("msg=Executing")


@pytest.mark.requirement("E18")
def test_every_line_of_a_turn_names_it_and_no_other_line_does(tmp_path: Path, provider: ModelServer) -> None:
    """Tenant, session and turn are bound for the turn's lines, and gone afterwards."""
    provider.answers(LOOKED_UP, words("Nothing."), refusal(400, "no"))

    with serving(tmp_path, provider, TENUTO_SUMMARIZER_MODEL="offline") as server:
        first = ask(server).json()["session_id"]
        failed = ask(server, first)
        server.http.get("/v1/sessions", headers=ANN)
        other = ask(server)
        server.end(signal.SIGTERM)

    assert (failed.status_code, other.status_code) == (400, 400)
    within = [line for line in server.log if " logger=tenuto.chat" in line or " logger=tenuto.llm" in line]
    for line in within:
        assert re.search(r" tenant=acme session=\S+ turn=\d+ ", line), line
    (tool,) = (line for line in within if "tool look failed" in line)
    again, elsewhere = (line for line in within if "model openai:served at " in line)
    assert f"session={first} turn=1 " in tool
    assert f"session={first} turn=2 " in again
    assert f"session={first} " not in elsewhere
    answered = [line for line in server.log if "msg=answered" in line]
    assert len(answered) == 4
    assert not [line for line in answered if " session=" in line or " turn=" in line]
