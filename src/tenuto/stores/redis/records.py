"""Records in Redis or Valkey: standalone, behind Sentinel, or in a Cluster.

One script makes a commit, and all calls of a process to one server share a connection. A commit that writes is one
call; in a cluster one that writes no index column, as those of a turn. There the others write the places in the indexes
first, and new ones once more afterwards. Places are removed last.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from operator import add
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from tenuto.errors import StoreFull, StoreReadOnly, StoreUnavailable, Unavailable
from tenuto.model import CompactionResult, Scope
from tenuto.model.scope import KEY_BYTES
from tenuto.model.store_reports import DurabilityFinding
from tenuto.model.stored import (
    Action,
    AsideRecords,
    EntryPage,
    FoundRecord,
    IndexColumns,
    IndexOrder,
    IndexQuery,
    Known,
    Part,
    RecordChange,
    Refused,
    StoredRecord,
    Totals,
)
from tenuto.stores.columns import split_words
from tenuto.stores.redis._auth import ConnectionPolicy
from tenuto.stores.redis._client import RedisClient
from tenuto.stores.redis._commits import CommitBatches
from tenuto.stores.redis._compaction import compact
from tenuto.stores.redis._durability import assurances, product_version
from tenuto.stores.redis._feed import RedisRecordFeed
from tenuto.stores.redis._index import Places, readable_columns
from tenuto.stores.redis._invalidation import NoteChannel
from tenuto.stores.redis._keys import RecordKeys
from tenuto.stores.redis._listing import RecordListing
from tenuto.stores.redis._repair import IndexRepair
from tenuto.stores.redis._resp import CallFailed, Reply
from tenuto.stores.redis._resp import Part as Word
from tenuto.stores.redis._servers import WHAT, Servers, port_error
from tenuto.stores.redis._tracking import ClientTracking
from tenuto.stores.redis._url import DeploymentMode, parse
from tenuto.stores.redis._wire import decode_page, decode_record, decode_totals

_Answer = TypeVar("_Answer")
_ALL: Final = 2**31
_GONE_PAUSE: Final = 0.005
_UNRELEASED: Final = "holds data from before the first release: begin with an empty database, or another ?prefix="


class RedisRecords:
    """The `RecordStore` port over Redis or Valkey."""

    def __init__(self, url: str, *, prefix: str | None = None, policy: ConnectionPolicy | None = None) -> None:
        self.client = RedisClient(url, policy)
        self.prefix = self.client.address.prefix if prefix is None else prefix
        self.keys = RecordKeys(self.prefix)
        writer = b"%b:turn:%b" % (self.prefix.encode(), self.client.name.encode())
        notes = NoteChannel(writer, lambda note: self._commits.on_turn(note))
        self._tracking = ClientTracking(self.client, self.keys.records, notes=notes)
        self.feed = RedisRecordFeed(self._tracking, self.keys)
        self._servers = Servers(self.client)
        self._places = Places(self._servers, self.keys)
        self._listing = RecordListing(self._servers, self.keys, self._places)
        self._commits = CommitBatches(self._servers, self.keys, self._places, self.feed, writer)
        self._tasks: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(
        cls, url: str, *, prefix: str | None = None, policy: ConnectionPolicy | None = None, prepare: bool = True
    ) -> RedisRecords:
        """Open a store and check that it answers, unless `prepare` is called later.

        Raises:
            InvalidSetting: the URL is not one of ours.
            Unavailable: no server answers.
        """
        sharded = parse(url).shape is DeploymentMode.CLUSTER
        records = (ClusterRecords if sharded else cls)(url, prefix=prefix, policy=policy)
        try:
            if prepare:
                await records.prepare()
        except BaseException:
            await records.close()
            raise
        return records

    async def prepare(self) -> None:
        await self.ping()
        if any(await asyncio.gather(*(self._servers.call("EXISTS", name) for name in self.keys.unreleased))):
            raise Unavailable("session store", _UNRELEASED)

    # One record

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        known = known or Known()
        words = (tail, known.message, known.page)
        return self._run("load", key, words, lambda reply: decode_record(key, reply[0]))

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> Future[EntryPage]:
        words = (part, first, last, limit)
        return self._run("page", key, words, lambda reply: decode_page(part, reply, limit))

    def touch(self, key: bytes, deadline: int) -> Future[None]:
        return self._run("touch", key, (deadline,), lambda _: None)

    def _run(
        self, name: str, key: bytes, words: tuple[Word, ...], decode: Callable[[Reply], _Answer]
    ) -> Future[_Answer]:
        self._commits.flush()
        return self._servers.run_for(name, (self.keys.record(key),), words, decode)

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        self._commits.flush()
        records = [self.keys.record(key) for key in keys]
        rows = await self._servers.run_on_each("load", records, 0, 0, -1)
        return tuple(decode_record(key, row) for key, row in zip(keys, rows, strict=True))

    # Commits

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        future: Future[Refused | None] = asyncio.get_running_loop().create_future()
        if all(map(self._is_one_call, changes)):
            self._commits.add(changes, partial(self._on_reply, changes, future), partial(_fail, future))
        else:
            self._begin(self._commit_in_steps(changes), future)
        return future

    def _on_reply(self, changes: Sequence[RecordChange], future: Future[Refused | None], reply: Reply) -> None:
        if reply[0] in (b"lowered", b"gone"):
            self._begin(self._commit_in_steps(changes, lowered=reply[0] == b"lowered"), future)
        elif reply[0] == b"made" and any(reply[1:]):
            self._begin(self._remove_places(changes, reply[1:]), future)
        elif not future.done():
            try:
                future.set_result(_decode_outcome(changes, reply))
            except Exception as error:
                future.set_exception(error)

    def _begin(self, steps: Coroutine[Any, Any, Refused | None], future: Future[Refused | None]) -> None:
        """Run steps to their end even if their caller gives up."""

        def on_end(task: asyncio.Task[Refused | None]) -> None:
            self._tasks.discard(task)
            if future.done():
                task.cancelled() or task.exception()
            elif task.cancelled():
                future.set_exception(StoreUnavailable(WHAT))
            elif (failed := task.exception()) is not None:
                future.set_exception(failed)
            else:
                future.set_result(task.result())

        task = asyncio.ensure_future(steps)
        self._tasks.add(task)
        task.add_done_callback(on_end)

    async def _commit_in_steps(self, changes: Sequence[RecordChange], *, lowered: bool = False) -> Refused | None:
        """Commit with places in the indexes: before and after it those of what is written, then of what is removed."""
        until = asyncio.get_running_loop().time() + self.client.policy.call_timeout
        await self._note_asides(changes)
        given, (changes, refused) = changes, await self._read_copies(changes)
        while refused is None:
            await self._write_places(changes, lowered=lowered)
            replying: Future[Reply] = asyncio.get_running_loop().create_future()
            self._commits.add(changes, partial(_succeed, replying), partial(_fail, replying), indexed=lowered)
            reply: Reply = (b"unknown",)
            try:
                reply = await replying
            finally:
                if reply[0] in (b"made", b"unknown"):
                    # A listing that met new places before the commit may have removed them.
                    new = [change for change in changes if lowered or change.if_revision == 0 or change.words]
                    await self._write_places(new, lowered=lowered)
            if reply[0] == b"made":
                await self._remove_places(changes, reply[1:])
                return None if changes is given else await self._check_source(given)
            if reply[0] == b"refused":
                refused = _decode_refusal(changes, reply)
            elif reply[0] == b"lowered":
                lowered = True
            elif asyncio.get_running_loop().time() > until:
                raise StoreUnavailable(WHAT)
            else:
                await asyncio.sleep(_GONE_PAUSE)
        return refused

    # Steps around a commit

    async def _write_places(self, changes: Sequence[RecordChange], *, lowered: bool) -> None:
        """In a cluster, write the places of a commit's records."""
        if not self._servers.sharded:
            return
        places = [self._places.of_change(change, lowered=lowered) for change in changes]
        places += [
            (self._places.of_words(change.key, change.index, change.words.added), [])
            for change in changes
            if change.words is not None
        ]
        await self._places.add(places)

    def _is_one_call(self, change: RecordChange) -> bool:
        """Whether a change needs no steps before it; one server has the records and the indexes."""
        if change.action is not Action.WRITE:
            return False
        return not self._servers.sharded or (change.index is None and change.copies is None)

    async def _remove_places(self, changes: Sequence[RecordChange], old: Sequence[Any]) -> None:
        """Remove the places of what is not there any more, by the columns that the commit found."""
        for change, stored in zip(changes, old, strict=False):
            columns, words = (readable_columns(stored[0]), split_words(stored[1])) if stored else (None, [])
            if change.action is not Action.WRITE:
                await self._places.remove(change.key, columns, words)
                continue
            moves = columns is not None and change.index is not None and columns.owner != change.index.owner
            if columns is not None and moves:
                await self._places.leave_owner(change.key, columns)
            if columns is not None and (moves or self._servers.sharded):
                gone = {*words, *(change.words.removed if change.words is not None else ())}
                if gone:
                    await self._places.leave_words(change.key, columns, sorted(gone))

    async def _note_asides(self, changes: Sequence[RecordChange]) -> None:
        """Note for its owner what is about to be set aside."""
        for change in changes:
            if change.action is Action.SET_ASIDE:
                ((stored,),) = await self._servers.fields([self.keys.record(change.key)], ("i",))
                name = self.keys.aside(change.key, change.if_revision)
                await self._servers.call(*self._places.of_aside(name, stored))

    async def _read_copies(self, changes: Sequence[RecordChange]) -> tuple[Sequence[RecordChange], Refused | None]:
        """In a cluster, where a script does not reach the source of a copy, put what was read there instead."""
        copies = next((change.copies for change in changes if change.copies is not None), None)
        if copies is None or not self._servers.sharded:
            return changes, None
        pages = [await self.page(copies.source, Part.MESSAGES, copies.first, copies.through, _ALL)]
        pages += [await self.page(copies.source, Part.ATTACHMENTS, one, one, 1) for one in copies.attachments]
        if {page.revision for page in pages} == {copies.revision}:
            copied = tuple([entry for page in pages for entry in page.entries])
            return [
                change if change.copies is None else replace(change, copies=None, puts=(*copied, *change.puts))
                for change in changes
            ], None
        return changes, await self._refuse_source(changes)

    async def _check_source(self, changes: Sequence[RecordChange]) -> Refused | None:
        """After such a copy: take it back if its source has changed since it was read, or was erased."""
        copies = next(change.copies for change in changes if change.copies is not None)
        if (await self.page(copies.source, Part.MESSAGES, 0, 0, 0)).revision == copies.revision:
            return None
        made = [
            RecordChange(key=change.key, if_revision=change.revision, action=Action.REMOVE)
            for change in changes
            if change.if_revision == 0
        ]
        await self._commit_in_steps(made)
        return await self._refuse_source(changes)

    async def _refuse_source(self, changes: Sequence[RecordChange]) -> Refused:
        standing = [await self.load(change.key, change.tail, change.known) for change in changes]
        return Refused(standing=tuple(standing), source_changed=True)

    # Many records

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        return await self._listing.find(query)

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        return await self._listing.totals(space, owner, now)

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        return await self._listing.sites(after, max(0, limit))

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        return await self._listing.scan(after, limit)

    async def list_aside(self) -> tuple[IndexColumns, ...]:
        return await self._listing.aside()

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        records = traces = 0
        sums = Totals()
        words = (b"[" + owner, b"(" + owner + b"\xff", "BYLEX")
        for member in await self._servers.call("ZRANGE", self.keys.asides, *words):
            numbers, count = await self._servers.run("forget", [member[KEY_BYTES:]])
            await self._servers.call("ZREM", self.keys.asides, member)
            if numbers is not None:
                records, traces = records + 1, traces + count
                sums = Totals.of(map(add, sums.numbers, decode_totals(numbers).numbers))
        return AsideRecords(records=records, messages=sums.messages, traces=traces, attachments=sums.attachments)

    # The servers

    async def compact(self) -> CompactionResult:
        """Have the servers rewrite their logs and snapshots; returns when they have."""
        return await _translated(compact(self.client))

    async def durability_findings(self) -> tuple[DurabilityFinding, ...]:
        return await _translated(assurances(self.client))

    async def product_version(self) -> str:
        return await _translated(product_version(self.client))

    async def ping(self) -> None:
        await _ping(self.client.call("PING"))

    async def close(self) -> None:
        self._tracking.close()
        for task in list(self._tasks):
            task.cancel()
        await self.client.aclose()


class ClusterRecords(RedisRecords):
    """Records in a cluster, of whose servers some can be unavailable."""

    def __init__(self, url: str, *, prefix: str | None = None, policy: ConnectionPolicy | None = None) -> None:
        super().__init__(url, prefix=prefix, policy=policy)
        self.repair = IndexRepair(self._servers, self.keys, self._places)

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        # Erasures and sweeps must not miss what a server has lost from an index; a sweep makes room for it.
        if query.order is IndexOrder.OLDEST and query.owner is not None:
            await self.repair.ensure()
        elif query.order is IndexOrder.DEADLINE:
            with suppress(StoreFull, StoreReadOnly):
                await self.repair.ensure()
        return await super().list(query)

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        if not after:
            await self.repair.ensure()
        return await super().scan(after, limit)

    async def close(self) -> None:
        self.repair.close()
        await super().close()

    @property
    def shards(self) -> frozenset[str]:
        """The known servers."""
        return frozenset(map(str, self.client.topology.primaries())) or frozenset({""})

    def shard_of(self, key: bytes) -> str:
        """The server that holds a record, by present knowledge."""
        topology = self.client.topology
        node = topology.node(topology.slot(self.keys.record(key)))
        return "" if node is None else str(node.endpoint)

    async def ping(self) -> None:
        await self.ping_shards()

    async def ping_shards(self) -> frozenset[str]:
        servers = await _translated(self.client.primaries())
        pings = [_ping(self.client.call_node(server, "PING")) for server in servers]
        ends = await asyncio.gather(*pings, return_exceptions=True)
        answering = frozenset(str(server) for server, end in zip(servers, ends, strict=True) if end is None)
        if 2 * len(answering) > len(servers):
            return answering
        # One that took over is known by the next ping.
        self.client.topology.look()
        raise next(end for end in ends if end is not None)


def _decode_outcome(changes: Sequence[RecordChange], reply: Reply) -> Refused | None:
    return None if reply[0] == b"made" else _decode_refusal(changes, reply)


def _decode_refusal(changes: Sequence[RecordChange], reply: Reply) -> Refused:
    _, moved, has_turn, *rows = reply
    # Behind those of the changes may be the source of a copy.
    standing = [decode_record(change.key, row) for change, row in zip(changes, rows, strict=False)]
    return Refused(standing=tuple(standing), source_changed=bool(moved), has_turn=bool(has_turn))


def _succeed(future: Future[Reply], reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)


def _fail(future: Future[Any], failed: CallFailed) -> None:
    if not future.done():
        future.set_exception(port_error(failed))


async def _ping(call: Coroutine[Any, Any, Reply]) -> None:
    # A server that cannot write its files refuses even this, but can be read.
    with suppress(StoreFull, StoreReadOnly):
        await _translated(call)


async def _translated(call: Coroutine[Any, Any, _Answer]) -> _Answer:
    try:
        return await call
    except CallFailed as exc:
        raise port_error(exc) from exc
