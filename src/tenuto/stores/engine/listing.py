"""Listings in the exact order of the last change, over index columns that lag behind it."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator
from datetime import datetime
from heapq import heappush, heappushpop
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, InvalidCursor, MasterKeyMissing
from tenuto.model import Retention, Scope, Session, SessionPage, SessionQuery
from tenuto.model.scope import owner_key, site_key
from tenuto.model.stored import FoundRecord, IndexOrder, IndexQuery
from tenuto.ports import Clock, RecordStore
from tenuto.stores.encoding import Undecodable, decode_cursor, encode_cursor, from_micros, to_micros
from tenuto.stores.engine.changes import LISTING_LAG
from tenuto.stores.engine.codec import Codec, Codecs

_log = logging.getLogger(__name__)
LAG: Final = LISTING_LAG // LISTING_LAG.resolution
"""How far `listed_at` may lie behind the last change, in microseconds."""
_LARGEST_PAGE: Final = 1000
_FRONTIER: Final = struct.Struct(">q16sII")
UNOPENED: Final = "[SEALED]"
"""The title that a listing shows of a session that does not open."""
_Place: TypeAlias = tuple[int, bytes]
_Changed: TypeAlias = tuple[int, bytes, FoundRecord]
"""When a session was changed last, its key, and itself."""
_END: Final[_Place] = (-(2**63), bytes(16))


class _Frontier(NamedTuple):
    """The last place that a listing has read, and how much what it read and did not show lags at most.

    The next page begins with what was read: there it stops after this lag, and behind the frontier it reads no
    session twice. So many sessions that changed at one time are read once, and not once for each page.
    """

    place: _Place
    lag: int


class Listing:
    """Lists sessions."""

    def __init__(self, records: RecordStore, codecs: Codecs, clock: Clock) -> None:
        self._records = records
        self._codecs = codecs
        self._clock = clock

    async def list(self, scope: Scope, query: SessionQuery, words: tuple[tuple[bytes, ...], ...] = ()) -> SessionPage:
        """A page of the sessions that the scope owns, or of the site for the tenant itself; with `words` of those that
        have one of each group.

        Reading goes on until no session further on can have changed later than those of the page. Of the sessions on
        the way nothing but the time of their last change is decoded, unless a sealed title is looked for.
        """
        codec = await self._codecs.load(scope)
        digest = _digest_query(scope, query, words)
        before, frontier = (None, None) if query.cursor is None else _decode_cursor(query.cursor, digest)
        decoder = _Decoder(self._codecs, scope, codec, searches=query.title is not None)
        newest = _Newest(query.limit + 1, 0 if frontier is None else frontier.lag)
        asked = IndexQuery(
            order=IndexOrder.NEWEST,
            space=site_key(scope),
            owner=owner_key(scope) if scope.owner else None,
            status=query.status,
            title=None if query.title is None or codec.opens_sealed else query.title.casefold(),
            words=words,
            limit=query.limit + 10,
        )
        reader = _Reader(self._records, decoder, query, asked, before, to_micros(self._clock()), newest)
        reached = before
        if frontier is not None:
            reached = frontier.place
            await reader.read(before, frontier.lag, until=reached)
        if reached != _END:
            reached = await reader.read(reached, LAG, until=_END)
        page = newest.page()
        sessions = [await decoder.decode(found) for _, _, found in page]
        return SessionPage(
            sessions=tuple([session for session in sessions if session is not None and _matches(session, query)]),
            cursor=_encode_cursor(page, _Frontier(reached, newest.lag), digest) if newest.has_more else None,
        )


class _Reader:
    """Reads sessions in order of `listed_at` for one page, which begins behind `before`."""

    def __init__(
        self,
        records: RecordStore,
        decoder: _Decoder,
        query: SessionQuery,
        asked: IndexQuery,
        before: _Place | None,
        now: int,
        newest: _Newest,
    ) -> None:
        self._records = records
        self._decoder = decoder
        self._query = query
        self._asked = asked
        self._before = before
        self._now = now
        self._newest = newest

    async def read(self, behind: _Place | None, lag: int, *, until: _Place) -> _Place:
        """Read through a place, or as long as a session that lags by this much at most may be on the page; returns the
        place that was reached."""
        reached = until if behind is None else behind
        async for found in iter_records(self._records, replace(self._asked, behind=behind)):
            place = found.index.listed_at, found.record.key
            if place < until:
                break
            if self._newest.is_full_before(place, lag):
                return reached
            reached = place
            if found.index.is_damaged:
                _log.warning("left out a session whose columns cannot be decoded")
            else:
                await self._add(found)
        return until

    async def _add(self, found: FoundRecord) -> None:
        changed_at = self._decoder.last_change(found)
        if self._before is not None and (changed_at, found.record.key) >= self._before:
            return
        if _is_expired(found, self._now):
            return
        if self._decoder.searches_sealed and not _matches(await self._decoder.decode(found), self._query):
            return
        self._newest.add(changed_at, found)


class _Newest:
    """The newest of the sessions that were read, one more than a page has."""

    def __init__(self, size: int, lag: int) -> None:
        self._size = size
        # Of these the oldest first.
        self._found = list[_Changed]()
        self.lag = lag
        """How far the last change of what was left out is behind its listing, at most."""

    def is_full_before(self, place: _Place, lag: int) -> bool:
        """Whether no session from a place on can be among them, if none lags by more than this."""
        return len(self._found) == self._size and self._found[0][:2] > (place[0] + lag, place[1])

    def add(self, changed_at: int, found: FoundRecord) -> None:
        """Add a session if it is new enough."""
        one = changed_at, found.record.key, found
        if len(self._found) < self._size:
            heappush(self._found, one)
        else:
            self._leave(heappushpop(self._found, one))

    @property
    def has_more(self) -> bool:
        """Whether there are sessions behind the page."""
        return len(self._found) == self._size

    def page(self) -> list[_Changed]:
        """The sessions of the page, the newest first."""
        if self.has_more:
            self._leave(self._found[0])
        return sorted(self._found, reverse=True)[: self._size - 1]

    def _leave(self, one: _Changed) -> None:
        self.lag = max(self.lag, min(LAG, one[0] - one[2].index.listed_at))


def _encode_cursor(page: list[_Changed], frontier: _Frontier, digest: int) -> str:
    """Where the next page begins, and how far this one has read."""
    changed_at, key, _ = page[-1]
    return encode_cursor(changed_at, key, _FRONTIER.pack(*frontier.place, frontier.lag, digest))


def _decode_cursor(cursor: str, query_digest: int) -> tuple[_Place, _Frontier | None]:
    """The place of a cursor, and how far was read; of another query only the place counts.

    Raises:
        InvalidCursor: no listing made it.
    """
    at, key, rest = decode_cursor(cursor)
    if not rest:
        return (at, key), None
    if len(rest) != _FRONTIER.size:
        raise InvalidCursor
    *place, lag, digest = _FRONTIER.unpack(rest)
    return (at, key), _Frontier(tuple(place), lag) if digest == query_digest else None


def _digest_query(scope: Scope, query: SessionQuery, words: tuple[tuple[bytes, ...], ...]) -> int:
    """Whose sessions a query finds, and which."""
    asked = f"{scope.owner} {query.status} {query.title}".encode(errors="surrogatepass")
    return crc32(b"".join([word for group in words for word in group]), crc32(asked, crc32(site_key(scope))))


async def iter_records(records: RecordStore, query: IndexQuery) -> AsyncIterator[FoundRecord]:
    """All records of a query in order of their listing, page by page."""
    while True:
        page = await records.list(query)
        for found in page:
            yield found
        if len(page) < query.limit:
            return
        # Who reads on past a page may have to read far: many sessions changed at one time.
        limit = min(_LARGEST_PAGE, query.limit * 4)
        query = replace(query, behind=(page[-1].index.listed_at, page[-1].record.key), limit=limit)


async def find_record(records: RecordStore, key: bytes) -> FoundRecord | None:
    """One record with its columns, by a walk of one step: where what they tell is not to be had from the record."""
    before = (int.from_bytes(key, "big") - 1).to_bytes(len(key), "big") if any(key) else b""
    page = await records.scan(before, 1)
    return page[0] if page and page[0].record.key == key else None


class _Decoder:
    """Decodes the sessions of a listing; keys are read again once if one does not open, as they may be new."""

    def __init__(self, codecs: Codecs, scope: Scope, codec: Codec, *, searches: bool) -> None:
        self._codecs = codecs
        self._scope = scope
        self._codec = codec
        self._searches = searches
        self._is_fresh = False
        self.searches_sealed = searches and codec.opens_sealed
        """Whether a title is looked for that no column tells."""

    def last_change(self, found: FoundRecord) -> int:
        """When a session was changed last."""
        return decode_last_change(found, self._codec)

    async def decode(self, found: FoundRecord) -> Session | None:
        """The head of a found record; `None` if it cannot be decoded, with a title that says so if it does not open.

        A search by title finds none that does not open.

        Raises:
            MasterKeyMissing: its master key is not configured.
        """
        try:
            return decode_session(found, self._codec)
        except DecryptionFailed as error:
            if not self._is_fresh:
                self._codec, self._is_fresh = await self._codecs.load(self._scope, refresh=True), True
                return await self.decode(found)
            if isinstance(error, MasterKeyMissing):
                raise
            return None if self._searches else _unopened(found)


def decode_last_change(found: FoundRecord, codec: Codec) -> int:
    """When a session was changed last, in microseconds; of one that does not open, what the columns tell."""
    try:
        return to_micros(codec.decode_last_change(found.record.head, found.index.name))
    except (Undecodable, DecryptionFailed):
        return found.index.listed_at


def holds_lease(found: FoundRecord, codec: Codec, now: datetime) -> bool:
    """Whether a turn of a session runs; of one that does not open, or is corrupt, none can."""
    try:
        lease = codec.decode_head(found.record.head, found.index.name).lease
    except (Undecodable, DecryptionFailed):
        return False
    return lease is not None and lease.until > now


def decode_session(found: FoundRecord, codec: Codec) -> Session | None:
    """The head of a found record; `None` if it cannot be decoded.

    Raises:
        DecryptionFailed: it does not open.
    """
    try:
        record = codec.decode_record(found.record, found.index.name)
    except Undecodable:
        _log.warning("left out a session that cannot be decoded")
        return None
    assert record is not None
    return record.session


def _unopened(found: FoundRecord) -> Session:
    """What the columns tell of a session."""
    index, totals, deadline = found.index, found.totals, found.record.deadline
    assert index.scope is not None
    assert index.status is not None
    return Session(
        id=index.name,
        scope=index.scope,
        incarnation="",
        created_at=from_micros(index.listed_at),
        updated_at=from_micros(index.listed_at),
        expires_at=None if deadline is None else from_micros(deadline),
        retention=Retention(),
        version=0,
        title=UNOPENED,
        status=index.status,
        messages=totals.messages,
        tokens=totals.tokens,
        cost_nanos=totals.cost_nanos,
    )


def _is_expired(found: FoundRecord, now: int) -> bool:
    deadline = found.record.deadline
    return deadline is not None and deadline <= now


def _matches(session: Session | None, query: SessionQuery) -> bool:
    """Whether a session has the status and title of a query."""
    if session is None:
        return False
    if query.status is not None and session.status is not query.status:
        return False
    return query.title is None or query.title.casefold() in session.title.casefold()
