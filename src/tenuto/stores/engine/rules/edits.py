"""Edits of a session: patch, reset, truncate, rewrite, fork, delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tenuto.errors import SessionExists, SessionForeign, TurnLost
from tenuto.model import Changes, ForkPoint, ForkRequest, Message, Rewrite, Scope, Session, Truncation
from tenuto.model.attachment import without_attachments
from tenuto.model.turn import Trace
from tenuto.stores.engine.record import (
    EMPTY,
    Head,
    KeyedWrite,
    Record,
    Step,
    TracesMissing,
    cut_after,
    first_index,
    overlaps,
    with_tail,
)
from tenuto.stores.engine.rules.access import apply_changes, complete_change, require, require_version
from tenuto.stores.engine.rules.attachments import attach_again, find_attachment, forget_unshown, without_attachment
from tenuto.stores.engine.rules.keys import forget_all, revise
from tenuto.stores.engine.rules.log import add_turn_starts


def patch(record: Record | None, scope: Scope, session_id: str, changes: Changes, now: datetime) -> Step[Session]:
    """Change the head."""
    record = require(record, scope, session_id, now)
    require_version(record, changes.if_version)
    record = complete_change(apply_changes(record, changes), now)
    return Step(record=record, answer=record.session)


def reset(
    record: Record | None, scope: Scope, session_id: str, keep_metadata: Sequence[str], now: datetime
) -> Step[Session]:
    """Remove messages, context, metadata and keys; a running turn is lost."""
    record = forget_all(require(record, scope, session_id, now))
    head = record.head
    start = head.last_seq + 1
    head = replace(
        head,
        lease=None,
        closed=None,
        stored_spans=(),
        window_start=start,
        turn_starts=None if head.turn_starts is None else (),
    )
    metadata = {name: value for name, value in record.profile.metadata.items() if name in keep_metadata}
    profile = replace(record.profile, context={}, metadata=metadata)
    record = forget_unshown(replace(record, head=head, profile=profile, tail=(), tail_from=start))
    record = complete_change(record, now)
    return Step(record=record, answer=record.session, truncated=0, traces_from=0)


def truncate(record: Record | None, scope: Scope, session_id: str, request: Truncation, now: datetime) -> Step[Session]:
    """Remove the messages after a number, but for those to keep, and what refers to them."""
    record = require(record, scope, session_id, now)
    require_version(record, request.if_version)
    head, within, after = record.head, request.within_turn, request.after
    if within is not None and (head.lease is None or head.lease.turn_id != within.id):
        raise TurnLost(session_id, within.id)
    later = record.between((after + 1, head.last_seq))
    gone = [message for message in later if message.seq not in request.keep_seqs]
    spared = tuple([message for message in later if message.seq in request.keep_seqs])
    lost_turn = min([message.turn for message in gone], default=head.turns + 1)
    held = None if within is None or head.lease is None else head.lease.key
    record = revise(record, lambda write: write if write.key == held else _cut_write(write, after))
    starts = record.head.turn_starts
    if starts is not None:
        starts = add_turn_starts(tuple([start for start in starts if start[1] <= after]), spared)
    head = replace(
        record.head,
        stored_spans=cut_after(head.stored_spans, after, tuple([message.seq for message in spared])),
        turn_starts=starts,
        edition=record.head.edition + 1,
        lease=head.lease if within is not None else None,
        closed=head.closed if within is not None else None,
    )
    tail = tuple([message for message in record.tail if message.seq <= after or message.seq in request.keep_seqs])
    record = complete_change(forget_unshown(replace(record, head=head, tail=tail)), now)
    kept = tuple([message.seq for message in spared])
    return Step(record=record, answer=record.session, truncated=after, spared=kept, traces_from=lost_turn)


def _cut_write(write: KeyedWrite, after: int) -> KeyedWrite | None:
    """A keyed write after the messages behind a number are gone: forgotten, or unfinished where its reply is."""
    if write.input_span[0] > after:
        return None
    if write.finished and write.reply_span[1] > after:
        return replace(write, finished=False, reply_span=EMPTY)
    return write


def rewrite(record: Record | None, scope: Scope, session_id: str, request: Rewrite, now: datetime) -> Step[Session]:
    """Replace the text of stored messages and traces; those not found by number and id are skipped.

    With the new edition the commit drops evicted messages that are still stored; an empty request asks for just that.
    """
    record = require(record, scope, session_id, now)
    require_version(record, request.if_version)
    messages, traces = _find_messages(record, request), _find_traces(record, request)
    is_stale = not request.messages and not request.traces and record.head.stored_from < record.first_seq
    if not messages and not traces and not is_stale:
        return Step(record=record, answer=record.session, changed=False)
    # Callers do not see what is evicted: its removal is no new version.
    version = record.head.version + (not is_stale)
    record, messages = attach_again(record, messages)
    record = _with_rewritten(record, messages, version)
    return Step(
        record=record, answer=record.session, rewritten=messages, traces=tuple([(new.number, new) for new in traces])
    )


def _with_rewritten(record: Record, messages: tuple[Message, ...], version: int) -> Record:
    """The record with other words in stored messages."""
    tail = list(record.tail)
    for message in messages:
        place = first_index(record.tail, message.seq)
        if place < len(tail) and tail[place].seq == message.seq:
            tail[place] = message
    head = replace(record.head, version=version, edition=record.head.edition + 1)
    return replace(record, head=head, tail=tuple(tail))


def remove_attachment(
    record: Record | None, scope: Scope, session_id: str, attachment_id: str, now: datetime
) -> Step[Session]:
    """Remove an attachment; the parts that show it say so from now on."""
    record = require(record, scope, session_id, now)
    one = find_attachment(record, attachment_id)
    showing = [message for message in record.between((one.seqs[0], one.seqs[-1])) if message.seq in one.seqs]
    rewritten = tuple(
        [replace(message, parts=without_attachments(message.parts, (attachment_id,))) for message in showing]
    )
    record = _with_rewritten(without_attachment(record, one), rewritten, record.head.version + 1)
    return Step(record=record, answer=record.session, rewritten=rewritten)


def _find_messages(record: Record, request: Rewrite) -> tuple[Message, ...]:
    wanted = [new for new in request.messages if overlaps(record.head.stored_spans, new.seq, new.seq)]
    if not wanted:
        return ()
    seqs = [new.seq for new in wanted]
    stored = {message.seq: message for message in record.between((min(seqs), max(seqs)))}
    found = {
        new.seq: replace(new, turn=old.turn) for new in wanted if (old := stored[new.seq]).id == new.id
    }  # fmt: skip
    return tuple(found.values())


def _find_traces(record: Record, request: Rewrite) -> tuple[Trace, ...]:
    if not request.traces:
        return ()
    numbers = frozenset([new.number for new in request.traces])
    if not numbers <= record.fetched.trace_numbers:
        raise TracesMissing(numbers)
    found = {new.number: new for new in request.traces if (old := record.trace(new.number)) and old.id == new.id}
    return tuple(found.values())


def fork(
    source: Record | None, target: Record | None, scope: Scope, session_id: str, request: ForkRequest, now: datetime
) -> Step[Session]:
    """The record of a new session with the source's messages up to one; the owner stays, totals start at zero."""
    source = require(source, scope, session_id, now)
    if target is not None and not target.expired(now):
        if not scope.reaches(target.profile.scope):
            raise SessionForeign(request.new_id, ":".join(target.profile.scope.owner))
        raise SessionExists(request.new_id)
    head = source.head
    at = head.last_seq if request.at is None else min(request.at, head.last_seq)
    spans = cut_after(head.stored_spans, at, ())
    last = source.between((spans[-1][1], spans[-1][1])) if spans else ()
    tail = tuple([message for message in source.tail if message.seq <= at])
    starts = None if head.turn_starts is None else tuple([start for start in head.turn_starts if start[1] <= at])
    forked = Record(
        head=Head(
            version=1,
            updated_at=now,
            expires_at=source.profile.retention.deadline(now, now),
            turns=last[0].turn if last else 0,
            last_seq=at,
            window_start=min(head.window_start, at + 1),
            stored_spans=spans,
            stored_from=spans[0][0] if spans else at + 1,
            turn_starts=starts,
        ),
        profile=replace(
            source.profile,
            id=request.new_id,
            incarnation=request.new_id,
            created_at=now,
            title=source.profile.title if request.title is None else request.title,
            forked_from=ForkPoint(session_id=session_id, seq=at),
            origins=_origins(source, session_id, at),
        ),
    )
    forked = with_tail(forget_unshown(forked), tail, min(source.tail_from, at + 1))
    return Step(record=forked, answer=forked.session, created=True)


def _origins(source: Record, session_id: str, at: int) -> tuple[tuple[str, int], ...]:
    older = [(origin, min(through, at)) for origin, through in source.profile.origins]
    return ((session_id, at), *[origin for origin in older if origin[1]])


def delete(record: Record | None, scope: Scope, session_id: str, now: datetime) -> Step[None]:
    """Remove the session with all that is stored under it."""
    require(record, scope, session_id, now)
    return Step(record=None, answer=None)
