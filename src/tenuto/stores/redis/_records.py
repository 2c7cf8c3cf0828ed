"""How sessions and messages become what the scripts keep, and come back."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from tenuto.errors import Invalid
from tenuto.model import Draft, ForkPoint, Message, Retention, Scope, Session, Status, Touch
from tenuto.model.values import JsonObject, Value
from tenuto.stores.codec import Undecodable, encode_draft, from_micros, to_micros
from tenuto.stores.redis._resp import Part, Reply

FORMAT: Final = 2
NONE: Final = -1
"""Stands for an absent number."""

MICROSECOND: Final = timedelta(microseconds=1)
# Order is meaning: new members go to the end.
_TOUCHES: Final = (Touch.READ, Touch.WRITE, Touch.NEVER)
_STATUSES: Final = (Status.ACTIVE, Status.INACTIVE, Status.ARCHIVED)
# One letter before a variable's name says which of the three it belongs to.
_KINDS: Final = (b"c", b"a", b"m")
# Stands where there is nothing else, so that the key exists.
_MARK: Final = b"-"
# Totals are kept in two parts, of this and of one, because Lua counts exactly to 2**53 only.
_PART: Final = 2**40

_numbers: Final = struct.Struct(">24q")
NUMBERS_SIZE: Final = _numbers.size
"""Behind so many bytes of numbers stands the owner."""
# Those of them that a session is told by, without its format and when it was created.
_changing: Final = struct.Struct(">8xq8x15q")
_encoder: Final = msgspec.json.Encoder()
_three: Final = msgspec.json.Decoder(tuple[JsonObject, JsonObject, JsonObject])
_page: Final = msgspec.json.Decoder(tuple[Message, ...])
_value: Final = msgspec.json.Decoder()
_BROKEN: Final = (
    msgspec.MsgspecError, Invalid, struct.error, ValueError, TypeError, OverflowError, IndexError, KeyError
)  # fmt: skip


class Facts(Value, frozen=True, kw_only=True):
    """What never changes about a session: whose it is, what it is called, and where it came from."""

    scope: Scope
    session_id: str
    incarnation: str
    forked_from: ForkPoint | None = None


_facts: Final = msgspec.json.Decoder(Facts)


def encode_identity(facts: Facts) -> bytes:
    """As heads and the expiry index keep them."""
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
        scope=session.scope,
        session_id=session.id,
        incarnation=session.incarnation,
        forked_from=session.forked_from,
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
            keeping=_retention(idle, touch, max_messages, max_turns),
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


def encode_variables(session: Session) -> bytes:
    """A session's variables as they can be kept where callers hold the session and may alter it; empty for none."""
    held = (session.context, session.attributes, session.metadata)
    return _encoder.encode(held) if any(held) else b""


def apply_numbers(session: Session, numbers: bytes, variables: bytes) -> Session:
    """A session of which nothing but the numbers has changed, with variables of its own. Raises `Undecodable`."""
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
            keeping=_retention(idle, touch, max_messages, max_turns),
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
    """`from_micros`, quickly for our time."""
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


def write_numbers(session: Session, owner: str) -> bytes:
    """The numbers of a session as they begin, and its owner; what the scripts count themselves starts at nothing."""
    numbers = _numbers.pack(
        FORMAT,
        session.version,
        to_micros(session.created_at),
        to_micros(session.updated_at),
        NONE if session.expires_at is None else to_micros(session.expires_at),
        *retention_numbers(session.keeping),
        _STATUSES.index(session.status),
        session.turns,
        session.messages,
        session.last_seq,
        session.window_start,
        *split_total(session.tokens),
        *split_total(session.cost_nanos),
        NONE,
        0,
        0,
        NONE,
        NONE,
        new_epoch(),
    )
    return numbers + owner.encode()


def new_session_numbers(now: int, keeping: Retention, owner: str) -> bytes:
    """The numbers of a session that begins now, and its owner."""
    begun = (0, 0, 0, 0, 1, 0, 0, 0, 0, NONE, 0, 0, NONE, NONE, new_epoch())
    return _numbers.pack(FORMAT, 0, now, now, NONE, *retention_numbers(keeping), *begun) + owner.encode()


def new_epoch() -> int:
    """Where a session's count of removals starts: anywhere, so that no two sessions of one id share an epoch."""
    return random.getrandbits(52)


def numbers_epoch(numbers: bytes) -> int:
    """The epoch among a head's numbers."""
    return int.from_bytes(numbers[184:192], "big")


def needs_expiry_index(numbers: bytes) -> bool:
    """Whether the expiry index has to follow: the script has just noted this deadline as the indexed one."""
    return numbers[32:40] == numbers[168:176]


@lru_cache(maxsize=1024)
def retention_numbers(keeping: Retention) -> tuple[int, int, int, int]:
    """Retention in microseconds, touch and caps; what is unbounded is none."""
    return (
        NONE if keeping.idle is None else keeping.idle // MICROSECOND,
        _TOUCHES.index(keeping.touch),
        NONE if keeping.max_messages is None else keeping.max_messages,
        NONE if keeping.max_turns is None else keeping.max_turns,
    )


def status_number(status: Status) -> int:
    """A status as heads keep it."""
    return _STATUSES.index(status)


def split_total(total: int) -> tuple[int, int]:
    """A sum in the two parts it is kept in."""
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
    """Messages of a log, in the order given; the whole page is decoded in one go. Raises `Undecodable`."""
    try:
        return _page.decode(b"[" + b",".join(members) + b"]")
    except _BROKEN as exc:
        raise Undecodable("a message") from exc


def write_drafts(drafts: Iterable[Draft], first: int = 0, turn: int = 0) -> list[bytes]:
    """Messages as they are stored: before the body stands the place in the log, as far as it can be foreseen."""
    return [b'{"seq":%d,"turn":%d,%b' % (seq, turn, encode_draft(draft)[1:]) for seq, draft in enumerate(drafts, first)]
