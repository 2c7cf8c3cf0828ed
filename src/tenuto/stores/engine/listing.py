"""Listings in the exact order of the last change, over index columns that lag behind it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
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
_LAG: Final = LISTING_LAG // LISTING_LAG.resolution
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

        Reading goes on until no session further on can have changed later than those of the page.
        """
        codec, now = await self._codecs.load(scope), self._clock()
        decoder = _Decoder(self._codecs, scope, codec, searches=query.title is not None)
        before = None if query.cursor is None else decode_cursor(query.cursor)
        sessions = list[tuple[int, bytes, Session]]()
        async for found in self._iter(scope, query, codec, before):
            session = await decoder.decode(found)
            if len(sessions) > query.limit:
                sessions.sort(key=lambda one: one[:2], reverse=True)
                if sessions[query.limit][0] > found.index.listed_at + _LAG:
                    break
            if session is None or session.expired(now) or not _matches(session, query):
                continue
            place = to_micros(session.updated_at), found.record.key
            if before is None or place < before:
                sessions.append((*place, session))
        sessions.sort(key=lambda one: one[:2], reverse=True)
        page = sessions[: query.limit]
        return SessionPage(
            sessions=tuple(session for _, _, session in page),
            cursor=encode_cursor(*page[-1][:2]) if len(sessions) > len(page) else None,
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
        query = replace(query, behind=(page[-1].index.listed_at, page[-1].record.key))


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


def _matches(session: Session, query: SessionQuery) -> bool:
    """Whether a session has the status and title of a query."""
    if query.status is not None and session.status is not query.status:
        return False
    return query.title is None or query.title.casefold() in session.title.casefold()
