"""Planted faults: each law must find its own, else it sleeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.model.stored import RecordChange
from tenuto.stores.engine import changes, rules
from tenuto.stores.engine.cache import RecordCache
from tenuto.stores.engine.lane import Lane
from tenuto.stores.engine.record import Lease
from tenuto.stores.engine.record_table import RecordTable
from tenuto.stores.engine.rules import appends, edits, turns

Plant = Callable[[pytest.MonkeyPatch], None]


def keys_are_ignored(patch: pytest.MonkeyPatch) -> None:
    for module in (turns, appends):
        patch.setattr(module, "find_write", lambda record, once: None)


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
    spend = turns.spend
    patch.setattr(turns, "spend", lambda record, tokens, nanos: spend(record, 2 * tokens, nanos))


def any_turn_may_begin_and_end(patch: pytest.MonkeyPatch) -> None:
    finish = turns.finish
    patch.setattr(turns, "_require_free", lambda record, now: None)

    def forced(record: Any, turn: Any, request: Any, now: Any) -> Any:
        if record is not None and turn.id not in (record.head.closed, getattr(record.head.lease, "turn_id", None)):
            lease = Lease(turn_id=turn.id, until=now)
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


PLANTS: list[tuple[Plant, set[str]]] = [
    (keys_are_ignored, {"stored once"}),
    (a_lost_answer_means_not_stored, {"stored once"}),
    (revisions_are_not_compared, {"stored once", "entries", "goes on"}),
    (the_feed_is_not_heard, {"reads"}),
    (pages_of_another_moment_are_taken, {"reads", "entries", "totals", "stored once"}),
    (tokens_are_counted_twice, {"totals"}),
    (any_turn_may_begin_and_end, {"pairs"}),
    (a_failed_call_stops_its_lane, {"goes on"}),
    (truncated_entries_stay, {"entries", "totals", "goes on"}),
    (editions_are_not_counted, {"reads", "entries", "totals"}),
]
