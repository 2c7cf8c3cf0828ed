"""Arguments and replies of the scripts, as values: turns, batches, pages, patches and forks.

Numbers are packed into one string in front, the time first; texts and bodies follow.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    Draft,
    FinishTurn,
    ForkPoint,
    ForkRequest,
    IdempotencyKey,
    Message,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Producer,
    Rewrite,
    Scope,
    Session,
    Truncation,
    TurnState,
)
from tenuto.model.session import drop_nulls
from tenuto.model.turn import turn_offsets
from tenuto.stores.codec import digest_id, encode_draft, encode_trace, from_micros, id_prefix, number_drafts
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._records import (
    NEWEST,
    NONE,
    Facts,
    apply_numbers,
    encode_identity,
    instant,
    new_session_numbers,
    numbers_epoch,
    read_messages,
    read_session,
    retention_numbers,
    session_identity,
    split_total,
    status_number,
    write_drafts,
    write_numbers,
    write_trace,
    write_variables,
)
from tenuto.stores.redis._resp import Part, Reply
from tenuto.stores.redis._window_cache import CachedWindow


class Ask(NamedTuple):
    """The arguments of a script: numbers after the time, and the rest."""

    numbers: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()


@lru_cache(maxsize=4096)
def integers(count: int) -> struct.Struct:
    """A row of numbers as Lua reads it."""
    return struct.Struct(f">{count}q")


def parse_session(reply: Reply) -> Session:
    """The session of a reply with the whole head."""
    return read_session(*reply[1:5])


def reply_numbers(reply: Reply) -> bytes:
    """The numbers of a reply, which may be nothing else."""
    numbers: bytes = reply if type(reply) is bytes else reply[1]
    return numbers


def begin_turn_args(scope: Scope, opening: BeginTurn, now: int, lease_until: int, seen: CachedWindow | None) -> Ask:
    """The arguments of `begin_turn.lua`; without those of a new session if it was `seen`."""
    words = opening.user_messages
    if seen is None:
        known, bodies = (NONE, NONE, NONE), write_drafts(words)
        create, sets, new = _new_session_args(scope, opening.session_id, opening.turn_id, opening.create, now)
    else:
        session = seen.session
        known = (seen.epoch, session.version, session.last_seq)
        bodies = write_drafts(words, session.last_seq + 1, session.turns + 1)
        create, sets, new = _new_session_args(scope, opening.session_id, opening.turn_id, None, now)
    kept = () if opening.retention is None else (integers(4).pack(*retention_numbers(opening.retention)),)
    producer, number = _producer_args(opening.producer)
    return Ask(
        (lease_until, opening.window, len(words), number, create, sets, len(kept), *known),
        (opening.turn_id, *_once(opening.idempotency_key), producer, *bodies, *kept, *new),
    )


def parse_open_turn(
    scope: Scope, opening: BeginTurn, reply: Reply, lease_until: int, seen: CachedWindow | None
) -> tuple[OpenTurn, tuple[Message, ...], int]:
    """A turn begun or resumed, the known end of its log, and the number of new messages in that.

    The reply holds neither the opening's own messages nor those of `seen`.
    """
    if seen is not None and type(reply) is bytes:
        return _predict_open_turn(scope, opening, reply, lease_until, seen)
    place, first, last_active, made, words, window = reply[5:]
    session = parse_session(reply)
    # Resumed user messages are in the log already, and so in the returned window.
    new = (
        number_drafts(opening.user_messages, first, [place] * len(opening.user_messages))
        if reply[0] == b"opened"
        else ()
    )
    log = (read_messages(window[::-1]) if window else ()) + new
    fresh = len(log)
    if seen is not None and seen.epoch == numbers_epoch(reply[1]) and fresh < opening.window:
        log = seen.messages + log
    log = log[-session.messages :] if session.messages else ()
    turn = OpenTurn(
        id=opening.turn_id,
        number=place,
        scope=scope,
        session=session,
        state=TurnState.RESUMED if reply[0] == b"resumed" or (opening.user_messages and not new) else TurnState.OPENED,
        user_messages=read_messages(words) if words else new,
        window=_slice_window(log, session, opening.window),
        lease=opening.lease,
        lease_until=from_micros(lease_until),
        created=made != b"",
        expired=made == b"expired",
        last_active_at=None if last_active == b"" else from_micros(last_active),
    )
    return turn, log, min(fresh, len(log))


def _predict_open_turn(
    scope: Scope, opening: BeginTurn, numbers: bytes, lease_until: int, seen: CachedWindow
) -> tuple[OpenTurn, tuple[Message, ...], int]:
    """A turn on a session that has not changed since it was seen."""
    session, count = apply_numbers(seen.session, numbers, seen.variables), len(opening.user_messages)
    new = number_drafts(opening.user_messages, session.last_seq - count + 1, [session.turns] * count)
    log = (seen.messages + new)[-session.messages :] if session.messages else ()
    turn = OpenTurn(
        id=opening.turn_id,
        number=session.turns,
        scope=scope,
        session=session,
        state=TurnState.OPENED,
        user_messages=new,
        window=_slice_window(log, session, opening.window),
        lease=opening.lease,
        lease_until=instant(lease_until),
        last_active_at=seen.session.updated_at,
    )
    return turn, log, min(count, len(log))


def _slice_window(log: tuple[Message, ...], session: Session, size: int) -> tuple[Message, ...]:
    """The newest messages after the window start."""
    newest = log[-size:] if size else ()
    start = session.window_start
    if start > 1 and newest and newest[0].seq < start:
        return tuple(message for message in newest if message.seq >= start)
    return newest


def parse_finished_turn(scope: Scope, reply: Reply) -> OpenTurn:
    """The finished turn of an idempotency key."""
    turn_id, number, words, answer = reply[5:]
    session = parse_session(reply)
    return OpenTurn(
        id=turn_id.decode(),
        number=number,
        scope=scope,
        session=session,
        state=TurnState.FINISHED,
        user_messages=read_messages(words),
        window=(),
        reply=read_messages(answer),
        last_active_at=session.updated_at,
    )


def finish(turn: OpenTurn, closing: FinishTurn, seen: CachedWindow | None) -> Ask:
    """The arguments of `finish_turn.lua`."""
    producer, number = _producer_args(closing.producer)
    usage, reply = closing.usage, closing.reply
    known, first = (
        ((NONE, NONE), 0) if seen is None else ((seen.epoch, seen.session.version), seen.session.last_seq + 1)
    )
    changes = () if closing.changes is None else _changes_args(closing.changes)
    traced = () if closing.trace is None else (write_trace(turn.number, closing.trace),)
    return Ask(
        (
            turn.number,
            int(closing.abandoned),
            len(reply),
            number,
            *split_total(usage.tokens),
            *split_total(usage.cost_nanos),
            int(closing.changes is not None),
            len(traced),
            *known,
        ),
        (turn.session.incarnation, turn.id, producer, *write_drafts(reply, first, turn.number), *changes, *traced),
    )


def parse_finish_result(turn: OpenTurn, closing: FinishTurn, reply: Reply, seen: CachedWindow | None) -> AppendResult:
    """The result of finishing a turn."""
    count = len(closing.reply)
    if seen is not None and type(reply) is bytes:
        session = apply_numbers(seen.session, reply, seen.variables)
        # A repeated producer number stored nothing.
        stored = closing.reply if session.last_seq > seen.session.last_seq else ()
        return AppendResult(
            session=session, messages=number_drafts(stored, session.last_seq - count + 1, [turn.number] * len(stored))
        )
    session = parse_session(reply)
    if reply[0] == b"duplicate":
        return AppendResult(session=session, duplicate=True)
    first, last = reply[5:]
    stored = closing.reply if last >= first else ()
    return AppendResult(session=session, messages=number_drafts(stored, first, [turn.number] * len(stored)))


def append(scope: Scope, session_id: str, batch: AppendBatch, now: int) -> Ask:
    """The arguments of `append.lua`."""
    create, sets, new = _new_session_args(scope, session_id, batch.id, batch.create, now)
    producer, number = _producer_args(batch.producer)
    drafts: tuple[Draft, ...] = batch.messages
    spent = batch.total_usage
    offsets = integers(len(drafts)).pack(*turn_offsets(drafts))
    return Ask(
        (len(drafts), number, create, sets, *split_total(spent.tokens), *split_total(spent.cost_nanos)),
        (batch.id, *_once(batch.idempotency_key), producer, offsets, *write_drafts(drafts), *new),
    )


def parse_append_result(batch: AppendBatch, reply: Reply) -> AppendResult:
    """Messages that were stored now or before."""
    session = parse_session(reply)
    if reply[0] == b"duplicate":
        return AppendResult(session=session, messages=read_messages(reply[5]), duplicate=True)
    first, place, made = reply[5:]
    turns = [place + offset for offset in turn_offsets(batch.messages)]
    return AppendResult(
        session=session,
        messages=number_drafts(batch.messages, first, turns),
        created=made != b"",
        expired=made == b"expired",
    )


def pages(page: Page) -> Ask:
    """The arguments of `messages.lua`."""
    return Ask((page.limit, _or_absent(page.before), _or_absent(page.after), int(page.touch)))


def page_of(page: Page, reply: Reply) -> MessagePage:
    """A page of the log. One message beyond the limit means that there are more."""
    found, beyond = reply[5:]
    kept, more = found[: page.limit], len(found) > page.limit
    forward = page.after is not None
    return MessagePage(
        session=parse_session(reply),
        messages=read_messages(kept if forward else kept[::-1]),
        more_before=beyond > 0 if forward else more,
        more_after=more if forward else beyond > 0,
    )


def patch(changes: Changes) -> Ask:
    """The arguments of `patch.lua`."""
    return Ask((_or_absent(changes.if_version),), _changes_args(changes))


def reset(sparing: Sequence[str]) -> Ask:
    """The arguments of `reset.lua`."""
    kept, _ = write_variables({}, {}, dict.fromkeys(sparing, True))
    return Ask((len(kept) // 2,), tuple(kept[::2]))


def truncate(truncating: Truncation) -> Ask:
    """The arguments of `truncate.lua`. Numbers that no store assigns are left out."""
    spared = [seq for seq in truncating.keep_seqs if 0 < seq < NEWEST]
    turn = "" if truncating.within_turn is None else truncating.within_turn.id
    numbers = (truncating.after, _or_absent(truncating.if_version), len(spared))
    return Ask(numbers, (integers(len(spared)).pack(*spared), turn))


def rewrite(rewriting: Rewrite) -> Ask:
    """The arguments of `rewrite.lua`. Numbers that no store assigns are left out."""
    messages = [message for message in rewriting.messages if 0 < message.seq < NEWEST]
    traces = [trace for trace in rewriting.traces if 0 < trace.number < NEWEST]
    places = [(message.seq, len(id_prefix(message.id))) for message in messages]
    places += [(trace.number, len(id_prefix(trace.id))) for trace in traces]
    return Ask(
        (len(messages), len(traces), _or_absent(rewriting.if_version)),
        (
            integers(2 * len(places)).pack(*(number for pair in places for number in pair)),
            *map(encode_draft, messages),
            *map(encode_trace, traces),
        ),
    )


def snapshot(forking: ForkRequest) -> Ask:
    """The arguments of `snapshot.lua`."""
    return Ask((_or_absent(forking.at),))


def plant(forking: ForkRequest, reply: Reply, now: int) -> Ask:
    """The arguments of `plant.lua`, from a snapshot of the source. Messages are copied as bytes."""
    source, log = parse_session(reply), read_messages(reply[5])
    session = _forked_session(source, forking, log, now)
    sets, _ = write_variables(session.context, session.attributes, session.metadata)
    lines: list[Part] = []
    for message, member in zip(log, reply[5], strict=True):
        lines += (message.seq, member)
    facts = encode_identity(session_identity(session))
    owner = listing_digests(session.scope)[1]
    return Ask(
        (len(sets) // 2, len(log)),
        (write_numbers(session, owner), facts, session.title, session.incarnation, *sets, *lines),
    )


def _forked_session(source: Session, forking: ForkRequest, log: tuple[Message, ...], now: int) -> Session:
    at = source.last_seq if forking.at is None else min(forking.at, source.last_seq)
    instant = from_micros(now)
    return replace(
        source,
        id=forking.new_id,
        incarnation=forking.new_id,
        created_at=instant,
        updated_at=instant,
        expires_at=source.retention.deadline(instant, instant),
        version=0,
        title=source.title if forking.title is None else forking.title,
        turns=log[-1].turn if log else 0,
        messages=len(log),
        last_seq=at,
        window_start=min(source.window_start, at + 1),
        tokens=0,
        cost_nanos=0,
        forked_from=ForkPoint(session_id=source.id, seq=at),
    )


def _new_session_args(
    scope: Scope, session_id: str, token: str, new: NewSession | None, now: int
) -> tuple[int, int, tuple[Part, ...]]:
    """Whether a session may be created, the number of its variables, and its head."""
    if new is None:
        return 0, 0, ()
    facts = encode_identity(Facts(scope=scope, session_id=session_id, incarnation=token))
    sets: list[Part] = []
    if new.context or new.attributes or new.metadata:
        kept = (drop_nulls(part) for part in (new.context, new.attributes, new.metadata))
        sets, _ = write_variables(*kept)
    numbers = new_session_numbers(now, new.retention, listing_digests(scope)[1])
    return 1, len(sets) // 2, (numbers, facts, new.title, *sets)


def _once(once: IdempotencyKey | None) -> tuple[Part, Part]:
    """An idempotency key and its fingerprint, as digests; the second follows a NUL where it is stored."""
    if once is None:
        return b"", b""
    return digest_id(once.key), digest_id(once.fingerprint).hex()


def _producer_args(producer: Producer | None) -> tuple[Part, int]:
    return (b"", NONE) if producer is None else (digest_id(producer.id), producer.seq)


def _changes_args(changes: Changes) -> tuple[Part, ...]:
    """A patch: whether there is a title, status, window start, how many variables to set and to remove; then those."""
    sets, removals = write_variables(changes.context, changes.attributes, changes.metadata)
    title = () if changes.title is UNSET else (changes.title,)
    numbers = integers(5).pack(
        len(title),
        NONE if changes.status is UNSET else status_number(changes.status),
        NONE if changes.window_start is UNSET else changes.window_start,
        len(sets) // 2,
        len(removals),
    )
    return (numbers, *title, *sets, *removals)


def _or_absent(number: int | None) -> int:
    return NONE if number is None else number
