"""What the outbox holds of a turn, and how it is sealed where the store is."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

import msgspec

from tenuto.errors import DecryptionFailed, StoreUnavailable, Unavailable
from tenuto.model import BeginTurn, FinishTurn, Message, Scope, Session
from tenuto.model.scope import session_key, user_digest
from tenuto.model.values import Value
from tenuto.ports import Cipher, Ciphers, Clock

Place: TypeAlias = tuple[str, str]
_FRESH: Final = timedelta(minutes=1)
_MOST_TENANTS: Final = 1000
_encoder: Final = msgspec.json.Encoder()


class ReplicaOrigin(Value, frozen=True, kw_only=True):
    """A session as it was known when it was taken over: where its own words end, and those said here begin.

    One that was opened here has no head; `opened_by` is the turn that did. Of a `blind` one it is not certain how it
    looked: the ends of turns are taken, and nothing is shown.
    """

    head: Session | None = None
    tail: tuple[Message, ...] = ()
    opened_by: str = ""
    blind: bool = False


class JournaledBegin(Value, frozen=True, kw_only=True):
    """How a journaled turn began: here, or (`there`) in the store, which then went away before its end.

    Of one that began there the words are stored, and left out here: the last of them as `last_word`. What the
    store may have of it already stands behind the sequence number `since`; where it was `asked` and did not answer, it
    may have the words.
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

    @property
    def key(self) -> bytes:
        """Its session's."""
        return session_key(self.scope, self.opening.session_id)


class Row(Value, frozen=True, kw_only=True):
    """A turn in the outbox; `closing` is `None` while it is open. The rest as in `JournalRow`."""

    beginning: JournaledBegin
    closing: FinishTurn | None = None
    incarnation: str = ""
    tried: int | None = None

    @property
    def turn_id(self) -> str:
        """The turn's own."""
        return self.beginning.opening.turn_id


class JournalRow(Value, frozen=True, kw_only=True):
    """A row as the file has it: bodies may be sealed, and whose it is stands in the clear, as it does in the store.

    `incarnation` is that of a session which was opened here and has come to the store: if it is gone from there, it was
    deleted. `tried` is where the session's log ended when the store was first asked for this turn by a replay.
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
    """Whose a row is, by their digests: the one whose session it is, and everybody who speaks in it."""
    scope, head = beginning.scope, beginning.origin.head
    users = {scope.user, *(word.speaker for word in beginning.opening.words)}
    if head is not None and head.scope.chat is None:
        users.add(head.scope.user)
    return tuple(sorted(user_digest(scope.tenant, user) for user in users if user is not None))


class RowSealer:
    """Turns what a row holds into text and back; with ciphers, into text that only they open.

    Their keys lie in the store. So a tenant's cipher is kept at hand from when it was last seen: an outage may take
    longer than keys are trusted without a look.
    """

    def __init__(self, ciphers: Ciphers | None, clock: Clock) -> None:
        self._ciphers = ciphers
        self._clock = clock
        self._at_hand: OrderedDict[Place, tuple[Cipher, datetime]] = OrderedDict()

    @property
    def sealing(self) -> bool:
        """Whether there are ciphers at all."""
        return self._ciphers is not None

    async def cache_cipher(self, scope: Scope) -> None:
        """Have the tenant's cipher for when the store is away; asks for it again now and then."""
        if self._ciphers is None:
            return
        held = self._at_hand.get((scope.tenant, scope.site))
        if held is not None and timedelta(0) <= self._clock() - held[1] < _FRESH:
            return
        try:
            await self._sealing_cipher(scope, self._ciphers)
        except Unavailable:
            return  # Then a journal cannot be sealed, and is not written.

    async def text(self, scope: Scope, value: JournaledBegin | FinishTurn, place: tuple[str, ...]) -> str:
        """A part of a row as the file keeps it.

        Raises:
            Unavailable: it must be sealed, and there is no key at hand.
        """
        plain = _encoder.encode(value)
        if self._ciphers is None:
            return plain.decode()
        return (await self._sealing_cipher(scope, self._ciphers)).seal(plain, ("journal", *place))

    async def row(self, raw: JournalRow) -> Row:
        """The row back.

        Raises:
            Unavailable: the keys that open it are in the store, which is away.
            Sealed: its key is not to be had, or it was changed.
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
            return (await self._ciphers.to_open(scope)).open(text, ("journal", *place))
        except StoreUnavailable:
            held = self._at_hand.get((scope.tenant, scope.site))
            if held is None:
                raise
            return held[0].open(text, ("journal", *place))

    async def _sealing_cipher(self, scope: Scope, ciphers: Ciphers) -> Cipher:
        name = (scope.tenant, scope.site)
        try:
            cipher = await ciphers.to_seal(scope)
        except StoreUnavailable:
            if name not in self._at_hand:
                raise
            return self._at_hand[name][0]
        self._at_hand[name] = cipher, self._clock()
        if len(self._at_hand) > _MOST_TENANTS:
            self._at_hand.popitem(last=False)
        return cipher


def place_of(session: bytes, number: int, part: str) -> tuple[str, ...]:
    """Where a part of a row stands, and opens."""
    return session.hex(), str(number), part


def _decode_part(plain: bytes, kind: type[_Part]) -> _Part:
    try:
        return msgspec.json.decode(plain, type=kind)
    except (ValueError, TypeError, RecursionError) as damaged:
        raise DecryptionFailed("of the journal cannot be read") from damaged
