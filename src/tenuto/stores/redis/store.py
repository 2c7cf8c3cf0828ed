"""Sessions in Redis or Valkey: one script per method, all keys of a session in one slot."""

from __future__ import annotations

from typing import Self

from tenuto.model import Scope
from tenuto.model.scope import session_key
from tenuto.model.store_reports import DurabilityFinding
from tenuto.ports import Clock, utc_now
from tenuto.stores.redis._auth import ConnectionPolicy
from tenuto.stores.redis._bulk import RedisBulk
from tenuto.stores.redis._client import Link
from tenuto.stores.redis._durability import assurances, product_version
from tenuto.stores.redis._erasure import UserEraser
from tenuto.stores.redis._failures import failure
from tenuto.stores.redis._format import check_format
from tenuto.stores.redis._keys import RedisKeys
from tenuto.stores.redis._listing import SessionListing
from tenuto.stores.redis._resp import CallFailed
from tenuto.stores.redis._runner import ScriptRunner
from tenuto.stores.redis._sessions import RedisSessions, RedisTraces
from tenuto.stores.redis._sites import SiteIndex
from tenuto.stores.redis._state import RedisState
from tenuto.stores.redis._state_owners import StateOwners
from tenuto.stores.redis._sweeper import Sweeper
from tenuto.stores.redis._tracking import ClientTracking, RedisFeed
from tenuto.stores.redis._upkeep import RedisUpkeep
from tenuto.stores.redis._window_cache import WindowCache


class RedisStore:
    """A backend over Redis or Valkey: standalone, behind Sentinel, or a Cluster.

    A write whose connection is lost is repeated once if that is safe; else it raises `Unavailable`, and the caller's
    idempotency key shows later whether it happened.
    """

    def __init__(
        self, url: str, *, prefix: str | None = None, clock: Clock = utc_now, policy: ConnectionPolicy | None = None
    ) -> None:
        windows = WindowCache()
        # After a lost connection the server may have lost its latest writes.
        self.link = Link(url, policy, on_lost=windows.clear)
        self.keys = RedisKeys(self.link.address.prefix if prefix is None else prefix)
        self._asking = asking = ScriptRunner(self.link, self.keys, clock)
        shelves = SessionListing(asking)
        self._owners = StateOwners(asking)
        self._spaces = SiteIndex(asking, shelves, self._owners)
        self._sweeping = Sweeper(asking, shelves, self._spaces)
        self._tracking = ClientTracking(self.link, self.keys.heads, self.keys.gone, self.keys.mixed)
        self.sessions = RedisSessions(asking, windows, shelves, self._sweeping)
        self.traces = RedisTraces(asking, self._sweeping)
        self.state = RedisState(asking, self._owners)
        self._erasing = UserEraser(asking, shelves, self._sweeping, self.state)
        self.upkeep = RedisUpkeep(
            asking,
            windows=windows,
            shelves=shelves,
            spaces=self._spaces,
            sweeping=self._sweeping,
            erasing=self._erasing,
        )
        self.bulk = RedisBulk(asking, shelves, self._owners)
        self.feed = RedisFeed(self._tracking, self.keys)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        prefix: str | None = None,
        clock: Clock = utc_now,
        policy: ConnectionPolicy | None = None,
        prepare: bool = True,
    ) -> Self:
        """Open a store and check that it answers, unless `prepare` is called later.

        Raises:
            InvalidSetting: the URL is not one of ours.
            Unavailable: no server answers, or its data is from before the first release.
        """
        store = cls(url, prefix=prefix, clock=clock, policy=policy)
        try:
            if prepare:
                await store.prepare()
        except BaseException:
            await store.close()
            raise
        return store

    async def prepare(self) -> None:
        await self.upkeep.ping()
        await check_format(self._asking)

    async def durability_findings(self) -> tuple[DurabilityFinding, ...]:
        try:
            return await assurances(self.link)
        except CallFailed as exc:
            raise failure(exc) from exc

    async def product_version(self) -> str:
        try:
            return await product_version(self.link)
        except CallFailed as exc:
            raise failure(exc) from exc

    async def close(self) -> None:
        self._tracking.close()
        await self.link.aclose()

    # Several servers

    @property
    def sharded(self) -> bool:
        return self._asking.sharded

    @property
    def shards(self) -> frozenset[str]:
        return frozenset(map(str, self.link.topology.primaries())) or frozenset({""})

    def shard_of(self, scope: Scope, session_id: str) -> str:
        topology = self.link.topology
        node = topology.node(topology.slot(self.keys.session(session_key(scope, session_id))[0]))
        return "" if node is None else str(node.endpoint)
