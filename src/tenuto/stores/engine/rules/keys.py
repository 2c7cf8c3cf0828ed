"""Idempotency keys: the newest in the head, older ones in numbered pages, a thousand in all.

A key whose turn runs stays in the head, so that its end is always recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from tenuto.errors import IdempotencyKeyReused
from tenuto.model import IdempotencyKey
from tenuto.model.turn import KEYS_REMEMBERED
from tenuto.stores.encoding import digest_id
from tenuto.stores.engine.record import KeyedWrite, KeyPage, Record

IN_HEAD: Final = 16
PAGE: Final = 8


def find_write(record: Record, request_key: IdempotencyKey | None) -> KeyedWrite | None:
    """The earlier write of this key.

    Raises:
        IdempotencyKeyReused: it had another fingerprint.
    """
    if request_key is None:
        return None
    key = digest_id(request_key.key)
    write = _find(record, key)
    if write is not None and write.fingerprint != digest_id(request_key.fingerprint):
        raise IdempotencyKeyReused
    return write


def _find(record: Record, key: bytes) -> KeyedWrite | None:
    for write in record.head.keys:
        if write.key == key:
            return write
    for place, page in enumerate(record.pages):
        if key in page.keys:
            for write in page.writes[record.head.forgotten :] if place == 0 else page.writes:
                if write.key == key:
                    return write
    return None


def all_writes(record: Record) -> Iterator[KeyedWrite]:
    """The remembered writes, those in the head first."""
    yield from record.head.keys
    for place, page in enumerate(record.pages):
        yield from page.writes[record.head.forgotten :] if place == 0 else page.writes


def remember(record: Record, write: KeyedWrite) -> Record:
    """The record with a new write; the oldest one is forgotten when there are too many."""
    keys = (*record.head.keys, write)
    if len(keys) > IN_HEAD:
        return _forget_oldest(_turn_page(record, keys))
    return _forget_oldest(replace(record, head=replace(record.head, keys=keys)))


def _turn_page(record: Record, keys: tuple[KeyedWrite, ...]) -> Record:
    """Move the oldest writes of the head to a new page, except that of the running turn."""
    lease = record.head.lease
    held = None if lease is None else lease.key
    moved = [write for write in keys if write.key != held][:PAGE]
    left = tuple([write for write in keys if write not in moved])
    page = KeyPage.of(record.head.next_page, tuple(moved))
    head = replace(record.head, keys=left, next_page=page.number + 1)
    return replace(record, head=head, pages=(*record.pages, page))


def _forget_oldest(record: Record) -> Record:
    head, pages = record.head, record.pages
    if len(head.keys) + PAGE * len(pages) - head.forgotten <= KEYS_REMEMBERED:
        return record  # Nearly every write: pages hold no more than so many.
    if len(head.keys) + sum([page.count for page in pages]) - head.forgotten <= KEYS_REMEMBERED:
        return record
    if head.forgotten + 1 < pages[0].count:
        return replace(record, head=replace(head, forgotten=head.forgotten + 1))
    return replace(record, head=replace(head, forgotten=0, first_page=pages[0].number + 1), pages=pages[1:])


def hold(record: Record, write: KeyedWrite, turn_id: str) -> Record:
    """The record with an unfinished write in the head, resumed by this turn."""
    resumed = replace(write, turn_id=turn_id)
    if any(other.key == write.key for other in record.head.keys):
        return revise(record, lambda other: resumed if other.key == write.key else other)
    record = revise(record, lambda other: None if other.key == write.key else other)
    return remember(record, resumed)


def revise(record: Record, change: Callable[[KeyedWrite], KeyedWrite | None]) -> Record:
    """The record with each remembered write changed, or removed where the change is `None`."""
    head = record.head
    keys = _revise_all(head.keys, change)
    pages = list[KeyPage]()
    for place, page in enumerate(record.pages):
        writes = page.writes
        revised = _revise_all(writes[head.forgotten :] if place == 0 else writes, change)
        if revised:
            pages.append(page if revised == writes else KeyPage.of(page.number, revised))
    kept = tuple(pages)
    if kept == record.pages:
        return record if keys == head.keys else replace(record, head=replace(head, keys=keys))
    head = replace(head, keys=keys, forgotten=0, edition=head.edition + 1)
    return replace(record, head=head, pages=kept)


def _revise_all(
    writes: tuple[KeyedWrite, ...], change: Callable[[KeyedWrite], KeyedWrite | None]
) -> tuple[KeyedWrite, ...]:
    return tuple([revised for write in writes if (revised := change(write)) is not None])


def forget_all(record: Record) -> Record:
    """The record without remembered writes."""
    head = replace(record.head, keys=(), first_page=record.head.next_page, forgotten=0, edition=record.head.edition + 1)
    return replace(record, head=head, pages=())
