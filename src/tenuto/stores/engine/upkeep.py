"""Upkeep of records: expiry, eviction, erasure, statistics."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import DecryptionFailed
from tenuto.model import CompactionResult, EraseResult, RemovedSession, Scope, Session, SessionStats
from tenuto.model.scope import owner_key, session_key, site_key, site_scope, user_digest, user_scope
from tenuto.model.stored import (
    Action,
    FoundRecord,
    IndexOrder,
    IndexQuery,
    Kind,
    Part,
    RecordChange,
    Refused,
    ValuePlace,
)
from tenuto.ports import Clock, RecordStore
from tenuto.stores.encoding import to_micros
from tenuto.stores.engine.cache import RecordCache, Unindexed
from tenuto.stores.engine.codec import Codecs
from tenuto.stores.engine.journal import Journal
from tenuto.stores.engine.journal_replay import ERASURES
from tenuto.stores.engine.listing import LAG, decode_last_change, decode_session, holds_lease, iter_records
from tenuto.stores.engine.searching import WordSearch
from tenuto.stores.engine.state import EngineState

_log = logging.getLogger(__name__)
_Gone: TypeAlias = tuple[FoundRecord, RemovedSession | None]
_PAGE: Final = 500
_STRIDE: Final = 50
_MOST_TRACES: Final = 1000


class EngineUpkeep:
    """The `StoreUpkeep` port. A session is removed only at the revision it was found at."""

    def __init__(
        self, records: RecordStore, cache: RecordCache, codecs: Codecs, clock: Clock, state: EngineState
    ) -> None:
        self._records = records
        self._cache = cache
        self._codecs = codecs
        self._clock = clock
        self._state = state
        self.journal: Journal | None = None
        self.tells_machines = False
        """Whether other machines may use the store, with journals that must learn of erasures."""
        self.words: WordSearch
        self.unindexed: Unindexed

    async def compact(self) -> CompactionResult:
        return await self._records.compact()

    async def ping(self) -> None:
        await self._records.ping()

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        due = IndexQuery(order=IndexOrder.DEADLINE, due=to_micros(self._clock()), limit=limit)
        found = await self._records.list(due)
        if len(found) < limit:
            found += await self._records.list(replace(due, kind=None, limit=limit - len(found)))
        if len(found) < limit:
            # Logs of turns whose process is gone.
            await self._commit_each(await self._records.list(replace(due, kind=Kind.VALUE, limit=limit - len(found))))
        return _described_sessions(await self._remove(found))

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        beyond = await self._count_beyond(scope, keep)
        if not beyond:
            return ()
        spared = session_key(scope, keep_session) if keep_session is not None else None
        oldest = await self._oldest(scope, beyond, spared)
        # Others may have removed some during the walk.
        return _described_sessions(
            await self._remove(oldest[: await self._count_beyond(scope, keep)], site_scope(scope))
        )

    async def _count_beyond(self, scope: Scope, keep: int) -> int:
        """How many sessions of a site are beyond a bound, expired ones among them."""
        sums = await self._records.totals(site_key(scope), None, 0)
        return max(0, sums.sessions - keep)

    async def index_words(self) -> int:
        return await self.words.index_idle(self.unindexed.take_idle(self._clock()))

    async def index_all(self) -> tuple[int, int]:
        return await self.words.index_all()

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        owner = user_scope(scope)
        if self.tells_machines:
            assert owner.user is not None
            # First for the journals of other machines: all they hold of this user began before now.
            digest, now = user_digest(owner.tenant, owner.user), to_micros(self._clock())
            await self._state.write_state(site_scope(owner), ERASURES, digest, now)
        rows = 0 if self.journal is None else await self.journal.forget_user(owner)
        erased = await _erase_in_batches(lambda size: self._erase_some(owner, size), limit, _STRIDE)
        return replace(erased, journal=rows)

    async def _erase_some(self, scope: Scope, size: int) -> EraseResult:
        mine = IndexQuery(order=IndexOrder.OLDEST, space=site_key(scope), owner=owner_key(scope), limit=size + 1)
        sessions = await self._records.list(mine)
        batch, more = sessions[:size], len(sessions) > size
        traces = {found.record.key: await self._count_traces(found.record.key) for found in batch}
        gone = await self._remove(batch, scope)
        aside = None if more else await self._records.forget_aside(owner_key(scope))
        states, values_left = (0, False) if more else await self._erase_values(scope)
        strays = () if more else await self._records.list(replace(mine, kind=None, limit=_PAGE))
        traces |= {found.record.key: await self._count_traces(found.record.key) for found in strays}
        lost = await self._remove(strays, scope)
        gone_all = gone + lost
        return EraseResult(
            removed_sessions=_described_sessions(gone_all),
            messages=sum(found.totals.messages for found, _ in gone_all) + (aside.messages if aside else 0),
            traces=sum(traces[found.record.key] for found, _ in gone_all) + (aside.traces if aside else 0),
            attachments=sum(found.totals.attachments for found, _ in gone_all) + (aside.attachments if aside else 0),
            states=states,
            quarantined=len([one for one, removed_session in lost if removed_session is None])
            + (aside.records if aside else 0),
            more=more or values_left or len(gone) < len(batch) or len(lost) < len(strays) or len(strays) == _PAGE,
        )

    async def _count_traces(self, key: bytes) -> int:
        page = await self._records.page(key, Part.TRACES, 0, 2**62, _MOST_TRACES)
        return len(page.entries)

    async def _erase_values(self, scope: Scope) -> tuple[int, bool]:
        """How many values went, and whether others may be left: those that changed while they were to go."""
        query = IndexQuery(
            order=IndexOrder.PLACE, kind=Kind.VALUE, space=site_key(scope), owner=owner_key(scope), limit=_PAGE
        )
        erased, refused = 0, False
        while page := await self._records.list(query):
            gone = await self._commit_each(page)
            erased, refused = erased + len(gone), refused or len(gone) < len(page)
            last = page[-1].index
            query = replace(query, behind=ValuePlace(last.owner, last.drawer, last.name))
        return erased, refused

    async def list_sites(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        found = await self._records.sites(b"" if after is None else site_key(after), limit)
        return tuple(site_scope(scope) for scope in found)

    async def stats(self, scope: Scope) -> SessionStats:
        owner = owner_key(scope) if scope.owner else None
        sums = await self._records.totals(site_key(scope), owner, to_micros(self._clock()))
        return SessionStats(
            sessions=sums.sessions,
            messages=sums.messages,
            tokens=sums.tokens,
            cost_nanos=sums.cost_nanos,
            attachments=sums.attachments,
            attachment_bytes=sums.attachment_bytes,
        )

    # What the methods share

    async def _oldest(self, scope: Scope, count: int, spared: bytes | None) -> list[FoundRecord]:
        """The sessions of a site that are longest unchanged, but for one and those whose turn runs; one that cannot be
        read by its last listing.

        One that changes during the walk is met again: what was met last counts.
        """
        codec, now = await self._codecs.load(scope), self._clock()
        query = IndexQuery(order=IndexOrder.OLDEST, space=site_key(scope), limit=min(_PAGE, count + 10))
        places = dict[bytes, tuple[int, bytes, FoundRecord]]()
        horizon: int | None = None
        async for found in iter_records(self._records, query):
            key, listed_at = found.record.key, found.index.listed_at
            if horizon is not None and listed_at > horizon:
                break
            if key == spared or holds_lease(found, codec, now):
                places.pop(key, None)
            else:
                places[key] = (decode_last_change(found, codec), key, found)
            if horizon is None and len(places) == count:
                horizon = listed_at + LAG
        return [found for _, _, found in sorted(places.values(), key=lambda one: one[:2])[:count]]

    async def _remove(self, records: Sequence[FoundRecord], owner: Scope | None = None) -> list[_Gone]:
        """Remove records, each with what is told of it, which is read first: nothing may fail once they are gone.

        Of one whose columns do not tell whose it is, `owner` does.
        """
        descriptions = {found.record.key: await self._describe(found, owner) for found in records}
        gone = await self._commit_each(records)
        for found in gone:
            self._cache.drop(found.record.key)
            self._cache.on_commit(found.record.key, None)
        return [(found, descriptions[found.record.key]) for found in gone]

    async def _describe(self, found: FoundRecord, owner: Scope | None) -> RemovedSession | None:
        """What is told of a session that goes; `None` where nothing says which it is."""
        scope = found.index.scope or owner
        session = None if scope is None else await self._decode_session(found, scope)
        if session is not None:
            return RemovedSession(scope=session.scope, session_id=session.id)
        if scope is None or found.index.kind is not Kind.SESSION:
            _log.warning("a record whose columns cannot be decoded is removed")
            return None
        return RemovedSession(scope=scope, session_id=found.index.name)

    async def _decode_session(self, found: FoundRecord, scope: Scope) -> Session | None:
        """The head, or `None`: upkeep needs no key."""
        try:
            return decode_session(found, await self._codecs.load(scope))
        except DecryptionFailed:
            return None

    async def _commit_each(self, records: Sequence[FoundRecord]) -> list[FoundRecord]:
        """Remove records, each at the revision it was found at: those that went. A backend stores them together.

        Raises:
            StoreUnavailable: none went.
        """
        commits: list[Future[Refused | None]] = [
            self._records.commit(
                (RecordChange(key=one.record.key, if_revision=one.record.revision, action=Action.REMOVE),)
            )
            for one in records
        ]
        answers = await asyncio.gather(*commits, return_exceptions=True)
        gone = [one for one, answer in zip(records, answers, strict=True) if answer is None]
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if failures and not gone:
            raise failures[0]
        if failures:
            _log.warning("%d of %d records were not removed: the store failed", len(failures), len(records))
        return gone


def _described_sessions(gone: list[_Gone]) -> tuple[RemovedSession, ...]:
    return tuple(session for _, session in gone if session is not None)


async def _erase_in_batches(step: Callable[[int], Awaitable[EraseResult]], limit: int, stride: int) -> EraseResult:
    """Erase up to `limit` sessions, at most `stride` in one step; other calls run in between."""
    left, steps = max(0, limit), list[EraseResult]()
    while not steps or (steps[-1].more and left):
        size = min(stride, left)
        steps.append(await step(size))
        left -= size
    return EraseResult(
        removed_sessions=tuple(item for done in steps for item in done.removed_sessions),
        messages=sum(done.messages for done in steps),
        traces=sum(done.traces for done in steps),
        attachments=sum(done.attachments for done in steps),
        states=sum(done.states for done in steps),
        quarantined=sum(done.quarantined for done in steps),
        more=steps[-1].more,
    )
