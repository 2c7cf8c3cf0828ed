"""What time makes of a session: it becomes inactive and archived, and its conversation stale."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from tenuto.model import OpenTurn, Session
from tenuto.model.policy import SessionPolicy
from tenuto.model.session import Status


def with_current_status(session: Session, policy: SessionPolicy, now: datetime) -> Session:
    """The session as inactive if it was not changed for long, and as archived if it was inactive for long; what is
    archived by hand stays so (E25)."""
    idle = now - session.updated_at
    if session.status is Status.ACTIVE and policy.inactive_after and idle >= policy.inactive_after:
        session, idle = replace(session, status=Status.INACTIVE), idle - policy.inactive_after
    if session.status is Status.INACTIVE and policy.archive_after and idle >= policy.archive_after:
        return replace(session, status=Status.ARCHIVED)
    return session


def mark_stale(turn: OpenTurn, stale_after: timedelta | None) -> OpenTurn:
    """The turn, with the conversation before its messages marked as stale if the session was idle that long (D9).

    Both times are the store's: clients choose the `sent_at` of their messages.
    """
    last, user_messages = turn.last_active_at, turn.user_messages
    if stale_after is None or last is None or not user_messages or turn.session.updated_at - last < stale_after:
        return turn
    return replace(turn, stale_before=user_messages[0].seq)
