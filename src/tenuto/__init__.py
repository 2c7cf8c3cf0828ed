"""tenuto: conversation state for LLM agents, held across reloads, restarts, channels and crashes.

async with tenuto.open("sqlite:///chat.db") as t:
    ann = t.scope(user="ann")
    turn = await t.begin(ann, "Hello!")
    await t.finish(turn, "Hello Ann.")
"""

from typing import TYPE_CHECKING

from tenuto.errors import Conflict, Invalid, LimitReached, NotFound, TenutoError, ToolError, Unavailable
from tenuto.lazy_imports import lazy_exports
from tenuto.model import Draft, Message, OpenTurn, Page, Role, Scope, Session, SessionQuery, TurnState
from tenuto.model.task import NewTask, TaskQuery, TaskStatus

if TYPE_CHECKING:
    from tenuto.app import Tenuto, open  # noqa: A004 - tenuto.open(...) is the name people type
    from tenuto.client.connection import connect
    from tenuto.tasks.agents import AgentContext, agent

__all__ = [
    "AgentContext",
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
    "agent",
    "connect",
    "open",
]


# What opens a store is loaded when it is asked for: values, errors and the command line do without.
__getattr__ = lazy_exports(
    __name__,
    {
        "tenuto.app": ("Tenuto", "open"),
        "tenuto.client.connection": ("connect",),
        "tenuto.tasks.agents": ("AgentContext", "agent"),
    },
)
