"""Turns that began in the store and have not ended, in case it is down at their end."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.model import BeginTurn, OpenTurn, Scope
from tenuto.stores.session_cache import CachedSession

_MOST: Final = 10_000


class StartedTurn(NamedTuple):
    """A turn whose end may be journaled, without its window.

    It is `doubtful` if another process changed its session since: its end is journaled, but the session is not shown.
    """

    key: bytes
    opening: BeginTurn
    turn: OpenTurn
    doubtful: bool = False


class Running:
    """The turns, by their ids and by their sessions."""

    def __init__(self) -> None:
        self._turns: dict[str, StartedTurn] = {}
        self._of: dict[bytes, list[str]] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def get(self, turn_id: str) -> StartedTurn | None:
        """An open turn."""
        return self._turns.get(turn_id)

    def of(self, key: bytes) -> list[StartedTurn]:
        """A session's turns in their order."""
        return [self._turns[turn_id] for turn_id in self._of.get(key, ())]

    def add(self, key: bytes, opening: BeginTurn, turn: OpenTurn, *, doubtful: bool) -> None:
        """Add a turn that began."""
        if turn.id in self._turns:
            self.drop(turn.id)
        self._turns[turn.id] = StartedTurn(key, opening, replace(turn, window=()), doubtful)
        self._of.setdefault(key, []).append(turn.id)
        if len(self._turns) > _MOST:
            self.drop(next(iter(self._turns)))

    def update_lease(self, turn: OpenTurn) -> None:
        """The lease of a turn was renewed."""
        begun = self._turns.get(turn.id)
        if begun is not None:
            self._turns[turn.id] = begun._replace(turn=replace(begun.turn, lease_until=turn.lease_until))

    def doubt(self, key: bytes) -> None:
        """Another process changed the session."""
        for turn_id in self._of.get(key, ()):
            self._turns[turn_id] = self._turns[turn_id]._replace(doubtful=True)

    def mark_site_doubtful(self, person: Scope) -> None:
        """Any session of a user's tenant and site may have changed."""
        for key, turns in self._of.items():
            scope = self._turns[turns[0]].turn.scope
            if (scope.tenant, scope.site) == (person.tenant, person.site):
                self.doubt(key)

    def drop(self, turn_id: str) -> None:
        """Remove a turn: it ended, or must not be journaled."""
        begun = self._turns.pop(turn_id, None)
        if begun is not None:
            left = self._of[begun.key]
            left.remove(turn_id)
            if not left:
                del self._of[begun.key]

    def drop_session(self, key: bytes, sparing: str | None = None) -> None:
        """Remove a session's turns, except one: the messages they answer were deleted."""
        for turn_id in list(self._of.get(key, ())):
            if turn_id != sparing:
                self.drop(turn_id)

    def drop_user(self, person: Scope) -> None:
        """Remove the turns that involve an erased user."""
        for begun in list(self._turns.values()):
            scope, owner = begun.turn.scope, begun.turn.session.scope
            users = {scope.user, owner.user, *(word.speaker for word in begun.opening.user_messages)}
            if (scope.tenant, scope.site) == (person.tenant, person.site) and person.user in users:
                self.drop(begun.turn.id)


def session_at_begin(begun: StartedTurn, entry: CachedSession | None) -> CachedSession | None:
    """A turn's session as it was at its begin, if certain: what was seen since may include the turn's end."""
    session, words = begun.turn.session, begun.turn.user_messages
    if entry is None or begun.doubtful or entry.session.incarnation != session.incarnation:
        return None
    tail = tuple(message for message in entry.tail if message.seq <= session.last_seq)
    if not tail or tail[-1].seq != session.last_seq or (words and tail[-1].id != words[-1].id):
        return None
    return CachedSession(session, tail, keyed=entry.keyed)
