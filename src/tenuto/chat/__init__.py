"""The main story: one turn between a caller and an assistant."""

from tenuto.chat.request import Answered, ChatEvent, ChatRequest, Reply, Started, ToolEnded, ToolStarted
from tenuto.chat.spending import Spending
from tenuto.chat.story import Chat, ChatLimits, reply_of

__all__ = [
    "Answered",
    "Chat",
    "ChatEvent",
    "ChatLimits",
    "ChatRequest",
    "Reply",
    "Spending",
    "Started",
    "ToolEnded",
    "ToolStarted",
    "reply_of",
]
