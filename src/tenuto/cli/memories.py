"""`tenuto memories`: what is remembered of users and chats, why it is found, and how it is changed and forgotten."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from tenuto.app import Tenuto
from tenuto.cli.options import LOCAL, AsJson, Site, StoreUrl, Tenant, User, caller, complete_session
from tenuto.cli.running import for_one_person, run_command
from tenuto.cli.short_ids import is_short, whole_memory_id, whole_session_id
from tenuto.cli.terminal import moment, pluralize, progress, safe_json, show_json, show_table, visible
from tenuto.cli.transfer import write_atomically
from tenuto.errors import Invalid, MemoryNotFound
from tenuto.model import Scope
from tenuto.model.memory import MAX_HITS, Memory, MemoryHit, MemoryKind, MemoryQuery
from tenuto.model.values import JsonObject, check_id
from tenuto.ports import utc_now
from tenuto.settings import read_settings

# The index and its embedder take a while to load, and help needs neither.
if TYPE_CHECKING:
    from tenuto.recall.service import Memories, RecallResult
    from tenuto.upkeep.memory_audit import MemoryAudit

_Answer = TypeVar("_Answer")
_LARGEST_PAGE = 500
_FORMAT, _VERSION = "tenuto.memories", 1

memories = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, search, add, edit and forget memories.")

MemoryId = Annotated[
    str, typer.Argument(metavar="ID", callback=lambda value: check_id(value, "the memory id"), help="ID of the memory.")
]
Kind = Annotated[MemoryKind | None, typer.Option("--kind", help="Show only this kind.")]
OfSession = Annotated[
    str | None, typer.Option("--session", metavar="ID", autocompletion=complete_session, help="Show only this session.")
]
Superseded = Annotated[bool, typer.Option("--superseded", help="Also show memories that were superseded.")]
Chat = Annotated[str | None, typer.Option("--chat", metavar="ID", help="Act for this group chat.")]
Channel = Annotated[
    str | None, typer.Option("--channel", metavar="NAME", help="Chat platform of --chat, such as lark.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@memories.command("list")
def list_memories(
    kind: Kind = None,
    session: OfSession = None,
    superseded: Superseded = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=_LARGEST_PAGE, metavar="N", help="Maximum number of results.")
    ] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="Continue a listing from its cursor.")
    ] = None,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    channel: Channel = None,
    chat: Chat = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List memories, newest first."""
    from tenuto.recall.views import MemoryList

    scope = _owner(tenant, site, user, channel, chat)
    of_session = _whole_session(scope, session, store)
    found = _run(
        scope,
        lambda held: held.list(
            scope,
            kinds=(kind,) if kind is not None else (),
            session_id=of_session,
            superseded=superseded,
            limit=limit,
            cursor=cursor,
        ),
        store,
        read_only=True,
    )
    page = MemoryList.page(found, limit)
    if as_json:
        show_json(page)
        return
    _print_memories(found, superseded=superseded)
    if page.cursor is not None:
        typer.echo(f"\n{pluralize(len(found), 'memory')} shown, and there may be more: --cursor {page.cursor}")


def _print_memories(found: Sequence[Memory], *, superseded: bool = False) -> None:
    if not found:
        typer.echo("No memories.")
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
        for memory in found
    ]
    show_table(
        ("ID", "KIND", "SAID", *ends, "MENTIONS", "TEXT"), rows, flexible="TEXT", numbers=("MENTIONS",), ids="ID"
    )


@memories.command("search")
def search_memories(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Question or words to search for.")],
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MAX_HITS, metavar="N", help="Maximum number of results.")
    ] = 5,
    kind: Kind = None,
    session: OfSession = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", metavar="TIME", help="Show only what was said at this time (UTC) or later."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", metavar="TIME", help="Show only what was said before this time (UTC).")
    ] = None,
    superseded: Superseded = False,
    mmr_lambda: Annotated[
        float,
        typer.Option(
            "--mmr-lambda",
            min=0,
            max=1,
            metavar="N",
            help="1 ranks by relevance alone; lower values also favour variety.",
        ),
    ] = 0.7,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    channel: Channel = None,
    chat: Chat = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Search memories and show why each was found."""
    from tenuto.recall.views import MemoryHits

    scope = _owner(tenant, site, user, channel, chat)
    asked = MemoryQuery(
        text=_said(query, "the query"),
        limit=limit,
        any_persona=True,
        kinds=(kind,) if kind is not None else (),
        session_id=_whole_session(scope, session, store),
        since=_utc(since),
        until=_utc(until),
        superseded=superseded,
        mmr_lambda=mmr_lambda,
    )
    result, remark = _run(scope, lambda held: _search(held, scope, asked), store, read_only=True)
    if as_json:
        show_json(MemoryHits.of(result))
        return
    if not result.hits:
        typer.echo("Nothing was found.")
    for number, hit in enumerate(result.hits, start=1):
        _print_hit(number, hit)
    if remark:
        typer.echo(remark, err=True)


async def _search(held: Memories, scope: Scope, query: MemoryQuery) -> tuple[RecallResult, str]:
    """What was found, and why meaning had no part in it, or not in all of it."""
    await _warm(held, scope)
    result = await held.search(scope, query)
    if not result.degraded:
        return result, ""
    lacking = await held.count_unembedded(scope)
    if lacking and held.embedder is not None and held.embedder.ready:
        many = f"{pluralize(lacking, 'memory')} without a vector ranked by words alone"
        return result, f"{many}: a running server adds vectors within minutes, and a `tenuto chat` when it ends."
    return result, "The embedder did not answer: ranked by words alone. `tenuto doctor` says which one is in use."


def _print_hit(number: int, hit: MemoryHit) -> None:
    from tenuto.recall.views import shared_words

    memory, scores = hit.memory, hit.scores
    typer.secho(visible(f"{number}. {_on_one_line(memory.text)}"), bold=True)
    where = f"session {memory.session_id}" if memory.session_id else "written by hand"
    until = f" · until {_day(memory.valid_until)}" if memory.valid_until is not None else ""
    typer.echo(visible(f"   {memory.kind} · said {_day(memory.said_at)}{until} · {where} · id {memory.id}"))
    parts = {
        "words": scores.lexical,
        "meaning": scores.vector,
        "session": scores.session,
        "period": scores.period,
        "speaker": scores.speaker,
    }
    arms = " + ".join(f"{name} {part:.2f}" for name, part in parts.items() if part or name in ("words", "meaning"))
    shared = f"  shared: {', '.join(shared_words(hit))}" if scores.terms else ""
    like = f"  similar to one above {scores.similarity:.2f}" if scores.similarity > 0 else ""
    typer.echo(visible(f"   score {hit.score:.2f} = {arms}{shared}{like}"))


@memories.command("add")
def add_memory(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text to remember.")],
    kind: Annotated[MemoryKind, typer.Option("--kind", help="Kind of the memory.")] = MemoryKind.FACT,
    subject: Annotated[
        str,
        typer.Option(
            "--subject", metavar="WORDS", help="Subject; a later memory of the same subject replaces this one."
        ),
    ] = "",
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    channel: Channel = None,
    chat: Chat = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Remember a text, redacted by the privacy policy."""
    scope = _owner(tenant, site, user, channel, chat)

    async def add(held: Memories) -> Memory:
        await _warm(held)
        return await held.add(scope, _said(text, "the text"), kind=kind, subject=subject)

    _print_change(_run(scope, add, store, making=True), "Remembered", as_json)


@memories.command("edit")
def edit_memory(
    memory_id: MemoryId,
    text: Annotated[str | None, typer.Option("--text", metavar="TEXT", help="New text.")] = None,
    kind: Annotated[MemoryKind | None, typer.Option("--kind", help="New kind.")] = None,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    channel: Channel = None,
    chat: Chat = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Change the text or the kind of a memory."""
    if text is None and kind is None:
        raise typer.BadParameter("name what to change: --text or --kind", param_hint="--text")
    scope = _owner(tenant, site, user, channel, chat)

    async def edit(held: Memories) -> Memory:
        await _warm(held)
        return await held.edit(scope, await whole_memory_id(held, scope, memory_id), text=text, kind=kind)

    _print_change(_run(scope, edit, store), "Changed", as_json)


def _print_change(memory: Memory, what: str, as_json: bool) -> None:
    from tenuto.recall.views import MemoryView

    if as_json:
        show_json(MemoryView.of(memory))
    else:
        again = f", {memory.mentions} times" if memory.mentions > 1 else ""
        typer.echo(visible(f"{what} as {memory.kind} {memory.id}{again}: {_on_one_line(memory.text)}"))


@memories.command("forget")
def forget_memories(
    memory_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="IDs of the memories.")] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID", autocompletion=complete_session, help="Forget all memories of this session."
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="QUERY", help="Forget what this search finds; the results are shown first."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Forget all memories of the user or chat.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MAX_HITS, metavar="N", help="Maximum number of results of --search.")
    ] = 5,
    yes: Yes = False,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    channel: Channel = None,
    chat: Chat = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Forget memories for good; ask first if there are several.

    Deleting a session keeps what is remembered of it: --session forgets that as well.
    """
    ids = list(dict.fromkeys(check_id(one, "the memory id") for one in memory_ids or ()))
    if sum([bool(ids), session is not None, search is not None, everything]) != 1:
        raise typer.BadParameter("give ids, or one of --session, --search and --all", param_hint="ID")
    scope = _owner(tenant, site, user, channel, chat)
    of_session = _whole_session(scope, session, store)
    if any(map(is_short, ids)):
        ids = _run(scope, lambda held: _whole_ids(held, scope, ids), store, read_only=True)
    if search is not None:
        ids = _choose(scope, _said(search, "the query"), limit, store, yes=yes, as_json=as_json)
    elif not yes and len(ids) != 1:
        many = _run(
            scope,
            lambda held: held.forget(scope, ids, session_id=of_session, everything=everything, dry_run=True),
            store,
            read_only=True,
        )
        _confirm(many, as_json)

    forgotten = _run(scope, lambda held: held.forget(scope, ids, session_id=of_session, everything=everything), store)
    if len(ids) == 1 and not forgotten:
        raise MemoryNotFound
    if as_json:
        show_json({"forgotten": forgotten})
    else:
        typer.echo(f"{pluralize(forgotten, 'memory')} forgotten.")


async def _whole_ids(held: Memories, scope: Scope, memory_ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([await whole_memory_id(held, scope, memory_id) for memory_id in memory_ids]))


def _whole_session(scope: Scope, session: str | None, store: str | None) -> str:
    """The session of --session, `""` without one."""
    if session is None or not is_short(session):
        return session or ""
    return _run_app(scope, lambda app: whole_session_id(app, scope, session), store, read_only=True)


def _choose(scope: Scope, query: str, limit: int, store: str | None, *, yes: bool, as_json: bool) -> list[str]:
    """The ids that a search finds, once they were seen: a search always finds something."""
    if yes or as_json or not sys.stdin.isatty():
        raise typer.BadParameter(
            "check what the search finds first: `memories search`, then `memories forget ID`", param_hint="--search"
        )
    asked = MemoryQuery(text=query, limit=limit, any_persona=True)
    result, _ = _run(scope, lambda held: _search(held, scope, asked), store, read_only=True)
    for number, hit in enumerate(result.hits, start=1):
        _print_hit(number, hit)
    if not result.hits:
        typer.echo("Nothing was found.")
        raise typer.Exit
    _confirm(len(result.hits), as_json)
    return [hit.memory.id for hit in result.hits]


def _confirm(many: int, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter(
            "there is no terminal to ask for confirmation: pass --yes to forget permanently", param_hint="--yes"
        )
    typer.confirm(f"Forget {pluralize(many, 'memory')} permanently?", abort=True, err=True)


@memories.command("preferences")
def preferences(
    wanted: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TEXT", help="Replace all preferences by this one; repeat it for several."),
    ] = None,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    channel: Channel = None,
    chat: Chat = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show or replace the preferences of a user."""
    from tenuto.recall.views import MemoryView

    scope = _owner(tenant, site, user, channel, chat)
    if wanted:
        texts = [_said(text, "a preference") for text in wanted]
        held = _run(scope, lambda held: held.set_preferences(scope, texts), store, making=True)
    else:
        held = _run(scope, lambda held: held.preferences(scope), store, read_only=True)
    if as_json:
        show_json({"preferences": list(map(MemoryView.of, held))})
    elif not held:
        typer.echo("No preferences.")
    else:
        _print_memories(held)


@memories.command("export")
def export_memories(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; by default standard output.")
    ] = None,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    channel: Channel = None,
    chat: Chat = None,
    store: StoreUrl = None,
) -> None:
    """Export all memories of a user or chat as JSON.

    Superseded memories are included.

    Private data is redacted unless TENUTO_PRIVACY_EXPORT says keep.
    """
    scope = _owner(tenant, site, user, channel, chat)
    found = _run_app(scope, lambda app: _export(app, scope), store, read_only=True)
    document = {"format": _FORMAT, "version": _VERSION, "memories": found}
    raw = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if output is None or str(output) == "-":
        typer.echo(safe_json(raw.decode()) if sys.stdout.isatty() else raw, nl=False)
        return
    with write_atomically(output) as file:
        file.write(raw)
    typer.echo(visible(f"{pluralize(len(found), 'memory')} written to {output}."))


async def _export(app: Tenuto, scope: Scope) -> list[JsonObject]:
    """Every memory as JSON, without what the policy keeps out of exports."""
    from tenuto.model.privacy import Sink
    from tenuto.privacy.redactor import Slot
    from tenuto.recall.service import next_cursor
    from tenuto.recall.views import MemoryView

    held, cursor, found = await app.memories(), None, list[Memory]()
    while True:
        page = await held.list(scope, superseded=True, limit=_LARGEST_PAGE, cursor=cursor)
        found += page
        cursor = next_cursor(page, _LARGEST_PAGE)
        if cursor is None:
            break
    clean = await app.redactor.texts(Sink.EXPORT, scope, None, [Slot(memory.text) for memory in found])
    return [
        {**msgspec.to_builtins(MemoryView.of(memory)), "text": text}
        for memory, text in zip(found, clean.texts, strict=True)
    ]


@memories.command("audit")
def audit_memories(
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="ID", help="Audit this user; by default all users and chats of the site."),
    ] = None,
    channel: Channel = None,
    chat: Chat = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Count junk, repeated, superseded and expired memories.

    Memories without a vector are counted, too.

    Junk are quotations that would not be captured today: questions, small talk, nothing about the user.
    """
    scope = _owner(tenant, site, user, channel, chat)
    audit = run_command(lambda app: _audit(app, scope, quiet=as_json), store=store, read_only=True)
    if as_json:
        show_json(
            {
                "owners": audit.owners,
                "quotes": audit.quotes,
                "junk": audit.junk,
                "junk_rate": round(audit.junk_rate, 4),
                "total": audit.total,
                "kinds": audit.kinds,
            }
        )
    else:
        _print_audit(audit)


async def _audit(app: Tenuto, scope: Scope, *, quiet: bool) -> MemoryAudit:
    from tenuto.upkeep.memory_audit import MemoryAudit
    from tenuto.upkeep.memory_sweep import memory_owners

    memories = await app.memories()
    # The tenant itself may have memories too, where callers name no user.
    owners = [scope] if scope.owner else [scope, *[owner async for owner in memory_owners(app.store, scope)]]
    audit = MemoryAudit()
    with progress(owners, "Auditing", quiet=quiet) as remaining:
        for owner in remaining:
            if stored := [one async for one in memories.stored(owner)]:
                audit.add(stored, utc_now())
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
    repeated = total.exact + total.near
    share = repeated / total.holding if total.holding else 0.0
    typer.echo(f"Repeated: {share:.1%} ({repeated:,} of {total.holding:,} that are current).")


def _owner(tenant: str, site: str, user: str | None, channel: str | None, chat: str | None) -> Scope:
    """Whose memories: a chat's, a user's, or those of the tenant itself."""
    scope = caller(tenant, site, user)
    if chat is None:
        if channel is not None:
            raise typer.BadParameter("needs --chat", param_hint="--channel")
        return scope
    return Scope(tenant=scope.tenant, site=site, user=user, channel=channel, chat=chat)


def _run(
    scope: Scope,
    story: Callable[[Memories], Awaitable[_Answer]],
    store: str | None,
    *,
    making: bool = False,
    read_only: bool = False,
) -> _Answer:
    async def tell(app: Tenuto) -> _Answer:
        return await story(await app.memories())

    return _run_app(scope, tell, store, making=making, read_only=read_only)


def _run_app(
    scope: Scope,
    story: Callable[[Tenuto], Awaitable[_Answer]],
    store: str | None,
    *,
    making: bool = False,
    read_only: bool = False,
) -> _Answer:
    """Run the story, unless it is about a caller without a user where nothing is remembered for one."""

    async def checked(app: Tenuto) -> _Answer:
        (await app.memories()).check_owner(scope)
        return await story(app)

    settings = for_one_person(read_settings(store=store))
    return run_command(checked, store=store, settings=settings, making=making, read_only=read_only)


async def _warm(held: Memories, scope: Scope | None = None) -> None:
    """Load the embedder, unless there is nothing to search: a command has no second question that could use it."""
    if held.embedder is None or held.embedder.ready:
        return
    if scope is None or await held.list(scope, superseded=True, limit=1):
        await held.embedder.warm()


def _said(text: str, what: str) -> str:
    if not text.strip():
        raise Invalid(f"{what} is empty")
    return text


def _utc(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None else None


def _day(at: datetime) -> str:
    return moment(at)[:10]


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
