"""Sessions in Redis or Valkey: one script per method, all keys of a session in one slot."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Self

from msgspec.structs import replace

from tenuto.errors import SessionBusy, SessionCorrupt, StoreFull, StoreReadOnly, TurnLost, VersionConflict
from tenuto.model import (
    Appended,
    Batch,
    Changes,
    Closing,
    Compaction,
    Erased,
    Forking,
    Gone,
    MessagePage,
    Opening,
    OpenTurn,
    Page,
    Rewriting,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    StateEntry,
    StateName,
    Stats,
    Truncating,
)
from tenuto.model.assurance import Assurance
from tenuto.model.news import News
from tenuto.model.scope import person_of, session_key
from tenuto.model.trace import Trace
from tenuto.model.values import Json
from tenuto.ports import Clock, utc_now
from tenuto.stores.codec import Undecodable, from_micros
from tenuto.stores.redis._asking import NOTHING, OTHER_FORMATS, Asking, failure, refusal
from tenuto.stores.redis._compacting import compact
from tenuto.stores.redis._door import LinkPolicy
from tenuto.stores.redis._drawers import Drawers
from tenuto.stores.redis._durability import assurances
from tenuto.stores.redis._erasing import Erasing
from tenuto.stores.redis._faults import LinkDown
from tenuto.stores.redis._format import refuse_older
from tenuto.stores.redis._keys import Keys
from tenuto.stores.redis._link import Link
from tenuto.stores.redis._owners import Owners
from tenuto.stores.redis._records import MICROSECOND, epoch_of
from tenuto.stores.redis._shelves import Shelves
from tenuto.stores.redis._spaces import Spaces
from tenuto.stores.redis._traces import NEWEST, read_traces, span
from tenuto.stores.redis._tracking import Tracking
from tenuto.stores.redis._turns import (
    Ask,
    append,
    appended_batch,
    begin,
    finish,
    finished_reply,
    finished_turn,
    numbers_of,
    opened_turn,
    page_of,
    pages,
    patch,
    plant,
    reset,
    rewrite,
    snapshot,
    told_session,
    truncate,
)
from tenuto.stores.redis._upkeep import Upkeep
from tenuto.stores.redis._windows import Seen, Windows
from tenuto.stores.redis._wire import Reply


class RedisStore:
    """The `Store` and `ChangeFeed` ports over Redis or Valkey: standalone, behind Sentinel, or a Cluster.

    A write whose connection breaks under it is repeated once where repeating it changes nothing; elsewhere it is
    `Unavailable`, and whether it happened shows when the caller comes back with its idempotency key.
    """

    def __init__(
        self, url: str, *, prefix: str | None = None, clock: Clock = utc_now, policy: LinkPolicy | None = None
    ) -> None:
        self._windows = Windows()
        # Behind a broken connection may stand a server that has lost its latest writes, and counts anew from there.
        self.link = Link(url, policy, on_lost=self._windows.clear)
        self.keys = Keys(self.link.address.prefix if prefix is None else prefix)
        self._asking = Asking(self.link, self.keys, clock)
        self._shelves = Shelves(self._asking)
        self._owners = Owners(self._asking)
        self._spaces = Spaces(self._asking, self._shelves, self._owners)
        self._upkeep = Upkeep(self._asking, self._shelves, self._spaces)
        self._drawers = Drawers(self._asking, self._owners)
        self._erasing = Erasing(self._asking, self._shelves, self._upkeep, self._drawers)
        self._tracking = Tracking(self.link, self.keys.heads, self.keys.gone)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        prefix: str | None = None,
        clock: Clock = utc_now,
        policy: LinkPolicy | None = None,
        prepared: bool = True,
    ) -> Self:
        """A store that answers; unless that is left to `prepare`.

        Raises:
            InvalidSetting: the URL is not one of ours.
            Unavailable: nobody answers there, or what is there was stored before the first release.
        """
        store = cls(url, prefix=prefix, clock=clock, policy=policy)
        try:
            if prepared:
                await store.prepare()
        except BaseException:
            await store.close()
            raise
        return store

    async def prepare(self) -> None:
        await self.ping()
        await refuse_older(self._asking)

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        now = self._asking.now()
        lease_until = now + opening.lease // MICROSECOND
        key = session_key(scope, opening.session_id)
        seen = self._windows.get(key, opening.window)
        try:
            reply = await self._begin(scope, opening, key, now, lease_until, seen)
            if seen is not None and reply[0] in (b"absent", b"expired"):
                # it is gone since; what a new one would be has not been said yet
                self._windows.drop(key)
                seen = None
                reply = await self._begin(scope, opening, key, now, lease_until, seen)
            if reply[0] == b"busy":
                raise SessionBusy(opening.session_id, (int(reply[1]) - now) * MICROSECOND)
            if reply[0] == b"finished":
                return finished_turn(scope, reply)
            if type(reply) is not bytes and reply[0] not in (b"opened", b"resumed", b"repeated"):
                raise refusal(reply, opening.session_id, opening.producer)
            turn, log, fresh = opened_turn(scope, opening, reply, lease_until, seen)
        except Undecodable as damage:
            raise await self._corrupt(key, opening.session_id, damage) from damage
        numbers = numbers_of(reply)
        self._windows.keep(key, turn.session, epoch_of(numbers), log, fresh, opening.window)
        if self._asking.sharded:
            await self._shelves.put(key, turn.session, numbers)
        return turn

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        # A finished turn knows itself again when it is repeated; an abandoned one does not.
        key = session_key(turn.scope, turn.session.id)
        seen = self._windows.get(key)
        reply = await self._of_turn("finish_turn", turn, key, finish(turn, closing, seen), safe=not closing.abandoned)
        if reply[0] == b"gap":
            raise refusal(reply, turn.session.id, closing.producer)
        if type(reply) is not bytes and reply[0] not in (b"ok", b"duplicate"):
            raise TurnLost(turn.session.id, turn.id)
        try:
            appended = finished_reply(turn, closing, reply, seen)
        except Undecodable as damage:
            await self._corrupt(key, turn.session.id, damage)
            raise TurnLost(turn.session.id, turn.id) from damage
        if not appended.duplicate:
            await self._follow(key, appended, numbers_of(reply))
        return appended

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        now = self._asking.now()
        lease_until = now + turn.lease // MICROSECOND
        ask = Ask((lease_until,), (turn.session.incarnation, turn.id))
        key = session_key(turn.scope, turn.session.id)
        reply = await self._of_turn("renew_turn", turn, key, ask, now=now)
        if reply[0] != b"ok":
            raise TurnLost(turn.session.id, turn.id)
        return replace(turn, lease_until=from_micros(lease_until))

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        key = session_key(scope, session_id)
        safe = batch.once is not None or batch.producer is not None
        now = self._asking.now()
        ask = append(scope, session_id, batch, now)
        try:
            reply = await self._asking.session("append", key, scope, ask, safe=safe, now=now)
            if reply[0] not in (b"ok", b"duplicate"):
                raise refusal(reply, session_id, batch.producer)
            appended = appended_batch(batch, reply)
        except Undecodable as damage:
            raise await self._corrupt(key, session_id, damage) from damage
        if not appended.duplicate:
            await self._follow(key, appended, reply[1])
        return appended

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return await self._head("get", scope, session_id)

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        key = session_key(scope, session_id)
        try:
            reply = await self._asking.session("messages", key, scope, pages(page))
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
            return page_of(page, reply)
        except Undecodable as damage:
            raise await self._corrupt(key, session_id, damage) from damage

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        return await self._shelves.page(scope, query, self._asking.now())

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        expected = changes.if_version
        return await self._head("patch", scope, session_id, patch(changes), expected=expected, safe=False)

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        self._windows.clear()
        # What others wrote between a change and its repetition would be lost: reset, truncate and patch happen once.
        return await self._head("reset", scope, session_id, reset(sparing), safe=False)

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        key = session_key(scope, session_id)
        now = self._asking.now()
        try:
            reply = await self._asking.session("snapshot", key, scope, snapshot(forking), now=now)
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
            ask = plant(forking, reply, now)
        except Undecodable as damage:
            raise await self._corrupt(key, session_id, damage) from damage
        return await self._head("plant", scope, forking.new_id, ask, safe=False)

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncating) -> Session:
        self._windows.drop(session_key(scope, session_id))
        expected, within = truncating.if_version, truncating.within
        ask = truncate(truncating)
        return await self._head("truncate", scope, session_id, ask, expected=expected, within=within, safe=False)

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewriting) -> Session:
        self._windows.drop(session_key(scope, session_id))
        return await self._head("rewrite", scope, session_id, rewrite(rewriting), safe=False)

    async def delete(self, scope: Scope, session_id: str) -> None:
        key = session_key(scope, session_id)
        self._windows.drop(key)
        try:
            reply = await self._asking.session("delete", key, scope, safe=False)
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
        except Undecodable as damage:
            raise await self._corrupt(key, session_id, damage) from damage
        await self._shelves.clear(key, reply[2])

    # Traces

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        found = await self._traces(scope, session_id, Ask(span(1, number, number)))
        return found[0] if found else None

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        highest = NEWEST if before is None else before - 1
        return await self._traces(scope, session_id, Ask(span(limit, 1, highest)))

    # State

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return await self._drawers.read(scope, namespace, key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        return await self._drawers.write(scope, namespace, key, value, if_version)

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        return await self._drawers.delete(scope, namespace, key)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        return await self._drawers.list(scope, namespace, after, limit)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return await self._drawers.names(scope, namespace, after, limit)

    async def state_names(
        self, scope: Scope, after: StateName | None = None, limit: int = 100
    ) -> tuple[StateName, ...]:
        return await self._owners.names(scope, after, limit)

    # Upkeep

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        self._windows.clear()
        return await self._upkeep.sweep(limit)

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        self._windows.clear()
        return await self._upkeep.evict(scope, keep, None if sparing is None else session_key(scope, sparing))

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        self._windows.clear()
        return await self._erasing.erase(person_of(scope), max(0, limit))

    async def compact(self) -> Compaction:
        """Have the servers rewrite their logs and snapshots; returns when they have."""
        try:
            return await compact(self.link)
        except LinkDown as exc:
            raise failure(exc) from exc

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        return await self._spaces.page(after, limit)

    async def stats(self, scope: Scope) -> Stats:
        return await self._shelves.stats(scope, self._asking.now())

    async def ping(self) -> None:
        try:
            await self._asking.call("PING")
        except (StoreFull, StoreReadOnly):
            # A server that cannot write its files refuses even this. It answers, and can be read.
            return

    async def assurances(self) -> tuple[Assurance, ...]:
        try:
            return await assurances(self.link)
        except LinkDown as exc:
            raise failure(exc) from exc

    async def close(self) -> None:
        self._tracking.close()
        await self.link.aclose()

    # Several servers

    @property
    def parted(self) -> bool:
        return self._asking.sharded

    @property
    def parts(self) -> frozenset[str]:
        return frozenset(map(str, self.link.topology.primaries())) or frozenset({""})

    def part_of(self, scope: Scope, session_id: str) -> str:
        topology = self.link.topology
        node = topology.node(topology.slot(self.keys.session(session_key(scope, session_id))[0]))
        return "" if node is None else str(node.endpoint)

    # Telling caches

    @property
    def listening(self) -> bool:
        return self._tracking.catch_up()

    def watch(self, told: Callable[[News | None], None]) -> AbstractAsyncContextManager[None]:
        def dropped(names: list[bytes] | None) -> None:
            if names is None:
                told(None)
                return
            for taken_away, start in ((True, self.keys.gone), (False, self.keys.heads)):
                keys = tuple(self.keys.head_of(name) for name in names if name.startswith(start))
                if keys:
                    told(News(keys=keys, taken_away=taken_away))

        return self._tracking.watch(dropped)

    def catch_up(self) -> bool:
        return self._tracking.catch_up()

    # What the methods share

    def _begin(
        self, scope: Scope, opening: Opening, key: bytes, now: int, lease_until: int, seen: Seen | None
    ) -> Coroutine[None, None, Reply]:
        ask = begin(scope, opening, now, lease_until, seen)
        return self._asking.session("begin_turn", key, scope, ask, safe=False, now=now)

    async def _head(
        self,
        name: str,
        scope: Scope,
        session_id: str,
        ask: Ask = NOTHING,
        *,
        expected: int | None = None,
        within: OpenTurn | None = None,
        safe: bool = True,
    ) -> Session:
        """Run a script that answers with the head alone."""
        key = session_key(scope, session_id)
        try:
            reply = await self._asking.session(name, key, scope, ask, safe=safe)
            if reply[0] == b"version" and expected is not None:
                raise VersionConflict(expected, reply[1])
            if reply[0] == b"lost" and within is not None:
                raise TurnLost(session_id, within.id)
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
            session = told_session(reply)
        except Undecodable as damage:
            raise await self._corrupt(key, session_id, damage) from damage
        if name != "get":
            self._windows.extend(key, session, epoch_of(reply[1]))
            await self._shelves.put(key, session, reply[1])
        return session

    async def _follow(self, key: bytes, appended: Appended, numbers: bytes) -> None:
        """After messages were added: what was seen of the session, and shelves elsewhere, follow."""
        self._windows.extend(key, appended.session, epoch_of(numbers), appended.messages)
        if self._asking.sharded:
            await self._shelves.put(key, appended.session, numbers)

    async def _traces(self, scope: Scope, session_id: str, ask: Ask) -> tuple[Trace, ...]:
        key = session_key(scope, session_id)
        try:
            reply = await self._asking.session("traces", key, scope, ask)
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
        except Undecodable as damage:
            raise await self._corrupt(key, session_id, damage) from damage
        return tuple(read_traces(reply[1]))

    async def _of_turn(
        self, name: str, turn: OpenTurn, key: bytes, ask: Ask, *, safe: bool = True, now: int | None = None
    ) -> Reply:
        """Run a script of a turn under way. A session that cannot be read is lost to its turn as well."""
        try:
            reply = await self._asking.session(name, key, turn.scope, ask, safe=safe, now=now)
            if reply[0] in (b"corrupt", *OTHER_FORMATS):
                raise refusal(reply, turn.session.id)
        except Undecodable as damage:
            await self._corrupt(key, turn.session.id, damage)
            raise TurnLost(turn.session.id, turn.id) from damage
        return reply

    async def _corrupt(self, key: bytes, session_id: str, damage: Undecodable) -> SessionCorrupt:
        """Set the record aside, so that its id is free again, and say what to raise."""
        await self._upkeep.set_aside(key, str(damage))
        return SessionCorrupt(session_id)
