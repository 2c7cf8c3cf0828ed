"""The port of a journal's folder: what the processes of a machine share while their store is away.

A folder holds bytes, numbers and the plain facts by which rows are found and erased; what they mean is decided above.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

from tenuto.model import Scope
from tenuto.model.values import Value

ALWAYS: Final = 2**62
"""A time behind all others."""
Callback: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class StoredBase(Value, frozen=True, kw_only=True):
    """A record that rows go on from. Of one that a row creates the revision is 0, and the body is empty."""

    revision: int = 0
    incarnation: str = ""
    body: bytes = b""


class StoredRow(Value, frozen=True, kw_only=True):
    """An acknowledged command: its number in its session, the id of that, its turn, its time in microseconds, digests
    of users, and itself."""

    number: int
    session_id: str
    turn: str
    at: int
    users: tuple[str, ...]
    body: bytes


class JournaledSession(Value, frozen=True, kw_only=True):
    """What a folder holds of a session of a site: the base, and the rows that wait, oldest first."""

    site: Scope
    base: StoredBase
    rows: tuple[StoredRow, ...] = ()


class QuarantinedTurn(Value, frozen=True, kw_only=True):
    """A turn that the store can never take: its session, when it was acknowledged, since when it is quarantined, and
    why."""

    site: Scope
    session_id: str
    turn: str
    at: datetime
    quarantined_at: datetime
    reason: str


class Offer(Value, frozen=True, kw_only=True):
    """A record that a process leaves for the others."""

    key: bytes
    site: Scope
    base: StoredBase


class JournalCounts(Value, frozen=True, kw_only=True):
    """Turns with rows that wait, the oldest of these in microseconds, turns with rows that the store can never take,
    and unreadable files."""

    waiting: int = 0
    oldest: int | None = None
    quarantined: int = 0
    unreadable: int = 0


class JournalState(Value, frozen=True, kw_only=True):
    """Whether the store is away, since when, and the turns of the machine that wait for it, the oldest since `oldest`.

    `replayed` turns, and turns and appends that were `refused` in an outage, are those of this process since its start.
    """

    away: bool = False
    since: datetime | None = None
    waiting: int = 0
    oldest: datetime | None = None
    quarantined: int = 0
    replayed: int = 0
    refused: int = 0


class JournalFolder(Protocol):
    """A folder that the processes of a machine share, one for each store.

    Methods that are awaited are atomic and on disk when they return; they raise `Unavailable` where the disk is full or
    fails, and have changed nothing then. The others look at shared memory and do not wait. What a process has locked
    or voted for ends with it; rows stay. When the last process has gone, so do records without rows.
    """

    @property
    def is_down(self) -> bool:
        """Whether the store is taken for away."""
        ...

    @property
    def may_have_rows(self) -> bool:
        """Whether rows may wait; false only if there are none."""
        ...

    @property
    def counts(self) -> JournalCounts:
        """The turns, as last counted."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes have joined."""
        ...

    @property
    def are_offers_complete(self) -> bool:
        """Whether every other process has left what it knows since the folder went down."""
        ...

    def mark_offered(self) -> None:
        """This process has left what it knows."""
        ...

    # Revisions

    def note(self, key: bytes, revision: int, incarnation: str) -> None:
        """The store holds a session at this revision (0: no more); earlier ones are not to be gone on from."""
        ...

    def is_current(self, key: bytes, revision: int, incarnation: str) -> bool:
        """Whether no process of the folder has noted a later revision; false if that is forgotten."""
        ...

    def is_noted(self, key: bytes) -> bool:
        """Whether any process may have noted a revision."""
        ...

    # Rows and records

    async def read_session(self, key: bytes, first: int = 0) -> JournaledSession | None:
        """What is held of a session, of its rows those from number `first` on. A record without rows is held as long
        as it is current."""
        ...

    async def fenced_keys(self) -> tuple[bytes, ...]:
        """The sessions with rows that wait, oldest row first."""
        ...

    async def offer(self, offers: Sequence[Offer]) -> None:
        """Leave records that the store confirmed; those that are not current are left out."""
        ...

    async def append(self, key: bytes, site: Scope, base: StoredBase, row: StoredRow) -> bool:
        """Add a row if it is the session's next one behind this base, and the store is taken for away."""
        ...

    async def remove(self, key: bytes, through: int, base: StoredBase) -> None:
        """Remove a session's rows up to a number: they are in this record, which later ones go on from."""
        ...

    async def set_aside(self, key: bytes, row: StoredRow, reason: str, now: int) -> None:
        """Quarantine a row that the store can never take, if it still waits. A later row may have taken the number of
        one that another process has quarantined: that one stays."""
        ...

    async def users_aside(self) -> tuple[tuple[Scope, str], ...]:
        """The users of quarantined rows, by site and digest."""
        ...

    async def purge(self, before: int) -> None:
        """Remove rows that were quarantined before a time."""
        ...

    async def keys_of_user(self, site: Scope, user: str) -> tuple[bytes, ...]:
        """The sessions with rows of a user, given by digest."""
        ...

    async def erase(self, site: Scope, user: str, until: int) -> int:
        """Remove a user's rows up to a time, quarantined ones too, and the site's records without rows; returns how
        many rows."""
        ...

    # Locks

    async def lock(self, key: bytes) -> bool:
        """Begin to replay a session; false if a living process does."""
        ...

    async def unlock(self, key: bytes) -> None:
        """End replaying."""
        ...

    # Agreement

    def ask(self) -> None:
        """Ask all processes for their votes; those given before do not count any more."""
        ...

    def vote(self, is_away: bool) -> None:
        """Say whether the store answers this process."""
        ...

    async def is_agreed(self) -> bool | None:
        """Count the votes: true, and the folder is down, if every living process has lost the store; false if one
        reaches it; else `None`."""
        ...

    async def reopen(self) -> None:
        """The store answers: no new row is written, and records without rows are removed."""
        ...

    async def watch(self, on_asked: Callback, on_change: Callback) -> None:
        """Call these when another process asks for votes; and when the folder goes down or up, or a process joins while
        it is down. Does not return."""
        ...
