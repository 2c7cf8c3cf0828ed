"""The client of a Redis or Valkey deployment: calls with redirects and retries."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import hiredis

from tenuto.pauses import Backoff
from tenuto.stores.redis._auth import ConnectionPolicy, ConnectOptions
from tenuto.stores.redis._node import Node
from tenuto.stores.redis._resp import (
    CallFailed,
    Part,
    RedisConnectionLost,
    Reply,
    ResponseError,
    Unsent,
    check,
    pack,
    reply_error_code,
    response_error,
)
from tenuto.stores.redis._scripts import Script
from tenuto.stores.redis._topology import Topology, make_topology
from tenuto.stores.redis._url import Endpoint, RedisAddress, parse

_ASKING = pack(("ASKING",))
_MOST_ATTEMPTS = 20
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.1


@dataclass(slots=True, kw_only=True)
class _PendingCall:
    """One call: its next node and the calls that must precede it."""

    packed: bytes
    slot: int | None
    deadline: float
    safe: bool
    script: Script | None = None
    node: Node | None = None
    before: tuple[bytes, ...] = ()
    losses: int = 0
    attempts: int = 0


class _Submitted:
    """Receives the reply to a call that was sent at once; goes on in a task where another attempt may help."""

    __slots__ = ("_client", "_failed", "_on_failure", "_on_reply", "_pending")

    def __init__(
        self,
        client: RedisClient,
        pending: _PendingCall,
        on_reply: Callable[[Reply], None],
        on_failure: Callable[[CallFailed], None],
    ) -> None:
        self._client = client
        self._pending = pending
        self._on_reply = on_reply
        self._on_failure = on_failure
        self._failed = False

    def done(self) -> bool:
        return self._failed

    def set_result(self, reply: Reply) -> None:
        if type(reply) is hiredis.ReplyError:
            self.go_on(reply)
        else:
            self._on_reply(reply)

    def set_exception(self, exception: Exception) -> None:
        if isinstance(exception, RedisConnectionLost):
            self.go_on(exception)
            return
        self._failed = True
        self._on_failure(exception if isinstance(exception, CallFailed) else CallFailed(str(exception)))

    def go_on(self, outcome: Reply) -> None:
        """Retry after an outcome that is no answer, or fail."""
        self._client.go_on(self._pending, outcome).add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[Reply]) -> None:
        failed = Unsent("the client was closed") if task.cancelled() else task.exception()
        if failed is None:
            self._on_reply(task.result())
        else:
            self._on_failure(failed if isinstance(failed, CallFailed) else CallFailed(str(failed)))


class RedisClient:
    """Calls to a deployment of any shape. One per process and event loop.

    A call that the server certainly did not run (redirected, loading, failing over) is retried until its deadline. A
    call whose outcome is unknown, since the connection was lost, is retried once if it is `safe` to run twice.
    """

    def __init__(self, address: RedisAddress | str, policy: ConnectionPolicy | None = None) -> None:
        self.address = parse(address) if isinstance(address, str) else address
        self.policy = policy or ConnectionPolicy()
        self.name = secrets.token_hex(8)
        """Tells this client from every other one."""
        self.options = ConnectOptions(
            credential=self.address.credential, db=self.address.db, tls=self.address.tls, policy=self.policy
        )
        self.topology: Topology = make_topology(self.address, self.options)
        self._retries: set[asyncio.Task[Reply]] = set()

    async def call(
        self, *parts: Part, key: bytes | None = None, safe: bool = True, timeout: float | None = None
    ) -> Reply:
        """Make one call and return its reply; `key` determines the node of a cluster.

        Raises:
            CallFailed: the server could not be asked or did not answer in time.
            ResponseError: the server answered with an error.
        """
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def on_reply(reply: Reply) -> None:
            if not answer.done():
                answer.set_result(reply)

        def on_failure(failed: CallFailed) -> None:
            if not answer.done():
                answer.set_exception(failed)

        self.submit(pack(parts), key, on_reply, on_failure, safe=safe, timeout=timeout)
        return await answer

    def submit(
        self,
        packed: bytes,
        key: bytes | None,
        on_reply: Callable[[Reply], None],
        on_failure: Callable[[CallFailed], None],
        *,
        safe: bool = True,
        script: Script | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send a packed call before this returns, if there is a connection. One of the two is called, once."""
        slot = self.topology.slot(key)
        deadline = asyncio.get_running_loop().time() + (timeout or self.policy.call_timeout)
        pending = _PendingCall(packed=packed, slot=slot, deadline=deadline, safe=safe, script=script)
        receiver = _Submitted(self, pending, on_reply, on_failure)
        node = self.topology.node(slot)
        connection = None if node is None else node.idle_connection
        if connection is None or connection.closed:
            receiver.go_on(None)
        else:
            connection.send_for(receiver, packed, deadline)

    def go_on(self, pending: _PendingCall, outcome: Reply) -> asyncio.Task[Reply]:
        """Retry a call in a task that ends with the client."""
        task = asyncio.ensure_future(self._retry(pending, outcome))
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)
        return task

    async def call_node(self, endpoint: Endpoint, *parts: Part) -> Reply:
        """Make one call at one named server, without following redirects."""
        deadline = asyncio.get_running_loop().time() + self.policy.call_timeout
        return check(await self.topology.node_at(endpoint).ask(pack(parts), deadline))

    async def primaries(self, *, fresh: bool = False) -> tuple[Endpoint, ...]:
        """Every server that takes writes; looked up if it must be `fresh`, or none is known yet."""
        if fresh or not self.topology.primaries():
            await self.topology.renew(asyncio.get_running_loop().time() + self.policy.call_timeout)
        return self.topology.primaries()

    async def aclose(self) -> None:
        """Close every connection; pending calls fail with `RedisConnectionLost`."""
        await self.topology.aclose()
        for task in list(self._retries):
            task.cancel()

    async def _retry(self, pending: _PendingCall, outcome: Reply) -> Reply:
        """Continue a call after its last outcome until it is answered or fails."""
        while True:
            if isinstance(outcome, RedisConnectionLost):
                await self._handle_loss(pending, outcome)
            elif isinstance(outcome, hiredis.ReplyError):
                await self._handle_error_reply(pending, outcome)
            try:
                outcome = await self._attempt(pending)
            except RedisConnectionLost as error:
                outcome = error
                continue
            if not isinstance(outcome, hiredis.ReplyError):
                return outcome

    async def _attempt(self, pending: _PendingCall) -> Reply:
        node = pending.node or self.topology.node(pending.slot)
        if node is None:
            await self.topology.renew(pending.deadline)
            node = self.topology.node(pending.slot)
        if node is None:
            raise CallFailed("no server holds this part of the cluster")
        connection = await node.acquire_connection(pending.deadline)
        for packed in pending.before:
            # Cancelled at once: its reply does not matter.
            connection.send(packed, pending.deadline).cancel()
        return await connection.send(pending.packed, pending.deadline)

    async def _handle_loss(self, pending: _PendingCall, lost: RedisConnectionLost) -> None:
        """Prepare another attempt, or raise if the call must not be repeated."""
        pending.losses += 1
        if pending.losses > 1 or not (pending.safe or isinstance(lost, Unsent)):
            raise lost
        pending.node, pending.before = None, ()
        await self.topology.renew(pending.deadline)

    async def _handle_error_reply(self, pending: _PendingCall, reply: hiredis.ReplyError) -> None:
        """Prepare the next attempt, or raise `ResponseError` if another one would not help."""
        code = reply_error_code(reply)
        pending.attempts += 1
        if pending.attempts > _MOST_ATTEMPTS:
            raise ResponseError(code)
        match code:
            case "NOSCRIPT" if pending.script is not None:
                pending.before = (pending.script.load, *pending.before[-1:])
            case "MOVED":
                pending.node, pending.before = self.topology.follow_redirect(*_parse_redirect(reply)), ()
            case "ASK":
                pending.node, pending.before = self.topology.node_at(_parse_redirect(reply)[1]), (_ASKING,)
            case "TRYAGAIN" | "LOADING" | "BUSY":
                await self._back_off(pending, code)
            case "CLUSTERDOWN" | "READONLY" | "MASTERDOWN":
                await self._back_off(pending, code)
                pending.node, pending.before = None, ()
                await self.topology.renew(pending.deadline)
            case _:
                raise response_error(reply)

    async def _back_off(self, pending: _PendingCall, code: str) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, failures=pending.attempts).next_pause()
        if asyncio.get_running_loop().time() + pause >= pending.deadline:
            raise ResponseError(code)
        await asyncio.sleep(pause)


def _parse_redirect(reply: hiredis.ReplyError) -> tuple[int, Endpoint]:
    _, slot, place = str(reply).split(" ")[:3]
    host, _, port = place.rpartition(":")
    return int(slot), Endpoint(host, int(port))
