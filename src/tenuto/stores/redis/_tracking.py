"""Invalidations for caches: one listener per primary; a full flush whenever anything is in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import hiredis

from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._invalidation import InvalidationListener, NoteChannel
from tenuto.stores.redis._resp import CallFailed, Reply, pack
from tenuto.stores.redis._single_flight import SingleFlight
from tenuto.stores.redis._url import DeploymentMode, Endpoint

Drop = Callable[[list[bytes] | None], None]

_RETRY = 0.2
# The ping also shows whether the server is still the one to listen to.
_BEATS = {
    DeploymentMode.STANDALONE: pack(("PING",)),
    DeploymentMode.SENTINEL: pack(("ROLE",)),
    DeploymentMode.CLUSTER: pack(("CLUSTER", "INFO")),
}


class ClientTracking:
    """Invalidations for all keys that start with a prefix.

    A cache calls `catch_up` between loading a key and caching it, and discards the value if the key was dropped since
    the load began: an invalidation may arrive before an older reply.
    """

    def __init__(self, client: RedisClient, prefix: bytes, *, notes: NoteChannel | None = None) -> None:
        self._client = client
        self._prefix = prefix
        self._notes = notes
        self._listeners: dict[Endpoint, InvalidationListener] = {}
        self._drop: Drop | None = None
        self._epochs: dict[Endpoint, str] = {}
        self._tried = asyncio.Event()
        self._arranging = SingleFlight(self._connect_all)
        client.topology.on_change(self._sync_listeners)

    @asynccontextmanager
    async def watch(self, drop: Drop) -> AsyncIterator[None]:
        """While open, call `drop` with changed keys; `None` means all. There is one watch at a time.

        Waits until every server is listened to, or does not answer.
        """
        self._tried.clear()
        self._drop = drop
        drop(None)
        self._arranging.start()
        try:
            await self._tried.wait()
            yield
        finally:
            self._drop = None
            self.close()

    def catch_up(self) -> bool:
        """Report every change acknowledged up to now; false if some may be missing."""
        sure = bool(self._listeners)
        for listener in self._listeners.values():
            sure = listener.listen() and sure
        return sure

    def close(self) -> None:
        """Stop listening."""
        self._arranging.close()
        while self._listeners:
            self._listeners.popitem()[1].close()

    async def _connect_all(self) -> None:
        try:
            while not self._client.topology.primaries():
                try:
                    await self._client.primaries()
                except CallFailed:
                    self._tried.set()
                    await asyncio.sleep(_RETRY)
            self._sync_listeners()
            for listener in list(self._listeners.values()):
                await listener.tried.wait()
        finally:
            self._tried.set()

    def _sync_listeners(self) -> None:
        """Listen to exactly the current primaries. New ones are in doubt until connected."""
        if self._drop is None:
            return
        primaries = self._client.topology.primaries()
        for endpoint in self._listeners.keys() - set(primaries):
            self._listeners.pop(endpoint).close()
        for endpoint in primaries:
            if endpoint not in self._listeners:
                self._listeners[endpoint] = InvalidationListener(
                    endpoint,
                    self._client.options,
                    prefix=self._prefix,
                    beat=_BEATS[self._client.address.shape],
                    drop=self._notify,
                    answered=partial(self._check_reply, endpoint),
                    notes=self._notes,
                )
        self._notify(None)

    def _notify(self, keys: list[bytes] | None) -> None:
        if self._drop is not None:
            self._drop(keys)

    def _check_reply(self, endpoint: Endpoint, reply: Reply) -> bool:
        """Whether the reply to a ping shows an unchanged server."""
        if isinstance(reply, hiredis.ReplyError):
            return True  # It is alive, and denies the command.
        shape = self._client.address.shape
        unchanged = True
        if shape is DeploymentMode.SENTINEL:
            unchanged = bool(reply[0] == b"master")
        elif shape is DeploymentMode.CLUSTER:
            unchanged = self._is_same_epoch(endpoint, reply)
        if not unchanged:
            self._client.topology.look()
        return unchanged

    def _is_same_epoch(self, endpoint: Endpoint, reply: Reply) -> bool:
        """Whether the cluster is healthy and had no election since the last ping."""
        text = reply if isinstance(reply, str) else reply.decode()
        facts = dict(line.split(":", 1) for line in text.split() if ":" in line)
        epoch = facts.get("cluster_current_epoch", "")
        before = self._epochs.get(endpoint, epoch)
        self._epochs[endpoint] = epoch
        return facts.get("cluster_state") == "ok" and epoch == before
