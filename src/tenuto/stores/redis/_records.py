"""How values become arguments of scripts, and replies become values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import UNSET

from tenuto.model import (
    Changes,
    Draft,
    ForkPoint,
    Gone,
    Keeping,
    Message,
    NewSession,
    Once,
    Producer,
    Scope,
    Session,
    Status,
    Touch,
)
from tenuto.model.session import without_nulls
from tenuto.model.values import JsonObject
from tenuto.stores.codec import Undecodable, encode_draft, from_micros
from tenuto.stores.redis._keys import shelves_of
from tenuto.stores.redis._wire import Part, Reply

_MICROSECOND: Final = timedelta(microseconds=1)
_encoder: Final = msgspec.json.Encoder()
_page: Final = msgspec.json.Decoder(tuple[Message, ...])
_gone: Final = msgspec.json.Decoder(Gone)
_fork: Final = msgspec.json.Decoder(ForkPoint)
_value: Final = msgspec.json.Decoder()
_BROKEN: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError)
# One letter before a variable's name says which of the three it belongs to.
_KINDS: Final = (b"c", b"a", b"m")


def who(scope: Scope, session_id: str) -> bytes:
    """Whose session it is and what it is called, as heads and the expiry index keep it."""
    return _encoder.encode(Gone(scope=scope, session_id=session_id))


def encode_fork(point: ForkPoint) -> bytes:
    """Where a session branched off, as its head keeps it."""
    return _encoder.encode(point)


@lru_cache(maxsize=8192)
def read_who(raw: bytes) -> Gone:
    """The scope and id back. Raises `Undecodable`."""
    try:
        return _gone.decode(raw)
    except _BROKEN as exc:
        raise Undecodable("whose session it is") from exc


def session_of(told: Sequence[Reply]) -> Session:
    """The session that a script told of. Raises `Undecodable`."""
    (
        owner, incarnation, created, updated, expires, idle, touch, max_messages, max_turns, version, title, status,
        turns, messages, seq, window, tokens, cost, fork, _, _, variables,
    ) = told  # fmt: skip
    gone = read_who(owner)
    try:
        context, attributes, metadata = _variables(variables)
        return Session(
            id=gone.session_id,
            scope=gone.scope,
            incarnation=incarnation.decode(),
            created_at=from_micros(created),
            updated_at=from_micros(updated),
            expires_at=from_micros(expires) if expires != b"" else None,
            keeping=_keeping(idle, touch, max_messages, max_turns),
            version=version,
            title=title.decode(),
            status=Status(status.decode()),
            context=context,
            attributes=attributes,
            metadata=metadata,
            turns=turns,
            messages=messages,
            last_seq=seq,
            window_start=window,
            tokens=int(tokens),
            cost_nanos=int(cost),
            forked_from=_fork.decode(fork) if fork else None,
        )
    except _BROKEN as exc:
        raise Undecodable("a session's head") from exc


@lru_cache(maxsize=1024)
def _keeping(idle: int | bytes, touch: bytes, max_messages: int | bytes, max_turns: int | bytes) -> Keeping:
    return Keeping(
        idle=None if isinstance(idle, bytes) else timedelta(microseconds=idle),
        touch=Touch(touch.decode()),
        max_messages=None if isinstance(max_messages, bytes) else max_messages,
        max_turns=None if isinstance(max_turns, bytes) else max_turns,
    )


def _variables(flat: Sequence[bytes]) -> tuple[JsonObject, JsonObject, JsonObject]:
    found: dict[bytes, JsonObject] = {kind: {} for kind in _KINDS}
    for place in range(0, len(flat), 2):
        name = flat[place]
        found[name[:1]][name[1:].decode()] = _value.decode(flat[place + 1])
    context, attributes, metadata = found.values()
    return context, attributes, metadata


def messages_of(members: Iterable[bytes]) -> tuple[Message, ...]:
    """Messages of a log, in the order given; the whole page is decoded in one go. Raises `Undecodable`."""
    try:
        return _page.decode(b"[" + b",".join(members) + b"]")
    except _BROKEN as exc:
        raise Undecodable("a message") from exc


def placed(drafts: Iterable[Draft], first: int, turns: Iterable[int]) -> tuple[Message, ...]:
    """Drafts that have their place in the log now."""
    return tuple(
        Message(
            id=draft.id,
            role=draft.role,
            sent_at=draft.sent_at,
            parts=draft.parts,
            speaker=draft.speaker,
            persona=draft.persona,
            parent=draft.parent,
            tokens=draft.tokens,
            metadata=draft.metadata,
            extra=draft.extra,
            seq=seq,
            turn=turn,
        )
        for seq, (draft, turn) in enumerate(zip(drafts, turns, strict=True), first)
    )


def draft_args(drafts: Sequence[Draft], offsets: Iterable[int] | None = None) -> list[Part]:
    """How many messages, then a turn offset and a body for each. The script opens the body's brace."""
    args: list[Part] = [len(drafts)]
    for draft, offset in zip(drafts, offsets or [0] * len(drafts), strict=True):
        args += (offset, encode_draft(draft)[1:])
    return args


def once_args(once: Once | None) -> tuple[Part, Part]:
    """An idempotency key, as a digest of bounded size, and its fingerprint."""
    if once is None:
        return b"", b""
    return blake2b(once.key.encode(), digest_size=16).digest(), once.fingerprint


def producer_args(producer: Producer | None) -> tuple[Part, Part]:
    """A producer and its number."""
    return (b"", b"") if producer is None else (producer.id, producer.seq)


def keeping_args(keeping: Keeping) -> tuple[Part, Part, Part, Part]:
    """Retention in microseconds, touch and caps; what is unbounded is empty."""
    return (
        b"" if keeping.idle is None else keeping.idle // _MICROSECOND,
        keeping.touch.value,
        b"" if keeping.max_messages is None else keeping.max_messages,
        b"" if keeping.max_turns is None else keeping.max_turns,
    )


def new_args(scope: Scope, session_id: str, new: NewSession | None) -> list[Part]:
    """What a session starts with if the script has to make it."""
    if new is None:
        return [0]
    owner = shelves_of(scope)[1]
    kept = tuple(without_nulls(part) for part in (new.context, new.attributes, new.metadata))
    return [1, who(scope, session_id), owner, *keeping_args(new.keeping), new.title, *variable_args(*kept)]


def change_args(changes: Changes | None) -> list[Part]:
    """A patch: title, status, window start, and variables to set and to remove."""
    if changes is None:
        return [0]
    titled = changes.title is not UNSET
    return [
        1,
        int(titled),
        changes.title if changes.title is not UNSET else b"",
        changes.status.value if changes.status is not UNSET else b"",
        changes.window_start if changes.window_start is not UNSET else b"",
        *variable_args(changes.context, changes.attributes, changes.metadata),
    ]


def variable_args(*objects: JsonObject) -> list[Part]:
    """How many to set, then name and value of each; how many to remove, then their names."""
    sets: list[Part] = []
    removals: list[Part] = []
    for kind, values in zip(_KINDS, objects, strict=True):
        for name, value in values.items():
            field = kind + name.encode()
            if value is None:
                removals.append(field)
            else:
                sets += (field, _encoder.encode(value))
    return [len(sets) // 2, *sets, len(removals), *removals]
