"""The primary of a service, as sentinels report it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tenuto.background import run_in_background
from tenuto.stores.redis._auth import ConnectOptions, open_connection
from tenuto.stores.redis._node import Node
from tenuto.stores.redis._resp import CallFailed, Reply, check, pack
from tenuto.stores.redis._single_flight import SingleFlight
from tenuto.stores.redis._url import Endpoint, RedisAddress

log = logging.getLogger(__name__)

_ROLE = pack(("ROLE",))
_SUBSCRIBE = pack(("SUBSCRIBE", "+switch-master"))
_PAUSE = 1.0


class SentinelTopology:
    """The primary of a service, as the sentinels name it.

    A server counts as the primary only if its own `ROLE` confirms it: right after a failover sentinels may still name
    the old one.
    """

    def __init__(self, address: RedisAddress, options: ConnectOptions) -> None:
        self._service = address.service
        self._ask = pack(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service))
        self._options = options
        self._sentinel_door = ConnectOptions(
            credential=address.sentinel_credential, tls=address.tls, policy=options.policy
        )
        self._sentinels = [Node(endpoint, self._sentinel_door) for endpoint in address.endpoints]
        self._primary: Node | None = None
        self._looking = SingleFlight(self._find_primary)
        self._listening: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []

    def slot(self, key: bytes | None) -> int | None:
        return None

    def node(self, slot: int | None) -> Node | None:
        return self._primary

    def node_at(self, endpoint: Endpoint) -> Node:
        if self._primary is None or self._primary.endpoint != endpoint:
            raise CallFailed(f"{endpoint} is not the primary")
        return self._primary

    def follow_redirect(self, slot: int, endpoint: Endpoint) -> Node:
        return self.node_at(endpoint)

    def primaries(self) -> tuple[Endpoint, ...]:
        return () if self._primary is None else (self._primary.endpoint,)

    async def renew(self, deadline: float) -> None:
        await self._looking.join(deadline)

    def look(self) -> None:
        self._looking.start()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def aclose(self) -> None:
        self._looking.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        for node in self._sentinels:
            node.close()
        if self._primary is not None:
            self._primary.close()

    async def _find_primary(self) -> None:
        if self._listening is None:
            self._listening = run_in_background(self._listen(), "redis sentinel")
        for sentinel in list(self._sentinels):
            try:
                named = check(await sentinel.ask(self._ask, self._connect_deadline()))
                if named is not None and await self._try_primary(Endpoint(named[0].decode(), int(named[1]))):
                    # The one that answered goes first next time.
                    self._sentinels.sort(key=lambda node: node is not sentinel)
                    return
            except CallFailed:
                continue
        raise CallFailed("no sentinel names a primary that answers")

    async def _try_primary(self, endpoint: Endpoint) -> bool:
        """Use the named server as primary if its role confirms it."""
        current = self._primary
        same = current is not None and current.endpoint == endpoint
        node = current if same and current is not None else Node(endpoint, self._options)
        try:
            role = check(await node.ask(_ROLE, self._connect_deadline()))
        except CallFailed:
            if not same:
                node.close()
            raise
        if role[0] != b"master":
            if not same:
                node.close()
            return False
        if not same:
            self._primary = node
            if current is not None:
                current.close()
            log.info("primary of service %s is %s", self._service, endpoint)
            for listener in self._listeners:
                listener()
        return True

    def _connect_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._options.policy.connect_timeout

    async def _listen(self) -> None:
        """Stay subscribed to one sentinel after another, so that a planned switch is noticed at once."""
        turn = 0
        while True:
            sentinel = self._sentinels[turn % len(self._sentinels)]
            turn += 1
            try:
                await self._subscribe(sentinel.endpoint)
            except (OSError, CallFailed):
                log.debug("sentinel %s is not reachable", sentinel.endpoint)
            await asyncio.sleep(_PAUSE)

    async def _subscribe(self, endpoint: Endpoint) -> None:
        lost = asyncio.Event()
        async with asyncio.timeout(self._options.policy.connect_timeout):
            connection = await open_connection(
                endpoint, self._sentinel_door, on_lost=lambda _: lost.set(), on_message=self._on_switch
            )
        try:
            check(await connection.send(_SUBSCRIBE, self._connect_deadline()))
            await lost.wait()
        finally:
            connection.abort()

    def _on_switch(self, message: Reply) -> None:
        # +switch-master carries: <service> <old host> <old port> <new host> <new port>
        if isinstance(message, list) and message[-1].split(b" ")[0] == self._service.encode():
            self._looking.start()
