"""Ids as people type them: the beginning or the end of an id that tenuto made stands for it, where one fits.

Ids that a caller chose are typed whole: `user-1` must never come to mean `user-10`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import typer
from msgspec.structs import replace

from tenuto.access import ApiKeys
from tenuto.app import Tenuto
from tenuto.cli.terminal import MADE_ID, pluralize, visible
from tenuto.errors import Invalid, NotFound
from tenuto.model import Scope, SessionQuery
from tenuto.model.task import TaskQuery
from tenuto.sessions.traces import latest_traces

# The index of memories takes a while to load.
if TYPE_CHECKING:
    from tenuto.recall.service import Memories

_SHORTEST: Final = 4
_HEX: Final = "[0-9a-f]"
_SHORT: Final = re.compile(rf"(?=.{{{_SHORTEST}}})(?:[a-z]+[-_])?{_HEX}[0-9a-f-]*")
_SEARCHED: Final = 5000
_PAGE: Final = 500
_TRACES: Final = 1000
_CANDIDATES: Final = 5
_TITLE: Final = 60


class AmbiguousId(Invalid):
    """Several ids begin or end like this; they are on standard error."""

    code = "ambiguous_id"


def is_short(text: str) -> bool:
    """Whether this may stand for a longer id; a whole id never costs a look into the store."""
    return _SHORT.fullmatch(_bare(text)) is not None and MADE_ID.fullmatch(_bare(text)) is None


async def whole_session_id(app: Tenuto, scope: Scope, text: str) -> str:
    """The id of the session that is meant; what fits none is returned as it is."""

    async def newest() -> AsyncIterator[tuple[str, str]]:
        query = SessionQuery(limit=_PAGE)
        while True:
            page = await app.sessions.list(scope, query)
            for session in page.sessions:
                yield session.id, session.title
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    return await _whole_id(text, "session", lambda: app.sessions.get(scope, text), newest)


async def whole_task_id(app: Tenuto, scope: Scope, text: str) -> str:
    """The id of the task that is meant."""

    async def newest() -> AsyncIterator[tuple[str, str]]:
        query = TaskQuery(limit=_PAGE, newest_first=True)
        while True:
            page = await app.tasks.list(scope, query)
            for task in page.tasks:
                yield task.id, task.goal or task.type
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    return await _whole_id(text, "task", lambda: app.tasks.get(scope, text), newest)


async def whole_memory_id(memories: Memories, scope: Scope, text: str) -> str:
    """The id of the memory that is meant."""

    async def newest() -> AsyncIterator[tuple[str, str]]:
        from tenuto.recall.cursors import next_cursor

        cursor = None
        while True:
            page = await memories.list(scope, superseded=True, limit=_PAGE, cursor=cursor)
            for memory in page:
                yield memory.id, memory.text
            cursor = next_cursor(page, _PAGE)
            if cursor is None:
                return

    return await _whole_id(text, "memory", lambda: memories.get(scope, text), newest)


async def whole_key_id(keys: ApiKeys, text: str) -> str:
    """The id of the API key that is meant."""

    async def newest() -> AsyncIterator[tuple[str, str]]:
        for key in await keys.list(None):
            yield key.id, key.name

    return await _whole_id(text, "key", None, newest)


async def whole_trace_id(app: Tenuto, scope: Scope, text: str) -> str:
    """The id of the trace that is meant. All begin alike, so it is told by its end."""
    traces = await latest_traces(app.store.traces, app.sessions, scope, _TRACES)
    fits = [(trace.id, trace.request) for trace in traces.traces if len(text) >= _SHORTEST and trace.id.endswith(text)]
    return _choose(text, "trace", fits, len(traces.traces) if traces.truncated else None)


async def _whole_id(
    text: str,
    what: str,
    read: Callable[[], Awaitable[object]] | None,
    newest: Callable[[], AsyncIterator[tuple[str, str]]],
) -> str:
    """The one id among the newest that begins or ends like this.

    Raises:
        AmbiguousId: there are several.
    """
    if not is_short(text):
        return text
    if read is not None:
        try:
            await read()
        except NotFound:
            pass
        else:
            return text
    part, fits, count = _bare(text), list[tuple[str, str]](), 0
    async for full_id, title in newest():
        if count == _SEARCHED:
            return _choose(text, what, fits, count)
        count += 1
        if MADE_ID.fullmatch(full_id) and (full_id.startswith(part) or full_id.endswith(part)):
            fits.append((full_id, title))
    return _choose(text, what, fits, None)


def _choose(text: str, what: str, fits: Sequence[tuple[str, str]], searched_count: int | None) -> str:
    """The only one that fits; `searched_count` is how many were looked at if there are more."""
    if searched_count is not None:
        typer.echo(f"(only the newest {pluralize(searched_count, what)} were searched for {visible(text)})", err=True)
    if not fits:
        return text
    if len(fits) == 1:
        return fits[0][0]
    for full_id, title in fits[:_CANDIDATES]:
        line = " ".join(title.split())
        typer.echo(
            visible(f"  {full_id}  {line if len(line) <= _TITLE else line[: _TITLE - 1] + '…'}".rstrip()), err=True
        )
    if len(fits) > _CANDIDATES:
        typer.echo(f"  and {len(fits) - _CANDIDATES:,} more", err=True)
    raise AmbiguousId(f"{pluralize(len(fits), what)} have an id that begins or ends with {text}: type more of it")


def _bare(text: str) -> str:
    """Without the mark that tables put before the end of an id."""
    return text.removeprefix("…")
