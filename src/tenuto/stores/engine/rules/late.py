"""Rules of last resort: what a journal acknowledged and the session, changed by others since, does not take any more.

Nothing that was acknowledged is dropped. Messages are appended with a mark that says behind which one they were said.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tenuto.model import AppendBatch, BeginTurn, Draft, FinishTurn, OpenTurn
from tenuto.model.turn import JOURNALED_AFTER, turn_offsets
from tenuto.stores.encoding import digest_id
from tenuto.stores.engine.record import EMPTY, KeyedWrite, Record, Step
from tenuto.stores.engine.rules.access import apply_changes, complete_change, spend
from tenuto.stores.engine.rules.keys import all_writes, remember
from tenuto.stores.engine.rules.log import append_messages
from tenuto.stores.engine.rules.turns import append_turn, finish_key, is_finished, traces_of


def begin_late(record: Record, request: BeginTurn, after: int, now: datetime) -> Step[None]:
    """Append the messages of a turn while another one runs; its key stays open for the reply."""
    late = replace(request, user_messages=_mark(request.user_messages, after), producer=None)
    record, _, stored = append_turn(record, late, lenient=True)
    return Step(record=complete_change(record, now), answer=None, added=stored)


def finish_late(record: Record, turn: OpenTurn, request: FinishTurn, after: int, now: datetime) -> Step[None] | None:
    """Append the reply of a turn that has lost the session, and close its key; `None` if the turn ended before.

    A reply is found by its messages. An end without one that closes no key is remembered like a keyed write.
    """
    write = next((write for write in all_writes(record) if write.turn_id == turn.id), None)
    number = _find_number(record, turn, after) if write is None else write.number
    if not request.reply and _has_ended(record, turn, request, number):
        return None
    record, stored = append_messages(record, _mark(request.reply, after), number, None, lenient=True)
    if write is not None and not request.abandoned:
        record = finish_key(record, write.key, stored)
    elif not request.reply:
        end = digest_id(f"late end {turn.id}")
        ended = KeyedWrite(key=end, fingerprint=end, turn_id=turn.id, number=number, input_span=EMPTY, finished=True)
        record = remember(record, ended)
    record = spend(record, request.usage.tokens, request.usage.cost_nanos)
    if request.changes is not None:
        record = apply_changes(record, request.changes)
    return Step(record=complete_change(record, now), answer=None, added=stored, traces=traces_of(request, number))


def _find_number(record: Record, turn: OpenTurn, after: int) -> int:
    """The number that a turn without a key got: that of the question which was said behind the same message."""
    marked = (one.turn for one in reversed(record.tail) if one.metadata.get(JOURNALED_AFTER) == after)
    return next(marked, turn.number)


def _has_ended(record: Record, turn: OpenTurn, request: FinishTurn, number: int) -> bool:
    """Whether the store carried out this end before. An abandoned turn leaves only that no other followed it."""
    if is_finished(record, turn):
        return True
    return request.abandoned and record.head.lease is None and record.head.turns == number


def append_late(record: Record, batch: AppendBatch, after: int, now: datetime) -> Step[None]:
    """Append a batch without its key, which the session has for another one."""
    turn = record.head.turns + 1
    drafts = _mark(batch.messages, after)
    record, stored = append_messages(record, drafts, turn, None, offsets=turn_offsets(drafts), lenient=True)
    record = spend(record, batch.total_usage.tokens, batch.total_usage.cost_nanos)
    return Step(record=complete_change(record, now), answer=None, added=stored)


def _mark(drafts: tuple[Draft, ...], after: int) -> tuple[Draft, ...]:
    return tuple([replace(draft, metadata={**draft.metadata, JOURNALED_AFTER: after}) for draft in drafts])
