"""Rows of a journal: commands as bytes, and how a row is carried out on a record.

All processes fold the rows over the same base by the same pure rules, so they see the same session; submitting a row to
the store with its time decides the same. What others changed meanwhile, so that a command does not apply any more, is
stored late and marked; what belongs to a session that is gone is never applied to another one of its id.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tenuto.errors import Superseded, TenutoError
from tenuto.model import AppendBatch, BeginTurn, OpenTurn, Scope
from tenuto.model.scope import user_digest
from tenuto.model.values import Value
from tenuto.stores.encoding import digest_id, to_micros
from tenuto.stores.engine.codec import Codec
from tenuto.stores.engine.commands import Append, Begin, Finish, JournaledCommand, Renew
from tenuto.stores.engine.journal_folder import StoredBase, StoredRow
from tenuto.stores.engine.record import Record, Step
from tenuto.stores.engine.rules import late
from tenuto.stores.engine.rules.keys import all_writes


class Row(Value, frozen=True, kw_only=True):
    """An acknowledged command: its number in its session, when it was decided, and the process that wrote it.

    It was sent to the store first when the session ended with message `since`, and may have been carried out there. It
    belongs to the session of this `incarnation`, which it `creates` or not; or to one that was created under the key
    `origin`: an earlier attempt of the request that created this one may have reached the store.
    """

    number: int
    at: datetime
    command: JournaledCommand
    writer: str
    since: int
    incarnation: str
    creates: bool = False
    origin: bytes | None = None


class Unplaceable(Exception):
    """The session of a row is gone: the store can never take the row."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_encode: Final = msgspec.msgpack.Encoder().encode
_row: Final = msgspec.msgpack.Decoder(Row)
_record: Final = msgspec.msgpack.Decoder(Record)


# Bytes


def encode_row(key: bytes, row: Row, owner: Scope, codec: Codec) -> StoredRow:
    """A row as it is stored; `owner` is the scope of its session."""
    body = _encode(replace(row, command=_slim(row.command)))
    return StoredRow(
        number=row.number,
        session_id=row.command.session_id,
        turn=row.command.turn_id,
        at=to_micros(row.at),
        users=_users_of(row.command, owner),
        body=codec.close_body(body, ("row", key.hex(), str(row.number))),
    )


def decode_row(key: bytes, stored: StoredRow, codec: Codec) -> Row:
    """The row back.

    Raises:
        Undecodable: it is torn, or of another release.
        DecryptionFailed: its key is missing.
    """
    return codec.open_body(_row, stored.body, ("row", key.hex(), str(stored.number)))


def encode_base(key: bytes, record: Record | None, codec: Codec) -> StoredBase:
    """A record that rows go on from; without one, the first of them creates the session."""
    if record is None:
        return StoredBase()
    body = codec.close_body(_encode(record), ("base", key.hex(), str(record.revision)))
    return StoredBase(revision=record.revision, incarnation=record.profile.incarnation, body=body)


def decode_base(key: bytes, stored: StoredBase, codec: Codec) -> Record | None:
    """The record back; raises as `decode_row` does."""
    if not stored.revision:
        return None
    return codec.open_body(_record, stored.body, ("base", key.hex(), str(stored.revision)))


def _slim(command: JournaledCommand) -> JournaledCommand:
    """The command without what its rule does not need: an open turn carries a window."""
    if isinstance(command, Finish | Renew):
        turn = command.turn
        named = OpenTurn.named(
            turn.scope, turn.session.id, turn.session.incarnation, turn.id, number=turn.number, lease=turn.lease
        )
        return replace(command, turn=named)
    return command


def _users_of(command: JournaledCommand, owner: Scope) -> tuple[str, ...]:
    """Digests of the session's owner, of the caller and of those who speak, by which rows are erased."""
    names = [owner.user if owner.chat is None else None, command.scope.user, *(one.speaker for one in command.messages)]
    return tuple(sorted({user_digest(owner.tenant, name) for name in names if name is not None}))


# Rules


def replay_row(record: Record | None, row: Row) -> Step[Any]:
    """The rule of a row: decided as it was acknowledged.

    Nothing is to be stored if its messages are in the log already, or its key is known.

    Raises:
        Unplaceable: its session was removed or replaced by another one, or its messages were edited away elsewhere.
    """
    command, unchanged = row.command, Step[Any](record=record, answer=None, changed=False)
    if isinstance(command, Begin):
        # The window was shown already.
        command = replace(command, request=replace(command.request, window=0))
    if not _is_placed(record, row):
        raise Unplaceable("session_not_found" if record is None else "session_replaced")
    if record is not None and is_stored(record, command, row.since):
        return unchanged
    try:
        return command.apply(record, row.at)
    except Superseded:
        raise Unplaceable("superseded") from None
    except TenutoError:
        if record is None or _has_key(record, command):
            return unchanged
        return _store_late(record, row) or unchanged


def is_stored(record: Record, command: JournaledCommand, since: int) -> bool:
    """Whether a command's messages are in the log behind a number; of many the last one, which a cap leaves longest.
    Clients may choose ids: role and time must match, too."""
    if not command.messages:
        return False
    last = command.messages[-1]
    return any(
        (message.id, message.role, message.sent_at) == (last.id, last.role, last.sent_at)
        for message in record.between((since + 1, record.head.last_seq))
    )


def _is_placed(record: Record | None, row: Row) -> bool:
    """Whether the record is the session of a row, or has room for the one that it creates."""
    if record is not None and record.profile.incarnation == row.incarnation:
        return True
    if record is None or record.expired(row.at):
        return row.creates
    return row.origin is not None and _knows(record, row.origin)


def _store_late(record: Record, row: Row) -> Step[None] | None:
    after = row.since
    match row.command:
        case Begin(request=request) if request.user_messages:
            return late.begin_late(record, request, after, row.at)
        case Finish(turn=turn, request=request):
            return late.finish_late(record, turn, request, after, row.at)
        case Append(batch=batch):
            return late.append_late(record, batch, after, row.at)
        case _:
            return None


def _has_key(record: Record, command: JournaledCommand) -> bool:
    """Whether the command's key is remembered: its messages were stored by an earlier attempt."""
    match command:
        case Begin(request=BeginTurn(idempotency_key=key)) | Append(batch=AppendBatch(idempotency_key=key)):
            return key is not None and _knows(record, digest_id(key.key))
        case _:
            return False


def _knows(record: Record, key: bytes) -> bool:
    return key in [write.key for write in all_writes(record)]
