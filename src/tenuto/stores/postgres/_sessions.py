"""Sessions in Postgres, one function of the server for each method; and the traces of their turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from tenuto.errors import SessionExists, SessionNotFound, StoreFull, StoreReadOnly, TurnLost, VersionConflict
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    Truncation,
)
from tenuto.model.scope import session_key
from tenuto.model.turn import Trace, turn_offsets
from tenuto.stores.codec import Undecodable, decode_cursor, encode_cursor, from_micros, to_micros
from tenuto.stores.postgres._batcher import Lane, Op
from tenuto.stores.postgres._client import Row
from tenuto.stores.postgres._database import Database
from tenuto.stores.postgres._feed import payload
from tenuto.stores.postgres._ops import (
    MAX_NUMBER,
    Place,
    append_op,
    begin_turn_op,
    changes_doc,
    clamp,
    finish_turn_op,
    place,
    renew_turn_op,
    rewordings,
    shelf,
)
from tenuto.stores.postgres._rows import (
    head_scope,
    missing,
    page_of,
    refusal,
    to_append_result,
    to_open_turn,
    to_traces,
)

_END = (MAX_NUMBER, b"")


class PostgresSessions:
    """The `SessionStore` port over a Postgres schema. Calls of many tasks share transactions (`_batcher`)."""

    def __init__(self, database: Database, *, batches: int) -> None:
        self._db = database
        lane = partial(Lane, width=batches, patience=database.link.patience)
        self._begin = lane(self._send_begin_turns)
        self._finish = lane(self._send_finish_turns)
        self._append = lane(self._write_sender("SELECT * FROM append_batches($1, $2, $3::batch[])"))
        self._renew = lane(
            self._read_sender("SELECT nth, until FROM renew_turns($1::renewal[]) WITH ORDINALITY AS t (until, nth)"),
            width=1,
        )
        self._read = lane(self._read_sender("SELECT * FROM read_sessions($1::reading[])"))

    async def close(self) -> None:
        """Close the lanes."""
        for lane in (self._begin, self._finish, self._append, self._renew, self._read):
            await lane.close()

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        op, size = begin_turn_op(scope, request, self._db.clock())
        again = None if request.idempotency_key is None and request.producer is None else (*op[:-2], True, None)
        row = await self._begin.call(op, size=size, again=again)
        if error := refusal(row, request.session_id, request.producer):
            raise error
        try:
            return to_open_turn(scope, request, row)
        except Undecodable as exc:
            raise await self._db.quarantine(op, row, exc) from exc

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        op, size = finish_turn_op(turn, request, self._db.clock())
        row = await self._finish.call(op, size=size, again=op)
        if row["code"] in ("lost", "corrupt"):
            raise TurnLost(turn.session.id, turn.id)
        if error := refusal(row, turn.session.id, request.producer):
            raise error
        try:
            return to_append_result(row, request.reply, [0] * len(request.reply))
        except Undecodable as exc:
            raise await self._db.quarantine(op, row, exc) from exc

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        op = renew_turn_op(turn, self._db.clock())
        until = (await self._renew.call(op, again=op))["until"]
        if until is None:
            raise TurnLost(turn.session.id, turn.id)
        return replace(turn, lease_until=from_micros(until))

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        op, size = append_op(scope, session_id, batch, self._db.clock())
        again = None if batch.idempotency_key is None and batch.producer is None else op
        row = await self._append.call(op, size=size, again=again)
        if error := refusal(row, session_id, batch.producer):
            raise error
        try:
            return to_append_result(row, batch.messages, turn_offsets(batch.messages))
        except Undecodable as exc:
            raise await self._db.quarantine(op, row, exc) from exc

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return (await self._read_page(scope, session_id, 0, Page())).session

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        return await self._read_page(scope, session_id, query.limit, query)

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        behind = _END if query.cursor is None else decode_cursor(query.cursor)
        asked = shelf(scope, self._db.clock())
        rows = await self._db.link.fetch(
            "SELECT * FROM list_sessions($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            *asked,
            *behind,
            None if query.title is None else query.title.casefold(),
            query.status,
            query.limit + 1,
        )
        page = rows[: query.limit]
        sessions = [session for row in page if (session := await self._db.readable(row, asked[3])) is not None]
        more = len(rows) > len(page)
        return SessionPage(
            sessions=tuple(sessions), cursor=encode_cursor(page[-1]["updated_at"], page[-1]["key"]) if more else None
        )

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        asked = place(scope, session_id, self._db.clock())
        row = await self._run_change("patch_session", asked, session_id, changes_doc(changes), changes.if_version)
        _check_version(row, changes.if_version)
        return await self._db.session(asked, row)

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        asked = place(scope, session_id, self._db.clock())
        row = await self._run_change("reset_session", asked, session_id, list(keep_metadata))
        return await self._db.session(asked, row)

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        asked = place(scope, session_id, self._db.clock())
        title = request.title
        row = await self._run_change(
            "fork_session",
            asked,
            session_id,
            session_key(scope, request.new_id),
            request.new_id,
            clamp(MAX_NUMBER if request.at is None else request.at),
            title,
            None if title is None else title.casefold(),
        )
        if row["code"] == "taken":
            raise SessionExists(request.new_id)
        if row["code"] == "taken_foreign":
            raise missing(request.new_id, row["code"], head_scope(row)) or SessionExists(request.new_id)
        return await self._db.session(asked, row)

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        asked = place(scope, session_id, self._db.clock())
        after, expected = clamp(request.after), request.if_version
        spared = [clamp(seq) for seq in request.keep_seqs]
        turn = None if request.within_turn is None else request.within_turn.id
        row = await self._run_change("truncate_session", asked, session_id, after, expected, spared, turn)
        _check_version(row, expected)
        if turn is not None and row["code"] == "lost":
            raise TurnLost(session_id, turn)
        return await self._db.session(asked, row)

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        asked = place(scope, session_id, self._db.clock())
        expected = request.if_version
        row = await self._run_change("rewrite_session", asked, session_id, *rewordings(request), expected)
        _check_version(row, expected)
        return await self._db.session(asked, row)

    async def delete(self, scope: Scope, session_id: str) -> None:
        asked = place(scope, session_id, self._db.clock())
        await self._run_change("delete_session", asked, session_id)

    # What the methods share

    def _write_sender(self, statement: str) -> Callable[[Sequence[Op]], Awaitable[Sequence[Row]]]:
        async def send(ops: Sequence[Op]) -> Sequence[Row]:
            spaces = sorted({op[1] for op in ops})
            return await self._db.link.fetch(statement, payload(self._db.writer, ops), spaces, ops)

        return send

    async def _send_begin_turns(self, ops: Sequence[Op]) -> Sequence[Row]:
        spaces = sorted({op[1] for op in ops})
        openings, known = [op[:-1] for op in ops], [op[-1] for op in ops]
        statement = "SELECT * FROM begin_turns($1, $2, $3::opening[], $4)"
        return await self._db.link.fetch(statement, payload(self._db.writer, ops), spaces, openings, known)

    async def _send_finish_turns(self, ops: Sequence[Op]) -> Sequence[Row]:
        spaces = sorted({op[1] for op in ops})
        traced = any(op[-1] is not None for op in ops)
        statement = "SELECT * FROM finish_turns($1, $2, $3::closing[], $4)"
        return await self._db.link.fetch(statement, payload(self._db.writer, ops), spaces, ops, traced)

    def _read_sender(self, statement: str) -> Callable[[Sequence[Op]], Awaitable[Sequence[Row]]]:
        async def send(ops: Sequence[Op]) -> Sequence[Row]:
            return await self._db.link.fetch(statement, ops)

        return send

    async def _run_change(self, function: str, asked: Place, session_id: str, *args: object) -> Row:
        slots = ", ".join(f"${n}" for n in range(1, 2 + len(asked) + len(args)))
        # Function names are constants of this class; values of callers are arguments.
        statement = f"SELECT * FROM {function}({slots})"  # noqa: S608
        row = None
        while row is None or row["code"] == "appeared":
            row = await self._db.link.row(statement, self._db.writer, *asked, *args)
        if row["code"] not in ("changed", "version", "lost", "taken", "taken_foreign"):
            raise missing(session_id, row["code"], head_scope(row)) or SessionNotFound(session_id)
        if row["news"] is not None:
            await self._db.wait_for_caches(row["news"])
        return row

    async def _read_page(self, scope: Scope, session_id: str, size: int, query: Page) -> MessagePage:
        now = self._db.clock()
        op = (*place(scope, session_id, now), size, query.before, query.after)
        row = await self._read.call(op, again=op)
        if error := missing(session_id, row["code"], row["owner"]):
            raise error
        try:
            page = page_of(row, size, forwards=query.after is not None)
        except Undecodable as exc:
            raise await self._db.quarantine(op, row, exc) from exc
        deadline = page.session.deadline_after_read(now) if query.touch else None
        return page if deadline is None else await self._touch_deadline(page, op, row["head"]["ref"], deadline)

    async def _touch_deadline(self, page: MessagePage, op: Op, ref: int, deadline: datetime) -> MessagePage:
        try:
            row = await self._db.link.row("SELECT touch_session($1, $2, $3) AS moved", ref, op[1], to_micros(deadline))
        except (StoreFull, StoreReadOnly):
            return page  # Reading a full or read-only store works; the deadline stays.
        if row["moved"] is None:
            raise SessionNotFound(page.session.id)
        return replace(page, session=replace(page.session, expires_at=from_micros(row["moved"])))


class PostgresTraces:
    """The `TraceStore` port over a Postgres schema."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        found = await self._read_traces(scope, session_id, clamp(number), clamp(number + 1), 1)
        return found[0] if found else None

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        last = MAX_NUMBER if before is None else clamp(before)
        return await self._read_traces(scope, session_id, 0, last, clamp(limit))

    async def _read_traces(
        self, scope: Scope, session_id: str, first: int, before: int, size: int
    ) -> tuple[Trace, ...]:
        asked = place(scope, session_id, self._db.clock())
        row = await self._db.link.row(
            "SELECT * FROM read_traces($1, $2, $3, $4, $5, $6, $7, $8)", *asked, first, before, size
        )
        if error := missing(session_id, row["code"], row["owner"]):
            raise error
        await self._db.session(asked, row)
        return to_traces(row["bodies"])


def _check_version(row: Row, expected: int | None) -> None:
    if row["code"] == "version":
        assert expected is not None
        raise VersionConflict(expected, row["detail"])
