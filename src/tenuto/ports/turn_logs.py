"""The port of the logs of running turns, for readers in other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from tenuto.model import Scope
from tenuto.model.values import Value


class TurnAddress(NamedTuple):
    """A turn and its session; the log is its owner's, whose `scope` the session has."""

    scope: Scope
    session_id: str
    turn_id: str


class TurnAsks(Value, frozen=True, kw_only=True):
    """What other processes ask of a turn: readers raise `count` again and again while they follow; `stop` stays."""

    count: int = 0
    stop: bool = False


class LogEntry(Value, frozen=True, kw_only=True):
    """Some events in a row, encoded; `number` is that of the first."""

    number: int
    body: bytes


class LogPlace(NamedTuple):
    """How far a log is written: the number of its last event, and the revision of what stores it."""

    through: int = 0
    revision: int = 0


class TurnLogs(Protocol):
    """The events of a turn that runs in one process, for readers in others, and what these ask of it.

    Only the process of the turn appends; any may ask and read. Entries come back as they were appended: none lost,
    doubled or reordered, and outside the session's site there are none. What is not removed goes within hours, by a
    sweep, and with its owner.
    """

    async def ask(self, turn: TurnAddress, *, stop: bool = False) -> None:
        """Ask the process of the turn to write its log, or to stop it as well."""
        ...

    async def asked(self, turn: TurnAddress) -> TurnAsks:
        """What was asked so far."""
        ...

    async def append(
        self, turn: TurnAddress, place: LogPlace, body: bytes, count: int, *, ends: bool = False
    ) -> tuple[LogPlace, bool]:
        """Append an entry of `count` events behind a place; returns the place behind it. After one that `ends` the log,
        it is kept for minutes.

        If the log is at another place, nothing is appended and that one returned, with False: an earlier call whose
        answer was lost may have been made, or the log was removed.
        """
        ...

    async def read(self, turn: TurnAddress, after: int) -> Sequence[LogEntry]:
        """The entries whose first event is numbered above `after`, in order."""
        ...

    async def remove(self, turn: TurnAddress) -> None:
        """Remove the log and what was asked."""
        ...

    def asks_key(self, turn: TurnAddress) -> bytes:
        """What `watch` calls a change of what was asked; the owner does not matter."""
        ...

    def log_key(self, turn: TurnAddress) -> bytes:
        """What `watch` calls a change of the log."""
        ...

    def watch(self, on_change: Callable[[bytes | None], None]) -> AbstractAsyncContextManager[None]:
        """While open, call `on_change` with the key of each change, `None` where some may have been missed."""
        ...

    def look(self) -> bool:
        """Tell, without waiting, what has changed; false if nothing is told at present."""
        ...
