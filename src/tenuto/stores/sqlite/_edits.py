"""Changes to a session as a whole: patched, reset, forked, truncated, rewritten, deleted."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenuto.errors import SessionExists, SessionForeign, TurnLost, VersionConflict
from tenuto.model import Changes, ForkRequest, Rewrite, Session, Truncation
from tenuto.stores.codec import encode_object
from tenuto.stores.sqlite import _idempotency, _log
from tenuto.stores.sqlite._heads import (
    Ask,
    Head,
    Transaction,
    apply,
    decode_head_object,
    insert,
    require_head_for_write,
    save,
    save_profile,
    scope_of,
    session_of,
    take_head,
    uproot,
)
from tenuto.stores.sqlite._schema import MAX_SEQ


def patch(txn: Transaction, ask: Ask, changes: Changes) -> Session:
    """Change the head."""
    head = require_head_for_write(txn, ask)
    if changes.if_version is not None and changes.if_version != head.version:
        raise VersionConflict(changes.if_version, head.version)
    apply(head, changes)
    save_profile(txn, head)
    return _save_changes(txn, ask, head)


def reset(txn: Transaction, ask: Ask, sparing: Sequence[str]) -> Session:
    """Delete the messages, keep the session."""
    head = _require_readable(txn, ask)
    _log.clear(txn, head.id)
    _log.clear_traces(txn, head.id)
    _idempotency.forget_all(txn, head)
    _drop_lease(head)
    head.messages, head.window_start = 0, head.last_seq + 1
    kept = {name: value for name, value in decode_head_object(head, head.metadata).items() if name in sparing}
    head.context, head.metadata = b"{}", encode_object(kept)
    save_profile(txn, head)
    return _save_changes(txn, ask, head)


def truncate(txn: Transaction, ask: Ask, truncating: Truncation) -> Session:
    """Delete the messages after a sequence number, except some; a turn that truncates itself goes on."""
    head = require_head_for_write(txn, ask)
    expected, within = truncating.if_version, truncating.within_turn
    if expected is not None and expected != head.version:
        raise VersionConflict(expected, head.version)
    if within is not None and head.lease != within.id:
        raise TurnLost(within.session.id, within.id)
    after = min(max(truncating.after, 0), MAX_SEQ)
    went, cut_turn = _log.truncate_log(txn, head, after, truncating.keep_seqs)
    if cut_turn is not None:
        _log.clear_traces(txn, head.id, cut_turn)
    head.messages -= went
    _idempotency.forget_keys_after(txn, head, after, sparing=None if within is None else head.lease_key)
    if within is None:
        _drop_lease(head)
    head.tail = None
    return _save_changes(txn, ask, head)


def rewrite(
    txn: Transaction, ask: Ask, rewriting: Rewrite, bodies: Sequence[bytes], traces: Sequence[bytes]
) -> Session:
    """Replace bodies of stored messages and traces. Expiry and the place in listings do not change."""
    head = _require_readable(txn, ask)
    if rewriting.if_version is not None and rewriting.if_version != head.version:
        raise VersionConflict(rewriting.if_version, head.version)
    replaced = [_log.reword(txn, head, *pair) for pair in zip(rewriting.messages, bodies, strict=True)]
    replaced += [_log.replace_trace(txn, head, *pair) for pair in zip(rewriting.traces, traces, strict=True)]
    if any(replaced):
        head.version += 1
        head.tail = None
        txn.execute("UPDATE session SET version = ? WHERE id = ?", (head.version, head.id))
        txn.changed.append(head.key)
    txn.hot.put(head)
    return session_of(head)


def fork(txn: Transaction, ask: Ask, target: Ask, forking: ForkRequest) -> Session:
    """Copy the session, up to a message, under a new id."""
    source = _require_readable(txn, ask)
    taken = take_head(txn, target)
    if taken is not None:
        if taken.expires_at is None or taken.expires_at > ask.now:
            if target.owner is not None and taken.owner != target.owner:
                raise SessionForeign(forking.new_id, ":".join(scope_of(taken).owner))
            raise SessionExists(forking.new_id)
        remove(txn, taken.id, taken.key)
    at = source.last_seq if forking.at is None else min(forking.at, source.last_seq)
    branch = _forked_head(source, target, forking, at)
    insert(txn, branch)
    branch.messages, branch.turns = _log.copy(txn, source, branch.id, at)
    txn.execute("UPDATE session SET messages = ?, turns = ? WHERE id = ?", (branch.messages, branch.turns, branch.id))
    return session_of(branch)


def delete(txn: Transaction, ask: Ask) -> None:
    """Remove the session and everything of it."""
    head = _require_readable(txn, ask)
    remove(txn, head.id, head.key)


def remove(txn: Transaction, row: int, key: bytes) -> tuple[int, int]:
    """Remove all rows of a session; returns the number of its messages and traces."""
    went = _log.clear(txn, row), _log.clear_traces(txn, row)
    uproot(txn, row, key)
    return went


def touch(txn: Transaction, ask: Ask, moved: int) -> Session:
    """Move the deadline of a session that was read; neither its version nor its place in listings changes."""
    head = require_head_for_write(txn, ask)
    if head.expires_at is not None and head.expires_at < moved:
        head.expires_at = moved
        txn.execute("UPDATE session SET expires_at = ? WHERE id = ?", (moved, head.id))
        txn.changed.append(head.key)
        txn.hot.put(head)
    return session_of(head)


def _require_readable(txn: Transaction, ask: Ask) -> Head:
    """For steps that would delete a damaged head without decoding it."""
    head = require_head_for_write(txn, ask)
    session_of(head)
    return head


def _save_changes(txn: Transaction, ask: Ask, head: Head) -> Session:
    _log.trim(txn, head)
    save(txn, head, ask.now)
    return session_of(head)


def _drop_lease(head: Head) -> None:
    """For steps that cut the log: end the running turn and drop the cached tail."""
    head.lease = head.lease_until = head.lease_key = head.closed = None
    head.tail = None


def _forked_head(source: Head, target: Ask, forking: ForkRequest, at: int) -> Head:
    title = source.title if forking.title is None else forking.title
    return replace(
        source,
        id=0,
        key=target.key,
        created_at=target.now,
        updated_at=target.now,
        version=1,
        last_seq=at,
        window_start=min(source.window_start, at + 1),
        tokens=0,
        cost_nanos=0,
        keyed=0,
        incarnation=forking.new_id,
        session_id=forking.new_id,
        title=title,
        folded_title=title.casefold(),
        lease=None,
        lease_until=None,
        lease_key=None,
        recent_keyed=None,
        recent=None,
        older=None,
        tail=None,
        closed=None,
        forked_id=source.session_id,
        forked_seq=at,
    )
