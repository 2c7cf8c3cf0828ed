"""Changes of records, for stores of them."""

from __future__ import annotations

from typing import Any

from tenuto.model import Scope
from tenuto.model.scope import owner_key, site_key
from tenuto.model.stored import Entry, IndexColumns, Part, RecordChange
from tests.samples import ANN

# They begin alike, as keys of one commit do.
A, B, C = (bytes(4) + bytes([n]) * 12 for n in (1, 2, 3))


def index_columns(scope: Scope = ANN, name: str = "s", **fields: Any) -> IndexColumns:
    given = {"space": site_key(scope), "owner": owner_key(scope), "scope": scope, "name": name}
    return IndexColumns(**{**given, **fields})


def message_entries(*numbers: int, text: str = "m") -> tuple[Entry, ...]:
    return tuple(Entry(part=Part.MESSAGES, number=number, body=f"{text}{number}".encode()) for number in numbers)


def record_change(key: bytes, at: int, to: int, **fields: Any) -> RecordChange:
    """A change from one revision to the next; of a new record with its columns."""
    given = {"head": f"head {to}".encode(), **({"index": index_columns()} if at == 0 else {}), **fields}
    return RecordChange(key=key, if_revision=at, revision=to, **given)
