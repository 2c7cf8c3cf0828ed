"""Reads of a session, and how they move its deadline."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tenuto.model import Attachment, MessagePage, Page, Scope, Session
from tenuto.stores.engine.record import Record, Step, nth, rank
from tenuto.stores.engine.rules.access import require


def read_head(record: Record | None, scope: Scope, session_id: str, now: datetime) -> Step[Session]:
    """The session's head."""
    record, touched = touch(require(record, scope, session_id, now), now)
    return Step(record=record, answer=record.session, changed=False, touched=touched)


def read_page(record: Record | None, scope: Scope, session_id: str, query: Page, now: datetime) -> Step[MessagePage]:
    """A page of the log."""
    record, touched = require(record, scope, session_id, now), False
    if query.touch:
        record, touched = touch(record, now)
    runs, stored = record.head.runs, record.messages
    if query.after is not None:
        first = rank(runs, query.after + 1)
        last = min(first + query.limit, stored)
    else:
        last = stored if query.before is None else rank(runs, query.before)
        first = max(0, last - query.limit)
    page = MessagePage(
        session=record.session,
        messages=record.between((nth(runs, first), nth(runs, last - 1))) if first < last else (),
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
    deadline = None if record.keeps_deadline else record.session.deadline_after_read(now)
    if deadline is None:
        return record, False
    return replace(record, head=replace(record.head, expires_at=deadline)), True
