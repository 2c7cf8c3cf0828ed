"""Listings in the exact order of the last change, over index columns that lag behind it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from heapq import heappush, heappushpop
from typing import Final

from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, MasterKeyMissing
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
_LAST_KEY: Final = b"\xff" * 17
UNOPENED: Final = "[SEALED]"
"""The title that a listing shows of a session that does not open."""


class Listing:
    """Lists sessions."""

    def __init__(self, records: RecordStore, codecs: Codecs, clock: Clock) -> None:
        self._records = records
        self._codecs = codecs
        self._clock = clock

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        """A page of the sessions that the scope owns, or of the site for the tenant itself.

        Reading goes on until no session further on can have changed later than those of the page. Of the sessions on
        the way nothing but the time of their last change is decoded, unless a sealed title is looked for.
        """
        codec, now = await self._codecs.load(scope), to_micros(self._clock())
        decoder = _Decoder(self._codecs, scope, codec, searches=query.title is not None)
        before = None if query.cursor is None else decode_cursor(query.cursor)
        # The newest ones so far, of these the oldest first.
        newest = list[tuple[int, bytes, FoundRecord]]()
        async for found in self._iter(scope, query, codec, before):
            if len(newest) > query.limit and newest[0][0] > found.index.listed_at + LAG:
                break
            if found.index.is_damaged:
                _log.warning("left out a session whose columns cannot be decoded")
                continue
            place = decoder.last_change(found), found.record.key
            if (before is not None and place >= before) or _is_expired(found, now):
                continue
            if decoder.searches_sealed and not _matches(await decoder.decode(found), query):
                continue
            (heappush if len(newest) <= query.limit else heappushpop)(newest, (*place, found))
        has_more = len(newest) > query.limit
        page = sorted(newest, reverse=True)[: query.limit]
        sessions = [await decoder.decode(found) for _, _, found in page]
        return SessionPage(
            sessions=tuple([session for session in sessions if session is not None and _matches(session, query)]),
            cursor=encode_cursor(*page[-1][:2]) if has_more and page else None,
        )

    async def _iter(
        self, scope: Scope, query: SessionQuery, codec: Codec, before: tuple[int, bytes] | None
    ) -> AsyncIterator[FoundRecord]:
        """The records of a listing, latest listed first."""
        asked = IndexQuery(
            order=IndexOrder.NEWEST,
            space=site_key(scope),
            owner=owner_key(scope) if scope.owner else None,
            status=query.status,
            title=None if query.title is None or codec.opens_sealed else query.title.casefold(),
            behind=None if before is None else (before[0], _LAST_KEY),
            limit=query.limit + 10,
        )
        async for found in iter_records(self._records, asked):
            yield found


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
        except DecryptionFailed as failure:
            if not self._is_fresh:
                self._codec, self._is_fresh = await self._codecs.load(self._scope, refresh=True), True
                return await self.decode(found)
            if isinstance(failure, MasterKeyMissing):
                raise
            return None if self._searches else _unopened(found)


def decode_last_change(found: FoundRecord, codec: Codec) -> int:
    """When a session was changed last, in microseconds; of one that does not open, what the columns tell."""
    try:
        return to_micros(codec.decode_last_change(found.record.head, found.index.name))
    except (Undecodable, DecryptionFailed):
        return found.index.listed_at


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
