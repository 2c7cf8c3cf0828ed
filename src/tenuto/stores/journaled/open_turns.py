"""Turns that began in the store and have not ended, for when it is away at their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.model import BeginTurn, OpenTurn, Scope
from tenuto.stores.journaled.seen_session import SeenSession

_MOST: Final = 10_000


class StartedTurn(NamedTuple):
    """A turn whose end may be journaled; its window is not kept.

    One is `doubtful` when its session was changed by somebody else since: its end is kept, and nothing of the session
    is shown.
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
        """A turn that runs."""
        return self._turns.get(turn_id)

    def of(self, key: bytes) -> list[StartedTurn]:
        """A session's turns, as they began."""
        return [self._turns[turn_id] for turn_id in self._of.get(key, ())]

    def add(self, key: bytes, opening: BeginTurn, turn: OpenTurn, *, doubtful: bool) -> None:
        """A turn has begun."""
        if turn.id in self._turns:
            self.drop(turn.id)
        self._turns[turn.id] = StartedTurn(key, opening, replace(turn, window=()), doubtful)
        self._of.setdefault(key, []).append(turn.id)
        if len(self._turns) > _MOST:
            self.drop(next(iter(self._turns)))

    def update_lease(self, turn: OpenTurn) -> None:
        """A turn holds its session for longer."""
        begun = self._turns.get(turn.id)
        if begun is not None:
            held = replace(begun.turn, lease_until=turn.lease_until)
            self._turns[turn.id] = begun._replace(turn=held)

    def doubt(self, key: bytes) -> None:
        """Somebody else changed the session."""
        for turn_id in self._of.get(key, ()):
            self._turns[turn_id] = self._turns[turn_id]._replace(doubtful=True)

    def mark_site_doubtful(self, person: Scope) -> None:
        """Any session of somebody's tenant and site may have been changed."""
        for key, turns in self._of.items():
            scope = self._turns[turns[0]].turn.scope
            if (scope.tenant, scope.site) == (person.tenant, person.site):
                self.doubt(key)

    def drop(self, turn_id: str) -> None:
        """A turn runs no more, or its end is nobody's business here."""
        begun = self._turns.pop(turn_id, None)
        if begun is not None:
            left = self._of[begun.key]
            left.remove(turn_id)
            if not left:
                del self._of[begun.key]

    def drop_session(self, key: bytes, sparing: str | None = None) -> None:
        """What a session's turns answer to was taken away; but for the turn that did so itself."""
        for turn_id in list(self._of.get(key, ())):
            if turn_id != sparing:
                self.drop(turn_id)

    def drop_user(self, person: Scope) -> None:
        """Somebody was erased: what they said, and what was said in sessions of theirs."""
        self._drop_where(lambda begun: _involves_user(begun, person))

    def _drop_where(self, fits: Callable[[StartedTurn], bool]) -> None:
        for turn_id in [turn_id for turn_id, begun in self._turns.items() if fits(begun)]:
            self.drop(turn_id)


def session_at_begin(begun: StartedTurn, entry: SeenSession | None) -> SeenSession | None:
    """A turn's session as it was when it began, if that is certain: what was seen since may hold the turn's end."""
    session, words = begun.turn.session, begun.turn.words
    if entry is None or begun.doubtful or entry.session.incarnation != session.incarnation:
        return None
    tail = tuple(message for message in entry.tail if message.seq <= session.last_seq)
    if not tail or tail[-1].seq != session.last_seq or (words and tail[-1].id != words[-1].id):
        return None
    return SeenSession(session, tail, 0, entry.keyed)


def _involves_user(begun: StartedTurn, person: Scope) -> bool:
    scope, owner = begun.turn.scope, begun.turn.session.scope
    if (scope.tenant, scope.site) != (person.tenant, person.site):
        return False
    return person.user in {scope.user, owner.user, *(word.speaker for word in begun.opening.words)}
