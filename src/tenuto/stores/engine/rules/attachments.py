"""Attachments of a session: stored with the first message that shows one, removed with the last.

The profile knows which messages show which attachment, so that no rule reads a message again to remove one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tenuto.errors import AttachmentNotFound, UnknownAttachment
from tenuto.model import Content, Draft, Message
from tenuto.model.attachment import MAX_NAME_CHARACTERS, SHOWING_PARTS, shown_in, without_attachments
from tenuto.model.values import JsonObject
from tenuto.stores.engine.record import Record, StoredAttachment, overlaps


def attach(
    record: Record, messages: tuple[Message, ...], drafts: Sequence[Draft] = (), *, lenient: bool = False
) -> tuple[Record, tuple[Message, ...]]:
    """The record with the attachments that new messages show, made of these drafts, and the messages.

    Where it is `lenient`, a part whose attachment is neither in the session nor among the contents is marked as one
    whose attachment was removed.

    Raises:
        UnknownAttachment: there is one, and it is not lenient.
    """
    for message in messages:
        for part in message.parts:
            if part["type"] in SHOWING_PARTS:
                return _attach(record, messages, drafts, lenient=lenient)
    return record, messages  # Nearly every turn.


def _attach(
    record: Record, messages: tuple[Message, ...], drafts: Sequence[Draft], *, lenient: bool
) -> tuple[Record, tuple[Message, ...]]:
    held = {one.id: one for one in record.profile.attachments}
    brought = {content.id: content for content in contents_of(drafts)}
    shown = [shown_in(message.parts) for message in messages]
    missing = {attachment_id for parts in shown for attachment_id in parts} - held.keys() - brought.keys()
    if missing:
        if not lenient:
            raise UnknownAttachment
        messages = tuple([replace(message, parts=without_attachments(message.parts, missing)) for message in messages])
    new = list[Content]()
    for message, parts in zip(messages, shown, strict=True):
        for attachment_id, part in parts.items():
            if attachment_id in missing:
                continue
            if attachment_id not in held:
                new.append(brought[attachment_id])
                held[attachment_id] = _number(new[-1], held.values())
            held[attachment_id] = _show(held[attachment_id], message.seq, part)
    record = _with_attachments(record, tuple(held.values()))
    return replace(record, contents=(*record.contents, *new)) if new else record, messages


def contents_of(drafts: Iterable[Draft]) -> list[Content]:
    """The contents that came with messages."""
    return [content for draft in drafts for content in draft.contents]


def _number(content: Content, held: Iterable[StoredAttachment]) -> StoredAttachment:
    number = max([one.number for one in held], default=0) + 1
    return StoredAttachment(
        id=content.id, number=number, media_type=content.media_type, size=len(content.data), seqs=()
    )


def _show(one: StoredAttachment, seq: int, part: JsonObject) -> StoredAttachment:
    """The attachment, shown by one more message; its name is that of the first part that shows it."""
    seqs = (*one.seqs, seq) if not one.seqs or seq > one.seqs[-1] else tuple(sorted({*one.seqs, seq}))
    return replace(one, seqs=seqs, name=_name_of(part) if seqs[0] == seq else one.name)


def _name_of(part: JsonObject) -> str:
    name = part.get("name")
    return name[:MAX_NAME_CHARACTERS] if isinstance(name, str) and name.isprintable() else ""


def attach_again(record: Record, rewritten: tuple[Message, ...]) -> tuple[Record, tuple[Message, ...]]:
    """The record after stored messages were rewritten: what none of them shows any more is gone."""
    if record.profile.attachments:
        seqs = {message.seq for message in rewritten}
        left = [
            replace(one, seqs=tuple([seq for seq in one.seqs if seq not in seqs])) if seqs & {*one.seqs} else one
            for one in record.profile.attachments
        ]
        record = _with_attachments(record, tuple(left))
    record, rewritten = attach(record, rewritten, lenient=True)
    return _with_attachments(record, tuple([one for one in record.profile.attachments if one.seqs])), rewritten


def forget_unshown(record: Record) -> Record:
    """The record after messages were removed, without the attachments that no stored one shows."""
    attachments = record.profile.attachments
    if not attachments:
        return record
    left = [_without_removed(one, record) for one in attachments]
    return _with_attachments(record, tuple([one for one in left if one.seqs]))


def _without_removed(one: StoredAttachment, record: Record) -> StoredAttachment:
    spans = record.head.stored_spans
    if any(first <= one.seqs[0] and one.seqs[-1] <= last for first, last in spans):
        return one
    return replace(one, seqs=tuple([seq for seq in one.seqs if overlaps(spans, seq, seq)]))


def find_attachment(record: Record, attachment_id: str) -> StoredAttachment:
    """An attachment of the session.

    Raises:
        AttachmentNotFound: it has none of this id.
    """
    for one in record.profile.attachments:
        if one.id == attachment_id:
            return one
    raise AttachmentNotFound


def without_attachment(record: Record, one: StoredAttachment) -> Record:
    """The record without an attachment."""
    return _with_attachments(record, tuple([other for other in record.profile.attachments if other is not one]))


def _with_attachments(record: Record, attachments: tuple[StoredAttachment, ...]) -> Record:
    if attachments == record.profile.attachments:
        return record
    return replace(record, profile=replace(record.profile, attachments=attachments))
