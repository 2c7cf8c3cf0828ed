"""How tasks, boards and notes look outside, as JSON: the same shape over HTTP and in the CLI."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tenuto.model.task import BoardEntry, BoardLock, BoardView, Note, Task
from tenuto.model.values import JsonObject


def task_json(task: Task) -> JsonObject:
    """A task without its board."""
    return {
        "id": task.id,
        "session_id": task.session_id,
        "type": task.type,
        "goal": task.goal,
        "status": task.status,
        "result": task.result,
        "created_at": _instant(task.created_at),
        "updated_at": _instant(task.updated_at),
        "completed_at": _instant(task.completed_at) if task.completed_at is not None else None,
        "expires_at": _instant(task.expires_at),
        "version": task.version,
    }


def entry_json(entry: BoardEntry) -> JsonObject:
    """What stands under one key of a board."""
    return {
        "key": entry.key,
        "value": entry.value,
        "writer": entry.writer,
        "written_at": _instant(entry.written_at),
        "version": entry.version,
        "overwrote": entry.overwrote,
    }


def board_json(board: BoardView) -> JsonObject:
    """A whole board. Who has locked what is told to everybody; the token is its holder's."""
    return {
        "entries": [entry_json(entry) for entry in board.entries],
        "locks": [{"key": lock.key, "holder": lock.holder, "until": _instant(lock.until)} for lock in board.locks],
    }


def lock_json(lock: BoardLock) -> JsonObject:
    """A lock, for its holder."""
    return {"key": lock.key, "holder": lock.holder, "token": lock.token, "until": _instant(lock.until)}


def note_json(note: Note) -> JsonObject:
    """A note of one agent."""
    return {
        "key": note.key,
        "value": note.value,
        "written_at": _instant(note.written_at),
        "expires_at": _instant(note.expires_at),
        "version": note.version,
    }


def _instant(moment: datetime) -> str:
    """ISO 8601 in UTC, ending in Z."""
    return str(msgspec.to_builtins(moment)).replace("+00:00", "Z")
