"""Sessions: opened, resumed, guarded, changed, announced."""

from tenuto.sessions.desk import AppendRequest, Sessions, TurnRequest
from tenuto.sessions.events import Announcer, EventKind, Listener, SessionEvent
from tenuto.sessions.ids import derived_id, fresh_id

__all__ = [
    "Announcer",
    "AppendRequest",
    "EventKind",
    "Listener",
    "SessionEvent",
    "Sessions",
    "TurnRequest",
    "derived_id",
    "fresh_id",
]
