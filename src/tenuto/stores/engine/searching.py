"""Search by words: sessions are found by digests of their terms, which are indexed after the calls that bring them.

Indexing a message takes longer than storing it, so a commit only marks its session once as one with words that are not
indexed. Every process indexes what it has written once it is idle; a search first indexes the marked
sessions that it reaches. So it finds all that was stored when it began, and reads no messages but new ones and those
that it shows. The words of a session are removed in the commit that removes messages, and with the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from contextlib import suppress
from enum import Enum, auto
from heapq import heappush, heappushpop
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import SessionCorrupt, SessionNotFound, StoreFull, StoreReadOnly, TenutoError
from tenuto.lazy_imports import lazy_module
from tenuto.model import Message, MessageMatch, MessagePage, Page, Scope, SearchPage, SearchQuery, Session, SessionHit
from tenuto.model.scope import owner_key, site_key
from tenuto.model.session import SessionQuery
from tenuto.model.stored import FoundRecord, IndexOrder, IndexQuery, Kind
from tenuto.ports import RecordStore
from tenuto.stores.engine.changes import anew_mark, unindexed_mark
from tenuto.stores.engine.codec import Codecs
from tenuto.stores.engine.listing import Listing, iter_records
from tenuto.stores.engine.rules.words import spoken_text

if TYPE_CHECKING:
    from tenuto.recall import lexical
else:
    lexical = lazy_module("tenuto.recall.lexical")

_log = logging.getLogger(__name__)
Groups: TypeAlias = tuple[frozenset[str], ...]
_MOST_GROUPS: Final = 16
_FIRST_CJK: Final = "\u3040"
_MOST_INDEXED: Final = 500
"""How many sessions with new words a search reads; it tells how many are left."""
_AT_ONCE: Final = 8
_CHARACTERS_AT_ONCE: Final = 16_000
"""So many take some milliseconds to look through; then other calls of the process have their turn."""
_MATCHES: Final = 3
_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000
_EXCERPT: Final = 160
_BEFORE: Final = 40


class _End(Enum):
    """How it went to index a session: it is, nothing can be written, or it was left out."""

    INDEXED = auto()
    READ_ONLY = auto()
    LEFT = auto()


class WordSearch:
    """Searches sessions, and indexes their words. `index` indexes a session, anew where it is told to; where
    search is off, it takes its words away."""

    def __init__(
        self,
        records: RecordStore,
        codecs: Codecs,
        listing: Listing,
        *,
        index: Callable[[Scope, str, bool], Awaitable[None]],
        messages: Callable[[Scope, str, Page], Awaitable[MessagePage]],
    ) -> None:
        self._records = records
        self._codecs = codecs
        self._listing = listing
        self._index = index
        self._messages = messages

    async def search(self, scope: Scope, query: SearchQuery) -> SearchPage:
        """A page of the sessions that the scope owns and that have all terms of the text, latest change first."""
        wanted = wanted_groups(query.text)
        if not wanted:
            return SearchPage(found=())
        unindexed, unsearched = await self._index_marked(scope)
        groups = (await self._codecs.load(scope)).digest_groups(wanted, site_key(scope))
        asked = SessionQuery(limit=query.limit, cursor=query.cursor, status=query.status)
        page = await self._listing.list(scope, asked, groups)
        some = [session for session in page.sessions if session.id not in unindexed]
        found = await self._look_into_all(scope, some, wanted)
        if unindexed and query.cursor is None:
            found = await self._look_past(scope, unindexed, query, wanted) + found
        return SearchPage(found=tuple(found), cursor=page.cursor, unsearched=unsearched)

    async def _index_marked(self, scope: Scope) -> tuple[list[str], int]:
        """Index the marked sessions of a scope, those changed last first. Returns those that cannot be indexed, since
        nothing can be written, and how many were left out."""
        unindexed, left = list[str](), 0
        for mark, anew in ((anew_mark, True), (unindexed_mark, False)):
            query = IndexQuery(
                order=IndexOrder.NEWEST,
                space=site_key(scope),
                owner=owner_key(scope) if scope.owner else None,
                words=((mark(site_key(scope)),),),
                limit=_MOST_INDEXED,
            )
            marked = await self._records.list(query)
            if len(marked) == _MOST_INDEXED:
                behind = marked[-1].index.listed_at, marked[-1].record.key
                async for _ in iter_records(self._records, replace(query, behind=behind)):
                    left += 1
            for at in range(0, len(marked), _AT_ONCE):
                some = marked[at : at + _AT_ONCE]
                ends = await asyncio.gather(*[self._index_found(found, anew=anew) for found in some])
                unindexed += [found.index.name for found, end in zip(some, ends, strict=True) if end is _End.READ_ONLY]
                left += ends.count(_End.LEFT)
        return unindexed, left

    async def _index_found(self, found: FoundRecord, *, anew: bool) -> _End:
        """Index a session. One that is gone by now, or is set aside as corrupt, is as good as indexed."""
        if found.index.scope is None:
            return _End.LEFT
        try:
            await self._index(found.index.scope, found.index.name, anew)
        except SessionCorrupt:
            return _End.INDEXED
        except (StoreFull, StoreReadOnly):
            return _End.READ_ONLY
        except TenutoError as error:
            _log.warning("the words of a session were not indexed: %s", error.code)
            return _End.LEFT
        return _End.INDEXED

    async def index_idle(self, idle: Collection[tuple[Scope, str]]) -> int:
        """Index sessions one after another, for other calls go first; how many were."""
        done = 0
        for scope, session_id in idle:
            try:
                await self._index(scope, session_id, False)
                done += 1
            except TenutoError as error:
                _log.info("the words of a session are indexed later: %s", error.code)
        return done

    async def index_all(self) -> tuple[int, int]:
        """Index all sessions of all tenants, or take their words away where the search is off; how many were looked
        at, and how many were left."""
        done, left, after = 0, 0, b""
        while page := await self._records.scan(after, _MOST_INDEXED):
            for found in page:
                if found.index.kind is Kind.SESSION:
                    end = await self._index_found(found, anew=False)
                    done, left = done + (end is _End.INDEXED), left + (end is not _End.INDEXED)
            after = page[-1].record.key
        return done, left

    # What was found

    async def _look_past(
        self, scope: Scope, unindexed: Sequence[str], query: SearchQuery, wanted: Groups
    ) -> list[SessionHit]:
        """Those of the sessions that cannot be indexed that have all terms; they come with the first page."""
        sessions = list[Session]()
        for session_id in unindexed:
            with suppress(TenutoError):
                session = (await self._messages(scope, session_id, Page(limit=1, touch=False))).session
                if query.status in (None, session.status):
                    sessions.append(session)
        return await self._look_into_all(scope, sessions, wanted)

    async def _look_into_all(self, scope: Scope, sessions: Sequence[Session], wanted: Groups) -> list[SessionHit]:
        found = list[SessionHit]()
        # Each may read a thousand messages at a time.
        for at in range(0, len(sessions), _AT_ONCE):
            looks = [self._look_into(scope, session, wanted) for session in sessions[at : at + _AT_ONCE]]
            found += [hit for hit in await asyncio.gather(*looks) if hit is not None]
        return found

    async def _look_into(self, scope: Scope, session: Session, wanted: Groups) -> SessionHit | None:
        """The best messages of a session; `None` if it has not all words: those of evicted messages lag behind."""
        some = frozenset().union(*wanted)
        best, seen = list[tuple[int, int, Message]](), some.intersection(lexical.terms(session.title, singles=True))
        before, limit = None, _PAGE
        with suppress(SessionNotFound):
            while True:
                asked = Page(limit=limit, before=before, touch=False)
                page = await self._messages(scope, session.id, asked)
                characters = 0
                for message in reversed(page.messages):
                    text = spoken_text(message)
                    characters += len(text)
                    if characters > _CHARACTERS_AT_ONCE:
                        characters = 0
                        await asyncio.sleep(0)
                    common = _common_terms(text, some)
                    if common:
                        seen |= common
                        one = count_groups(wanted, common), message.seq, message
                        heappush(best, one) if len(best) < _MATCHES else heappushpop(best, one)
                if not page.more_before or (len(best) == _MATCHES and best[0][0] == len(wanted)):
                    break
                before, limit = page.messages[0].seq, _LARGEST_PAGE
        if count_groups(wanted, seen) < len(wanted):
            return None
        matches = tuple([_match(message, some) for _, _, message in sorted(best, reverse=True)])
        return SessionHit(session=session, matches=matches)


def wanted_groups(text: str) -> Groups:
    """The words of a query as groups of terms of which a session must have one each.

    A word is a term. Where words of Chinese begin and end is not known, so of a run of characters each must be in one
    of its pairs that are there: 京都酒店 finds 京都 and 酒店, also apart.
    """
    chains = list[list[str]]()
    for term in lexical.terms(text):
        follows = chains and len(term) == 2 and term[0] >= _FIRST_CJK and chains[-1][-1][1:] == term[0]
        if follows:
            chains[-1].append(term)
        else:
            chains.append([term])
    groups = dict[frozenset[str], None]()
    for chain in chains:
        first, last = chain[0], chain[-1]
        inner = [pair for pair in pairwise(chain) if first not in pair and last not in pair]
        groups.update(dict.fromkeys(map(frozenset, [(first,), *inner, (last,)])))
    return tuple(groups)[:_MOST_GROUPS]


def count_groups(groups: Groups, found: Set[str]) -> int:
    """How many groups have a term that was found."""
    return sum([not group.isdisjoint(found) for group in groups])


def _common_terms(text: str, wanted: frozenset[str]) -> frozenset[str]:
    if text.isascii():
        lowered = text.lower()
        # A term keeps the first letters of its word: most messages have none of these, and need not be tokenized.
        if not any(term[:3] in lowered for term in wanted):
            return frozenset()
    return wanted.intersection(lexical.terms(text, singles=True))


def _match(message: Message, wanted: frozenset[str]) -> MessageMatch:
    text = spoken_text(message)
    spans = lexical.find_terms(text, wanted)
    start = max(0, spans[0][0] - _BEFORE) if spans else 0
    # Not in the middle of a word, where words end within reach.
    if start:
        start = text.find(" ", start, spans[0][0]) + 1 or start
    excerpt = text[start : start + _EXCERPT]
    words = dict.fromkeys([text[first:last] for first, last in spans if start <= first and last <= start + _EXCERPT])
    end = "…" if start + _EXCERPT < len(text) else ""
    return MessageMatch(
        seq=message.seq,
        role=message.role,
        sent_at=message.sent_at,
        excerpt=("…" if start else "") + " ".join(excerpt.split()) + end,
        words=tuple(words),
    )
