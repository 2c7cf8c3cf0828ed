"""The command `tenuto` as a whole."""

from __future__ import annotations

import io
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from tenuto.app import Tenuto
from tenuto.cli.chat import chat
from tenuto.cli.doctor import doctor
from tenuto.cli.keys import keys
from tenuto.cli.options import LOCAL, AsJson, Site, StoreUrl, Tenant, User, caller
from tenuto.cli.privacy import privacy
from tenuto.cli.running import TenutoCommands, log_to_stderr, make_folder, run_command
from tenuto.cli.sessions import sessions
from tenuto.cli.tasks import tasks
from tenuto.cli.terminal import pluralize, show_facts, show_json
from tenuto.cli.traces import traces
from tenuto.sessions.views import StatsView
from tenuto.settings import read_settings


def stats(
    tenant: Tenant = LOCAL, site: Site = "", user: User = None, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Count sessions, messages, tokens and cost."""
    scope = caller(tenant, site, user)
    held = StatsView.of(run_command(lambda app: app.sessions.stats(scope), store=store, read_only=True))
    if as_json:
        show_json(held)
    else:
        counts = [(name, f"{getattr(held, name):,}") for name in ("sessions", "messages", "tokens")]
        show_facts([*counts, ("cost", f"{held.cost_usd} USD")])


def sweep(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Remove what has expired, in all tenants, now."""

    async def sweep_all(app: Tenuto) -> tuple[int, int]:
        return await app.upkeep.sweep(), await app.upkeep.sweep_tasks()

    sessions, tasks = run_command(sweep_all, store=store)
    if as_json:
        show_json({"swept": sessions, "tasks": tasks})
    else:
        typer.echo(f"{pluralize(sessions, 'expired session')} and {pluralize(tasks, 'expired task')} removed.")


def serve(
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, metavar="N", help="The port; 0 picks a free one.")
    ] = None,
    store: StoreUrl = None,
) -> None:
    """Serve sessions over HTTP until stopped."""
    settings = read_settings(store=store, host=host, port=port)
    make_folder(settings)
    # Only this command pays for the web framework.
    from tenuto.server import serve as serve_http

    serve_http(settings)


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
