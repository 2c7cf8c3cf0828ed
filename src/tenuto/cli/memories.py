"""`tenuto memories`: what is remembered of users and chats, why it is found, and how it is changed and forgotten."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from tenuto.app import Tenuto
from tenuto.cli.options import (
    STDIN,
    Cursor,
    OfSession,
    Yes,
    argument,
    choice,
    confirm,
    flag,
    limit_option,
    option,
    session_option,
)
from tenuto.cli.running import Call, ChatCall, ChatStore, for_one_person
from tenuto.cli.short_ids import is_short, whole_memory_id, whole_session_id
from tenuto.cli.terminal import moment, pluralize, progress, safe_json, show_table, visible
from tenuto.cli.transfer import write_atomically
from tenuto.errors import Invalid, MemoryNotFound
from tenuto.model import Scope
from tenuto.model.memory import MAX_HITS, Memory, MemoryHit, MemoryKind, MemoryQuery
from tenuto.model.values import JsonObject, check_id
from tenuto.ports import utc_now
from tenuto.settings import read_settings

# The index and its embedder take a while to load, and help needs neither.
if TYPE_CHECKING:
    from tenuto.recall.prepared_search import RecallResult
    from tenuto.recall.service import Memories
    from tenuto.upkeep.memory_audit import MemoryAudit

_Answer = TypeVar("_Answer")
_LARGEST_PAGE = 500
_FORMAT, _VERSION = "tenuto.memories", 1
_UNREAD = "What was said last is not read for memories yet: try again in a moment."

memories = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, search, add, edit and forget memories.")

MemoryId = Annotated[str, argument("ID", "ID of the memory.", callback=lambda value: check_id(value, "the memory id"))]
Kind = Annotated[MemoryKind | None, choice("Show only this kind.")]
Superseded = Annotated[bool, flag("--superseded", "Also show memories that were superseded.")]


@memories.command("list")
def list_memories(
    call: ChatCall,
    kind: Kind = None,
    session: OfSession = None,
    superseded: Superseded = False,
    limit: Annotated[int, limit_option(_LARGEST_PAGE)] = 50,
    cursor: Cursor = None,
) -> None:
    """List memories, newest first."""
    from tenuto.recall.views import MemoryList

    of_session = _whole_session(call, session)
    kinds = () if kind is None else (kind,)

    async def read(service: Memories) -> tuple[tuple[Memory, ...], bool]:
        found = await service.list(
            call.scope, kinds=kinds, session_id=of_session, superseded=superseded, limit=limit, cursor=cursor
        )
        return found, await service.has_unread(call.scope)

    result, unread = _read(call, read)
    page = MemoryList.page(result, limit, unread=unread)
    call.show(page, lambda: _print_memories(result, superseded=superseded))
    if unread and not call.as_json:
        typer.echo(_UNREAD, err=True)
    if page.cursor is not None and not call.as_json:
        typer.echo(f"\n{pluralize(len(result), 'memory')} shown, and there may be more: --cursor {page.cursor}")


def _print_memories(memories: Sequence[Memory], *, superseded: bool = False, empty: str = "No memories.") -> None:
    if not memories:
        typer.echo(empty)
        return
    ends = ("UNTIL",) if superseded else ()
    rows = [
        (
            memory.id,
            memory.kind,
            _day(memory.said_at),
            *([_day(memory.valid_until) if memory.valid_until is not None else "-"] if superseded else []),
            str(memory.mentions),
            _on_one_line(memory.text),
        )
        for memory in memories
    ]
    show_table(
        ("ID", "KIND", "SAID", *ends, "MENTIONS", "TEXT"), rows, flexible="TEXT", numbers=("MENTIONS",), ids="ID"
    )


@memories.command("search")
def search_memories(
    call: ChatCall,
    query: Annotated[str, argument("QUERY", "Question or words to search for.")],
    limit: Annotated[int, limit_option(MAX_HITS)] = 5,
    kind: Kind = None,
    session: OfSession = None,
    since: Annotated[datetime | None, option("TIME", "Show only what was said at this time (UTC) or later.")] = None,
    until: Annotated[datetime | None, option("TIME", "Show only what was said before this time (UTC).")] = None,
    superseded: Superseded = False,
    mmr_lambda: Annotated[
        float, option("N", "1 ranks by relevance alone; lower values also favour variety.", min=0, max=1)
    ] = 0.7,
) -> None:
    """Search memories and show why each was found."""
    from tenuto.recall.views import MemoryHits

    memory_query = MemoryQuery(
        text=_check_not_blank(query, "the query"),
        limit=limit,
        any_persona=True,
        kinds=(kind,) if kind is not None else (),
        session_id=_whole_session(call, session),
        since=_utc(since),
        until=_utc(until),
        superseded=superseded,
        mmr_lambda=mmr_lambda,
    )
    result, remark = _read(call, lambda service: _search(service, call.scope, memory_query))
    call.show(MemoryHits.of(result), lambda: _print_hits(result))
    if remark and not call.as_json:
        typer.echo(remark, err=True)


def _print_hits(result: RecallResult) -> None:
    if not result.hits:
        typer.echo("Nothing was found.")
    for number, hit in enumerate(result.hits, start=1):
        _print_hit(number, hit)


async def _search(memories: Memories, scope: Scope, query: MemoryQuery) -> tuple[RecallResult, str]:
    """What was found, and why meaning had no part in it, or not in all of it."""
    await _warm(memories, scope)
    result = await memories.search(scope, query)
    if not result.degraded:
        return result, ""
    if result.unread:
        return result, _UNREAD
    lacking = await memories.count_unembedded(scope)
    if lacking and memories.embedder is not None and memories.embedder.ready:
        many = f"{pluralize(lacking, 'memory')} without a vector ranked by words alone"
        return result, f"{many}: a running server adds vectors within minutes, and a `tenuto chat` when it ends."
    return result, "The embedder did not answer: ranked by words alone. `tenuto doctor` says which one is in use."


def _print_hit(number: int, hit: MemoryHit) -> None:
    from tenuto.recall.views import shared_words

    memory, scores = hit.memory, hit.scores
    typer.secho(visible(f"{number}. {_on_one_line(memory.text)}"), bold=True)
    where = f"session {memory.session_id}" if memory.session_id else "written by hand"
    until = f" · until {_day(memory.valid_until)}" if memory.valid_until is not None else ""
    identity = f" · as {memory.identity}" if memory.identity else ""
    typer.echo(visible(f"   {memory.kind} · said {_day(memory.said_at)}{until}{identity} · {where} · id {memory.id}"))
    parts = {
        "words": scores.lexical,
        "meaning": scores.vector,
        "session": scores.session,
        "period": scores.period,
        "speaker": scores.speaker,
    }
    arms = " + ".join(f"{name} {part:.2f}" for name, part in parts.items() if part or name in ("words", "meaning"))
    shared_line = f"  shared: {', '.join(shared_words(hit))}" if scores.terms else ""
    like = f"  similar to one above {scores.similarity:.2f}" if scores.similarity > 0 else ""
    typer.echo(visible(f"   score {hit.score:.2f} = {arms}{shared_line}{like}"))


@memories.command("add")
def add_memory(
    call: ChatCall,
    text: Annotated[str, argument("TEXT", "Text to remember.")],
    kind: Annotated[MemoryKind, choice("Kind of the memory.")] = MemoryKind.FACT,
    subject: Annotated[str, option("WORDS", "Subject; a later memory of the same subject replaces this one.")] = "",
) -> None:
    """Remember a text, redacted by the privacy policy."""

    async def add(service: Memories) -> Memory:
        await _warm(service)
        return await service.add(call.scope, _check_not_blank(text, "the text"), kind=kind, subject=subject)

    _print_change(call, _run(call, add, making=True), "Remembered")


@memories.command("edit")
def edit_memory(
    call: ChatCall,
    memory_id: MemoryId,
    text: Annotated[str | None, option("TEXT", "New text.")] = None,
    kind: Annotated[MemoryKind | None, choice("New kind.")] = None,
) -> None:
    """Change the text or the kind of a memory."""
    if text is None and kind is None:
        raise typer.BadParameter("name what to change: --text or --kind", param_hint="--text")

    async def edit(service: Memories) -> Memory:
        await _warm(service)
        return await service.edit(
            call.scope, await whole_memory_id(service, call.scope, memory_id), text=text, kind=kind
        )

    _print_change(call, _run(call, edit), "Changed")


def _print_change(call: Call, memory: Memory, what: str) -> None:
    from tenuto.recall.views import MemoryView

    again = f", {memory.mentions} times" if memory.mentions > 1 else ""
    call.show(MemoryView.of(memory), f"{what} as {memory.kind} {memory.id}{again}: {_on_one_line(memory.text)}")


@memories.command("forget")
def forget_memories(
    call: ChatCall,
    memory_ids: Annotated[list[str] | None, argument("ID", "IDs of the memories.")] = None,
    session: Annotated[str | None, session_option("Forget all memories of this session.")] = None,
    search: Annotated[
        str | None, option("QUERY", "Forget what this search finds; the results are shown first.")
    ] = None,
    everything: Annotated[bool, flag("--all", "Forget all memories of the user or chat.")] = False,
    limit: Annotated[int, limit_option(MAX_HITS, "Maximum number of results of --search.")] = 5,
    yes: Yes = False,
) -> None:
    """Forget memories for good; ask first if there are several.

    Deleting a session keeps what is remembered of it: --session forgets that as well.
    """
    ids = list(dict.fromkeys(check_id(one, "the memory id") for one in memory_ids or ()))
    if sum([bool(ids), session is not None, search is not None, everything]) != 1:
        raise typer.BadParameter("give ids, or one of --session, --search and --all", param_hint="ID")
    of_session = _whole_session(call, session)
    if any(map(is_short, ids)):
        ids = _read(call, lambda service: _whole_ids(service, call.scope, ids))

    def forget(service: Memories, *, dry_run: bool) -> Awaitable[int]:
        return service.forget(call.scope, ids, session_id=of_session, everything=everything, dry_run=dry_run)

    if search is not None:
        ids = _choose(call, _check_not_blank(search, "the query"), limit, yes=yes)
    elif not yes and len(ids) != 1:
        _confirm(call, _read(call, lambda service: forget(service, dry_run=True)))
    count = _run(call, lambda service: forget(service, dry_run=False))
    if len(ids) == 1 and not count:
        raise MemoryNotFound
    call.show({"forgotten": count}, f"{pluralize(count, 'memory')} forgotten.")


async def _whole_ids(memories: Memories, scope: Scope, memory_ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([await whole_memory_id(memories, scope, memory_id) for memory_id in memory_ids]))


def _whole_session(call: Call, session: str | None) -> str:
    """The session of --session, `""` without one."""
    if session is None or not is_short(session):
        return session or ""
    return _run_app(call, lambda app: whole_session_id(app, call.scope, session), read_only=True)


def _choose(call: Call, query: str, limit: int, *, yes: bool) -> list[str]:
    """The ids that a search finds, once they were seen: a search always finds something."""
    if yes or call.as_json or not sys.stdin.isatty():
        raise typer.BadParameter(
            "check what the search finds first: `memories search`, then `memories forget ID`", param_hint="--search"
        )
    memory_query = MemoryQuery(text=query, limit=limit, any_persona=True)
    result, _ = _read(call, lambda memories: _search(memories, call.scope, memory_query))
    _print_hits(result)
    if not result.hits:
        raise typer.Exit
    _confirm(call, len(result.hits))
    return [hit.memory.id for hit in result.hits]


def _confirm(call: Call, many: int) -> None:
    confirm("forget", pluralize(many, "memory"), as_json=call.as_json)


@memories.command("preferences")
def preferences(
    call: ChatCall,
    wanted: Annotated[
        list[str] | None, option("TEXT", "Replace all preferences by this one; repeat it for several.", "--set")
    ] = None,
) -> None:
    """Show or replace the preferences of a user."""
    from tenuto.recall.views import MemoryView

    if wanted:
        texts = [_check_not_blank(text, "a preference") for text in wanted]
        preferences = _run(call, lambda service: service.set_preferences(call.scope, texts), making=True)
    else:
        preferences = _read(call, lambda service: service.preferences(call.scope))
    call.show(
        {"preferences": list(map(MemoryView.of, preferences))},
        lambda: _print_memories(preferences, empty="No preferences."),
    )


@memories.command("export")
def export_memories(
    call: ChatStore,
    output: Annotated[
        Path | None, option("FILE", "File to write; by default standard output.", "--output", "-o")
    ] = None,
) -> None:
    """Export all memories of a user or chat as JSON.

    Superseded memories are included.

    Private data is redacted unless TENUTO_PRIVACY_EXPORT says keep.
    """
    exported_memories = _run_app(call, lambda app: _export(app, call.scope), read_only=True)
    document = {"format": _FORMAT, "version": _VERSION, "memories": exported_memories}
    raw = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if output is None or str(output) == STDIN:
        typer.echo(safe_json(raw.decode()) if sys.stdout.isatty() else raw, nl=False)
        return
    with write_atomically(output) as file:
        file.write(raw)
    typer.echo(visible(f"{pluralize(len(exported_memories), 'memory')} written to {output}."))


async def _export(app: Tenuto, scope: Scope) -> list[JsonObject]:
    """Every memory as JSON, without what the policy keeps out of exports."""
    from tenuto.model.privacy import Sink
    from tenuto.privacy.json_texts import Slot
    from tenuto.recall.cursors import next_cursor
    from tenuto.recall.views import MemoryView

    memories, cursor, memories_so_far = await app.memories(), None, list[Memory]()
    while True:
        page = await memories.list(scope, superseded=True, limit=_LARGEST_PAGE, cursor=cursor)
        memories_so_far += page
        cursor = next_cursor(page, _LARGEST_PAGE)
        if cursor is None:
            break
    clean = await app.redactor.texts(Sink.EXPORT, scope, None, [Slot(memory.text) for memory in memories_so_far])
    return [
        {**msgspec.to_builtins(MemoryView.of(memory)), "text": text}
        for memory, text in zip(memories_so_far, clean.texts, strict=True)
    ]


@memories.command("audit")
def audit_memories(
    call: Annotated[Call, ("tenant", "site", "channel", "chat", "store", "as_json")],
    user: Annotated[str | None, option("ID", "Audit this user; by default all users and chats of the site.")] = None,
) -> None:
    """Count junk, repeated, superseded and expired memories.

    Memories without a vector are counted, too.

    Junk are quotations that would not be captured today: questions, small talk, nothing about the user.
    """
    call = replace(call, user=user)
    audit = call.read(lambda app: _audit(app, call.scope, quiet=call.as_json))
    document = {name: getattr(audit, name) for name in ("owners", "quotes", "junk", "junk_rate", "total", "kinds")}
    call.show({**document, "junk_rate": round(audit.junk_rate, 4)}, lambda: _print_audit(audit))


async def _audit(app: Tenuto, scope: Scope, *, quiet: bool) -> MemoryAudit:
    from tenuto.upkeep.memory_audit import MemoryAudit
    from tenuto.upkeep.memory_sweep import memory_owners

    memories = await app.memories()
    # The tenant itself may have memories too, where callers name no user.
    owners = [scope] if scope.owner else [scope, *[owner async for owner in memory_owners(app.store, scope)]]
    audit = MemoryAudit()
    with progress(owners, "Auditing", quiet=quiet) as remaining:
        for owner in remaining:
            if rows := [one async for one in memories.stored(owner)]:
                audit.add(rows, utc_now())
    return audit


def _print_audit(audit: MemoryAudit) -> None:
    if not audit.kinds:
        typer.echo("No memories.")
        return
    total = audit.total
    columns = tuple(total.__struct_fields__)
    rows = [
        (name, *(f"{getattr(counts, column):,}" for column in columns))
        for name, counts in [*sorted(audit.kinds.items()), ("all", total)]
    ]
    headings = tuple(column.replace("_", " ").upper() for column in columns)
    show_table(("KIND", *headings), rows, flexible="KIND", numbers=headings)
    typer.echo()
    junk = sum(audit.junk.values())
    reasons = ", ".join(f"{many:,} {reason}" for reason, many in sorted(audit.junk.items(), key=lambda one: -one[1]))
    typer.echo(f"{pluralize(total.stored, 'memory')} of {pluralize(audit.owners, 'owner')}.")
    typer.echo(
        f"Junk rate: {audit.junk_rate:.1%} ({junk:,} of {pluralize(audit.quotes, 'quotation')} that are current)"
        + (f": {reasons}." if reasons else ".")
    )
    repeats = total.exact + total.near
    share = repeats / total.holding if total.holding else 0.0
    typer.echo(f"Repeated: {share:.1%} ({repeats:,} of {total.holding:,} that are current).")


def _read(call: Call, story: Callable[[Memories], Awaitable[_Answer]]) -> _Answer:
    return _run(call, story, read_only=True)


def _run(
    call: Call, story: Callable[[Memories], Awaitable[_Answer]], *, making: bool = False, read_only: bool = False
) -> _Answer:
    async def run(app: Tenuto) -> _Answer:
        return await story(await app.memories())

    return _run_app(call, run, making=making, read_only=read_only)


def _run_app(
    call: Call, story: Callable[[Tenuto], Awaitable[_Answer]], *, making: bool = False, read_only: bool = False
) -> _Answer:
    """Run the story, unless it is about a caller without a user where nothing is remembered for one."""

    async def run_checked(app: Tenuto) -> _Answer:
        (await app.memories()).check_owner(call.scope)
        return await story(app)

    settings = for_one_person(read_settings(store=call.store))
    return call.run(run_checked, settings=settings, making=making, read_only=read_only)


async def _warm(memories: Memories, scope: Scope | None = None) -> None:
    """Load the embedder, unless there is nothing to search: a command has no second question that could use it."""
    if memories.embedder is None or memories.embedder.ready:
        return
    if scope is None or await memories.list(scope, superseded=True, limit=1):
        await memories.embedder.warm()


def _check_not_blank(text: str, what: str) -> str:
    if not text.strip():
        raise Invalid(f"{what} is empty")
    return text


def _utc(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None else None


def _day(at: datetime) -> str:
    return moment(at)[:10]


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
