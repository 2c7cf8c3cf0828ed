"""Tells a cache what others changed: one ear per primary, flushed whenever anything is in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import hiredis

from tenuto.model.store_reports import Invalidation
from tenuto.stores.redis._client import Link
from tenuto.stores.redis._invalidation import InvalidationListener
from tenuto.stores.redis._keys import RedisKeys
from tenuto.stores.redis._resp import CallFailed, Reply, pack
from tenuto.stores.redis._single_flight import SingleFlight
from tenuto.stores.redis._url import DeploymentMode, Endpoint

Drop = Callable[[list[bytes] | None], None]

_RETRY = 0.2
# What we ask for as a sign of life also tells whether the server is still the one to listen to.
_BEATS = {
    DeploymentMode.STANDALONE: pack(("PING",)),
    DeploymentMode.SENTINEL: pack(("ROLE",)),
    DeploymentMode.CLUSTER: pack(("CLUSTER", "INFO")),
}


class ClientTracking:
    """Invalidations for all keys that start with one of the `prefixes`.

    Somebody who loads a key and then caches it asks `catch_up` in between, and caches nothing when the key
    was dropped since the load began: a change may overtake the reply that does not know of it yet.
    """

    def __init__(self, link: Link, *prefixes: bytes) -> None:
        self._link = link
        self._prefixes = prefixes
        self._ears: dict[Endpoint, InvalidationListener] = {}
        self._drops: list[Drop] = []
        self._epochs: dict[Endpoint, str] = {}
        self._tried = asyncio.Event()
        self._arranging = SingleFlight(self._connect_all)
        link.topology.on_change(self._sync_listeners)

    @asynccontextmanager
    async def watch(self, drop: Drop) -> AsyncIterator[None]:
        """While open, `drop` hears of keys that changed; `None` stands for all of them.

        Waits until every server is listened to, or does not answer.
        """
        if not self._drops:
            self._tried.clear()
        self._drops.append(drop)
        drop(None)
        self._arranging.start()
        try:
            await self._tried.wait()
            yield
        finally:
            self._drops.remove(drop)
            if not self._drops:
                self.close()

    def catch_up(self) -> bool:
        """Pass on every change acknowledged anywhere up to now; False when that cannot be vouched for."""
        sure = bool(self._ears)
        for ear in self._ears.values():
            sure = ear.listen() and sure
        return sure

    def close(self) -> None:
        """Stop listening."""
        self._arranging.close()
        while self._ears:
            self._ears.popitem()[1].close()

    async def _connect_all(self) -> None:
        try:
            while not self._link.topology.primaries():
                try:
                    await self._link.primaries()
                except CallFailed:
                    self._tried.set()
                    await asyncio.sleep(_RETRY)
            self._sync_listeners()
            for ear in list(self._ears.values()):
                await ear.tried.wait()
        finally:
            self._tried.set()

    def _sync_listeners(self) -> None:
        """Listen to exactly the primaries there are now. New ones are in doubt until they are connected."""
        if not self._drops:
            return
        primaries = self._link.topology.primaries()
        for endpoint in self._ears.keys() - set(primaries):
            self._ears.pop(endpoint).close()
        for endpoint in primaries:
            if endpoint not in self._ears:
                self._ears[endpoint] = self._ear(endpoint)
        self._notify(None)

    def _ear(self, endpoint: Endpoint) -> InvalidationListener:
        return InvalidationListener(
            endpoint,
            self._link.door,
            prefixes=self._prefixes,
            beat=_BEATS[self._link.address.shape],
            drop=self._notify,
            answered=partial(self._check_reply, endpoint),
        )

    def _notify(self, keys: list[bytes] | None) -> None:
        for drop in self._drops:
            drop(keys)

    def _check_reply(self, endpoint: Endpoint, reply: Reply) -> bool:
        """Whether a sign of life says that the server still is what it was."""
        if isinstance(reply, hiredis.ReplyError):
            # it lives, and refuses to talk about itself
            return True
        shape = self._link.address.shape
        unchanged = True
        if shape is DeploymentMode.SENTINEL:
            unchanged = bool(reply[0] == b"master")
        elif shape is DeploymentMode.CLUSTER:
            unchanged = self._is_same_epoch(endpoint, reply)
        if not unchanged:
            self._link.topology.look()
        return unchanged

    def _is_same_epoch(self, endpoint: Endpoint, reply: Reply) -> bool:
        """A cluster that is well and has not elected anybody since the last time."""
        text = reply if isinstance(reply, str) else reply.decode()
        facts = dict(line.split(":", 1) for line in text.split() if ":" in line)
        epoch = facts.get("cluster_current_epoch", "")
        before = self._epochs.get(endpoint, epoch)
        self._epochs[endpoint] = epoch
        return facts.get("cluster_state") == "ok" and epoch == before


class RedisFeed:
    """The `ChangeFeed` port: invalidated keys, told as changes of sessions."""

    def __init__(self, tracking: ClientTracking, keys: RedisKeys) -> None:
        self._tracking = tracking
        self._keys = keys

    @property
    def listening(self) -> bool:
        return self._tracking.catch_up()

    def watch(self, told: Callable[[Invalidation | None], None]) -> AbstractAsyncContextManager[None]:
        def forward(names: list[bytes] | None) -> None:
            if names is None:
                told(None)
                return
            for taken_away, start in ((True, self._keys.gone), (False, self._keys.heads)):
                keys = tuple(self._keys.parse_session_key(name) for name in names if name.startswith(start))
                if keys:
                    told(Invalidation(keys=keys, taken_away=taken_away))

        return self._tracking.watch(forward)

    def catch_up(self) -> bool:
        return self._tracking.catch_up()
