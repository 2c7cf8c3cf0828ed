"""Removes a user's messages from sessions that belong to others, and keeps the sessions.

The messages are blanked, and the request, tool runs and data of the traces of their turns. The answers stay, without
private data; the vault keeps values whose placeholders still occur.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from msgspec.structs import replace

from tenuto.errors import SessionNotFound
from tenuto.model import Changes, Message, Page, Rewrite, Role, Scope, Session, text_part
from tenuto.model.message import STATE, is_summary
from tenuto.model.session import PROFILE
from tenuto.model.turn import Trace
from tenuto.ports import Store
from tenuto.privacy.placeholders import PSEUDONYM
from tenuto.privacy.record_redaction import message_texts, replace_draft_texts, session_texts, trace_texts
from tenuto.privacy.redactor import Redactor

ERASED: Final = "[ERASED]"
_MESSAGES: Final = 500
_TRACES: Final = 100


class Mentions:
    """Removes a speaker from a session."""

    def __init__(self, *, store: Store, redactor: Redactor) -> None:
        self._sessions = store.sessions
        self._traced = store.traces
        self._redactor = redactor

    async def erase_user(self, scope: Scope, session: Session, user: str) -> dict[str, int]:
        """Erase the user's messages in the session; returns counts of what was removed.

        Messages go last: a retry after a crash finds the session by them.
        """
        try:
            removed = await self._erase_user(scope, session, user)
            # Messages beyond the cap may still be stored, and do not tell whose they are.
            await self._sessions.rewrite(scope, session.id, Rewrite())
            return removed
        except SessionNotFound:
            return {}  # Deleted meanwhile.

    async def _erase_user(self, scope: Scope, session: Session, user: str) -> dict[str, int]:
        clean = self._text_redactor(scope)
        vault = self._redactor.vault
        marks = await vault.marks(session) if vault is not None else frozenset()
        turns = await self._turns_asked_by(scope, session, user)
        left: list[str] = []
        said = values = 0
        async for page in self._iter_pages(scope, session):
            said += sum(message.speaker == user for message in page)
            turns.update(message.turn for message in page if message.speaker == user)
            left += message_texts(_erase_message(message, user, turns, clean) for message in page)
        known, session = session, await self._delete_profile(scope, session, user)
        profiles = int(session is not known)
        if not turns:
            return {"profiles": profiles}
        traces = await self._traces(scope, session, turns, clean)
        left += trace_texts(traces)
        if vault is not None:
            values = await vault.retain(session, [*left, *session_texts(session)], marks)
        async for page in self._iter_pages(scope, session):
            changed = [(message, _erase_message(message, user, turns, clean)) for message in page]
            messages = tuple(after for before, after in changed if after is not before)
            if messages:
                await self._sessions.rewrite(scope, session.id, Rewrite(messages=messages))
        forgotten = sum(trace.number in turns for trace in traces)
        return {"shared_messages": said, "vault_values": values, "traces": forgotten, "profiles": profiles}

    async def forget_orphans(self, scope: Scope) -> int:
        """Remove vault values of deleted sessions; returns the number of sessions."""
        return await self._redactor.vault.forget_orphans(scope) if self._redactor.vault is not None else 0

    async def _turns_asked_by(self, scope: Scope, session: Session, user: str) -> set[int]:
        """The turns of the user by their traces: the messages may have been trimmed already."""
        turns: set[int] = set()
        before: int | None = None
        while True:
            traces = await self._traced.traces(scope, session.id, _TRACES, before)
            turns.update(trace.number for trace in traces if trace.speaker == user)
            if len(traces) < _TRACES:
                return turns
            before = traces[-1].number

    async def _delete_profile(self, scope: Scope, session: Session, user: str) -> Session:
        """Delete the profile in the session context if the user owns the session."""
        if session.scope.user != user or PROFILE not in session.context:
            return session
        return await self._sessions.patch(scope, session.id, Changes(context={PROFILE: None}))

    async def _traces(
        self, scope: Scope, session: Session, turns: set[int], clean: Callable[[str], str]
    ) -> list[Trace]:
        """Erase the user's turns in the traces; returns all traces afterwards."""
        left: list[Trace] = []
        before: int | None = None
        while True:
            traces = await self._traced.traces(scope, session.id, _TRACES, before)
            changed = tuple(
                replace(trace, request=ERASED, answer=clean(trace.answer), tools=(), data={}, speaker=None)
                for trace in traces
                if trace.number in turns
            )
            if changed:
                await self._sessions.rewrite(scope, session.id, Rewrite(traces=changed))
            left += [*changed, *(trace for trace in traces if trace.number not in turns)]
            if len(traces) < _TRACES:
                return left
            before = traces[-1].number

    async def _iter_pages(self, scope: Scope, session: Session) -> AsyncIterator[tuple[Message, ...]]:
        after = 0
        while True:
            page = await self._sessions.messages(scope, session.id, Page(limit=_MESSAGES, after=after))
            yield page.messages
            if not page.more_after or not page.messages:
                return
            after = page.messages[-1].seq

    def _text_redactor(self, scope: Scope) -> Callable[[str], str]:
        """A function that redacts private data in a text, and placeholders that could still be restored."""
        finder = self._redactor.policies.finder(scope)
        return lambda text: finder.redact(PSEUDONYM.sub(r"[REDACTED_\1]", text))


def _erase_message(message: Message, user: str, turns: set[int], clean: Callable[[str], str]) -> Message:
    """The message after erasure: the user's own is blanked, others may be unchanged."""
    if message.speaker == user:
        return replace(message, parts=(text_part(ERASED),), speaker=None, tokens=0, metadata={}, extra={})
    if STATE in message.metadata:
        # Tool state is passed on from answer to answer, and may hold data of this user.
        metadata = {name: value for name, value in message.metadata.items() if name != STATE}
        message = replace(message, metadata=metadata)
    if message.turn not in turns or message.role is Role.USER or is_summary(message):
        return message
    cleaned = replace_draft_texts(message, lambda slot: clean(slot.text))
    return message if cleaned == message else cleaned
