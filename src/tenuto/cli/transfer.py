"""`tenuto sessions export` and `import`: sessions on paper, and back."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Annotated, Final
from urllib.parse import quote

import typer
from msgspec.structs import replace

from tenuto.app import Tenuto
from tenuto.cli.options import STDIN, MaybeSessionId, argument, flag, option
from tenuto.cli.running import Call, UserCall
from tenuto.cli.short_ids import whole_session_id
from tenuto.cli.terminal import pluralize, progress, safe_json, visible
from tenuto.errors import (
    DecryptionFailed,
    Invalid,
    MasterKeyMissing,
    SessionCorrupt,
    SessionNotFound,
    TenutoError,
    Unavailable,
)
from tenuto.model import Message, Scope, Session
from tenuto.model.values import JsonObject
from tenuto.ports import utc_now
from tenuto.privacy.compliance.iteration import iter_sessions
from tenuto.privacy.record_redaction import redact_export_pages, redact_export_session
from tenuto.sessions import fresh_id
from tenuto.sessions.limits import check_messages
from tenuto.sessions.transfer import ENDINGS, ExportFormat, iter_export, parse_export, with_exported_contents
from tenuto.sessions.views import SessionView

# Most file systems take 255 bytes; some room is left for an ending, and for the name it has while it is written.
_LONGEST_NAME: Final = 160
_SUFFIXES: Final = {".jsonl": ExportFormat.JSONL, ".ndjson": ExportFormat.JSONL, ".md": ExportFormat.MARKDOWN}


def export_session(
    call: UserCall,
    session_id: MaybeSessionId = None,
    export_format: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="Output format; by default that of the file's suffix, or json."),
    ] = None,
    output: Annotated[
        Path | None,
        option("FILE", "File to write (with --all, a folder); by default standard output.", "--output", "-o"),
    ] = None,
    everything: Annotated[
        bool, flag("--all", "Export every session of the site, or of --user, to one file each.")
    ] = False,
) -> None:
    """Export one session, or all of them.

    `tenuto sessions import` reads every format back. Private data is redacted unless TENUTO_PRIVACY_EXPORT says keep.
    """
    if everything:
        if session_id is not None or output is None or str(output) == STDIN:
            raise typer.BadParameter("takes no ID, and needs a folder in --output", param_hint="--all")
        _export_all(call, export_format or ExportFormat.JSON, output)
        return
    if session_id is None:
        raise typer.BadParameter("give the ID of a session, or --all", param_hint="ID")
    file = None if output is None or str(output) == STDIN else output
    if call.as_json and file is None and export_format not in (None, ExportFormat.JSON):
        raise typer.BadParameter("--json prints JSON; leave it out, or write the export to a file", param_hint="--json")
    written_as = export_format or _SUFFIXES.get(file.suffix.lower() if file else "", ExportFormat.JSON)
    if file is None:
        call.read(lambda app: _export_to_stdout(app, call.scope, session_id, written_as))
        return
    session, size = call.read(lambda app: _export_to_file(app, call.scope, session_id, written_as, file))
    call.show(
        {"id": session.id, "format": written_as, "file": str(file), "bytes": size},
        f"Session {session.id}: {pluralize(session.messages, 'message')} written to {file}.",
    )


def _export_all(call: Call, written_as: ExportFormat, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"cannot make the folder {folder}: {error.strerror}") from error
    files, failures = call.read(lambda app: _export_each(app, call.scope, written_as, folder, quiet=call.as_json))
    exports = [{"id": session.id, "file": str(file)} for session, file in files]
    call.show(
        {"format": written_as, "exported": exports, "failed": failures},
        f"{pluralize(len(files), 'session')} written to {folder}.",
    )
    for failure in failures if not call.as_json else ():
        typer.echo(visible(f"{failure['code']}: session {failure['id']}: {failure['error']}"), err=True)
    if failures:
        raise typer.Exit(1)


async def _export_each(
    app: Tenuto, scope: Scope, written_as: ExportFormat, folder: Path, *, quiet: bool
) -> tuple[list[tuple[Session, Path]], list[JsonObject]]:
    """Write each of the person; one that does not open does not keep the others, a store that went away does."""
    exports: list[tuple[Session, Path]] = []
    failures: list[JsonObject] = []
    owners = await app.people.scopes_of(scope)
    sessions = [(owner, one.id) for owner in owners async for one in iter_sessions(app.store.sessions, owner)]
    with progress(sessions, "Exporting", quiet=quiet) as remaining:
        for owner, session_id in remaining:
            file = folder / _file_name(session_id, written_as)
            try:
                exports.append(((await _export_to_file(app, owner, session_id, written_as, file))[0], file))
            except MasterKeyMissing:
                raise  # It is the whole tenant's.
            except (DecryptionFailed, SessionCorrupt, Invalid) as error:
                failures.append({"id": session_id, "code": error.code, "error": str(error)})
            except SessionNotFound:
                continue  # Gone while we were writing.
    return exports, failures


def _file_name(session_id: str, written_as: ExportFormat) -> str:
    """A name that any id can have and no other id has: nothing in it leads elsewhere."""
    name = quote(session_id, safe="")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{blake2b(session_id.encode(), digest_size=8).hexdigest()}"
    # A leading dot hides a file, and two name a folder.
    return f"{'%2E' + name[1:] if name.startswith('.') else name}.{ENDINGS[written_as]}"


async def _export_to_stdout(app: Tenuto, scope: Scope, session_id: str, written_as: ExportFormat) -> None:
    """To standard output: byte for byte into a pipe or file, without steering characters onto a terminal."""
    session, pages = await _open_export(app, scope, session_id)
    read = partial(app.sessions.attachment, scope, session.id)
    is_terminal = sys.stdout.isatty()
    async for piece in iter_export(session, pages, written_as, read):
        typer.echo(_terminal_text(piece, written_as) if is_terminal else piece, nl=False)


async def _open_export(
    app: Tenuto, scope: Scope, session_id: str
) -> tuple[Session, AsyncIterator[tuple[Message, ...]]]:
    """Head and pages, without what the policy keeps out of exports."""
    session = await app.sessions.get(scope, await whole_session_id(app, scope, session_id))
    pages = redact_export_pages(app.redactor, session, app.sessions.iter_pages(scope, session))
    return await redact_export_session(app.redactor, session), pages


def _terminal_text(piece: bytes, written_as: ExportFormat) -> str:
    text = piece.decode()
    return visible(text, lines=True) if written_as is ExportFormat.MARKDOWN else safe_json(text)


async def _export_to_file(
    app: Tenuto, scope: Scope, session_id: str, written_as: ExportFormat, path: Path
) -> tuple[Session, int]:
    session, pages = await _open_export(app, scope, session_id)
    read = partial(app.sessions.attachment, scope, session.id)
    size = 0
    with write_atomically(path) as file:
        async for piece in iter_export(session, pages, written_as, read):
            size += file.write(piece)
    return session, size


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only when it is complete; pipes and devices are written as they are."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:100]}.", delete=False) as file:
            try:
                yield file
                file.flush()
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink()
                raise
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}") from error


def import_sessions(
    call: UserCall, files: Annotated[list[str], argument("FILE", "Exports of any format; - reads standard input.")]
) -> None:
    """Create new sessions from exports, each complete or not at all."""
    # Input that may come slowly is read before the event loop runs, so that Ctrl-C works.
    contents = {file: _read_bytes(file) for file in files if file == STDIN or Path(file).is_fifo()}
    results, failures = call.run(
        lambda app: _import_each(app, call.scope, files, contents, quiet=call.as_json), making=True
    )
    imports = [{"file": file, "session": SessionView.of(session)} for file, session in results]
    call.show({"imported": imports, "failed": failures}, lambda: _print_imports(results, failures))
    if failures:
        raise typer.Exit(1)


async def _import_each(
    app: Tenuto, scope: Scope, files: Sequence[str], contents: Mapping[str, bytes], *, quiet: bool
) -> tuple[list[tuple[str, Session]], list[JsonObject]]:
    """Import each file; one that is no export does not keep the others, a store that went away does."""
    # With its vocabularies it takes a while to load, and no other command of this file counts anything.
    from tenuto.context import TokenCounter

    imports: list[tuple[str, Session]] = []
    failures: list[JsonObject] = []
    with progress(files, "Importing", quiet=quiet) as remaining:
        for file in remaining:
            try:
                raw = contents[file] if file in contents else _read_bytes(file)
                export = parse_export(raw, now=utc_now(), new_id=fresh_id)
                export = with_exported_contents(scope, export, app.sessions.policy)
                check_messages(export.messages, app.sessions.policy)
                export = replace(export, messages=TokenCounter().correct_counts(export.messages))
                imports.append((file, await app.sessions.restore(scope, export)))
            except TenutoError as error:
                failures.append({"file": file, "code": error.code, "error": str(error)})
                if isinstance(error, Unavailable):
                    break
    return imports, failures


def _read_bytes(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a file name"
        raise Invalid(f"cannot read it: {why}") from error


def _print_imports(imports: list[tuple[str, Session]], failures: list[JsonObject]) -> None:
    for file, session in imports:
        typer.echo(visible(f"{file}: session {session.id} with {pluralize(session.messages, 'message')}."))
    for failure in failures:
        typer.echo(f"{failure['code']}: {visible(failure['file'])}: {visible(failure['error'])}", err=True)
