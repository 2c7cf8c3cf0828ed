"""Planted faults: each law must find its own, else it sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.model.stored import RecordChange
from tenuto.stores.engine import changes, journal_rows, rules
from tenuto.stores.engine.cache import RecordCache
from tenuto.stores.engine.commands import Append, Begin
from tenuto.stores.engine.journal import Journal
from tenuto.stores.engine.journal_folder import StoredRow
from tenuto.stores.engine.lane import Lane
from tenuto.stores.engine.record import Lease
from tenuto.stores.engine.record_table import RecordTable
from tenuto.stores.engine.rules import access, edits, log, turns
from tests.simulation import hosts
from tests.simulation.disk import FolderView, SimFolder

Plant = Callable[[pytest.MonkeyPatch], None]


def keys_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turns, "find_write", lambda record, once: None)


def a_lost_answer_means_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lane, "_resolve_doubt", lambda self, record: False)


def revisions_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    commit = RecordTable.commit

    def blind(table: RecordTable, parts: list[RecordChange]) -> Any:
        return commit(table, [replace(part, if_revision=table.revision(part.key)) for part in parts])

    patch.setattr(RecordTable, "commit", blind)


def the_feed_is_not_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordCache, "on_change", lambda self, key, revision: None)


def pages_of_another_moment_are_taken(patch: pytest.MonkeyPatch) -> None:
    fetched = Lane._fetched

    def trusting(lane: Lane, paging: Any, base: Any, missing: Any) -> None:
        if paging.exception() is None:
            page = replace(paging.result(), revision=base.revision)
            paging = _Done(page)
        fetched(lane, paging, base, missing)

    patch.setattr(Lane, "_fetched", trusting)


class _Done:
    def __init__(self, result: Any) -> None:
        self._result = result

    def exception(self) -> None:
        return None

    def result(self) -> Any:
        return self._result


def tokens_are_counted_twice(patch: pytest.MonkeyPatch) -> None:
    spend = access.spend
    patch.setattr(turns, "spend", lambda record, tokens, nanos: spend(record, 2 * tokens, nanos))


def any_turn_may_begin_and_end(patch: pytest.MonkeyPatch) -> None:
    finish = turns.finish
    patch.setattr(turns, "_require_free", lambda record, request, now: None)

    def forced(record: Any, turn: Any, request: Any, now: Any) -> Any:
        if record is not None and turn.id not in (record.head.closed, getattr(record.head.lease, "turn_id", None)):
            lease = Lease(turn_id=turn.id, until=now, number=turn.number)
            record = replace(record, head=replace(record.head, lease=lease))
        return finish(record, turn, request, now)

    patch.setattr(rules, "finish", forced)


def a_failed_call_stops_its_lane(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lane, "_fail", lambda self, failure: None)


def truncated_entries_stay(patch: pytest.MonkeyPatch) -> None:
    drops = changes._drops
    patch.setattr(
        changes, "_drops", lambda base, after, steps: tuple(one for one in drops(base, after, steps) if not one.first)
    )


def attachments_outlive_their_messages(patch: pytest.MonkeyPatch) -> None:
    for module in (log, edits):
        patch.setattr(module, "forget_unshown", lambda record: record)


def rows_carry_no_contents(patch: pytest.MonkeyPatch) -> None:
    """A message that is stored after an outage shows a picture that is nowhere."""

    def slim(command: Any) -> Any:
        if not isinstance(command, Begin):
            return command
        messages = tuple(replace(one, contents=()) for one in command.request.user_messages)
        return replace(command, request=replace(command.request, user_messages=messages))

    patch.setattr(journal_rows, "_slim", slim)


def editions_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    truncate, rewrite = edits.truncate, edits.rewrite

    def same_edition(rule: Callable[..., Any]) -> Callable[..., Any]:
        def run(record: Any, *arguments: Any) -> Any:
            step = rule(record, *arguments)
            head = replace(step.record.head, edition=record.head.edition)
            return replace(step, record=replace(step.record, head=head))

        return run

    patch.setattr(rules, "truncate", same_edition(truncate))
    patch.setattr(rules, "rewrite", same_edition(rewrite))


def fences_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Overtaken: the store is back, and a session goes on before its journaled turns are stored."""
    patch.setattr(Journal, "_in_store", lambda self, key, send: send())


def rows_of_others_stay(patch: pytest.MonkeyPatch) -> None:
    """Stranded: a process stores its own rows alone, and those of a killed one wait for ever."""
    append, read_session, fenced_keys = FolderView.append, FolderView.read_session, FolderView.fenced_keys
    writers: dict[tuple[int, bytes], str] = {}

    def is_own(view: FolderView, key: bytes) -> bool:
        return writers.get((id(view._folder), key), view.name) == view.name

    async def noted_append(view: FolderView, key: bytes, *args: Any) -> bool:
        if key not in view._folder.order:
            writers[id(view._folder), key] = view.name
        return await append(view, key, *args)

    async def own_session(view: FolderView, key: bytes, first: int = 0) -> Any:
        return await read_session(view, key, first) if is_own(view, key) else None

    async def own_keys(view: FolderView) -> tuple[bytes, ...]:
        return tuple(key for key in await fenced_keys(view) if is_own(view, key))

    patch.setattr(FolderView, "append", noted_append)
    patch.setattr(FolderView, "read_session", own_session)
    patch.setattr(FolderView, "fenced_keys", own_keys)


def appends_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """Append overtakes: only turns look for journaled ones before them."""
    change = Journal.change

    async def hasty(journal: Journal, key: bytes, command: Any, send: Any) -> Any:
        if isinstance(command, Append) and not journal._folder.is_down:
            return await send()
        return await change(journal, key, command, send)

    patch.setattr(Journal, "change", hasty)


def each_process_has_a_folder(patch: pytest.MonkeyPatch) -> None:
    """One lost answer is an outage: a process that cannot reach the store acknowledges what no other one sees."""

    class Private(FolderView):
        def __init__(self, folder: SimFolder, name: str, **options: Any) -> None:
            private = folder.__dict__.setdefault("private", {}).setdefault(name.partition(".")[0], SimFolder())
            super().__init__(private, name, **options)
            self._folder.views = {name: self}

    patch.setattr(hosts, "FolderView", Private)


def torn_rows_vanish(patch: pytest.MonkeyPatch) -> None:
    """A row that cannot be read is removed, and no count tells of it."""
    set_aside = FolderView.set_aside

    async def discard(view: FolderView, key: bytes, row: StoredRow, reason: str, now: int) -> None:
        await set_aside(view, key, row, reason, now)
        view._folder.aside.clear()

    patch.setattr(FolderView, "set_aside", discard)


def rows_are_acknowledged_before_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    """A killed process takes with it what its disk had not taken yet, and a full disk is not noticed."""
    append = FolderView.append

    async def hasty(view: FolderView, key: bytes, *args: Any) -> bool:
        asyncio.get_running_loop().create_task(append(view, key, *args)).add_done_callback(asyncio.Task.exception)
        return True

    patch.setattr(FolderView, "append", hasty)


def revisions_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    """A process goes on from what it knew last, though another one has gone on since."""
    patch.setattr(FolderView, "is_current", lambda view, key, revision, incarnation: True)


# Each with the laws that may find it, and a seed shortly before the first one that shows it.
OUTAGE_PLANTS: list[tuple[Plant, set[str], int]] = [
    (fences_are_ignored, {"in order", "reads"}, 170),
    (rows_of_others_stay, {"in order", "reads", "goes on", "stored once"}, 9),
    (appends_do_not_wait, {"in order", "reads"}, 74),
    (each_process_has_a_folder, {"in order", "reads", "stored once"}, 69),
    (torn_rows_vanish, {"goes on"}, 27),
    (rows_are_acknowledged_before_they_are_stored, {"stored once", "in order", "reads", "goes on"}, 33),
    (revisions_are_not_noted, {"reads", "in order"}, 99),
    (rows_carry_no_contents, {"attachments"}, 0),
]
PLANTS: list[tuple[Plant, set[str], int]] = [
    (keys_are_ignored, {"stored once"}, 2),
    (a_lost_answer_means_not_stored, {"stored once"}, 101),
    (revisions_are_not_compared, {"stored once", "entries", "goes on"}, 0),
    (the_feed_is_not_heard, {"reads"}, 2),
    (pages_of_another_moment_are_taken, {"reads", "entries", "totals", "stored once"}, 367),
    (tokens_are_counted_twice, {"totals"}, 0),
    (any_turn_may_begin_and_end, {"pairs"}, 32),
    (a_failed_call_stops_its_lane, {"goes on"}, 0),
    (truncated_entries_stay, {"entries", "totals", "goes on"}, 0),
    (editions_are_not_counted, {"reads", "entries", "totals"}, 242),
    (attachments_outlive_their_messages, {"attachments"}, 12),
]
