"""What callers ask of sessions: a turn, with as many messages as its prompt will hold, or messages outside one."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tenuto.lru_cache import LruCache
from tenuto.model import AppendBatch, BeginTurn, Draft, NewSession, Producer, Scope, Usage
from tenuto.model.policy import MOST_LOADED, OnMissing, OnStoreDown, SessionPolicy
from tenuto.model.values import Value, check_text
from tenuto.process_identity import with_holder
from tenuto.sessions.ids import fresh_id, key_of_request, session_id_for_name
from tenuto.sessions.limits import with_retention

# Below `busy_wait`, so that a retry after a crash waits it out instead of being refused.
_RENEWED_LEASE: Final = timedelta(seconds=9)
_MOST_SESSIONS: Final = 10_000
# The messages of a turn or two, with their tools.
_GROWTH: Final = 16


class TurnRequest(Value, frozen=True, kw_only=True):
    """A request for a turn. Without a session id a session is created, the same one for the same `idempotency_key`.

    A caller that `renews` its lease while it works in this process gets a short one, which names the process, so that
    its crash blocks the session briefly or not at all; other processes can follow a `shared` one. While a turn of its
    own key runs, it waits for that, or is refused at once if its caller then joins that turn (`joins_running`).
    """

    user_messages: tuple[Draft, ...] = ()
    session_id: str | None = None
    idempotency_key: str | None = None
    fingerprint: str | None = None
    window: int = 20
    new_session: NewSession | None = None
    policy: SessionPolicy | None = None
    renews: bool = False
    shared: bool = False
    joins_running: bool = False

    def __post_init__(self) -> None:
        if self.idempotency_key is not None:
            check_text(self.idempotency_key, "the key")

    def to_begin_turn(self, scope: Scope, policy: SessionPolicy) -> BeginTurn:
        """The turn to begin in the session that is named, or in the one that the idempotency key leads to."""
        session_id, key = self.session_id, self.idempotency_key
        create = session_id is None or policy.on_missing is OnMissing.ADOPT
        return BeginTurn(
            session_id=session_id_for_name(scope, key or None) if session_id is None else session_id,
            turn_id=with_holder(fresh_id(), shared=self.shared) if self.renews else fresh_id(),
            user_messages=self.user_messages,
            create=with_retention(self.new_session, policy) if create else None,
            lease=min(policy.lease, _RENEWED_LEASE) if self.renews else policy.lease,
            window=self.window,
            idempotency_key=None if key is None else key_of_request(key, self.user_messages, self.fingerprint),
            journaled=policy.on_store_down is OnStoreDown.JOURNAL,
            new_id=session_id is None,
        )


class AppendRequest(Value, frozen=True, kw_only=True):
    """Messages to append outside a turn, to a session that exists."""

    messages: tuple[Draft, ...]
    usage: Usage | None = None
    idempotency_key: str | None = None
    fingerprint: str | None = None
    producer: Producer | None = None

    def to_batch(self) -> AppendBatch:
        """The messages as the store takes them."""
        key = self.idempotency_key
        return AppendBatch(
            id=fresh_id(),
            messages=self.messages,
            usage=self.usage,
            idempotency_key=None if key is None else key_of_request(key, self.messages, self.fingerprint),
            producer=self.producer,
        )


class PromptReach:
    """Tells how many messages to load with a turn, so that older ones need no second read; a guess, and no more."""

    def __init__(self) -> None:
        self._counts = LruCache[tuple[str, str, str], int](_MOST_SESSIONS)

    def guess(self, scope: Scope, session_id: str | None) -> int:
        """How many messages the next prompt may hold; 0 if unknown."""
        count = self._counts.peek((scope.tenant, scope.site, session_id)) if session_id else 0
        return min(count + _GROWTH, MOST_LOADED) if count else 0

    def note(self, scope: Scope, session_id: str, count: int) -> None:
        """Remember how many messages no summary covers."""
        self._counts.put((scope.tenant, scope.site, session_id), count)
