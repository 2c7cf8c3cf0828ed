"""What captures have yet to read: how far each session was read, and which of the user's statements came since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from tenuto.lru_cache import LruCache
from tenuto.model import Session
from tenuto.model.generation import TurnSnapshot
from tenuto.model.message import is_said_by_user

# Sessions that are known; those of an evicted one are found due by its next turn.
_SESSIONS: Final = 10_000
# Of a session that was never read: what is older was said while nothing was remembered, or was copied from elsewhere.
_LOOK_BACK: Final = timedelta(days=1)
_BEFORE_CREATION: Final = timedelta(minutes=10)


_Key: TypeAlias = tuple[str, str, str]  # tenant, site, session


class CaptureBacklog(NamedTuple):
    """Statements that were said and not read yet, as far as this process knows, and when the oldest was said."""

    statements: int
    since: datetime | None


@dataclass(slots=True)
class _Reading:
    """Of one session: the last message that was read, `None` if the store has to be asked; the last one that was judged
    for being a statement, and whether there may be unread ones before those; when each statement was said that was not
    read yet, by its number; the number of the mark that this process set since the session was read last; and the last
    message that was judged when it was."""

    through: int | None = None
    judged: int = 0
    behind: bool = False
    unread: dict[int, datetime] = field(default_factory=dict)
    mark: int = 0
    until: int = 0

    @property
    def last(self) -> int:
        """The last message that this process knows of."""
        return max(self.judged, self.through or 0)

    @property
    def is_due(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.unread) or self.behind


class UnreadStatements:
    """How far sessions were read, in this process. Nothing is lost with it: the store has the mark and the messages."""

    def __init__(self, states_something: Callable[[str], bool]) -> None:
        self._states_something = states_something
        self._readings = LruCache[_Key, _Reading](_SESSIONS)

    def note(self, turn: TurnSnapshot) -> int:
        """Note what the user said in a turn, and whether more may be unread; returns how many statements are new."""
        key = _key_of(turn)
        reading = self._readings.get(key)
        if reading is None or reading.last > turn.session.last_seq:
            # One that is ahead is of an earlier session of this id.
            self._readings.put(key, reading := _Reading())
        tail, since, last = turn.log_tail, oldest_due(turn.session), reading.last
        # Without a gap behind what is known the end of the log shows all that is unread.
        begins = last + 1 if reading.judged or reading.through is not None else 1
        reading.behind = reading.behind or not tail or tail[0].seq > begins
        before = len(reading.unread)
        for one in tail:
            recent = one.seq > last and (reading.through is not None or one.sent_at >= since)
            if recent and is_said_by_user(one) and self._states_something(one.text):
                reading.unread[one.seq] = one.sent_at
        if tail:
            reading.judged = max(last, tail[-1].seq)
        return len(reading.unread) - before

    def is_due(self, turn: TurnSnapshot) -> bool:
        """Whether there is anything to read in a session."""
        reading = self._reading(turn)
        return reading is not None and reading.is_due

    def last_mark(self, turn: TurnSnapshot) -> int:
        """The number of the mark that this process set since the session was read last, 0 without one."""
        reading = self._reading(turn)
        return reading.mark if reading is not None else 0

    def set_mark(self, turn: TurnSnapshot, number: int) -> None:
        """Note the number of a mark that this process has set."""
        reading = self._reading(turn)
        if reading is not None:
            reading.mark = number

    def begin(self, turn: TurnSnapshot) -> None:
        """Note that a capture begins to read a session: it may remove the mark, and what is said later is not in it."""
        reading = self._reading(turn)
        if reading is not None:
            reading.mark, reading.until = 0, reading.judged

    def find_due(self, turn: TurnSnapshot) -> None:
        """Note that a session has something to read which this process has not seen."""
        self._readings.put(_key_of(turn), _Reading(behind=True))

    def read_through(self, turn: TurnSnapshot) -> int | None:
        """The last message of a session that was read; `None` if the store has to be asked."""
        reading = self._reading(turn)
        return reading.through if reading is not None else None

    def settle(self, turn: TurnSnapshot, through: int, *, more: bool) -> None:
        """Note that a session was read so far."""
        reading = self._reading(turn)
        if reading is not None:
            reading.through, reading.behind = through, more
            # What was known of and not found was removed meanwhile.
            last = through if more else max(through, reading.until)
            reading.unread = {seq: said_at for seq, said_at in reading.unread.items() if seq > last}

    def drop(self, turn: TurnSnapshot) -> None:
        """Forget a session that is gone."""
        self._readings.pop(_key_of(turn))

    @property
    def backlog(self) -> CaptureBacklog:
        """What is unread now."""
        unread = [said_at for _, reading in self._readings.items() for said_at in reading.unread.values()]
        return CaptureBacklog(len(unread), min(unread, default=None))

    def _reading(self, turn: TurnSnapshot) -> _Reading | None:
        return self._readings.peek(_key_of(turn))


def _key_of(turn: TurnSnapshot) -> _Key:
    return turn.scope.tenant, turn.scope.site, turn.session.id


def oldest_due(session: Session, marked_since: float = 0) -> datetime:
    """From when on the messages of a session are due that was never read; `marked_since` is that of its mark."""
    last = session.updated_at
    if marked_since:
        # It may have been marked days ago, by a process that ended before it read anything.
        last = min(last, datetime.fromtimestamp(marked_since, UTC))
    return max(last - _LOOK_BACK, session.created_at - _BEFORE_CREATION)
