"""Events of sessions, for listeners and the log (B15)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from tenuto.errors import SessionCorrupt, SessionForeign, SessionNotFound
from tenuto.model import RemovedSession, Scope
from tenuto.model.values import Value
from tenuto.ports import Clock

_log = logging.getLogger(__name__)


class EventKind(StrEnum):
    """What happened."""

    CREATED = "created"
    UPDATED = "updated"
    EXPIRED = "expired"
    DELETED = "deleted"
    EVICTED = "evicted"
    HIJACK_REFUSED = "hijack_refused"
    QUARANTINED = "quarantined"


class SessionEvent(Value, frozen=True, kw_only=True):
    """One event of one session; `owner` is set if another user requested the session.

    `changed` names what an `updated` event changed: `messages`, `title`, `status`, `window_start`, `context`,
    `attributes` or `metadata`.
    """

    kind: EventKind
    scope: Scope
    session_id: str
    at: datetime
    owner: str | None = None
    changed: tuple[str, ...] = ()


Listener: TypeAlias = Callable[[SessionEvent], Awaitable[None]]

_LEVELS = {
    EventKind.UPDATED: logging.DEBUG,
    EventKind.HIJACK_REFUSED: logging.WARNING,
    EventKind.QUARANTINED: logging.ERROR,
}


class EventEmitter:
    """Logs each event and passes it to the listeners; a failing listener is logged and ignored."""

    def __init__(self, *, clock: Clock, listeners: Sequence[Listener] = ()) -> None:
        self._clock = clock
        self._listeners = list(listeners)

    def add_listener(self, listener: Listener) -> None:
        """Add a listener."""
        self._listeners.append(listener)

    async def emit_event(
        self, kind: EventKind, scope: Scope, session_id: str, owner: str | None = None, changed: tuple[str, ...] = ()
    ) -> None:
        """Log the event and call the listeners."""
        level = _LEVELS.get(kind, logging.INFO)
        logs = _log.isEnabledFor(level)
        if not self._listeners and not logs:
            return
        now = self._clock()
        event = SessionEvent(kind=kind, scope=scope, session_id=session_id, at=now, owner=owner, changed=changed)
        if logs:
            _log_event(event, level)
        for listener in self._listeners:
            try:
                await listener(event)
            except Exception:
                _log.exception("a listener failed on %s of session %s", kind, session_id)

    async def emit_refused(self, scope: Scope, session_id: str, error: SessionNotFound) -> None:
        """Say why a session was not found, where that is for operators alone: another user's, or a corrupt one."""
        if isinstance(error, SessionForeign):
            await self.emit_event(EventKind.HIJACK_REFUSED, scope, session_id, owner=error.owner)
        elif isinstance(error, SessionCorrupt):
            await self.emit_event(EventKind.QUARANTINED, scope, session_id)

    async def emit_removed(self, kind: EventKind, sessions: Sequence[RemovedSession]) -> None:
        """The same event of each of these sessions."""
        for session in sessions:
            await self.emit_event(kind, session.scope, session.session_id)


def _log_event(event: SessionEvent, level: int) -> None:
    # Routine lines name no user: logs outlive an erasure. Only an attempt at another user's session does.
    if event.owner is None:
        _log.log(level, "session %s %s (tenant %s)", event.session_id, event.kind, event.scope.tenant)
    else:
        _log.log(
            level,
            "session %s %s: it belongs to %s, requested by %s of tenant %s",
            event.session_id,
            event.kind,
            event.owner,
            ":".join(event.scope.owner) or "the tenant itself",
            event.scope.tenant,
        )
