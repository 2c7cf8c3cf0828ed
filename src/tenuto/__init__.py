"""tenuto: conversation state for LLM agents, held across reloads, restarts, channels and crashes.

async with tenuto.open("sqlite:///chat.db") as t:
    ann = t.scope(user="ann")
    turn = await t.begin(ann, "Hello!")
    await t.finish(turn, "Hello Ann.")
"""

from tenuto.app import Tenuto, open  # noqa: A004 - tenuto.open(...) is the name people type
from tenuto.errors import Conflict, Invalid, LimitReached, NotFound, TenutoError, ToolError, Unavailable
from tenuto.model import Draft, Message, OpenTurn, Page, Role, Scope, Session, SessionQuery, TurnState
from tenuto.model.task import NewTask, TaskQuery, TaskStatus

__all__ = [
    "Conflict",
    "Draft",
    "Invalid",
    "LimitReached",
    "Message",
    "NewTask",
    "NotFound",
    "OpenTurn",
    "Page",
    "Role",
    "Scope",
    "Session",
    "SessionQuery",
    "TaskQuery",
    "TaskStatus",
    "Tenuto",
    "TenutoError",
    "ToolError",
    "TurnState",
    "Unavailable",
    "open",
]
