"""Outages: commands acknowledged into a journal that all processes of a folder share, and submitted again afterwards.

The folder decides for all its processes whether the store is away. A session with rows in the journal is *fenced*: no
process of the folder reads or changes it in the store before its rows are there, its own or not. So the order of
what was acknowledged is kept wherever a client goes, and a killed process leaves nothing that others cannot go on with.

- The store is taken for away only when every living process of the folder says so. One that alone lost it refuses.
- Then each process leaves what it knows to be current of the sessions it holds in the folder: any of them can go on
  with any of these. A session that none holds is refused, with the same answer whether it exists or not.
- A row is a command and its time. Rules are pure, so every process that folds the rows over the same record sees the
  same session, and submitting them again with their times decides the same.
- When a process reaches the store again, no session is fenced any more but those with rows; any process replays them,
  oldest first, each session by one process at a time. A row whose messages are in the log already was stored before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, cast

from msgspec.structs import replace

from tenuto.errors import SessionElsewhere, StoreUnavailable, TenutoError, Unavailable
from tenuto.model import AppendBatch, BeginTurn, Scope
from tenuto.model.values import Value
from tenuto.ports import Clock, RecordStore
from tenuto.stores.codec import digest_id
from tenuto.stores.engine import rules
from tenuto.stores.engine.cache import RecordCache
from tenuto.stores.engine.commands import Append, Begin, Command, Finish, JournaledCommand
from tenuto.stores.engine.lane import Rule, is_outcome_unknown
from tenuto.stores.engine.record import MessagesMissing, Record, Step, TracesMissing
from tenuto.stores.engine.rules import late
from tenuto.stores.engine.rules.keys import all_writes

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_PROBE_EVERY: Final = 1.0
_AGREED_WITHIN: Final = 3.0
_ANY_NUMBER: Final = 2**31


class Row(Value, frozen=True, kw_only=True):
    """An acknowledged command: its number in its session, when it was decided, and the process that wrote it.

    It was sent to the store first when the session ended with message `since`, and may have been carried out there.
    """

    number: int
    at: datetime
    command: JournaledCommand
    writer: str
    since: int


class Shelf(Value, frozen=True, kw_only=True):
    """What the folder holds of one session: the record its rows go on from, and those."""

    base: Record
    rows: tuple[Row, ...] = ()


class JournalFolder(Protocol):
    """A folder that the processes of a machine share. Each call is one atomic step, and on disk when it returns."""

    @property
    def is_down(self) -> bool:
        """Whether the store is taken for away."""
        ...

    def is_fenced(self, key: bytes) -> bool:
        """Whether rows of the session wait to be stored."""
        ...

    def shelf(self, key: bytes) -> Shelf | None:
        """What is held of a session."""
        ...

    def fenced_keys(self) -> tuple[bytes, ...]:
        """The sessions with rows, oldest row first."""
        ...

    def note(self, key: bytes, revision: int) -> None:
        """The store holds a session at this revision (0: no more): others of it are not to be gone on from."""
        ...

    def is_current(self, key: bytes, record: Record) -> bool:
        """Whether no process of the folder has noted a later revision."""
        ...

    def offer(self, key: bytes, record: Record) -> None:
        """Leave a record that the store confirmed; that of the highest revision stays."""
        ...

    async def append(self, key: bytes, base: Record, row: Row) -> bool:
        """Add a row if it is the next one and the store is taken for away; false if another came first."""
        ...

    async def remove(self, key: bytes, number: int, base: Record) -> None:
        """Remove a session's rows up to this number: they are in this record, which the others go on from."""
        ...

    def lock(self, key: bytes) -> bool:
        """Begin to replay a session; false if that is under way. A killed process holds no lock."""
        ...

    def unlock(self, key: bytes) -> None:
        """End replaying."""
        ...

    def vote(self, is_away: bool) -> None:
        """Say whether the store answers this process; with the vote of the last living one the folder is down."""
        ...

    def ask(self) -> None:
        """Ask all processes for their votes."""
        ...

    def is_refuted(self) -> bool:
        """Whether another process has reached the store since votes were asked for."""
        ...

    def reopen(self) -> None:
        """The store answers: nothing new is written here."""
        ...


class Journal:
    """The way of every call on a session: to the store, or in an outage to the folder.

    `queue` puts a rule on the lane of a session.
    """

    def __init__(
        self,
        folder: JournalFolder,
        records: RecordStore,
        cache: RecordCache,
        *,
        clock: Clock,
        name: str,
        queue: Callable[[Scope, bytes, str, Rule[Any]], Awaitable[Any]],
    ) -> None:
        self._folder = folder
        self._records = records
        self._cache = cache
        self._clock = clock
        self._name = name
        self._queue = queue
        cache.on_commit = self._on_commit

    # Calls

    async def change(self, key: bytes, command: Command[_Answer], send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Carry out a command in the store, or acknowledge it in the folder."""
        held = self._cache.get(key)
        since = held.head.last_seq if held is not None else 0
        failure: Unavailable | None = None
        if not self._folder.is_down:
            try:
                return await self._in_store(key, send)
            except Unavailable as lost:
                if not is_outcome_unknown(lost) or not await self._agree_it_is_away():
                    raise
                failure = lost
        # The union is of all commands; which one it is decides the type of the answer.
        answer: _Answer = await self._acknowledge(key, cast(JournaledCommand, command), since, failure)
        return answer

    async def read(self, key: bytes, rule: Rule[_Answer], send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Read from the store, or in an outage from what the folder holds."""
        if not self._folder.is_down:
            try:
                return await self._in_store(key, send)
            except Unavailable as failure:
                if not is_outcome_unknown(failure) or not await self._agree_it_is_away():
                    raise
        record = self._standing(self._shelf(key))
        try:
            return rule(record, self._clock()).answer
        except (MessagesMissing, TracesMissing):
            raise SessionElsewhere from None

    async def refuse_in_outage(self, key: bytes, send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """A change that no journal acknowledges: it waits for the rows before it, and fails while the store is away."""
        if self._folder.is_down:
            raise SessionElsewhere
        return await self._in_store(key, send)

    async def _in_store(self, key: bytes, send: Callable[[], Awaitable[_Answer]]) -> _Answer:
        if self._folder.is_fenced(key):
            await self._replay(key)
        return await send()

    def _on_commit(self, key: bytes, record: Record | None) -> None:
        self._folder.note(key, 0 if record is None else record.revision)
        if record is not None and self._folder.is_down:
            # Others have begun to go on from what they knew: they must know this before the caller does.
            self._folder.offer(key, record)

    # In an outage

    async def _acknowledge(self, key: bytes, command: JournaledCommand, since: int, failure: Unavailable | None) -> Any:
        """Add a row for a command; one that the store may have carried out before the `failure` is looked for."""
        while True:
            if not self._folder.is_down:
                raise SessionElsewhere
            shelf = self._shelf(key)
            record, now = self._standing(shelf), self._clock()
            try:
                if failure is not None and _is_stored(record, command, since):
                    raise failure
                step = command.apply(record, now)
            except MessagesMissing:
                command = _narrow(command, len(record.tail))
                continue
            if not step.changed:
                return step.answer
            number = shelf.rows[-1].number + 1 if shelf.rows else 1
            row = Row(
                number=number, at=now, command=command, writer=self._name, since=min(since, shelf.base.head.last_seq)
            )
            if await self._folder.append(key, shelf.base, row):
                return step.answer

    def _shelf(self, key: bytes) -> Shelf:
        """What the folder holds of a session, or else this process; neither may know whether there is more."""
        shelf = self._folder.shelf(key)
        if shelf is None:
            held = self._cache.last_confirmed(key)
            if held is None or not self._folder.is_current(key, held):
                raise SessionElsewhere
            shelf = Shelf(base=held)
        return shelf

    def _standing(self, shelf: Shelf) -> Record:
        """The session with its rows. It forgets none of their messages, which are nowhere else."""
        record = replace(shelf.base, reach=_ANY_NUMBER)
        for row in shelf.rows:
            try:
                record = replay_row(record, row).record or record
            except MessagesMissing:
                raise SessionElsewhere from None
        return record

    # Agreement

    async def _agree_it_is_away(self) -> bool:
        """Whether all living processes of the folder have lost the store; else the caller's failure stands."""
        self._folder.ask()
        self._folder.vote(True)
        loop = asyncio.get_running_loop()
        until = loop.time() + _AGREED_WITHIN
        while not self._folder.is_down:
            if self._folder.is_refuted() or loop.time() > until:
                return False
            await asyncio.sleep(0.02)
        return True

    async def answer_vote(self) -> None:
        """Another process has lost the store: look whether this one has."""
        try:
            await self._records.ping()
        except Unavailable:
            self._folder.vote(True)
        else:
            self._folder.vote(False)

    def offer_all(self) -> None:
        """The folder is down: leave there what this process knows to be current."""
        for key, record in self._cache.all_confirmed():
            self._folder.offer(key, record)

    # The way back

    async def run(self) -> None:
        """Look for the store while the folder is down, and store what waits; for as long as the process lives."""
        while True:
            await asyncio.sleep(_PROBE_EVERY)
            if self._folder.is_down:
                await self._probe()
            elif self._folder.fenced_keys():
                await self.replay_all()

    async def _probe(self) -> None:
        try:
            await self._records.ping()
        except Unavailable:
            return
        self._folder.reopen()
        await self.replay_all()

    async def replay_all(self) -> None:
        """Store all rows, as far as the store answers."""
        for key in self._folder.fenced_keys():
            try:
                await self._replay(key)
            except Unavailable:
                return
            except Exception:
                _log.exception("journaled turns of a session cannot be stored yet")

    async def _replay(self, key: bytes) -> None:
        """Store the rows of a session, or wait until the process that does has stored them."""
        while self._folder.is_fenced(key):
            if not self._folder.lock(key):
                await asyncio.sleep(0.05)
                continue
            try:
                shelf = self._folder.shelf(key)
                for row in shelf.rows if shelf is not None else ():
                    assert shelf is not None
                    await self._store_row(key, row, shelf.base)
            finally:
                self._folder.unlock(key)
            if self._folder.is_down:
                raise StoreUnavailable

    async def _store_row(self, key: bytes, row: Row, base: Record) -> None:
        scope, session_id = base.profile.scope, base.profile.id
        await self._queue(scope, key, session_id, lambda record, now: replay_row(record, row))
        stored = self._cache.get(key) or await self._queue(
            scope, key, session_id, lambda record, now: rules.read_record(record, scope, session_id, now)
        )
        await self._folder.remove(key, row.number, stored)


def _narrow(command: JournaledCommand, held: int) -> JournaledCommand:
    """A turn whose window is what is held of the session; nothing else goes on without older messages."""
    if isinstance(command, Begin) and command.request.window > held:
        return replace(command, request=replace(command.request, window=held))
    raise SessionElsewhere


def replay_row(record: Record | None, row: Row) -> Step[Any]:
    """The rule of a row: decided as it was acknowledged.

    Nothing is to be stored if its messages are in the log already, or its key is known.
    Where others changed the session so that the command does not apply any more, it is stored late, and marked.
    """
    if record is None:
        raise SessionElsewhere
    command, unchanged = row.command, Step(record=record, answer=None, changed=False)
    if isinstance(command, Begin):
        # The window was shown already.
        command = replace(command, request=replace(command.request, window=0))
    if _is_stored(record, command, row.since):
        return unchanged
    try:
        return command.apply(record, row.at)
    except TenutoError:
        return unchanged if _has_key(record, command) else _store_late(record, row) or unchanged


def _is_stored(record: Record, command: JournaledCommand, since: int) -> bool:
    """Whether a command's messages are in the log behind a number."""
    ids = [draft.id for draft in command.messages]
    return bool(ids) and ids[0] in [message.id for message in record.between((since + 1, record.head.last_seq))]


def _store_late(record: Record, row: Row) -> Step[None] | None:
    after = row.since
    match row.command:
        case Begin(request=request) if request.user_messages:
            return late.begin_late(record, request, after, row.at)
        case Finish(turn=turn, request=request) if request.reply:
            return late.finish_late(record, turn, request, after, row.at)
        case Append(batch=batch):
            return late.append_late(record, batch, after, row.at)
        case _:
            return None


def _has_key(record: Record, command: JournaledCommand) -> bool:
    """Whether the command's key is remembered: its messages were stored by an earlier attempt."""
    match command:
        case Begin(request=BeginTurn(idempotency_key=once)) | Append(batch=AppendBatch(idempotency_key=once)):
            return once is not None and digest_id(once.key) in [write.key for write in all_writes(record)]
        case _:
            return False
