"""Tasks, boards and notes as JSON: the same over HTTP and in the CLI."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tenuto.model.task import TaskStatus
from tenuto.model.values import View


class TaskView(View, frozen=True, kw_only=True):
    """A task without its board."""

    id: str
    session_id: str | None
    type: str
    goal: str
    status: TaskStatus
    result: Any
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
    expires_at: datetime
    version: int


class TaskList(View, frozen=True, kw_only=True):
    """Part of a listing; `cursor` continues it, null ends it."""

    tasks: list[TaskView]
    cursor: str | None


class BoardEntryView(View, frozen=True, kw_only=True):
    """The value of one key of a board; `previous_writer` is the last other agent that wrote it before."""

    key: str
    value: Any
    writer: str
    written_at: datetime
    version: int
    previous_writer: str | None


class HeldView(View, frozen=True, kw_only=True):
    """A locked key. The lock's token is for its holder alone."""

    key: str
    holder: str
    expires_at: datetime


class BoardAnswer(View, frozen=True, kw_only=True):
    """A whole board, in order of its keys, and its locks."""

    entries: list[BoardEntryView]
    locks: list[HeldView]


class LockView(HeldView, frozen=True, kw_only=True):
    """A lock that was taken; writes name its `token`, which is greater than that of any lock of the key before it."""

    token: int


class AgentNoteView(View, frozen=True, kw_only=True):
    """A note of an agent."""

    key: str
    value: Any
    written_at: datetime
    expires_at: datetime
    version: int


class AgentNoteList(View, frozen=True, kw_only=True):
    """All notes of one agent on one task, in order of their keys."""

    notes: list[AgentNoteView]
