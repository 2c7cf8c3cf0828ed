"""Rows of the outbox, and their encryption."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

import msgspec

from tenuto.errors import DecryptionFailed, StoreUnavailable, Unavailable
from tenuto.model import BeginTurn, FinishTurn, Message, Scope, Session
from tenuto.model.scope import user_digest
from tenuto.model.values import Value
from tenuto.ports import Cipher, Ciphers, Clock

Place: TypeAlias = tuple[str, str]
_FRESH: Final = timedelta(minutes=1)
_MOST_TENANTS: Final = 1000
_encoder: Final = msgspec.json.Encoder()


class ReplicaOrigin(Value, frozen=True, kw_only=True):
    """A session as it was when its first turn was journaled.

    A session created here has no head; `opened_by` is the turn that created it. In a `blind` one turns can be finished,
    but its messages are not certain and not shown.
    """

    head: Session | None = None
    tail: tuple[Message, ...] = ()
    opened_by: str = ""
    blind: bool = False


class JournaledBegin(Value, frozen=True, kw_only=True):
    """The begin of a journaled turn: here, or (`there`) in the store before it went down.

    The user messages of a turn that began there are stored and left out here; `last_word` is the last of them. The
    store may have messages of the turn only after the sequence number `since`; user messages too if it was `asked`.
    """

    scope: Scope
    opening: BeginTurn
    origin: ReplicaOrigin
    number: int
    begun_at: datetime
    since: int = 0
    there: bool = False
    asked: bool = False
    last_word: int = 0


class Row(Value, frozen=True, kw_only=True):
    """A turn in the outbox; `closing` is `None` while it is open. The rest as in `JournalRow`."""

    beginning: JournaledBegin
    closing: FinishTurn | None = None
    incarnation: str = ""
    tried: int | None = None

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.beginning.opening.turn_id


class JournalRow(Value, frozen=True, kw_only=True):
    """A row as stored: its bodies may be encrypted, its owner is not, as in the store.

    `incarnation` is set once a session created here is in the store: if it is missing there, it was deleted. `tried` is
    the end of the session's log at the first attempt to replay this turn.
    """

    slot: int
    number: int
    session: bytes
    tenant: str
    site: str
    persons: tuple[str, ...]
    begun_at: datetime
    beginning: str
    closing: str | None = None
    incarnation: str = ""
    tried: int | None = None


_Part = TypeVar("_Part", JournaledBegin, FinishTurn)


def row_user_digests(beginning: JournaledBegin) -> tuple[str, ...]:
    """Digests of the users of a row: the session's owner and the speakers."""
    scope, head = beginning.scope, beginning.origin.head
    users = {scope.user, *(word.speaker for word in beginning.opening.user_messages)}
    if head is not None and head.scope.chat is None:
        users.add(head.scope.user)
    return tuple(sorted(user_digest(scope.tenant, user) for user in users if user is not None))


class RowSealer:
    """Encodes and decodes rows, encrypted if there are ciphers.

    Their keys are in the store, so each tenant's last cipher is cached: an outage may outlast the trust in a key.
    """

    def __init__(self, ciphers: Ciphers | None, clock: Clock) -> None:
        self._ciphers = ciphers
        self._clock = clock
        self._cached: OrderedDict[Place, tuple[Cipher, datetime]] = OrderedDict()

    @property
    def sealing(self) -> bool:
        """Whether rows are encrypted."""
        return self._ciphers is not None

    async def cache_cipher(self, scope: Scope) -> None:
        """Cache the tenant's cipher for an outage, and refresh it periodically."""
        if self._ciphers is None:
            return
        held = self._cached.get((scope.tenant, scope.site))
        if held is not None and timedelta(0) <= self._clock() - held[1] < _FRESH:
            return
        try:
            await self._sealing_cipher(scope, self._ciphers)
        except Unavailable:
            return  # Nothing can be journaled for this tenant then.

    async def text(self, scope: Scope, value: JournaledBegin | FinishTurn, place: tuple[str, ...]) -> str:
        """A part of a row as stored.

        Raises:
            Unavailable: it must be encrypted, and no key is cached.
        """
        plain = _encoder.encode(value)
        if self._ciphers is None:
            return plain.decode()
        return (await self._sealing_cipher(scope, self._ciphers)).seal(plain, ("journal", *place))

    async def row(self, raw: JournalRow) -> Row:
        """Decode a row.

        Raises:
            Unavailable: its keys are in the store, which is down.
            DecryptionFailed: its key is gone, or it was changed.
        """
        scope = Scope(tenant=raw.tenant, site=raw.site)
        beginning = await self._unseal_part(scope, raw.beginning, place_of(raw.session, raw.number, "beginning"))
        closing = None
        if raw.closing is not None:
            plain = await self._unseal_part(scope, raw.closing, place_of(raw.session, raw.number, "closing"))
            closing = _decode_part(plain, FinishTurn)
        return Row(
            beginning=_decode_part(beginning, JournaledBegin),
            closing=closing,
            incarnation=raw.incarnation,
            tried=raw.tried,
        )

    async def _unseal_part(self, scope: Scope, text: str, place: tuple[str, ...]) -> bytes:
        if text.startswith("{"):
            return text.encode()  # Written before encryption was switched on.
        if self._ciphers is None:
            raise DecryptionFailed("cannot be opened: there is no key")
        try:
            return (await self._ciphers.cipher_for_opening(scope)).open(text, ("journal", *place))
        except StoreUnavailable:
            held = self._cached.get((scope.tenant, scope.site))
            if held is None:
                raise
            return held[0].open(text, ("journal", *place))

    async def _sealing_cipher(self, scope: Scope, ciphers: Ciphers) -> Cipher:
        name = (scope.tenant, scope.site)
        try:
            cipher = await ciphers.cipher_for_sealing(scope)
        except StoreUnavailable:
            if name not in self._cached:
                raise
            return self._cached[name][0]
        self._cached[name] = cipher, self._clock()
        if len(self._cached) > _MOST_TENANTS:
            self._cached.popitem(last=False)
        return cipher


def place_of(session: bytes, number: int, part: str) -> tuple[str, ...]:
    """The associated data of a part of a row."""
    return session.hex(), str(number), part


def _decode_part(plain: bytes, kind: type[_Part]) -> _Part:
    try:
        return msgspec.json.decode(plain, type=kind)
    except (ValueError, TypeError, RecursionError) as damaged:
        raise DecryptionFailed("of the journal cannot be read") from damaged
