"""Sessions: opened, resumed, guarded, changed, announced."""

from tenuto.sessions.events import EventEmitter, EventKind, Listener, SessionEvent
from tenuto.sessions.ids import derived_id, fresh_id
from tenuto.sessions.requests import AppendRequest, TurnRequest
from tenuto.sessions.service import Sessions

__all__ = [
    "AppendRequest",
    "EventEmitter",
    "EventKind",
    "Listener",
    "SessionEvent",
    "Sessions",
    "TurnRequest",
    "derived_id",
    "fresh_id",
]
