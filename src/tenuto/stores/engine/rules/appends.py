"""Messages outside a turn."""

from __future__ import annotations

from datetime import datetime

from tenuto.model import AppendBatch, AppendResult, Scope
from tenuto.model.turn import turn_offsets
from tenuto.stores.encoding import digest_id
from tenuto.stores.engine.record import KeyedWrite, Record, Step
from tenuto.stores.engine.rules.access import complete_change, require_or_create, spend
from tenuto.stores.engine.rules.keys import find_write, remember
from tenuto.stores.engine.rules.log import append_messages, is_repeated
from tenuto.stores.engine.rules.turns import span_of


def append(
    record: Record | None, scope: Scope, session_id: str, batch: AppendBatch, now: datetime
) -> Step[AppendResult]:
    """Append a batch, whether or not a turn is running; a key or a producer's number makes it happen once."""
    record, created, expired = require_or_create(record, scope, session_id, batch.create, batch.id, now)
    write = find_write(record, batch.idempotency_key)
    if write is not None:
        answer = AppendResult(session=record.session, messages=record.between(write.input_span), duplicate=True)
        return Step(record=record, answer=answer, changed=False)
    if is_repeated(record, batch.producer):
        return Step(record=record, answer=AppendResult(session=record.session, duplicate=True), changed=False)
    turn = record.head.turns + 1
    offsets = turn_offsets(batch.messages)
    record, stored = append_messages(record, batch.messages, turn, batch.producer, offsets=offsets)
    if batch.idempotency_key is not None:
        write = KeyedWrite(
            key=digest_id(batch.idempotency_key.key),
            fingerprint=digest_id(batch.idempotency_key.fingerprint),
            turn_id=batch.id,
            number=record.head.turns,
            input_span=span_of(stored, record),
            finished=True,
        )
        record = remember(record, write)
    record = complete_change(spend(record, batch.total_usage.tokens, batch.total_usage.cost_nanos), now)
    answer = AppendResult(session=record.session, messages=stored, created=created, expired=expired)
    return Step(record=record, answer=answer, created=created, added=stored)
