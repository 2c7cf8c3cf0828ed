"""`tenuto sessions`: look at conversations, and change or remove them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
import typer
from msgspec.structs import asdict

from tenuto.app import Tenuto
from tenuto.cli import transfer
from tenuto.cli.options import Cursor, SessionId, SessionIds, Yes, argument, choice, confirm, flag, limit_option, option
from tenuto.cli.placeholders import count_redacted
from tenuto.cli.running import Call, UserCall
from tenuto.cli.short_ids import is_short, whole_session_id
from tenuto.cli.terminal import age, moment, pluralize, show_facts, show_table, tally, visible
from tenuto.errors import NotFound
from tenuto.model import (
    Changes,
    Message,
    MessagePage,
    Page,
    Scope,
    SearchPage,
    SearchQuery,
    Session,
    SessionPage,
    SessionQuery,
    Status,
)
from tenuto.model.privacy import REDACTED_AT
from tenuto.model.session import LARGEST_SEARCH
from tenuto.model.task import Task
from tenuto.model.values import JsonObject
from tenuto.ports import utc_now
from tenuto.sessions.views import MessageList, SessionDetail, SessionList, SessionView

_Answer = TypeVar("_Answer")
_LARGEST_PAGE = 1000

sessions = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List, show, change, export and delete sessions."
)
sessions.command("export")(transfer.export_session)
sessions.command("import")(transfer.import_sessions)


@sessions.command("list")
def list_sessions(
    call: UserCall,
    status: Annotated[Status | None, choice("Show only this status.")] = None,
    search: Annotated[str | None, option("TEXT", "Show only titles that contain this text.")] = None,
    limit: Annotated[int, limit_option()] = 50,
    everything: Annotated[bool, flag("--all", "Show all results.")] = False,
    cursor: Cursor = None,
) -> None:
    """List sessions, latest change first."""
    query = SessionQuery(title=search, status=status, cursor=cursor)
    page = call.read(lambda app: _list_sessions(app, call.scope, query, None if everything else limit))
    call.show(SessionList.of(page), lambda: show_sessions(page))


@sessions.command("search")
def search_sessions(
    call: UserCall,
    words: Annotated[str, argument("TEXT", "Words to search for, in titles and messages.")],
    status: Annotated[Status | None, choice("Show only this status.")] = None,
    limit: Annotated[int, limit_option(LARGEST_SEARCH)] = 20,
    cursor: Cursor = None,
) -> None:
    """Search sessions by what was said in them: those that have all words, latest change first."""
    query = SearchQuery(text=words, status=status, cursor=cursor, limit=limit)
    page = call.run(lambda app: app.sessions.search(call.scope, query))
    call.show(SessionList.of_search(page), lambda: _show_found(page))


def _show_found(page: SearchPage) -> None:
    now = utc_now()
    for found in page.found:
        session = found.session
        typer.echo(f"{session.id}  {session.title or '-'}  ({age(session.updated_at, now)})")
        for match in found.matches:
            typer.echo(f"    {match.seq} {match.role}: {match.excerpt}")
    if not page.found:
        typer.echo("No session has these words.")
    if page.unsearched:
        typer.echo(f"\n{pluralize(page.unsearched, 'session')} with new messages not searched yet: search again.")
    if page.cursor is not None:
        typer.echo(f"\n{pluralize(len(page.found), 'session')} shown, and there are more: --cursor {page.cursor}")


async def _list_sessions(app: Tenuto, scope: Scope, query: SessionQuery, limit: int | None) -> SessionPage:
    """One page after another, until there are `limit` or no more."""
    sessions: list[Session] = []
    while True:
        size = _LARGEST_PAGE if limit is None else min(limit - len(sessions), _LARGEST_PAGE)
        page = await app.sessions.list(scope, msgspec.structs.replace(query, limit=size))
        sessions += page.sessions
        if page.cursor is None or (limit is not None and len(sessions) >= limit):
            return SessionPage(sessions=tuple(sessions), cursor=page.cursor)
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
    call: UserCall,
    session_id: SessionId,
    limit: Annotated[int, limit_option(10_000, "Maximum number of messages.")] = 20,
    before: Annotated[int | None, option("SEQ", "Show messages before this sequence number.", min=1)] = None,
) -> None:
    """Show a session and its newest messages."""

    async def load(app: Tenuto) -> tuple[MessagePage, tuple[Task, ...]]:
        source = await whole_session_id(app, call.scope, session_id)
        page = await app.sessions.messages(call.scope, source, Page(limit=limit, before=before))
        return page, await app.tasks.active(call.scope, page.session.id)

    page, active = call.read(load)
    document = {**asdict(MessageList.of(page)), "session": SessionDetail.with_tasks(page.session, active)}
    call.show(document, lambda: _print_messages(page, active))


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
    redaction_note = f" · redacted{when}: {tally(counts)}" if counts else ""
    return visible(f"#{message.seq} {who} · {moment(message.sent_at)}{redaction_note}")


def _message_text(message: Message) -> str:
    """A message for the reader: its texts as they are, everything else as JSON."""
    lines = [
        part["text"] if part["type"] == "text" else f"[{part['type']}] {msgspec.json.encode(part).decode()}"
        for part in message.parts
    ]
    return "\n".join(lines) or "(no text)"


@sessions.command("rename")
def rename_session(
    call: UserCall, session_id: SessionId, title: Annotated[str, argument("TITLE", "New title.")]
) -> None:
    """Change the title of a session."""
    changes = Changes(title=title)
    session = _change(call, session_id, lambda app, full_id: app.sessions.patch(call.scope, full_id, changes))
    call.show(SessionView.of(session), f"Session {session.id} is now called {session.title or '(nothing)'}.")


@sessions.command("fork")
def fork_session(
    call: UserCall,
    session_id: SessionId,
    at: Annotated[
        int | None, option("SEQ", "Sequence number of the last message to copy; by default all are copied.", min=0)
    ] = None,
    new_id: Annotated[str | None, option("ID", "ID of the new session.")] = None,
    title: Annotated[str | None, option("TEXT", "Title of the new session.")] = None,
) -> None:
    """Copy a session up to a message into a new session."""

    async def copy(app: Tenuto, source: str) -> tuple[str, Session]:
        return source, await app.sessions.fork(call.scope, source, at=at, new_id=new_id, title=title)

    source, fork = _change(call, session_id, copy)
    messages = pluralize(fork.messages, "message")
    call.show(SessionView.of(fork), f"Session {fork.id} begins with {messages} of {source}.")


@sessions.command("reset")
def reset_session(call: UserCall, session_id: SessionId) -> None:
    """Delete the messages of a session and keep the session."""
    session = _change(call, session_id, lambda app, full_id: app.sessions.reset(call.scope, full_id))
    call.show(SessionView.of(session), f"Session {session.id} is empty; title, attributes and totals stay.")


def _change(call: Call, session_id: str, story: Callable[[Tenuto, str], Awaitable[_Answer]]) -> _Answer:
    """Let a story change the session that an id or a part of it names."""

    async def run(app: Tenuto) -> _Answer:
        return await story(app, await whole_session_id(app, call.scope, session_id))

    return call.run(run)


@sessions.command("delete")
def delete_sessions(call: UserCall, session_ids: SessionIds, yes: Yes = False) -> None:
    """Delete sessions with everything in them."""
    # The question names what is meant.
    if any(map(is_short, session_ids)):
        session_ids = call.read(lambda app: _whole_ids(app, call.scope, session_ids))
    if not yes:
        label = session_ids[0] if len(session_ids) == 1 else pluralize(len(session_ids), "session")
        confirm("delete", label, as_json=call.as_json)
    deleted_ids, failures = call.run(lambda app: _delete_each(app, call.scope, session_ids))
    call.show({"deleted": deleted_ids, "failed": failures}, lambda: _print_deletions(deleted_ids, failures))
    if failures:
        raise typer.Exit(1)


async def _whole_ids(app: Tenuto, scope: Scope, session_ids: list[str]) -> list[str]:
    return [await whole_session_id(app, scope, session_id) for session_id in session_ids]


async def _delete_each(app: Tenuto, scope: Scope, session_ids: list[str]) -> tuple[list[str], list[JsonObject]]:
    """Delete each; one that is not there does not keep the others."""
    deleted_ids: list[str] = []
    failures: list[JsonObject] = []
    for session_id in dict.fromkeys(session_ids):
        try:
            await app.sessions.delete(scope, session_id)
            deleted_ids.append(session_id)
        except NotFound as error:
            failures.append({"id": session_id, "code": error.code, "error": str(error)})
    return deleted_ids, failures


def _print_deletions(session_ids: list[str], failures: list[JsonObject]) -> None:
    for session_id in session_ids:
        typer.echo(f"Deleted {visible(session_id)}.")
    for failure in failures:
        typer.echo(f"{failure['code']}: {failure['error']} ({visible(failure['id'])})", err=True)
