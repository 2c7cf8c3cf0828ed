"""`tenuto stats`, `sweep`, `index`, `copy` and `backup`: what a store holds, cleared, indexed, moved, kept safe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Final

import msgspec
import typer
from msgspec.structs import asdict

from tenuto.app import Tenuto
from tenuto.cli.options import AsJson, argument, flag
from tenuto.cli.running import StoreCall, UserCall, make_folder, naming_store, sqlite_file
from tenuto.cli.terminal import advancing, pluralize, show_facts, show_json, show_table, visible
from tenuto.errors import Invalid, InvalidSetting
from tenuto.ports import RecordStore
from tenuto.sessions.views import StatsView
from tenuto.settings import read_settings
from tenuto.stores.copy_reports import Comparison, CopyPolicy, CopyReport
from tenuto.stores.engine.comparing import RecordComparer
from tenuto.stores.engine.copying import RecordCopier
from tenuto.stores.factory import open_records, place_of
from tenuto.wiring.tasks import engine_database

_MOST_LISTED: Final = 20
_UNREADABLE: Final = "could not be read, being damaged, and stayed behind"


def stats(call: UserCall) -> None:
    """Count sessions, messages, tokens and cost."""
    stats_view = StatsView.of(call.read(lambda app: app.sessions.stats(call.scope)))
    counts = [(name, f"{getattr(stats_view, name):,}") for name in ("sessions", "messages", "tokens")]
    call.show(stats_view, lambda: show_facts([*counts, ("cost", f"{stats_view.cost_usd} USD")]))


def sweep(call: StoreCall) -> None:
    """Delete what has expired, in all tenants, now."""

    async def sweep_all(app: Tenuto) -> tuple[int, int, int]:
        return await app.upkeep.sweep(), await app.upkeep.sweep_tasks(), await app.upkeep.sweep_usage()

    sessions, tasks, usage = call.run(sweep_all)
    call.show(
        {"swept": sessions, "tasks": tasks, "usage": usage},
        f"{pluralize(sessions, 'expired session')} and {pluralize(tasks, 'expired task')} removed.",
    )


def index(call: StoreCall) -> None:
    """Index the words of all sessions that are not, in all tenants; with session_search=off, remove those of all."""

    async def index_all(app: Tenuto) -> tuple[bool, int, int]:
        return app.settings.session_search, *await app.sessions.index_all()

    searchable, done, left = call.run(index_all)
    how = "indexed" if searchable else "without words in the index, since session_search is off"
    lacks = f" {pluralize(left, 'session')} could not be changed." if left else ""
    text = f"{pluralize(done, 'session')} {how}.{lacks}"
    call.show({"session_search": searchable, "sessions": done, "left": left}, text)
    if left:
        raise typer.Exit(1)


def copy(
    source: Annotated[str, argument("FROM_URL", "Store to copy from.")],
    target: Annotated[str, argument("TO_URL", "Store to copy to.")],
    merge: Annotated[bool, flag("--merge", "Copy into a target that already holds other data.")] = False,
    overwrite: Annotated[bool, flag("--overwrite", "Also replace records that were changed in the target.")] = False,
    delete: Annotated[bool, flag("--delete", "Delete records that the source does not have from the target.")] = False,
    yes: Annotated[
        bool, flag("--yes", "With --delete: even if the source has lost more than half of its records.")
    ] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Read and count everything, and write nothing.")] = False,
    verify_only: Annotated[bool, flag("--verify-only", "Compare both stores, and copy nothing.")] = False,
    verify: Annotated[bool, flag("--verify/--no-verify", "Compare both stores after the copy.")] = True,
    as_json: AsJson = False,
) -> None:
    """Copy a whole store into another one, of any backend.

    Everything is copied as it is stored: sessions with ids, versions, messages, traces and idempotency keys; memories,
    tasks, boards, API keys, usage, vaults and data keys. Run it again to resume, or to copy what has changed since.
    """
    if any(url.startswith("memory:") for url in (source, target)):
        raise InvalidSetting("store", "a store in memory is gone when the command ends: name a file or a server")
    if _identify(source) == _identify(target):
        raise Invalid("both addresses name the same store")
    policy = CopyPolicy(merge=merge, overwrite=overwrite, delete=delete, shrunk=yes, dry_run=dry_run)
    began = time.monotonic()
    report, comparison = asyncio.run(
        _run(source, target, None if verify_only else policy, verify=verify and not dry_run, quiet=as_json)
    )
    if as_json:
        show_json({"copied": report and asdict(report), "verified": comparison and _to_json(comparison)})
    else:
        if report is not None:
            _show_report(report, time.monotonic() - began, dry_run=dry_run)
        if comparison is not None:
            _show_comparison(comparison)
    lacks = report is not None and (report.left or report.unreadable or report.quarantined)
    if lacks or (comparison is not None and comparison.different):
        raise typer.Exit(1)


def backup(call: StoreCall, file: Annotated[Path, argument("FILE", "The backup to write; it must not exist.")]) -> None:
    """Back up a SQLite store while it is in use."""
    # The engine first: a run whose end the store knows is harmless, one whose end it does not know is lost.
    settings = read_settings(store=call.store)
    store_file, queue = sqlite_file(settings.store), sqlite_file(engine_database(settings))
    if store_file is None:
        raise InvalidSetting("store", "only SQLite is backed up here; use redis-cli --rdb or pg_dump for a server")
    # Not before it is needed: other commands do without.
    from tenuto.stores.sqlite.backup import back_up, check_backup

    copies = {file.with_name(f"{file.stem}-tasks{file.suffix}"): queue} if queue is not None and queue.is_file() else {}
    copies[file] = store_file
    for copy_file, original in copies.items():
        check_backup(original, copy_file, is_store=original is store_file)
    result = {
        str(copy_file): back_up(original, copy_file, is_store=original is store_file)
        for copy_file, original in copies.items()
    }
    text = "\n".join(visible(f"{name}: {size:,} bytes, checked.") for name, size in result.items())
    call.show({"files": [{"file": name, "bytes": size} for name, size in result.items()]}, lambda: typer.echo(text))


def _identify(url: str) -> str:
    """What a store is called wherever the command is typed: a file's whole path, or an address without its password."""
    file = sqlite_file(url)
    return place_of(url) if file is None else str(file.resolve())


async def _run(
    source: str, target: str, policy: CopyPolicy | None, *, verify: bool, quiet: bool
) -> tuple[CopyReport | None, Comparison | None]:
    report: CopyReport | None = None
    comparison: Comparison | None = None
    writing = policy is not None and not policy.dry_run
    async with (
        _open_store(source) as from_store,
        _open_store(target, making=writing, trying=policy is not None) as to_store,
    ):
        if policy is not None:
            name = sha256(_identify(source).encode()).hexdigest()[:16]
            with advancing(None, "Copying messages", quiet=quiet) as on_progress:
                copier = RecordCopier(
                    from_store, to_store, name=name, policy=policy, chance=SystemRandom(), on_progress=on_progress
                )
                report = await copier.copy()
        if verify:
            with advancing(None, "Verifying messages", quiet=quiet) as on_progress:
                comparison = await RecordComparer(from_store, to_store, on_progress=on_progress).compare()
    return report, comparison


@asynccontextmanager
async def _open_store(url: str, *, making: bool = False, trying: bool = False) -> AsyncIterator[RecordStore]:
    """An open store; one that is `making` comes into being, one that is only `trying` is empty where there is none."""
    settings, file = read_settings(store=url), sqlite_file(url)
    if making:
        make_folder(settings)
    elif file is not None and not file.exists():
        if not trying:
            raise InvalidSetting("store", f"there is no file {file.absolute()}")
        url = "memory://"
    with naming_store(settings):
        records = await open_records(url, synchronous=settings.sqlite_synchronous, read_only=not making)
    try:
        yield records
    finally:
        await records.close()


def _show_report(report: CopyReport, seconds: float, *, dry_run: bool) -> None:
    summary = "to copy" if dry_run else f"copied in {seconds:.1f} s"
    typer.echo(
        f"{pluralize(report.sessions, 'session')} with {pluralize(report.messages, 'message')} and "
        f"{pluralize(report.state, 'value')} of state {summary}; {report.unchanged:,} unchanged."
    )
    if report.deleted:
        typer.echo(f"{pluralize(report.deleted, 'record')} {'to remove' if dry_run else 'removed'} from the target.")
    if report.left:
        typer.echo(f"{pluralize(len(report.left), 'record')} left, changed in the target (--overwrite replaces them):")
        _show_some(report.left)
    if report.unreadable:
        typer.echo(f"{pluralize(report.unreadable, 'record')} of the source {_UNREADABLE}")
    if report.quarantined:
        typer.echo(f"{pluralize(len(report.quarantined), 'record')} stayed behind in the source's quarantine, damaged:")
        _show_some(report.quarantined)
    if report.changed:
        records = pluralize(report.changed, "record")
        typer.echo(f"Servers changed {records} of the source: stop them and run this again before you switch.")
    if report.unfinished_tasks:
        tasks = pluralize(report.unfinished_tasks, "task")
        typer.echo(f"{tasks} not ended: `tenuto tasks resume ID` continues one on the new store.")


def _show_comparison(comparison: Comparison) -> None:
    rows = [
        (name, *(f"{here:,}" if here == there else f"{here:,} / {there:,}" for here, there in _pairs(*sums)), same)
        for name, sums in comparison.sites.items()
        for same in ["equal" if sums[0] == sums[1] else "different"]
    ]
    columns = ("TENANT", "SESSIONS", "MESSAGES", "TRACES", "STATE", "DIGESTS")
    show_table(columns, rows, flexible="TENANT", numbers=columns[1:5])
    if comparison.different:
        typer.echo(f"{pluralize(comparison.different, 'record')} different:")
        if comparison.unreadable:
            typer.echo(f"  {pluralize(comparison.unreadable, 'record')} of the source {_UNREADABLE}")
        _show_some(comparison.named)
    else:
        typer.echo("Nothing differs.")


def _pairs(here: msgspec.Struct, there: msgspec.Struct) -> list[tuple[int, int]]:
    return [(getattr(here, name), getattr(there, name)) for name in ("sessions", "messages", "traces", "state")]


def _show_some(names: list[str]) -> None:
    for name in names[:_MOST_LISTED]:
        typer.echo(visible(f"  {name}"))
    if len(names) > _MOST_LISTED:
        typer.echo(f"  and {len(names) - _MOST_LISTED:,} more")


def _to_json(comparison: Comparison) -> dict[str, object]:
    sites = [
        {"site": name, "source": _side(here), "target": _side(there)}
        for name, (here, there) in comparison.sites.items()
    ]
    counts = {"different": comparison.different, "unreadable": comparison.unreadable}
    return counts | {"differences": comparison.named, "sites": sites}


def _side(sums: msgspec.Struct) -> dict[str, object]:
    fields = asdict(sums)
    return fields | {"digest": f"{fields['digest']:032x}"}
