"""`tenuto sessions`: look at conversations, and change or remove them."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from msgspec.structs import asdict

from tenuto.app import Tenuto
from tenuto.cli import transfer
from tenuto.cli.options import LOCAL, AsJson, SessionId, SessionIds, Site, StoreUrl, Tenant, User, caller
from tenuto.cli.placeholders import count_redacted
from tenuto.cli.running import run_command
from tenuto.cli.short_ids import is_short, whole_session_id
from tenuto.cli.terminal import age, moment, pluralize, show_facts, show_json, show_table, tally, visible
from tenuto.errors import NotFound
from tenuto.model import Changes, Message, MessagePage, Page, Scope, Session, SessionPage, SessionQuery, Status
from tenuto.model.privacy import REDACTED_AT
from tenuto.model.task import Task
from tenuto.model.values import JsonObject
from tenuto.ports import utc_now
from tenuto.sessions.views import MessageList, SessionDetail, SessionList, SessionView

_LARGEST_PAGE = 1000

sessions = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List, show, change, export and delete sessions."
)
sessions.command("export")(transfer.export_session)
sessions.command("import")(transfer.import_sessions)


@sessions.command("list")
def list_sessions(
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    status: Annotated[Status | None, typer.Option("--status", help="Show only this status.")] = None,
    search: Annotated[
        str | None, typer.Option("--search", metavar="TEXT", help="Show only titles that contain this text.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of results.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="Show all results.")] = False,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="Continue a listing from its cursor.")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, latest change first."""
    scope = caller(tenant, site, user)
    query = SessionQuery(title=search, status=status, cursor=cursor)
    page = run_command(
        lambda app: _list_sessions(app, scope, query, None if everything else limit), store=store, read_only=True
    )
    if as_json:
        show_json(SessionList.of(page))
    else:
        show_sessions(page)


async def _list_sessions(app: Tenuto, scope: Scope, query: SessionQuery, limit: int | None) -> SessionPage:
    """One page after another, until there are `limit` or no more."""
    found: list[Session] = []
    while True:
        size = _LARGEST_PAGE if limit is None else min(limit - len(found), _LARGEST_PAGE)
        page = await app.sessions.list(scope, msgspec.structs.replace(query, limit=size))
        found += page.sessions
        if page.cursor is None or (limit is not None and len(found) >= limit):
            return SessionPage(sessions=tuple(found), cursor=page.cursor)
        query = msgspec.structs.replace(query, cursor=page.cursor)


def show_sessions(page: SessionPage, *, numbered: bool = False) -> None:
    """Print sessions as a table; `numbered`, so that one can be chosen from it."""
    if not page.sessions:
        typer.echo("No sessions.")
        return
    now = utc_now()
    show_table(
        (*(["NO"] if numbered else []), "ID", "USER", "TITLE", "STATUS", "MESSAGES", "CHANGED"),
        [
            (*([str(number)] if numbered else []), *_session_row(session, now))
            for number, session in enumerate(page.sessions, start=1)
        ],
        flexible="TITLE",
        numbers=("NO", "MESSAGES", "CHANGED"),
        ids="ID",
    )
    if page.cursor is not None and not numbered:
        typer.echo(f"\n{pluralize(len(page.sessions), 'session')} shown, and there are more: --limit N or --all.")


def _session_row(session: Session, now: datetime) -> tuple[str, ...]:
    return (
        session.id,
        session.scope.user or "-",
        session.title or "-",
        session.status,
        f"{session.messages:,}",
        age(session.updated_at, now),
    )


@sessions.command("show")
def show_session(
    session_id: SessionId,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="Maximum number of messages.")
    ] = 20,
    before: Annotated[
        int | None, typer.Option("--before", min=1, metavar="SEQ", help="Show messages before this sequence number.")
    ] = None,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a session and its newest messages."""
    scope = caller(tenant, site, user)
    wanted = Page(limit=limit, before=before)

    async def load(app: Tenuto) -> tuple[MessagePage, tuple[Task, ...]]:
        page = await app.sessions.messages(scope, await whole_session_id(app, scope, session_id), wanted)
        return page, await app.tasks.active(scope, page.session.id)

    page, active = run_command(load, store=store, read_only=True)
    if as_json:
        show_json({**asdict(MessageList.of(page)), "session": SessionDetail.with_tasks(page.session, active)})
    else:
        _print_messages(page, active)


def _print_messages(page: MessagePage, active: tuple[Task, ...]) -> None:
    tasks = [("active task", f"{task.id} ({task.status})") for task in active]
    show_facts([*_session_facts(page.session), *tasks])
    if page.more_before:
        typer.echo(f"\n(earlier messages: --before {page.messages[0].seq})")
    for message in page.messages:
        typer.echo()
        typer.secho(_message_heading(message), bold=True)
        typer.echo(visible(_message_text(message), lines=True))


def _session_facts(session: Session) -> list[tuple[str, str]]:
    facts = [
        ("session", session.id),
        ("title", session.title or "-"),
        ("tenant", f"{session.scope.tenant} / {session.scope.site}" if session.scope.site else session.scope.tenant),
        ("user", session.scope.user or "-"),
        ("status", session.status),
        ("size", f"{pluralize(session.messages, 'message')} in {pluralize(session.turns, 'turn')}"),
        ("usage", f"{pluralize(session.tokens, 'token')}, {session.cost_usd} USD"),
        ("created", moment(session.created_at)),
        ("changed", moment(session.updated_at)),
        ("expires", moment(session.expires_at)),
        ("version", str(session.version)),
    ]
    if session.forked_from is not None:
        facts.append(("forked from", f"{session.forked_from.session_id} at message {session.forked_from.seq}"))
    facts += [
        (name, msgspec.json.encode(values).decode())
        for name in ("context", "attributes", "metadata")
        if (values := getattr(session, name))
    ]
    return facts


def _message_heading(message: Message) -> str:
    who = f"{message.role} {message.speaker}" if message.speaker else str(message.role)
    counts = count_redacted([message])
    later = message.metadata.get(REDACTED_AT)
    when = f" after storing, {later}" if isinstance(later, str) else ""
    taken = f" · redacted{when}: {tally(counts)}" if counts else ""
    return visible(f"#{message.seq} {who} · {moment(message.sent_at)}{taken}")


def _message_text(message: Message) -> str:
    """A message for the reader: its texts as they are, everything else as JSON."""
    lines = [
        part["text"] if part["type"] == "text" else f"[{part['type']}] {msgspec.json.encode(part).decode()}"
        for part in message.parts
    ]
    return "\n".join(lines) or "(no text)"


@sessions.command("rename")
def rename_session(
    session_id: SessionId,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="New title.")],
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change the title of a session."""
    scope = caller(tenant, site, user)

    async def rename(app: Tenuto) -> Session:
        return await app.sessions.patch(scope, await whole_session_id(app, scope, session_id), Changes(title=title))

    changed = run_command(rename, store=store)
    _print_session(changed, f"Session {changed.id} is now called {changed.title or '(nothing)'}.", as_json)


@sessions.command("fork")
def fork_session(
    session_id: SessionId,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", min=0, metavar="SEQ", help="Sequence number of the last message to copy; by default all are copied."
        ),
    ] = None,
    new_id: Annotated[str | None, typer.Option("--new-id", metavar="ID", help="ID of the new session.")] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the new session.")] = None,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Copy a session up to a message into a new session."""
    scope = caller(tenant, site, user)

    async def copy(app: Tenuto) -> tuple[str, Session]:
        source = await whole_session_id(app, scope, session_id)
        return source, await app.sessions.fork(scope, source, at=at, new_id=new_id, title=title)

    source, fork = run_command(copy, store=store)
    _print_session(fork, f"Session {fork.id} begins with {pluralize(fork.messages, 'message')} of {source}.", as_json)


@sessions.command("reset")
def reset_session(
    session_id: SessionId,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete the messages of a session and keep the session."""
    scope = caller(tenant, site, user)

    async def reset(app: Tenuto) -> Session:
        return await app.sessions.reset(scope, await whole_session_id(app, scope, session_id))

    session = run_command(reset, store=store)
    _print_session(session, f"Session {session.id} is empty; title, attributes and totals stay.", as_json)


def _print_session(session: Session, sentence: str, as_json: bool) -> None:
    if as_json:
        show_json(SessionView.of(session))
    else:
        typer.echo(visible(sentence))


@sessions.command("delete")
def delete_sessions(
    session_ids: SessionIds,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete sessions with everything in them."""
    scope = caller(tenant, site, user)
    if not yes:
        _check_can_ask(as_json)
    # The question names what is meant.
    if any(map(is_short, session_ids)):
        session_ids = run_command(lambda app: _whole_ids(app, scope, session_ids), store=store, read_only=True)
    if not yes:
        _confirm_delete(session_ids)
    deleted, failures = run_command(lambda app: _delete_each(app, scope, session_ids), store=store)
    if as_json:
        show_json({"deleted": deleted, "failed": failures})
    else:
        _print_deleted(deleted, failures)
    if failures:
        raise typer.Exit(1)


async def _whole_ids(app: Tenuto, scope: Scope, session_ids: list[str]) -> list[str]:
    return [await whole_session_id(app, scope, session_id) for session_id in session_ids]


def _check_can_ask(as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter(
            "there is no terminal to ask for confirmation: pass --yes to delete permanently", param_hint="--yes"
        )


def _confirm_delete(session_ids: list[str]) -> None:
    named = visible(session_ids[0]) if len(session_ids) == 1 else pluralize(len(session_ids), "session")
    typer.confirm(f"Delete {named} permanently?", abort=True, err=True)


async def _delete_each(app: Tenuto, scope: Scope, session_ids: list[str]) -> tuple[list[str], list[JsonObject]]:
    """Delete each; one that is not there does not keep the others."""
    deleted: list[str] = []
    failures: list[JsonObject] = []
    for session_id in dict.fromkeys(session_ids):
        try:
            await app.sessions.delete(scope, session_id)
            deleted.append(session_id)
        except NotFound as absent:
            failures.append({"id": session_id, "code": absent.code, "error": str(absent)})
    return deleted, failures


def _print_deleted(deleted: list[str], failures: list[JsonObject]) -> None:
    for session_id in deleted:
        typer.echo(f"Deleted {visible(session_id)}.")
    for failure in failures:
        typer.echo(f"{failure['code']}: {failure['error']} ({visible(failure['id'])})", err=True)
