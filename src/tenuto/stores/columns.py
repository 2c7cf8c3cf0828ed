"""Index columns as stored words say them: once, and tolerantly, so that no damaged record hides another."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from tenuto.errors import Invalid, StoreDamaged
from tenuto.model import Scope, Status
from tenuto.model.scope import site_key
from tenuto.model.stored import WORD_BYTES, FoundRecord, IndexColumns, Kind


def decode_index(
    space: bytes, kind: Any, scope: bytes | None, status: Any, *, is_whole: bool = True, **others: Any
) -> IndexColumns:
    """Columns; what cannot be decoded is `None`, and the record `is_damaged`; so it is unless the others are whole."""
    known_kind, known_status = _KINDS.get(kind), _STATUSES.get(status)
    owner = None if scope is None else decode_scope(scope, space)
    is_damaged = not is_whole or known_kind is None or known_status is None or (owner is None and scope is not None)
    return IndexColumns(space=space, kind=known_kind, scope=owner, status=known_status, is_damaged=is_damaged, **others)


@lru_cache(maxsize=4096)
def decode_scope(stored: Any, space: bytes) -> Scope | None:
    """The owner of a record; `None` if it is damaged, or of another site."""
    try:
        scope = msgspec.msgpack.decode(stored, type=Scope)
    except (ValueError, TypeError, Invalid):
        return None
    return scope if site_key(scope) == space else None


def refuse_damaged(found: Iterable[FoundRecord]) -> tuple[FoundRecord, ...]:
    """Records whose columns are whole: for copies, which would lose what cannot be decoded.

    Raises:
        StoreDamaged: columns of one are not.
    """
    records = tuple(found)
    if any(one.index.is_damaged for one in records):
        raise StoreDamaged
    return records


def split_words(stored: bytes | None) -> list[bytes]:
    """The digests of words that a record is found by, as they are stored in a row."""
    stored = stored or b""
    return [stored[at : at + WORD_BYTES] for at in range(0, len(stored), WORD_BYTES)]


_KINDS = {kind.value: kind for kind in Kind}
_STATUSES = {status.value: status for status in Status}
