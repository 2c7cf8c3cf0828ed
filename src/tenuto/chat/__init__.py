"""The main story: one turn between a caller and an assistant."""

from tenuto.chat.means import ChatLimits, Means
from tenuto.chat.request import Answered, ChatEvent, ChatRequest, Reply, Started, ToolEnded, ToolStarted
from tenuto.chat.spending import Spending
from tenuto.chat.story import Chat
from tenuto.chat.turn import reply_of

__all__ = [
    "Answered",
    "Chat",
    "ChatEvent",
    "ChatLimits",
    "ChatRequest",
    "Means",
    "Reply",
    "Spending",
    "Started",
    "ToolEnded",
    "ToolStarted",
    "reply_of",
]
