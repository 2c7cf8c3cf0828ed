"""Records as the bytes that stores hold, sealed where the tenant's data is encrypted.

Everything is MessagePack behind one byte that names the format. Sealing is two functions between that and the store:
each body is bound to its place (the kind of entry, the session it was written in, its number), so that a body moved to
another place does not open. A fork has messages that were sealed in the session it came from: its profile, sealed
itself, says up to which number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, MasterKeyMissing
from tenuto.model import Content, Message, Scope
from tenuto.model.stored import WORD_BYTES, Entry, Part, StoredRecord
from tenuto.model.turn import Trace
from tenuto.model.values import Json
from tenuto.stores.encoding import Undecodable, from_micros
from tenuto.stores.engine.record import (
    TAIL,
    Head,
    KeyPage,
    Profile,
    Record,
    StoredAttachment,
    count,
    decode,
    drop_before,
    last_of,
    with_tail,
)

_log = logging.getLogger(__name__)
FORMAT: Final = b"\x01"
SEALED: Final = b"\x81"
_Decoded = TypeVar("_Decoded")
_encode: Final = msgspec.msgpack.Encoder().encode
_head: Final = msgspec.msgpack.Decoder(Head)
_profile: Final = msgspec.msgpack.Decoder(Profile)
_messages: Final = msgspec.msgpack.Decoder(tuple[Message, ...])
# MessagePack's mark of an array with a length of four bytes.
_ARRAY: Final = b"\xdd"
_trace: Final = msgspec.msgpack.Decoder(Trace)
_page: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes])
_producers: Final = msgspec.msgpack.Decoder(tuple[tuple[bytes, int], ...])
_content: Final = msgspec.msgpack.Decoder(bytes)
_value: Final = msgspec.msgpack.Decoder()


class _HeadStart(msgspec.Struct, array_like=True, gc=False):
    """The first fields of a `Head`: what a listing needs of it."""

    version: int
    updated_at: datetime


_head_start: Final = msgspec.msgpack.Decoder(_HeadStart)


class Sealer(Protocol):
    """Encrypts the bodies of one tenant's site. A sealed body opens at its place only."""

    def seal(self, plain: bytes, place: tuple[str, ...], /) -> bytes:
        """The bytes, sealed.

        Raises:
            DecryptionFailed: there is no key to seal with.
        """
        ...

    def open(self, sealed: bytes, place: tuple[str, ...], /) -> bytes:
        """The bytes back.

        Raises:
            DecryptionFailed: the key is missing, or the bytes were changed or moved.
        """
        ...

    def word_key(self) -> bytes:
        """The key of the digests of words, of at most 64 bytes.

        Raises:
            DecryptionFailed: there is none, or it is missing.
        """
        ...


def content_place(attachment_id: str) -> tuple[str, ...]:
    """Where an attachment is sealed."""
    return "attachment", attachment_id


def _digest_word(term: str, key: bytes) -> bytes:
    return blake2b(term.encode(errors="surrogatepass"), digest_size=WORD_BYTES, key=key, person=b"tenuto word").digest()


class UnknownFormat(Undecodable):
    """A newer release wrote this record."""


class TornRecord(Undecodable):
    """The messages do not belong to the head: a store has mixed two moments, or lost some."""


class Codec:
    """Encodes and decodes the records of a tenant's site; with a `sealer` everything it writes is sealed.

    Plain bodies stay readable when encryption is switched on, and are sealed when they are written again. With
    `sealing` off it opens sealed bodies and writes plain ones. `is_current` tells whether a sealed body has the key
    that is in use now.
    """

    def __init__(
        self,
        sealer: Sealer | None = None,
        *,
        sealing: bool = True,
        is_current: Callable[[bytes], bool] = lambda sealed: True,
    ) -> None:
        self._sealer = sealer
        self._is_current = is_current
        self._seal = None if sealer is None or not sealing else sealer.seal

    @property
    def sealed(self) -> bool:
        """Whether what it writes is sealed."""
        return self._seal is not None

    @property
    def opens_sealed(self) -> bool:
        """Whether what it reads may be sealed."""
        return self._sealer is not None

    # Records

    def encode_head(self, head: Head, session_id: str) -> bytes:
        """A head's body."""
        return self.close(_encode(head), ("head", session_id))

    def encode_profile(self, profile: Profile) -> bytes:
        """A profile's body."""
        return self.close(_encode(profile), ("profile", profile.id))

    def encode_message(self, message: Message, session_id: str) -> Entry:
        """A message's entry."""
        body = self.close(_encode(message), ("message", session_id, str(message.seq)))
        return Entry(part=Part.MESSAGES, number=message.seq, body=body)

    def encode_trace(self, number: int, trace: Trace, session_id: str) -> Entry:
        """A trace's entry."""
        return Entry(
            part=Part.TRACES, number=number, body=self.close(_encode(trace), ("trace", session_id, str(number)))
        )

    def encode_page(self, page: KeyPage, session_id: str) -> Entry:
        """The entry of a page of keys."""
        body = self.close(_encode((page.keys, page.packed)), ("keys", session_id, str(page.number)))
        return Entry(part=Part.KEYS, number=page.number, body=body)

    def encode_producers(self, producers: tuple[tuple[bytes, int], ...], session_id: str) -> Entry:
        """The entry of producers' marks."""
        return Entry(part=Part.PRODUCERS, number=0, body=self.close(_encode(producers), ("producers", session_id)))

    def encode_content(self, number: int, content: Content) -> Entry:
        """The entry of an attachment. It is bound to its id alone: a fork copies it as it is."""
        return Entry(
            part=Part.ATTACHMENTS, number=number, body=self.close(_encode(content.data), content_place(content.id))
        )

    def decode_content(self, entry: Entry, attachment: StoredAttachment) -> Content:
        """The content back."""
        data = self._decode(_content, entry.body, content_place(attachment.id))
        return Content(id=attachment.id, media_type=attachment.media_type, data=data, name=attachment.name)

    def decode_record(
        self, stored: StoredRecord, session_id: str, held: Record | None = None, *, tail: int = 0
    ) -> Record | None:
        """A record that was loaded with this `tail`, and what is `held` of it in place of what the store left out.

        `None` if what is held is of no use: stored messages or keys were changed other than by appending.

        Raises:
            TornRecord: its messages do not belong to its head.
            Undecodable: the record is corrupt.
            DecryptionFailed: it is sealed with a key that is missing.
        """
        head = self.decode_head(stored.head, session_id)
        profile = self.decode_profile(stored.profile, session_id)
        if profile.id != session_id:
            raise Undecodable("a session of another id")
        expires_at = None if stored.deadline is None else from_micros(stored.deadline)
        head = replace(head, expires_at=expires_at)
        messages = self.decode_messages(stored.messages, profile)
        pages = tuple([self._decode_page(entry, session_id) for entry in stored.entries if entry.part is Part.KEYS])
        producers = next((entry for entry in stored.entries if entry.part is Part.PRODUCERS), None)
        marks = () if producers is None else self._decode(_producers, producers.body, ("producers", session_id))
        record = Record(head=head, profile=profile, revision=stored.revision, producers=marks)
        messages = _without_evicted_prefix(messages, head)
        if held is not None and not _continues(held, record):
            return None
        known = 0 if held is None else held.head.last_seq
        newest = count(drop_before(head.stored_spans, known + 1))
        if [message.seq for message in messages] != last_of(head.stored_spans, min(tail, newest)):
            raise TornRecord("messages of another revision")
        return _with_parts(record, messages, pages, held, has_gap=newest > tail)

    def decode_head(self, body: bytes, session_id: str) -> Head:
        """A head, with a deadline that may have been moved since."""
        return self._decode(_head, body, ("head", session_id))

    def decode_last_change(self, body: bytes, session_id: str) -> datetime:
        """When a session was changed last, from its head; the rest is passed over."""
        return self._decode(_head_start, body, ("head", session_id)).updated_at

    def decode_profile(self, body: bytes, session_id: str) -> Profile:
        """A profile."""
        return self._decode(_profile, body, ("profile", session_id))

    def _decode_page(self, entry: Entry, session_id: str) -> KeyPage:
        keys, packed = self._decode(_page, entry.body, ("keys", session_id, str(entry.number)))
        return KeyPage(number=entry.number, keys=keys, packed=packed)

    def decode_messages(self, entries: Sequence[Entry], profile: Profile) -> tuple[Message, ...]:
        """Messages of a session, or of the sessions it was forked from."""
        plain = [entry.body[1:] if entry.body[:1] == FORMAT else self.open_message(entry, profile) for entry in entries]
        # As one array: that takes half as long as one by one.
        messages = decode(_messages, _ARRAY + len(plain).to_bytes(4, "big") + b"".join(plain), "message")
        if [message.seq for message in messages] != [entry.number for entry in entries]:
            raise Undecodable("a message of another number")
        return messages

    def open_message(self, entry: Entry, profile: Profile) -> bytes:
        """The plain body of a message, which may have been sealed in a session that this one was forked from."""
        number = str(entry.number)
        if profile.origins and entry.body[:1] == SEALED:
            # The farthest first: a fork inherits most messages from there, and rewrites few.
            for origin, through in reversed(profile.origins):
                if entry.number <= through:
                    try:
                        return self.open(entry.body, ("message", origin, number))
                    except MasterKeyMissing:
                        raise
                    except DecryptionFailed:
                        continue  # It was written in a session after that one.
        return self.open(entry.body, ("message", profile.id, number))

    def decode_traces(self, entries: Sequence[Entry], session_id: str) -> tuple[Trace, ...]:
        """Traces. A corrupt one is as good as none: it must not take its session with it."""
        traces = list[Trace]()
        for entry in entries:
            try:
                traces.append(self._decode(_trace, entry.body, ("trace", session_id, str(entry.number))))
            except Undecodable:
                _log.warning("a stored trace cannot be decoded and is left out")
        return tuple(traces)

    # Words to find sessions by

    def digest_terms(self, terms: Iterable[str], space: bytes) -> tuple[bytes, ...]:
        """Digests of terms in a site; where the rest is sealed, what they are of cannot be told without the key.

        Raises:
            DecryptionFailed: there is no key.
        """
        key = self._sealer.word_key() if self._sealer is not None and self._seal is not None else space
        return tuple([_digest_word(term, key) for term in terms])

    def digest_groups(self, groups: Iterable[Iterable[str]], space: bytes) -> tuple[tuple[bytes, ...], ...]:
        """For each group of terms the digests that they can have: some may be from before encryption was switched on.

        Raises:
            MasterKeyMissing: its master key is not configured.
        """
        keys = [space]
        if self._sealer is not None:
            try:
                keys.append(self._sealer.word_key())
            except MasterKeyMissing:
                raise
            except DecryptionFailed:
                pass  # Nothing is sealed yet, or nothing opens any more.
        return tuple([tuple([_digest_word(term, key) for term in sorted(group) for key in keys]) for group in groups])

    # Values of the state

    def encode_value(self, value: Json, place: tuple[str, ...]) -> bytes:
        """A value of the state."""
        return self.close(_encode(value), ("value", *place))

    def decode_value(self, body: bytes, place: tuple[str, ...]) -> Json:
        """The value back."""
        return self._decode(_value, body, ("value", *place))

    # Bodies of a journal

    def close_body(self, plain: bytes, place: tuple[str, ...]) -> bytes:
        """A body that belongs to no record in a store."""
        return self.close(plain, ("journal", *place))

    def open_body(self, decoder: msgspec.msgpack.Decoder[_Decoded], body: bytes, place: tuple[str, ...]) -> _Decoded:
        """The value back.

        Raises:
            Undecodable: it is corrupt, or of another release.
            DecryptionFailed: it is sealed with a key that is missing, or was moved.
        """
        return self._decode(decoder, body, ("journal", *place))

    # Bodies of any kind

    def close(self, plain: bytes, place: tuple[str, ...]) -> bytes:
        """MessagePack as it is stored.

        Raises:
            DecryptionFailed: it is to be sealed, and there is no key.
        """
        return FORMAT + plain if self._seal is None else SEALED + self._seal(plain, place)

    def writes_alike(self, body: bytes) -> bool:
        """Whether a stored body is as this codec would write it: plain, or sealed with the key in use."""
        is_sealed = body[:1] == SEALED
        return is_sealed is self.sealed and (not is_sealed or self._is_current(body[1:]))

    def open(self, body: bytes, place: tuple[str, ...]) -> bytes:
        """The MessagePack of a stored body.

        Raises:
            DecryptionFailed: it is sealed, and does not open.
            UnknownFormat: a newer release wrote it.
            Undecodable: it is corrupt.
        """
        mark = body[:1]
        if mark == SEALED:
            if self._sealer is None:
                raise DecryptionFailed("was written encrypted, and no key is configured")
            return self._sealer.open(body[1:], place)
        if mark == FORMAT:
            return body[1:]
        if mark in (b"", b"\x00", b"\x80"):
            raise Undecodable(place[0])
        raise UnknownFormat("a format of another release")

    def _decode(self, decoder: msgspec.msgpack.Decoder[_Decoded], body: bytes, place: tuple[str, ...]) -> _Decoded:
        return decode(decoder, self.open(body, place), place[0])


PLAIN: Final = Codec()


class Codecs(Protocol):
    """The codec of each tenant's site."""

    def ready(self, scope: Scope) -> Codec | None:
        """The codec to read and write with, if its keys are loaded."""
        ...

    async def load(self, scope: Scope, *, writing: bool = False, refresh: bool = False) -> Codec:
        """The codec, with its keys loaded; for `writing` with a key to seal with, the tenant's first if need be.

        `refresh` reads the keys again: another process may have added one. What does not open with them, or cannot be
        sealed, is an error where that is tried.
        """
        ...


class PlainCodecs:
    """Nothing is sealed."""

    def ready(self, scope: Scope) -> Codec:
        return PLAIN

    async def load(self, scope: Scope, *, writing: bool = False, refresh: bool = False) -> Codec:
        return PLAIN


def _continues(held: Record, record: Record) -> bool:
    """Whether what is held of a record still stands, and only newer entries are missing."""
    head = record.head
    return (
        held.is_same_session(record)
        and held.head.edition == head.edition
        and held.head.last_seq <= head.last_seq
        and held.head.next_page <= head.next_page
    )


def _with_parts(
    record: Record, messages: tuple[Message, ...], pages: tuple[KeyPage, ...], held: Record | None, *, has_gap: bool
) -> Record:
    """The record with its messages and pages, behind those held unless some between are missing: every stored message
    from `tail_from` on must be there."""
    head = record.head
    if held is not None:
        pages = tuple([page for page in (*held.pages, *pages) if page.number >= head.first_page])
    if [page.number for page in pages] != sorted({page.number for page in pages}):
        raise TornRecord("pages of keys of another revision")
    if held is not None and not has_gap:
        tail_from = max(held.tail_from, record.first_seq)
        whole = replace(record, pages=pages, reach=held.reach)
        return with_tail(whole, _without_evicted_prefix((*held.tail, *messages), head), tail_from)
    tail_from = record.first_seq
    if len(messages) < record.messages:
        tail_from = messages[0].seq if messages else head.last_seq + 1
    return replace(record, tail=messages, tail_from=tail_from, pages=pages, reach=max(TAIL, len(messages)))


def _without_evicted_prefix(messages: tuple[Message, ...], head: Head) -> tuple[Message, ...]:
    """The messages without those at the beginning that were evicted: a store keeps them for a while."""
    first = head.stored_spans[0][0] if head.stored_spans else head.last_seq + 1
    if not messages or messages[0].seq >= first:
        return messages
    return tuple([message for message in messages if message.seq >= first])
