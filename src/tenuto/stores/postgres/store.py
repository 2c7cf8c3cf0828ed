"""Sessions in a Postgres database: all decisions in functions of the server, one round trip for each call."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from tenuto.errors import (
    SessionCorrupt,
    SessionExists,
    SessionNotFound,
    StoreFull,
    StoreReadOnly,
    TurnLost,
    Unavailable,
    VersionConflict,
)
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
from tenuto.model.scope import owner_alone, owner_key, person_of, session_key, space_key, state_key
from tenuto.model.trace import Trace
from tenuto.model.turn import turn_offsets
from tenuto.model.values import Json, checked_id, checked_json
from tenuto.ports import Clock, utc_now
from tenuto.stores.codec import Undecodable, decode_cursor, encode_cursor, from_micros, to_micros
from tenuto.stores.erasing import in_steps
from tenuto.stores.naming import BEHIND_ALL, in_order, stretch
from tenuto.stores.postgres._answers import appended, opened, page_of, refusal
from tenuto.stores.postgres._durability import assurances
from tenuto.stores.postgres._feed import PATIENCE, WRITER_LENGTH, Feed, payload
from tenuto.stores.postgres._lane import Lane, Op
from tenuto.stores.postgres._link import Link, Row
from tenuto.stores.postgres._ops import (
    MAX_NUMBER,
    Place,
    batch_op,
    changes_doc,
    clamped,
    closing_op,
    digest,
    opening_op,
    place,
    renewal_op,
    rewordings,
    shelf,
)
from tenuto.stores.postgres._rows import entry_of, gone_of, missing, name_of, owner_in, session_of, traces_of
from tenuto.stores.postgres._schema import migrate, warn_if_unwalled

log = logging.getLogger(__name__)

_END = (MAX_NUMBER, b"")
# An erasure removes this many sessions in one transaction, which must end well within a call's time.
_ERASED_AT_ONCE = 50
_VACUUMED = "removed rows stay in the tables' files until their room is used again: VACUUM FULL clears them"
_UNVACUUMED = "tables of another role were passed over: their owner has to vacuum them"


class PostgresStore:
    """The `Store` port over a Postgres schema of its own, and its `ChangeFeed`.

    Acknowledged means committed, as durable as the server's `synchronous_commit` says. Calls of many tasks share
    transactions (`_lane`). Row-level security stands behind the statements as a second wall between tenants; it
    binds every role but superusers and those with BYPASSRLS.

    As a feed it tells of other processes' changes within a moment: a cache that asks `catch_up` before each answer can
    be behind by the time a notification takes from the server to the socket. What `delete`, `reset`, `truncate`,
    `rewrite`, `erase`, `sweep` and `evict` removed is shown by no cache once they return (`_feed` tells how).
    """

    def __init__(self, link: Link, *, clock: Clock, batches: int) -> None:
        self.link = link
        self._clock = clock
        self.writer = secrets.token_hex(WRITER_LENGTH // 2)
        lane = partial(Lane, width=batches, patience=link.patience)
        self._begin = lane(self._sending("SELECT * FROM begin_turns($1, $2, $3::opening[])"))
        self._finish = lane(self._end_turns)
        self._append = lane(self._sending("SELECT * FROM append_batches($1, $2, $3::batch[])"))
        self._renew = lane(
            self._reading("SELECT nth, until FROM renew_turns($1::renewal[]) WITH ORDINALITY AS t (until, nth)"),
            width=1,
        )
        self._read = lane(self._reading("SELECT * FROM read_sessions($1::reading[])"))
        self.feed = Feed(link.connect, link.schema, self.writer)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock = utc_now,
        schema: str = "tenuto",
        connections: int = 8,
        batches: int = 2,
        timeout: timedelta = timedelta(seconds=5),
        connect_timeout: timedelta = timedelta(seconds=5),
        prepared: bool = True,
    ) -> Self:
        """Connect, and bring the schema up to date; unless that is left to `prepare`.

        `connections` bounds the pool, `batches` how many group commits of one kind are under way at once. The
        timeouts hold for each call: one for what it takes to get a connection, one for the answer.

        Raises:
            Unavailable: no server answers, or its schema is of a later release.
        """
        link = Link(
            url,
            schema=schema,
            connections=connections,
            timeout=timeout.total_seconds(),
            connect_timeout=connect_timeout.total_seconds(),
        )
        store = cls(link, clock=clock, batches=batches)
        if prepared:
            await store.prepare()
        return store

    async def prepare(self) -> None:
        await self.link.prepare(migrate, warn_if_unwalled)

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        op, size = opening_op(scope, opening, self._clock())
        again = None if opening.once is None and opening.producer is None else (*op[:-1], True)
        row = await self._begin.call(op, size=size, again=again)
        if error := refusal(row, opening.session_id, opening.producer):
            raise error
        try:
            return opened(scope, opening, row)
        except Undecodable as exc:
            raise await self._set_aside(op, row, exc) from exc

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        op, size = closing_op(turn, closing, self._clock())
        row = await self._finish.call(op, size=size, again=op)
        if row["code"] in ("lost", "corrupt"):
            raise TurnLost(turn.session.id, turn.id)
        if error := refusal(row, turn.session.id, closing.producer):
            raise error
        try:
            return appended(row, closing.reply, [0] * len(closing.reply))
        except Undecodable as exc:
            raise await self._set_aside(op, row, exc) from exc

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        op = renewal_op(turn, self._clock())
        until = (await self._renew.call(op, again=op))["until"]
        if until is None:
            raise TurnLost(turn.session.id, turn.id)
        return replace(turn, lease_until=from_micros(until))

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        op, size = batch_op(scope, session_id, batch, self._clock())
        again = None if batch.once is None and batch.producer is None else op
        row = await self._append.call(op, size=size, again=again)
        if error := refusal(row, session_id, batch.producer):
            raise error
        try:
            return appended(row, batch.messages, turn_offsets(batch.messages))
        except Undecodable as exc:
            raise await self._set_aside(op, row, exc) from exc

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return (await self._read_page(scope, session_id, 0, None, None)).session

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        return await self._read_page(scope, session_id, page.limit, page.before, page.after)

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        behind = _END if query.cursor is None else decode_cursor(query.cursor)
        asked = shelf(scope, self._clock())
        rows = await self.link.fetch(
            "SELECT * FROM list_sessions($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            *asked,
            *behind,
            None if query.title is None else query.title.casefold(),
            query.status,
            query.limit + 1,
        )
        page = rows[: query.limit]
        sessions = [session for row in page if (session := await self._readable(row, asked[3])) is not None]
        more = len(rows) > len(page)
        return SessionPage(
            sessions=tuple(sessions), cursor=encode_cursor(page[-1]["updated_at"], page[-1]["key"]) if more else None
        )

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        asked = place(scope, session_id, self._clock())
        row = await self._told("patch_session", asked, session_id, changes_doc(changes), changes.if_version)
        _refuse_other(row, changes.if_version)
        return await self._session(asked, row)

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        asked = place(scope, session_id, self._clock())
        row = await self._told("reset_session", asked, session_id, list(sparing))
        return await self._session(asked, row)

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        asked = place(scope, session_id, self._clock())
        title = forking.title
        row = await self._told(
            "fork_session",
            asked,
            session_id,
            session_key(scope, forking.new_id),
            forking.new_id,
            clamped(MAX_NUMBER if forking.at is None else forking.at),
            title,
            None if title is None else title.casefold(),
        )
        if row["code"] == "taken":
            raise SessionExists(forking.new_id)
        if row["code"] == "taken_foreign":
            raise missing(forking.new_id, row["code"], owner_in(row)) or SessionExists(forking.new_id)
        return await self._session(asked, row)

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncating) -> Session:
        asked = place(scope, session_id, self._clock())
        after, expected = clamped(truncating.after), truncating.if_version
        spared = [clamped(seq) for seq in truncating.sparing]
        turn = None if truncating.within is None else truncating.within.id
        row = await self._told("truncate_session", asked, session_id, after, expected, spared, turn)
        _refuse_other(row, expected)
        if turn is not None and row["code"] == "lost":
            raise TurnLost(session_id, turn)
        return await self._session(asked, row)

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewriting) -> Session:
        asked = place(scope, session_id, self._clock())
        row = await self._told("rewrite_session", asked, session_id, *rewordings(rewriting))
        return await self._session(asked, row)

    async def delete(self, scope: Scope, session_id: str) -> None:
        asked = place(scope, session_id, self._clock())
        await self._told("delete_session", asked, session_id)

    # Traces

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        found = await self._traces(scope, session_id, clamped(number), clamped(number + 1), 1)
        return found[0] if found else None

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        last = MAX_NUMBER if before is None else clamped(before)
        return await self._traces(scope, session_id, 0, last, clamped(limit))

    # State

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        rows = await self.link.fetch(
            "SELECT * FROM read_state($1, $2, $3)", space_key(scope), state_key(scope, namespace), digest(key)
        )
        return entry_of(rows[0]) if rows else None

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        checked_id(key, "the state key")
        checked_json(value, "the state value")
        row = await self.link.row(
            "SELECT * FROM write_state($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            space_key(scope),
            owner_key(scope),
            state_key(scope, namespace),
            digest(key),
            msgspec.json.encode(owner_alone(scope)).decode() if scope.owner else None,
            namespace if scope.owner else None,
            key,
            msgspec.json.encode(value),
            None if if_version is None else clamped(if_version),
        )
        if row["conflict"] is not None:
            raise VersionConflict(if_version or 0, row["conflict"])
        return StateEntry(key=key, value=value, version=row["written"])

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        row = await self.link.row(
            "SELECT delete_state($1, $2, $3) AS gone", space_key(scope), state_key(scope, namespace), digest(key)
        )
        gone: bool = row["gone"]
        return gone

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        rows = await self.link.fetch(
            "SELECT * FROM list_state($1, $2, $3, $4)",
            space_key(scope),
            state_key(scope, namespace),
            after,
            clamped(limit),
        )
        return tuple(entry_of(row) for row in rows)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        rows = await self.link.fetch(
            "SELECT key FROM list_state($1, $2, $3, $4)",
            space_key(scope),
            state_key(scope, namespace),
            after,
            clamped(limit),
        )
        return tuple(row["key"] for row in rows)

    async def state_names(
        self, scope: Scope, after: StateName | None = None, limit: int = 100
    ) -> tuple[StateName, ...]:
        owner, drawer, key, last = stretch(scope, after)
        return await self._names(space_key(scope), (owner, drawer, digest(key) if key else b""), last, clamped(limit))

    # Upkeep

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        now = to_micros(self._clock())
        return await self._gone("SELECT * FROM sweep_sessions($1, $2, $3)", now, clamped(limit))

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        spared = None if sparing is None else session_key(scope, sparing)
        return await self._gone("SELECT * FROM evict_sessions($1, $2, $3, $4)", space_key(scope), clamped(keep), spared)

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        person = person_of(scope)
        return await in_steps(lambda size: self._erase(person, size), limit, _ERASED_AT_ONCE)

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        behind, now = b"" if after is None else space_key(after), to_micros(self._clock())
        while True:
            rows = await self.link.fetch("SELECT * FROM list_spaces($1, $2)", behind, clamped(limit))
            heads = [head for row in rows if (head := await self._readable(row, now)) is not None]
            # One that could not be read is set aside by now, and the next look meets another one of its space.
            if len(heads) == len(rows):
                return in_order([*(head.scope for head in heads), *await self._keeping(behind, clamped(limit))], limit)

    async def compact(self) -> Compaction:
        """Let the tables' dead rows go. Their room is used again, and until then the files still hold their bytes."""
        warned = await self.link.work("VACUUM sessions, messages, keyed, marks, state, traces")
        return Compaction(cleared=False, why=_UNVACUUMED if warned else _VACUUMED)

    async def stats(self, scope: Scope) -> Stats:
        row = await self.link.row("SELECT * FROM count_sessions($1, $2, $3, $4)", *shelf(scope, self._clock()))
        return Stats(**{what: int(row[what] or 0) for what in ("sessions", "messages", "tokens", "cost_nanos")})

    async def ping(self) -> None:
        await self.link.fetch("SELECT 1")

    async def assurances(self) -> tuple[Assurance, ...]:
        return await assurances(self.link)

    async def close(self) -> None:
        for lane in (self._begin, self._finish, self._append, self._renew, self._read):
            await lane.close()
        await self.link.close()

    # Feed

    @property
    def listening(self) -> bool:
        """Whether the connection showed life within two seconds."""
        return self.feed.listening

    def watch(self, told: Callable[[News | None], None]) -> AbstractAsyncContextManager[None]:
        """See `ChangeFeed`. What this object changed itself is told as well, as its own."""
        return self.feed.watch(told)

    def catch_up(self) -> bool:
        """Whether all that was sent to us has been told, and the connection showed life within two seconds.

        Changes acknowledged elsewhere within the last moment may still be on their way; `_feed` says how long that is.
        """
        return self.feed.catch_up()

    # What the methods share

    def _sending(self, statement: str) -> Callable[[Sequence[Op]], Awaitable[Sequence[Row]]]:
        async def send(ops: Sequence[Op]) -> Sequence[Row]:
            spaces = sorted({op[1] for op in ops})
            return await self.link.fetch(statement, payload(self.writer, ops), spaces, ops)

        return send

    async def _end_turns(self, ops: Sequence[Op]) -> Sequence[Row]:
        spaces = sorted({op[1] for op in ops})
        traced = any(op[-1] is not None for op in ops)
        statement = "SELECT * FROM finish_turns($1, $2, $3::closing[], $4)"
        return await self.link.fetch(statement, payload(self.writer, ops), spaces, ops, traced)

    def _reading(self, statement: str) -> Callable[[Sequence[Op]], Awaitable[Sequence[Row]]]:
        async def send(ops: Sequence[Op]) -> Sequence[Row]:
            return await self.link.fetch(statement, ops)

        return send

    async def _told(self, function: str, asked: Place, session_id: str, *args: object) -> Row:
        slots = ", ".join(f"${n}" for n in range(1, 2 + len(asked) + len(args)))
        # Function names are constants of this class; what a caller says travels as arguments.
        statement = f"SELECT * FROM {function}({slots})"  # noqa: S608
        row = None
        while row is None or row["code"] == "appeared":
            row = await self.link.row(statement, self.writer, *asked, *args)
        if row["code"] not in ("changed", "version", "lost", "taken", "taken_foreign"):
            raise missing(session_id, row["code"], owner_in(row)) or SessionNotFound(session_id)
        if row["news"] is not None:
            await self._heard_by_all(row["news"])
        return row

    async def _heard_by_all(self, news: int) -> None:
        """Wait until every cache has heard of a strict change. It is committed, so nothing here may fail it."""
        until = time.monotonic() + PATIENCE
        pause = 0.001
        while time.monotonic() < until:
            try:
                if (await self.link.row("SELECT heard_by_all($1) AS heard", news))["heard"]:
                    return
            except Unavailable as exc:
                log.debug("could not ask whether caches have heard of a change: %s", exc)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)
        log.warning("a cache did not hear of a change within %s s; it does not vouch for itself any more", PATIENCE)

    async def _gone(self, statement: str, *args: object) -> tuple[Gone, ...]:
        """What upkeep removed."""
        rows = await self.link.fetch(statement, self.writer, *args)
        if rows:
            await self._heard_by_all(rows[0]["news"])
        return _all_gone([row["head"] for row in rows])

    async def _erase(self, person: Scope, size: int) -> Erased:
        row = await self.link.row(
            "SELECT * FROM erase_owner($1, $2, $3, $4)", self.writer, space_key(person), owner_key(person), size
        )
        if row["news"] is not None:
            await self._heard_by_all(row["news"])
        gone = _all_gone(row["heads"])
        return Erased(
            gone=gone,
            messages=row["messages"],
            traces=row["traces"],
            states=row["states"],
            quarantined=row["quarantined"] + len(row["heads"]) - len(gone),
            more=row["more"],
        )

    async def _session(self, asked: Place, row: Row) -> Session:
        try:
            return session_of(row["head"])
        except Undecodable as exc:
            raise await self._set_aside(asked, row, exc) from exc

    async def _read_page(
        self, scope: Scope, session_id: str, size: int, before: int | None, after: int | None
    ) -> MessagePage:
        now = self._clock()
        op = (*place(scope, session_id, now), size, before, after)
        row = await self._read.call(op, again=op)
        if error := missing(session_id, row["code"], row["owner"]):
            raise error
        try:
            page = page_of(row, size, forwards=after is not None)
        except Undecodable as exc:
            raise await self._set_aside(op, row, exc) from exc
        deadline = page.session.read_deadline(now)
        return page if deadline is None else await self._touched(page, op, row["head"]["ref"], deadline)

    async def _touched(self, page: MessagePage, op: Op, ref: int, deadline: datetime) -> MessagePage:
        try:
            row = await self.link.row("SELECT touch_session($1, $2, $3) AS moved", ref, op[1], to_micros(deadline))
        except (StoreFull, StoreReadOnly):
            return page  # What cannot be written is still read; the deadline stays.
        if row["moved"] is None:
            raise SessionNotFound(page.session.id)
        return replace(page, session=replace(page.session, expires_at=from_micros(row["moved"])))

    async def _traces(self, scope: Scope, session_id: str, first: int, before: int, size: int) -> tuple[Trace, ...]:
        asked = place(scope, session_id, self._clock())
        row = await self.link.row(
            "SELECT * FROM read_traces($1, $2, $3, $4, $5, $6, $7, $8)", *asked, first, before, size
        )
        if error := missing(session_id, row["code"], row["owner"]):
            raise error
        await self._session(asked, row)
        return traces_of(row["bodies"])

    async def _names(
        self, space: bytes, behind: tuple[bytes, bytes, bytes], last: bytes, limit: int
    ) -> tuple[StateName, ...]:
        """Names of state that can be read, from behind a place on."""
        found: list[StateName] = []
        while (wanted := limit - len(found)) > 0:
            query = "SELECT * FROM list_state_names($1, $2, $3, $4, $5, $6)"
            rows = await self.link.fetch(query, space, *behind, last, wanted)
            found += [name for row in rows if (name := name_of(row)) is not None]
            if len(rows) < wanted:
                break
            behind = (rows[-1]["owner"], rows[-1]["drawer"], rows[-1]["name"])
        return tuple(found)

    async def _keeping(self, behind: bytes, limit: int) -> tuple[Scope, ...]:
        """One user or chat that keeps something of each space, from behind one on, in order of their keys."""
        found: list[Scope] = []
        while (wanted := limit - len(found)) > 0:
            rows = await self.link.fetch("SELECT * FROM list_state_spaces($1, $2)", behind, wanted)
            for row in rows:
                # Where the first name cannot be read, another one may tell.
                name = name_of(row)
                told = [name] if name else await self._names(row["space"], (b"", b"", b""), BEHIND_ALL, 1)
                found += [name.scope for name in told]
            if len(rows) < wanted:
                break
            behind = rows[-1]["space"]
        return tuple(found)

    async def _readable(self, head: Row, now: int) -> Session | None:
        try:
            return session_of(head)
        except Undecodable as exc:
            asked = Place(head["key"], head["space"], head["owner"], True, now)
            await self._set_aside(asked, {"head": head}, exc)
            return None

    async def _set_aside(self, asked: Sequence[Any], row: Any, exc: Undecodable) -> SessionCorrupt:
        """Keep an unreadable record apart, and give the error to raise."""
        head = row["head"]
        added = row.get("added") or 0
        await self.link.fetch(
            "SELECT set_aside($1, $2, $3, $4, $5, $6, $7)",
            self.writer,
            head["ref"],
            asked[0],
            asked[1],
            asked[4],
            str(exc),
            head["last_seq"] - added + 1 if added else None,
        )
        log.warning("a session could not be read and was set aside: record %d, %s", head["ref"], exc)
        return SessionCorrupt(head["id"])


def _refuse_other(row: Row, expected: int | None) -> None:
    if row["code"] == "version":
        assert expected is not None
        raise VersionConflict(expected, row["detail"])


def _all_gone(heads: Sequence[Row]) -> tuple[Gone, ...]:
    """Heads that were removed, but for those of which nobody can tell any more whose they were."""
    told = []
    for head in heads:
        try:
            told.append(gone_of(head))
        except Undecodable:
            log.warning("removed a session whose owner could not be read: record %d", head["ref"])
    return tuple(told)
