"""What callers ask of sessions: a turn, or messages outside one."""

from __future__ import annotations

from tenuto.model import Draft, NewSession, Producer, Usage
from tenuto.model.policy import SessionPolicy
from tenuto.model.values import Value, check_text


class TurnRequest(Value, frozen=True, kw_only=True):
    """A request for a turn. Without a session id a session is created, the same one for the same `idempotency_key`.

    A caller that `renews` its lease while it works in this process gets a short one, which names the process, so that
    its crash blocks the session briefly or not at all.
    """

    user_messages: tuple[Draft, ...] = ()
    session_id: str | None = None
    idempotency_key: str | None = None
    fingerprint: str | None = None
    window: int = 20
    new_session: NewSession | None = None
    policy: SessionPolicy | None = None
    renews: bool = False

    def __post_init__(self) -> None:
        if self.idempotency_key is not None:
            check_text(self.idempotency_key, "the key")


class AppendRequest(Value, frozen=True, kw_only=True):
    """Messages to append outside a turn, to a session that exists."""

    messages: tuple[Draft, ...]
    usage: Usage | None = None
    idempotency_key: str | None = None
    fingerprint: str | None = None
    producer: Producer | None = None
