"""The main story: one turn between a caller and an assistant."""

from tenuto.chat.deps import ChatDeps, ChatLimits
from tenuto.chat.live import LiveTurns
from tenuto.chat.live_turn import LiveTurn
from tenuto.chat.request import (
    CallRequested,
    ChatEvent,
    ChatRequest,
    Reply,
    ReplyFinished,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from tenuto.chat.sent_history import HistoryChange
from tenuto.chat.sent_turns import SentTalk, SentTurn, SentTurns
from tenuto.chat.service import Chat
from tenuto.chat.shared_turns import SharedTurns
from tenuto.chat.storing import reply_from_trace

__all__ = [
    "CallRequested",
    "Chat",
    "ChatDeps",
    "ChatEvent",
    "ChatLimits",
    "ChatRequest",
    "HistoryChange",
    "LiveTurn",
    "LiveTurns",
    "Reply",
    "ReplyFinished",
    "SentTalk",
    "SentTurn",
    "SentTurns",
    "SharedTurns",
    "ToolFinished",
    "ToolStarted",
    "TurnStarted",
    "reply_from_trace",
]
