"""Arguments of statements: calls as tuples of the Postgres types `opening`, `closing`, `batch` ...

Ids of any length are keys of an index in places, so they are passed as digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from tenuto.errors import Invalid
from tenuto.model import (
    AppendBatch,
    BeginTurn,
    Changes,
    Draft,
    FinishTurn,
    IdempotencyKey,
    NewSession,
    OpenTurn,
    Producer,
    Retention,
    Rewrite,
    Scope,
)
from tenuto.model.scope import owner_key, session_key, site_key
from tenuto.model.session import drop_nulls
from tenuto.model.turn import turn_offsets
from tenuto.model.values import JsonObject
from tenuto.stores.codec import digest_id, encode_draft, encode_trace, id_prefix, to_micros
from tenuto.stores.postgres._batcher import Op

MAX_NUMBER: Final = 2**62
_MICROSECOND: Final = timedelta(microseconds=1)


class Place(NamedTuple):
    """The session, the asking owner and the time; `whole` reaches all owners of the space."""

    key: bytes
    space: bytes
    owner: bytes
    whole: bool
    now: int


def shelf(scope: Scope, now: datetime) -> tuple[bytes, bytes, bool, int]:
    """The owner and the time: the fields of a call about many sessions."""
    return *_owner_keys(scope), to_micros(now)


def place(scope: Scope, session_id: str, now: datetime) -> Place:
    """The first fields of every call."""
    return Place(session_key(scope, session_id), *shelf(scope, now))


def begin_turn_op(scope: Scope, opening: BeginTurn, now: datetime) -> tuple[Op, int]:
    """An `opening`, followed by the version that the caller knows, and its size in bytes."""
    words = _encode_bodies(opening.user_messages)
    made = None if opening.create is None else new_session_doc(scope, opening.create)
    op = (
        *place(scope, opening.session_id, now),
        opening.session_id,
        opening.turn_id,
        words,
        check_bounds(_micros(opening.lease), "the lease"),
        opening.window,
        made,
        *_once(opening.idempotency_key),
        *_producer_fields(opening.producer),
        opening.retention is not None,
        *_retention_fields(opening.retention),
        False,
        None if opening.known is None else f"{opening.known[1]} {opening.known[0]}",
    )
    return op, sum(map(len, words))


def finish_turn_op(turn: OpenTurn, closing: FinishTurn, now: datetime) -> tuple[Op, int]:
    """A `closing`, and its size in bytes."""
    reply = _encode_bodies(closing.reply)
    trace = None if closing.trace is None else encode_trace(closing.trace)
    op = (
        *place(turn.scope, turn.session.id, now),
        turn.session.incarnation,
        turn.id,
        turn.number,
        reply,
        *_producer_fields(closing.producer),
        closing.usage.tokens,
        closing.usage.cost_nanos,
        closing.abandoned,
        None if closing.changes is None else changes_doc(closing.changes),
        trace,
    )
    return op, sum(map(len, reply)) + len(trace or b"")


def append_op(scope: Scope, session_id: str, batch: AppendBatch, now: datetime) -> tuple[Op, int]:
    """A `batch`, and its size in bytes."""
    words = _encode_bodies(batch.messages)
    spent = batch.total_usage
    op = (
        *place(scope, session_id, now),
        session_id,
        batch.id,
        words,
        turn_offsets(batch.messages),
        None if batch.create is None else new_session_doc(scope, batch.create),
        *_once(batch.idempotency_key),
        *_producer_fields(batch.producer),
        spent.tokens,
        spent.cost_nanos,
    )
    return op, sum(map(len, words))


def renew_turn_op(turn: OpenTurn, now: datetime) -> Op:
    """A `renewal`."""
    lease = check_bounds(_micros(turn.lease), "the lease")
    return (*place(turn.scope, turn.session.id, now), turn.session.incarnation, turn.id, lease)


def rewordings(rewriting: Rewrite) -> tuple[list[Op], list[Op]]:
    """Messages and traces as `rewording`s. Numbers that no store assigns are left out."""
    words = [
        (message.seq, id_prefix(message.id), encode_draft(message)[1:])
        for message in rewriting.messages
        if 0 < message.seq < MAX_NUMBER
    ]
    traces = [
        (trace.number, b"{" + id_prefix(trace.id), encode_trace(trace))
        for trace in rewriting.traces
        if 0 < trace.number < MAX_NUMBER
    ]
    return words, traces


def new_session_doc(scope: Scope, new: NewSession) -> str:
    """The values of a new head, as JSON."""
    idle, touch, max_messages, max_turns = _retention_fields(new.retention)
    return _encode_json(
        {
            "scope": scope,
            "title": new.title,
            "folded": new.title.casefold(),
            "context": drop_nulls(new.context),
            "attributes": drop_nulls(new.attributes),
            "metadata": drop_nulls(new.metadata),
            "idle": idle,
            "touch": touch,
            "max_messages": max_messages,
            "max_turns": max_turns,
        }
    )


def changes_doc(changes: Changes) -> str:
    """A patch as JSON, with the changed fields only."""
    doc: JsonObject = {}
    if changes.title is not UNSET:
        doc |= {"title": changes.title, "folded": changes.title.casefold()}
    if changes.status is not UNSET:
        doc["status"] = changes.status
    if changes.window_start is not UNSET:
        doc["window_start"] = changes.window_start
    for what in ("context", "attributes", "metadata"):
        if patch := getattr(changes, what):
            doc[what] = patch
    return _encode_json(doc)


def check_bounds(number: int, what: str) -> int:
    """Return a number that fits a column."""
    if not -MAX_NUMBER <= number <= MAX_NUMBER:
        raise Invalid(f"{what} is far too large")
    return number


def clamp(number: int) -> int:
    """A bound, limited to what a column can hold."""
    return max(-MAX_NUMBER, min(number, MAX_NUMBER))


@lru_cache(maxsize=4096)
def _owner_keys(scope: Scope) -> tuple[bytes, bytes, bool]:
    return site_key(scope), owner_key(scope), not scope.owner


def _encode_bodies(drafts: Sequence[Draft]) -> list[bytes]:
    # The server puts seq and turn in front, and the brace before them.
    return [encode_draft(draft)[1:] for draft in drafts]


def _once(once: IdempotencyKey | None) -> tuple[bytes | None, bytes | None]:
    return (None, None) if once is None else (digest_id(once.key), digest_id(once.fingerprint))


def _producer_fields(producer: Producer | None) -> tuple[bytes | None, int | None]:
    return (None, None) if producer is None else (digest_id(producer.id), producer.seq)


def _retention_fields(retention: Retention | None) -> tuple[int | None, str | None, int | None, int | None]:
    if retention is None:
        return None, None, None, None
    idle = None if retention.idle is None else check_bounds(_micros(retention.idle), "retention")
    return idle, retention.touch.value, _check_cap(retention.max_messages), _check_cap(retention.max_turns)


def _check_cap(bound: int | None) -> int | None:
    return None if bound is None else check_bounds(bound, "a cap")


def _micros(span: timedelta) -> int:
    return span // _MICROSECOND


def _encode_json(value: JsonObject) -> str:
    return msgspec.json.encode(value).decode()
