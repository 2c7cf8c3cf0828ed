"""Which sessions of an owner have statements that were not read for memories yet, as every process knows it.

The names stand in the owner's log of changes, which each turn reads anyway: what a process had not read when it died is
found by the owner's next turn or search anywhere. A process that asks a model about a session claims it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from tenuto.model import Scope
from tenuto.process_identity import is_holder_gone

# As long as a model may take for a portion. Another process of the machine need not wait for one that is gone.
_CLAIM: Final = timedelta(minutes=2)


class UnreadMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The mark of a session. Each one has a `number` of its own, also one that is set after another was removed.

    `isolated` means that what was said there to a persona is for that one alone. `reader` has claimed the session,
    until that POSIX time. `since` is the one at which the session was marked first, 0 if that is not known.
    """

    number: int
    isolated: bool = False
    reader: str = ""
    until: float = 0
    since: float = 0


Marks: TypeAlias = Mapping[str, UnreadMark]
ChangeMarks: TypeAlias = Callable[[Marks], Marks]


class CatchUp(Protocol):
    """Has captured what an owner said and no process has read for memories yet, but in one session."""

    def is_due(self, scope: Scope, marks: Marks, but: str | None) -> bool:
        """Whether there is anything to read; `marks` are those of the owner's sessions."""
        ...

    async def catch_up(self, scope: Scope, marks: Marks, but: str | None, seconds: float) -> bool:
        """Read it, for so long at most; returns whether all of it was read."""
        ...

    def is_reading(self, scope: Scope, marks: Marks) -> bool:
        """Whether any of it is being read right now, here or by another process that has claimed it."""
        ...


class ReadThrough(NamedTuple):
    """How far a session was read; its mark goes if it is still this one, 0 for none: the session has more."""

    last: int
    mark: int = 0


def set_mark(session_id: str, now: datetime, *, isolated: bool) -> ChangeMarks:
    """Mark a session, also if it is marked: who reads it now has not seen what was said since."""

    def change(marks: Marks) -> Marks:
        old = marks.get(session_id) or UnreadMark(0)
        number = max(old.number + 1, _milliseconds(now))
        return {**marks, session_id: replace(old, number=number, isolated=isolated, since=old.since or now.timestamp())}

    return change


def remove_marks(numbers: Mapping[str, int]) -> ChangeMarks:
    """Remove the marks that still have these numbers; of others the claim ends."""

    def change(marks: Marks) -> Marks:
        left = {name: mark for name, mark in marks.items() if numbers.get(name) != mark.number}
        return {name: replace(mark, reader="", until=0) if name in numbers else mark for name, mark in left.items()}

    return change


def claim_marks(session_ids: Iterable[str], reader: str, now: datetime) -> ChangeMarks:
    """Claim those sessions for a reader that no other one has claimed, whether or not they were marked."""

    def change(marks: Marks) -> Marks:
        claims = {
            name: replace(mark, reader=reader, until=(now + _CLAIM).timestamp())
            for name in session_ids
            if not is_claimed(mark := marks.get(name) or UnreadMark(_milliseconds(now)), reader, now)
        }
        return {**marks, **claims}

    return change


def is_claimed(mark: UnreadMark, reader: str, now: datetime) -> bool:
    """Whether another reader, which still runs as far as can be told, has claimed a session."""
    if mark.reader in ("", reader) or mark.until <= now.timestamp():
        return False
    return not is_holder_gone(mark.reader)


def _milliseconds(now: datetime) -> int:
    return int(now.timestamp() * 1_000)
