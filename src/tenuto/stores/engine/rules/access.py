"""Who reaches a session and reads it, how one begins, and what every change of one does to its head."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tenuto.errors import SessionExpired, SessionForeign, SessionNotFound, TurnLost, VersionConflict
from tenuto.model import Attachment, Changes, MessagePage, NewSession, OpenTurn, Page, Scope, Session
from tenuto.model.session import drop_nulls, merge_patch
from tenuto.model.turn import RunningTurn
from tenuto.model.values import deep_copy
from tenuto.stores.engine.record import Head, Profile, Record, Step, nth, rank
from tenuto.stores.engine.rules.log import enforce_caps


def require(record: Record | None, scope: Scope, session_id: str, now: datetime) -> Record:
    """The session, if the scope reaches it.

    Raises:
        SessionNotFound: absent, expired or foreign.
    """
    if record is None:
        raise SessionNotFound(session_id)
    if record.expired(now):
        raise SessionExpired(session_id)
    if scope != record.profile.scope and not scope.reaches(record.profile.scope):
        raise SessionForeign(session_id, ":".join(record.profile.scope.owner))
    return record


def require_turn(record: Record | None, turn: OpenTurn, now: datetime) -> Record:
    """The session of a turn, if it is still the same one.

    Raises:
        TurnLost: it is not.
    """
    try:
        record = require(record, turn.scope, turn.session.id, now)
    except SessionNotFound:
        raise TurnLost(turn.session.id, turn.id) from None
    if record.profile.incarnation != turn.session.incarnation:
        raise TurnLost(turn.session.id, turn.id)
    return record


def require_version(record: Record, expected: int | None) -> None:
    """Check a caller's `if_version`.

    Raises:
        VersionConflict: it is not the session's version.
    """
    if expected is not None and expected != record.head.version:
        raise VersionConflict(expected, record.head.version)


def read_head(record: Record | None, scope: Scope, session_id: str, now: datetime) -> Step[Session]:
    """The session's head."""
    record, touched = touch(require(record, scope, session_id, now), now)
    return Step(record=record, answer=record.session, changed=False, touched=touched)


def read_lease(record: Record | None, scope: Scope, session_id: str, now: datetime) -> Step[RunningTurn | None]:
    """The turn that holds the session."""
    record = require(record, scope, session_id, now)
    lease, running = record.head.lease, None
    if lease is not None:
        incarnation = record.profile.incarnation
        running = RunningTurn(id=lease.turn_id, number=lease.number, incarnation=incarnation, until=lease.until)
    return Step(record=record, answer=running, changed=False)


def read_page(record: Record | None, scope: Scope, session_id: str, query: Page, now: datetime) -> Step[MessagePage]:
    """A page of the log."""
    record, touched = require(record, scope, session_id, now), False
    if query.touch:
        record, touched = touch(record, now)
    spans, stored = record.head.stored_spans, record.messages
    if query.after is not None:
        first = rank(spans, query.after + 1)
        last = min(first + query.limit, stored)
    else:
        last = stored if query.before is None else rank(spans, query.before)
        first = max(0, last - query.limit)
    page = MessagePage(
        session=record.session,
        messages=record.between((nth(spans, first), nth(spans, last - 1))) if first < last else (),
        more_before=first > 0,
        more_after=last < stored,
    )
    return Step(record=record, answer=page, changed=False, touched=touched)


def read_record(record: Record | None, scope: Scope, session_id: str, now: datetime) -> Step[Record]:
    """The record itself, for what is read beside it; its deadline stays."""
    record = require(record, scope, session_id, now)
    return Step(record=record, answer=record, changed=False)


def read_attachments(
    record: Record | None, scope: Scope, session_id: str, now: datetime
) -> Step[tuple[Attachment, ...]]:
    """What is known of the attachments, in the order in which they came; the deadline stays."""
    record = require(record, scope, session_id, now)
    attachments = tuple([
        Attachment(id=one.id, media_type=one.media_type, size=one.size, name=one.name, seqs=one.seqs)
        for one in record.profile.attachments
    ])  # fmt: skip
    return Step(record=record, answer=attachments, changed=False)


def touch(record: Record, now: datetime) -> tuple[Record, bool]:
    """The record after a read, and whether that moved its deadline."""
    deadline = record.profile.retention.deadline_after_read(record.head.expires_at, now)
    if deadline is None or record.keeps_deadline:
        return record, False
    return replace(record, head=replace(record.head, expires_at=deadline)), True


def require_or_create(
    record: Record | None, scope: Scope, session_id: str, create: NewSession | None, incarnation: str, now: datetime
) -> tuple[Record, bool, bool]:
    """The session, whether it is new, and whether it takes the place of an expired one.

    Raises:
        SessionNotFound: it is absent, and not to be created; or it is foreign.
    """
    try:
        return require(record, scope, session_id, now), False, False
    except SessionForeign:
        raise
    except SessionNotFound as error:
        if create is None:
            raise
        return new_record(scope, session_id, create, incarnation, now), True, isinstance(error, SessionExpired)


def new_record(scope: Scope, session_id: str, new: NewSession, incarnation: str, now: datetime) -> Record:
    """A session created now."""
    profile = Profile(
        id=session_id,
        scope=scope,
        incarnation=incarnation,
        created_at=now,
        retention=new.retention,
        title=new.title,
        context=deep_copy(drop_nulls(new.context)),
        attributes=deep_copy(drop_nulls(new.attributes)),
        metadata=deep_copy(drop_nulls(new.metadata)),
    )
    starts = None if new.retention.max_turns is None else ()
    head = Head(version=0, updated_at=now, expires_at=new.retention.deadline(now, now), turn_starts=starts)
    return Record(head=head, profile=profile)


def complete_change(record: Record, now: datetime) -> Record:
    """Finish a change: caps, version, time, deadline. The time of a session never goes backwards."""
    profile, retention = record.profile, record.profile.retention
    now = max(now, record.head.updated_at)
    if retention.max_messages is not None or retention.max_turns is not None:
        record = enforce_caps(record, retention)
    head = record.head
    expires_at = retention.deadline(profile.created_at, now)
    return replace(record, head=replace(head, version=head.version + 1, updated_at=now, expires_at=expires_at))


def spend(record: Record, tokens: int, cost_nanos: int) -> Record:
    """The record with an addition to its totals."""
    if not tokens and not cost_nanos:
        return record
    head = record.head
    return replace(record, head=replace(head, tokens=head.tokens + tokens, cost_nanos=head.cost_nanos + cost_nanos))


def apply_changes(record: Record, changes: Changes) -> Record:
    """The record with a patch applied."""
    fields = changes.fields
    profile = record.profile
    if "window_start" in fields:
        record = replace(record, head=replace(record.head, window_start=changes.window_start))
    named = {name: getattr(changes, name) for name in ("title", "status") if name in fields}
    merged = {
        name: merge_patch(getattr(profile, name), deep_copy(getattr(changes, name)))
        for name in ("context", "attributes", "metadata")
        if name in fields
    }
    return replace(record, profile=replace(profile, **named, **merged)) if named or merged else record
