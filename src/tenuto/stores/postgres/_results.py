"""What a call's row says: an opened turn, an append, a page, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tenuto.errors import IdempotencyKeyReused, SequenceGap, SessionBusy, TenutoError
from tenuto.model import AppendResult, BeginTurn, Draft, MessagePage, OpenTurn, Producer, Scope, TurnState
from tenuto.stores.codec import from_micros
from tenuto.stores.postgres._client import Row
from tenuto.stores.postgres._rows import head_scope, missing, number_appended, session_of, to_messages


def refusal(row: Row, session_id: str, producer: Producer | None) -> TenutoError | None:
    """The error a row stands for, if it does."""
    match row["code"]:
        case "reused":
            return IdempotencyKeyReused()
        case "busy":
            return SessionBusy(session_id, timedelta(microseconds=row["detail"]))
        case "gap":
            assert producer is not None
            return SequenceGap(producer.id, row["detail"])
        case code:
            return missing(session_id, code, head_scope(row))


def to_open_turn(scope: Scope, opening: BeginTurn, row: Row) -> OpenTurn:
    """The turn a row tells of.

    Raises:
        Undecodable: the head or a message is damaged.
    """
    session = session_of(row["head"])
    if row["code"] == "finished":
        return OpenTurn(
            id=row["turn"],
            number=row["number"],
            scope=scope,
            session=session,
            state=TurnState.FINISHED,
            words=to_messages(row["words"]),
            window=(),
            reply=to_messages(row["reply"]),
            last_active_at=session.updated_at,
        )
    last_active = row["head"]["last_active"]
    new = opening.words if row["added"] else ()
    words = number_appended(new, session.last_seq, [row["number"]] * len(new))
    first = max(session.window_start, row["head"]["first_seq"])
    window = (*to_messages(row["past"])[::-1], *(word for word in words if word.seq >= first))
    return OpenTurn(
        id=opening.turn_id,
        number=row["number"],
        scope=scope,
        session=session,
        state=TurnState(row["code"]),
        words=words or to_messages(row["words"]),
        window=window[-opening.window :] if opening.window else (),
        lease=opening.lease,
        lease_until=from_micros(row["head"]["lease_until"]),
        created=row["created"],
        expired=row["expired"],
        last_active_at=None if last_active is None else from_micros(last_active),
    )


def to_append_result(row: Row, drafts: tuple[Draft, ...], offsets: Sequence[int]) -> AppendResult:
    """What became of an append or a reply whose messages belong to turns at these offsets.

    Raises:
        Undecodable: the head or a message is damaged.
    """
    session = session_of(row["head"])
    if row["code"] == "duplicate":
        return AppendResult(session=session, messages=to_messages(row["words"]), duplicate=True)
    turns = [row["number"] + offset for offset in offsets]
    return AppendResult(
        session=session,
        messages=number_appended(drafts, session.last_seq, turns) if row["added"] else (),
        created=bool(row["created"]),
        expired=bool(row["expired"]),
    )


def page_of(row: Row, size: int, *, forwards: bool) -> MessagePage:
    """A page, from rows that hold one line more than asked for where there is more.

    Raises:
        Undecodable: the head or a message is damaged.
    """
    lines = to_messages(row["lines"])
    more = len(lines) > size
    if forwards:
        messages, before, after = lines[:size], row["more_before"], more
    else:
        messages, before, after = lines[:size][::-1], more, row["more_after"]
    return MessagePage(session=session_of(row["head"]), messages=messages, more_before=before, more_after=after)
