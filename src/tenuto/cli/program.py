"""The command `tenuto` as a whole."""

from __future__ import annotations

import io
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from tenuto.cli.chat import chat
from tenuto.cli.doctor import doctor
from tenuto.cli.keys import keys
from tenuto.cli.privacy import privacy
from tenuto.cli.running import TenutoCommands, log_to_stderr
from tenuto.cli.serve import serve
from tenuto.cli.sessions import sessions
from tenuto.cli.tasks import tasks
from tenuto.cli.traces import traces
from tenuto.cli.upkeep import stats, sweep

# Tracebacks of typer's own kind print local variables, and those hold what users said.
program = typer.Typer(
    cls=TenutoCommands,
    name="tenuto",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Conversation state for LLM agents, held across restarts.",
    epilog="Settings come from the environment (TENUTO_STORE, TENUTO_PRESET, ...); `tenuto doctor` shows them all.",
)
program.command()(serve)
program.command()(chat)
program.add_typer(sessions, name="sessions")
program.add_typer(traces, name="traces")
program.add_typer(tasks, name="tasks")
program.add_typer(keys, name="keys")
program.add_typer(privacy, name="privacy")
program.command()(doctor)
program.command()(stats)
program.command()(sweep)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tenuto {version('tenuto')}")
        raise typer.Exit


@program.callback()
def _about(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Stands before every command."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its number instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    log_to_stderr()
    program(prog_name="tenuto")
