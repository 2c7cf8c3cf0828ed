"""Logs of running turns as records: the `TurnLogs` port as a view of `RecordStore`.

A turn has two records, both values of its session's owner: what is asked of it, which any process writes, and the log,
which the process of the turn writes alone: its entries are events, so that appending costs what is appended.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from hashlib import blake2b
from random import Random
from typing import Final

from tenuto.model.scope import KEY_BYTES, owner_key, owner_scope, session_key, site_key, state_key
from tenuto.model.stored import (
    KEY_GROUP,
    Action,
    Entry,
    EntryPage,
    IndexColumns,
    Kind,
    Part,
    RecordChange,
    StoredRecord,
)
from tenuto.model.values import Json
from tenuto.pauses import Backoff
from tenuto.ports import Clock, ElsewhereFeed, LogEntry, LogPlace, RecordStore, TurnAddress, TurnAsks
from tenuto.stores.encoding import to_micros
from tenuto.stores.engine.codec import Codec, Codecs

NAMESPACE: Final = "live"
_ASKS, _LOG = "asks", "log"
# Longer than any turn runs without a word; a log that its process has left goes with the sweep after that.
_LASTS: Final = timedelta(hours=2)
_LASTS_ENDED: Final = timedelta(minutes=5)
_MOST: Final = 1000


class EngineTurnLogs:
    """The `TurnLogs` port."""

    def __init__(
        self, records: RecordStore, codecs: Codecs, chance: Random, clock: Clock, elsewhere: ElsewhereFeed
    ) -> None:
        self._records = records
        self._codecs = codecs
        self._chance = chance
        self._clock = clock
        self._elsewhere = elsewhere

    async def ask(self, turn: TurnAddress, *, stop: bool = False) -> None:
        key, codec = self.asks_key(turn), await self._codec(turn, writing=True)
        backoff = Backoff(0.004, 0.1, jitter=1, chance=self._chance.random)
        while True:
            stored = await self._load(key)
            held = _asked(stored, turn, codec)
            value = [held.count + 1, held.stop or stop]
            change = self._change(turn, _ASKS, 0 if stored is None else stored.revision, codec, value)
            if await self._records.commit((change,)) is None:
                return
            await backoff.wait()

    async def asked(self, turn: TurnAddress) -> TurnAsks:
        return _asked(await self._load(self.asks_key(turn)), turn, await self._codec(turn))

    async def append(
        self, turn: TurnAddress, place: LogPlace, body: bytes, count: int, *, ends: bool = False
    ) -> tuple[LogPlace, bool]:
        codec, number = await self._codec(turn, writing=True), place.through + 1
        entry = Entry(part=Part.EVENTS, number=number, body=codec.close(body, _entry_place(turn, number)))
        through = place.through + count
        lasts = _LASTS_ENDED if ends else _LASTS
        change = self._change(turn, _LOG, place.revision, codec, through, (entry,), lasts=lasts)
        refused = await self._records.commit((change,))
        if refused is None:
            return LogPlace(through, change.revision), True
        standing = refused.standing[0]
        if standing is None:
            return LogPlace(), False
        return LogPlace(_decode(standing, turn, _LOG, codec), standing.revision), False

    async def read(self, turn: TurnAddress, after: int) -> Sequence[LogEntry]:
        key, found = self.log_key(turn), list[Entry]()
        while True:
            paging: Future[EntryPage] = self._records.page(key, Part.EVENTS, after + 1, 2**62, _MOST)
            page = await paging
            found += page.entries
            if len(page.entries) < _MOST:
                break
            after = page.entries[-1].number
        codec = await self._codec(turn)
        return [LogEntry(number=one.number, body=codec.open(one.body, _entry_place(turn, one.number))) for one in found]

    async def remove(self, turn: TurnAddress) -> None:
        while True:
            stored = await self._records.load_all((self.asks_key(turn), self.log_key(turn)))
            gone = [
                RecordChange(key=one.key, if_revision=one.revision, action=Action.REMOVE)
                for one in stored
                if one is not None
            ]
            if not gone or await self._records.commit(gone) is None:
                return

    def asks_key(self, turn: TurnAddress) -> bytes:
        return _key(turn, _ASKS)

    def log_key(self, turn: TurnAddress) -> bytes:
        return _key(turn, _LOG)

    def watch(self, on_change: Callable[[bytes | None], None]) -> AbstractAsyncContextManager[None]:
        return self._elsewhere.watch(on_change)

    def look(self) -> bool:
        return self._elsewhere.look()

    async def _codec(self, turn: TurnAddress, *, writing: bool = False) -> Codec:
        scope = turn.scope
        return self._codecs.ready(scope) or await self._codecs.load(scope, writing=writing)

    async def _load(self, key: bytes) -> StoredRecord | None:
        return (await self._records.load_all((key,)))[0]

    def _change(
        self,
        turn: TurnAddress,
        what: str,
        revision: int,
        codec: Codec,
        value: Json,
        puts: tuple[Entry, ...] = (),
        *,
        lasts: timedelta = _LASTS,
    ) -> RecordChange:
        scope, name = turn.scope, f"{turn.turn_id}.{what}"
        drawer = state_key(scope, NAMESPACE)
        index = IndexColumns(
            space=site_key(scope),
            owner=owner_key(scope),
            kind=Kind.VALUE,
            scope=owner_scope(scope) if scope.owner else None,
            drawer=drawer,
            namespace=NAMESPACE,
            name=name,
        )
        return RecordChange(
            key=_key(turn, what),
            if_revision=revision,
            revision=revision + 1 if revision else self._chance.getrandbits(48) + 1,
            head=codec.encode_value((1, value), (drawer.hex(), name)),
            deadline=to_micros(self._clock() + lasts),
            index=None if revision else index,
            puts=puts,
        )


def _key(turn: TurnAddress, what: str) -> bytes:
    session = session_key(turn.scope, turn.session_id)
    named = b"%b%b %b" % (session, turn.turn_id.encode(), what.encode())
    return session[:KEY_GROUP] + blake2b(named, digest_size=KEY_BYTES - KEY_GROUP, person=b"tenuto live").digest()


def _entry_place(turn: TurnAddress, number: int) -> tuple[str, ...]:
    return ("event", turn.session_id, turn.turn_id, str(number))


def _decode(stored: StoredRecord, turn: TurnAddress, what: str, codec: Codec) -> Json:
    drawer = state_key(turn.scope, NAMESPACE).hex()
    return codec.decode_value(stored.head, (drawer, f"{turn.turn_id}.{what}"))[1]


def _asked(stored: StoredRecord | None, turn: TurnAddress, codec: Codec) -> TurnAsks:
    if stored is None:
        return TurnAsks()
    count, stop = _decode(stored, turn, _ASKS, codec)
    return TurnAsks(count=count, stop=stop)
