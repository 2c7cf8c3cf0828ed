"""`tenuto import`: conversations and memories out of the files of other stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import asdict

from tenuto.app import Tenuto
from tenuto.cli.options import LOCAL, AsJson, Site, StoreUrl, Tenant, User, caller
from tenuto.cli.running import run_command, sqlite_file
from tenuto.cli.terminal import advancing, pluralize, show_json, visible
from tenuto.model import Scope
from tenuto.sessions.importers import SOURCES, ImportReport, import_records, read_source
from tenuto.settings import read_settings


def _source(value: str) -> str:
    if value not in SOURCES:
        raise typer.BadParameter(f"must be one of {', '.join(SOURCES)}")
    return value


def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", callback=_source, help=f"Kind of the source: {', '.join(SOURCES)}.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Database or export file to read.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count everything; write nothing.")] = False,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Import conversations and memories from another store.

    Sessions keep their ids, so that a second run adds nothing. They belong to --user, or else to the users that the
    source names.
    """
    scope, target = caller(tenant, site, user), sqlite_file(read_settings(store=store).store)
    if dry_run and target is not None and not target.exists():
        store = "memory://"
    report = run_command(
        lambda app: _import(app, scope, source, file, dry_run=dry_run, quiet=as_json), store=store, making=True
    )
    if as_json:
        show_json({"source": source, "dry_run": dry_run, **asdict(report)})
        return
    done = "would be imported" if dry_run else "imported"
    sessions, messages = pluralize(report.sessions, "session"), pluralize(report.messages, "message")
    typer.echo(f"{sessions} with {messages} and {pluralize(report.memories, 'memory')} {done}.")
    if report.existing:
        typer.echo(f"{report.existing:,} already existed.")
    for reason, count in sorted(report.skipped.items()):
        typer.echo(visible(f"skipped {count:,} × {reason}"))


async def _import(app: Tenuto, scope: Scope, source: str, file: Path, *, dry_run: bool, quiet: bool) -> ImportReport:
    # With its vocabularies it takes a while to load.
    from tenuto.context import TokenCounter

    with advancing(None, "Importing", quiet=quiet) as on_progress:
        return await import_records(
            read_source(source, file),
            scope=scope,
            sessions=app.sessions,
            memories=app.memories,
            count_tokens=TokenCounter().correct_counts,
            dry_run=dry_run,
            on_progress=on_progress,
        )
