"""Encoding of sessions, messages and traces as the scripts store them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from tenuto.errors import Invalid
from tenuto.model import Draft, ForkPoint, Message, Retention, Scope, Session, SessionStats, Status, Touch
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject, Value
from tenuto.stores.codec import Undecodable, decode_trace, encode_draft, encode_trace, from_micros, to_micros
from tenuto.stores.redis._resp import Part, Reply

FORMAT: Final = 2
NONE: Final = -1
"""Stands for an absent number."""
NEWEST: Final = 2**53
"""Above every turn number, and the limit of exact integers in Lua."""

MICROSECOND: Final = timedelta(microseconds=1)
# Stored by index: new members go to the end.
_TOUCHES: Final = (Touch.READ, Touch.WRITE, Touch.NEVER)
_STATUSES: Final = (Status.ACTIVE, Status.INACTIVE, Status.ARCHIVED)
# The letter before a variable's name: context, attribute or metadata.
_KINDS: Final = (b"c", b"a", b"m")
# A field that keeps an otherwise empty key in existence.
_MARK: Final = b"-"
# Totals are stored in two parts, since Lua's integers are exact up to 2**53 only.
_PART: Final = 2**40

_numbers: Final = struct.Struct(">24q")
NUMBERS_SIZE: Final = _numbers.size
"""The owner follows after this many bytes of numbers."""
# Those of them that change: all but the format and the time of creation.
_changing: Final = struct.Struct(">8xq8x15q")
# Format, expiry, messages and the totals.
_totals: Final = struct.Struct(">q24xq48xq16x4q")
_leased: Final = struct.Struct(">144x2q")
_encoder: Final = msgspec.json.Encoder()
_three: Final = msgspec.json.Decoder(tuple[JsonObject, JsonObject, JsonObject])
_page: Final = msgspec.json.Decoder(tuple[Message, ...])
_value: Final = msgspec.json.Decoder()
_BROKEN: Final = (
    msgspec.MsgspecError, Invalid, struct.error, ValueError, TypeError, OverflowError, IndexError, KeyError
)  # fmt: skip


class Facts(Value, frozen=True, kw_only=True):
    """What never changes about a session: scope, id, incarnation and origin."""

    scope: Scope
    session_id: str
    incarnation: str
    forked_from: ForkPoint | None = None


_facts: Final = msgspec.json.Decoder(Facts)


def encode_identity(facts: Facts) -> bytes:
    """The form in heads and in the expiry index."""
    return _encoder.encode(facts)


@lru_cache(maxsize=8192)
def decode_identity(raw: bytes) -> Facts:
    """The facts back. Raises `Undecodable`."""
    try:
        return _facts.decode(raw)
    except _BROKEN as exc:
        raise Undecodable("whose session it is") from exc


def session_identity(session: Session) -> Facts:
    """The facts of a session that was read before."""
    return Facts(
        scope=session.scope, session_id=session.id, incarnation=session.incarnation, forked_from=session.forked_from
    )


def read_session(numbers: Reply, facts: Reply, title: Reply, variables: Reply) -> Session:
    """A session from its head and its variables. Raises `Undecodable`."""
    known = decode_identity(facts)
    try:
        (
            _, version, created, updated, expires, idle, touch, max_messages, max_turns, status, turns, messages, seq,
            window, tokens_high, tokens_low, cost_high, cost_low, *_,
        ) = _numbers.unpack_from(numbers)  # fmt: skip
        context, attributes, metadata = _read_variables(variables) if variables else ({}, {}, {})
        return Session(
            id=known.session_id,
            scope=known.scope,
            incarnation=known.incarnation,
            created_at=instant(created),
            updated_at=instant(updated),
            expires_at=None if expires < 0 else instant(expires),
            retention=_retention(idle, touch, max_messages, max_turns),
            version=version,
            title=title.decode(),
            status=_STATUSES[status],
            context=context,
            attributes=attributes,
            metadata=metadata,
            turns=turns,
            messages=messages,
            last_seq=seq,
            window_start=window,
            tokens=tokens_high * _PART + tokens_low,
            cost_nanos=cost_high * _PART + cost_low,
            forked_from=known.forked_from,
        )
    except (*_BROKEN, AttributeError) as exc:
        raise Undecodable("a session's head") from exc


class SessionTotals:
    """Sums over sessions, from the numbers of their heads alone."""

    def __init__(self) -> None:
        self._sessions = self._messages = self._tokens = self._cost = 0

    def add(self, numbers: bytes | None, owner: bytes, now: int) -> None:
        """Add a session, unless it is missing, another owner's or expired; without an `owner` anyone's counts."""
        if numbers is None or len(numbers) < NUMBERS_SIZE or (owner and owner != numbers[NUMBERS_SIZE:]):
            return
        form, expires, messages, tokens_high, tokens_low, cost_high, cost_low = _totals.unpack_from(numbers)
        if form == FORMAT and (expires < 0 or expires > now):
            self._sessions += 1
            self._messages += messages
            self._tokens += tokens_high * _PART + tokens_low
            self._cost += cost_high * _PART + cost_low

    def stats(self) -> SessionStats:
        """The sums."""
        return SessionStats(
            sessions=self._sessions, messages=self._messages, tokens=self._tokens, cost_nanos=self._cost
        )


def encode_variables(session: Session) -> bytes:
    """A copy of a session's variables, which callers may alter; empty for none."""
    held = (session.context, session.attributes, session.metadata)
    return _encoder.encode(held) if any(held) else b""


def apply_numbers(session: Session, numbers: bytes, variables: bytes) -> Session:
    """A session of which only the numbers changed, with a fresh copy of its variables. Raises `Undecodable`."""
    context, attributes, metadata = _three.decode(variables) if variables else ({}, {}, {})
    try:
        (
            version, updated, expires, idle, touch, max_messages, max_turns, status, turns, messages, seq,
            window, tokens_high, tokens_low, cost_high, cost_low,
        ) = _changing.unpack_from(numbers)  # fmt: skip
        return Session(
            id=session.id,
            scope=session.scope,
            incarnation=session.incarnation,
            created_at=session.created_at,
            updated_at=instant(updated),
            expires_at=None if expires < 0 else instant(expires),
            retention=_retention(idle, touch, max_messages, max_turns),
            version=version,
            title=session.title,
            status=_STATUSES[status],
            context=context,
            attributes=attributes,
            metadata=metadata,
            turns=turns,
            messages=messages,
            last_seq=seq,
            window_start=window,
            tokens=tokens_high * _PART + tokens_low,
            cost_nanos=cost_high * _PART + cost_low,
            forked_from=session.forked_from,
        )
    except _BROKEN as exc:
        raise Undecodable("a session's head") from exc


def instant(micros: int) -> datetime:
    """`from_micros`, faster for years up to 2106."""
    # A float of seconds is exact to the microsecond until the year 2106, and three times as fast.
    return datetime.fromtimestamp(micros / 1e6, UTC) if 0 <= micros < 2**32 * 10**6 else from_micros(micros)


@lru_cache(maxsize=1024)
def _retention(idle: int, touch: int, max_messages: int, max_turns: int) -> Retention:
    return Retention(
        idle=None if idle < 0 else timedelta(microseconds=idle),
        touch=_TOUCHES[touch],
        max_messages=None if max_messages < 0 else max_messages,
        max_turns=None if max_turns < 0 else max_turns,
    )


def write_numbers(
    session: Session, owner: str, *, lease_until: int = NONE, keys_seen: int = 0, has_variables: bool = False
) -> bytes:
    """The first numbers of a session, and its owner; the scripts' own counters start at zero."""
    numbers = _numbers.pack(
        FORMAT,
        session.version,
        to_micros(session.created_at),
        to_micros(session.updated_at),
        NONE if session.expires_at is None else to_micros(session.expires_at),
        *retention_numbers(session.retention),
        _STATUSES.index(session.status),
        session.turns,
        session.messages,
        session.last_seq,
        session.window_start,
        *split_total(session.tokens),
        *split_total(session.cost_nanos),
        lease_until,
        keys_seen,
        has_variables,
        NONE,
        NONE,
        new_epoch(),
    )
    return numbers + owner.encode()


def new_session_numbers(now: int, retention: Retention, owner: str) -> bytes:
    """The numbers of a session that begins now, and its owner."""
    begun = (0, 0, 0, 0, 1, 0, 0, 0, 0, NONE, 0, 0, NONE, NONE, new_epoch())
    return _numbers.pack(FORMAT, 0, now, now, NONE, *retention_numbers(retention), *begun) + owner.encode()


def new_epoch() -> int:
    """A random start of the count of removals, so that no two sessions of one id share an epoch."""
    return random.getrandbits(52)


def lease_numbers(numbers: bytes) -> tuple[int, int]:
    """Until when a lease holds (`NONE` if there is none), and how many keyed writes came."""
    return _leased.unpack_from(numbers)


def numbers_epoch(numbers: bytes) -> int:
    """The epoch among a head's numbers."""
    return int.from_bytes(numbers[184:192], "big")


def needs_expiry_index(numbers: bytes) -> bool:
    """Whether the expiry index must be updated: the script has just set the indexed deadline to this one."""
    return numbers[32:40] == numbers[168:176]


@lru_cache(maxsize=1024)
def retention_numbers(retention: Retention) -> tuple[int, int, int, int]:
    """Retention in microseconds, touch and limits; `NONE` for no limit."""
    return (
        NONE if retention.idle is None else retention.idle // MICROSECOND,
        _TOUCHES.index(retention.touch),
        NONE if retention.max_messages is None else retention.max_messages,
        NONE if retention.max_turns is None else retention.max_turns,
    )


def status_number(status: Status) -> int:
    """A status as stored."""
    return _STATUSES.index(status)


def split_total(total: int) -> tuple[int, int]:
    """A total in its two stored parts."""
    return divmod(total, _PART)


def _read_variables(flat: Sequence[bytes]) -> tuple[JsonObject, JsonObject, JsonObject]:
    found: dict[bytes, JsonObject] = {kind: {} for kind in _KINDS}
    for place in range(0, len(flat), 2):
        name = flat[place]
        if name == _MARK:
            continue
        found[name[:1]][name[1:].decode()] = _value.decode(flat[place + 1])
    context, attributes, metadata = found.values()
    return context, attributes, metadata


def write_variables(*objects: JsonObject) -> tuple[list[Part], list[Part]]:
    """Names and values to set, one after the other, and names to remove."""
    sets: list[Part] = []
    removals: list[Part] = []
    for kind, values in zip(_KINDS, objects, strict=True):
        for name, value in values.items():
            field = kind + name.encode()
            if value is None:
                removals.append(field)
            else:
                sets += (field, _encoder.encode(value))
    return sets, removals


def read_messages(members: Iterable[bytes]) -> tuple[Message, ...]:
    """Messages of a log, in the order given; decoded in one call. Raises `Undecodable`."""
    try:
        return _page.decode(b"[" + b",".join(members) + b"]")
    except _BROKEN as exc:
        raise Undecodable("a message") from exc


def write_drafts(drafts: Iterable[Draft], first: int = 0, turn: int = 0) -> list[bytes]:
    """Messages as stored, with the expected place in the log in front of the body."""
    return [b'{"seq":%d,"turn":%d,%b' % (seq, turn, encode_draft(draft)[1:]) for seq, draft in enumerate(drafts, first)]


def write_trace(number: int, trace: Trace) -> bytes:
    """A trace as stored: the turn number before the body keeps the members of a set distinct."""
    return b"%d:%b" % (number, encode_trace(trace))


def read_traces(members: Iterable[bytes]) -> Iterator[Trace]:
    """Traces in the order given, without damaged ones."""
    for member in members:
        try:
            yield decode_trace(member[member.find(b":") + 1 :])
        except Undecodable:
            continue


def trace_range(limit: int, lowest: int, highest: int) -> tuple[int, int, int]:
    """The arguments of `traces.lua`. Turns count from 1; at 0 is the member that keeps the key in existence."""
    return limit, min(max(1, lowest), NEWEST), min(max(0, highest), NEWEST)
