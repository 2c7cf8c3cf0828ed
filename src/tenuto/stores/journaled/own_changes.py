"""The sessions that this process was the last to change: only it may go on with them while the store is down.

Otherwise two processes that have both seen a session could each journal turns of it, without those of the other in
their context and in an order that only clocks tell. A feed that cannot attribute a change reports it once for each of
our calls, at about the time of the answer: reports beyond that are of others. In doubt a session counts as changed by
another process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tenuto.errors import TenutoError, Unavailable
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    Session,
    Touch,
    Truncation,
)
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import SessionStore

_MOMENT: Final = 0.25
"""Seconds after the answer for which the report of a change may be missing."""
_MAX_SESSIONS: Final = 20_000
_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class _Activity:
    """Our changes of a session: calls under way, reports that are due until a time, and whose change was the last."""

    under_way: int = 0
    due: int = 0
    until: float = 0.0
    ours: bool = False
    overtaken: bool = False
    touched_by_reads: bool = False


class OwnChanges:
    """The `SessionStore` port, which notes the sessions that it changes."""

    def __init__(self, inner: SessionStore, ticks: Callable[[], float]) -> None:
        self._inner = inner
        self._ticks = ticks
        self._sessions: OrderedDict[bytes, _Activity] = OrderedDict()
        self.list = inner.list

    def is_last(self, key: bytes) -> bool:
        """Whether no other process is known to have changed the session since this one did."""
        activity = self._sessions.get(key)
        return activity is not None and activity.ours

    def on_invalidate(self, news: Invalidation | None) -> None:
        """The feed reports changes; whether it has lost track is for the cache to judge."""
        if news is None or news.local:
            return
        for key in news.keys:
            activity = self._sessions.get(key)
            if activity is None:
                continue
            expected = activity.due and (activity.under_way or self._ticks() < activity.until)
            if news.local is None and expected and not news.removed:
                activity.due -= 1
            else:
                activity.ours, activity.overtaken = False, activity.under_way > 0

    async def get(self, scope: Scope, session_id: str) -> Session:
        self._expect_touch(scope, session_id)
        return await self._inner.get(scope, session_id)

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        self._expect_touch(scope, session_id)
        return await self._inner.messages(scope, session_id, query)

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        return await self._change(scope, request.session_id, self._inner.begin_turn(scope, request))

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        return await self._change(turn.scope, turn.session.id, self._inner.finish_turn(turn, request))

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        return await self._change(turn.scope, turn.session.id, self._inner.renew_turn(turn))

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        return await self._change(scope, session_id, self._inner.append(scope, session_id, batch))

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._change(scope, session_id, self._inner.patch(scope, session_id, changes))

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        return await self._change(scope, session_id, self._inner.reset(scope, session_id, keep_metadata=keep_metadata))

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        return await self._change(scope, request.new_id, self._inner.fork(scope, session_id, request))

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        return await self._change(scope, session_id, self._inner.truncate(scope, session_id, request))

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        return await self._change(scope, session_id, self._inner.rewrite(scope, session_id, request))

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._change(scope, session_id, self._inner.delete(scope, session_id))

    def _expect_touch(self, scope: Scope, session_id: str) -> None:
        """A read may move the expiry of a session, which is reported, too."""
        activity = self._sessions.get(session_key(scope, session_id))
        if activity is not None and activity.touched_by_reads:
            activity.due += 1
            activity.until = self._ticks() + _MOMENT

    async def _change(self, scope: Scope, session_id: str, change: Awaitable[_Answer]) -> _Answer:
        key = session_key(scope, session_id)
        activity = self._sessions.get(key)
        if activity is None:
            activity = self._sessions[key] = _Activity()
            if len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        else:
            self._sessions.move_to_end(key)
        if not activity.under_way:
            activity.overtaken = False
            if self._ticks() >= activity.until:
                activity.due = 0
        activity.under_way += 1
        activity.due += 1
        try:
            said = await change
            activity.ours = not activity.overtaken
            session = getattr(said, "session", said)
            activity.touched_by_reads = isinstance(session, Session) and session.retention.touch is Touch.READ
            return said
        except TenutoError as failed:
            if not isinstance(failed, Unavailable):
                activity.due = max(0, activity.due - 1)  # Refused: nothing is reported.
            raise
        finally:
            activity.under_way -= 1
            activity.until = self._ticks() + _MOMENT
