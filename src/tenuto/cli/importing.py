"""`tenuto import`: conversations and memories out of the files of other stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import asdict

from tenuto.app import Tenuto
from tenuto.cli.options import argument, flag
from tenuto.cli.running import UserCall, sqlite_file
from tenuto.cli.terminal import advancing, pluralize, visible
from tenuto.model import Scope
from tenuto.sessions.importers import SOURCES, ImportReport, import_records, read_source
from tenuto.settings import read_settings


def _source(value: str) -> str:
    if value not in SOURCES:
        raise typer.BadParameter(f"must be one of {', '.join(SOURCES)}")
    return value


def import_(
    call: UserCall,
    source: Annotated[str, argument("SOURCE", f"Kind of the source: {', '.join(SOURCES)}.", callback=_source)],
    file: Annotated[Path, argument("FILE", "Database or export file to read.")],
    dry_run: Annotated[bool, flag("--dry-run", "Read and count everything; write nothing.")] = False,
) -> None:
    """Import conversations and memories from another store.

    Sessions keep their ids, so that a second run adds nothing. They belong to --user, or else to the users that the
    source names.
    """
    target = sqlite_file(read_settings(store=call.store).store)
    if dry_run and target is not None and not target.exists():
        call.store = "memory://"
    report = call.run(
        lambda app: _import(app, call.scope, source, file, dry_run=dry_run, quiet=call.as_json), making=True
    )
    call.show(
        {"source": source, "dry_run": dry_run, **asdict(report)},
        lambda: _print_report(report, "would be imported" if dry_run else "imported"),
    )


def _print_report(report: ImportReport, verb: str) -> None:
    sessions, messages = pluralize(report.sessions, "session"), pluralize(report.messages, "message")
    typer.echo(f"{sessions} with {messages} and {pluralize(report.memories, 'memory')} {verb}.")
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
