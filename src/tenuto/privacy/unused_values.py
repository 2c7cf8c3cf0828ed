"""Deletes vault values whose placeholders were in removed messages and occur nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

from tenuto.model import Page, Scope, Session
from tenuto.model.turn import Trace
from tenuto.ports import SessionStore, TraceStore
from tenuto.privacy.crypto.vault import Vault
from tenuto.privacy.placeholders import PSEUDONYM
from tenuto.privacy.record_redaction import message_texts, session_texts, trace_texts

_MESSAGES: Final = 500
_TRACES: Final = 100


async def placeholders_after(
    sessions: SessionStore, traces: TraceStore, scope: Scope, session_id: str, after: int
) -> frozenset[str]:
    """The placeholders in messages after a sequence number, and in the traces of their turns."""
    found: set[str] = set()
    first: int | None = None
    while True:
        page = await sessions.messages(scope, session_id, Page(limit=_MESSAGES, after=after))
        found |= _placeholders_in(message_texts(page.messages))
        if first is None and page.messages:
            first = page.messages[0].turn
        if not page.more_after or not page.messages:
            break
        after = page.messages[-1].seq
    async for noted in iter_trace_pages(traces, scope, session_id):
        found |= _placeholders_in(trace_texts(trace for trace in noted if first is not None and trace.number >= first))
        if first is None or noted[-1].number < first:
            break
    return frozenset(found)


async def drop_unused_values(
    sessions: SessionStore, traces: TraceStore, vault: Vault, session: Session, among: frozenset[str]
) -> None:
    """Of these placeholders, delete the values of those that occur in no stored text of the session.

    A value appended at this very moment outside a turn loses its entry; the message stays.
    """
    left = set(among & await vault.marks(session)) - _placeholders_in(session_texts(session)) if among else set()
    before: int | None = None
    while left:
        page = await sessions.messages(session.scope, session.id, Page(limit=_MESSAGES, before=before))
        left -= _placeholders_in(message_texts(page.messages))
        if not page.more_before or not page.messages:
            break
        before = page.messages[0].seq
    if left:
        async for noted in iter_trace_pages(traces, session.scope, session.id):
            left -= _placeholders_in(trace_texts(noted))
    await vault.retain(session, (), frozenset(left))


async def iter_trace_pages(traces: TraceStore, scope: Scope, session_id: str) -> AsyncIterator[tuple[Trace, ...]]:
    before: int | None = None
    while page := await traces.traces(scope, session_id, _TRACES, before):
        yield page
        before = page[-1].number


def _placeholders_in(texts: Iterable[str]) -> set[str]:
    return {mark[0] for text in texts if "[" in text for mark in PSEUDONYM.finditer(text)}
