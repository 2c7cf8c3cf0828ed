"""Pages of a listing begin where the one before ended: in the index, not by reading everything before it."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import pytest

from tenuto.model.stored import IndexOrder, IndexQuery, Kind, ValuePlace
from tenuto.stores.sqlite._reads import list_records
from tenuto.stores.sqlite._schema import create_tables

SPACE, OWNER, DRAWER = b"s" * 16, b"o" * 16, b"d" * 16
AT: Final = ValuePlace(OWNER, DRAWER, "tea")


def values(**query: Any) -> IndexQuery:
    return IndexQuery(order=IndexOrder.PLACE, kind=Kind.VALUE, space=SPACE, **query)


@pytest.mark.parametrize(
    ("query", "plan"),
    [
        (values(), "record_place (space=?)"),
        (values(behind=AT), "record_place (space=? AND (owner,drawer,name)>(?,?,?))"),
        (values(owner=OWNER, behind=AT), "record_place (space=? AND owner=? AND (drawer,name)>(?,?))"),
        (values(owner=OWNER, drawer=DRAWER, behind=AT), "record_place (space=? AND owner=? AND drawer=? AND name>?)"),
        (
            IndexQuery(order=IndexOrder.NEWEST, owner=OWNER, behind=(7, b"key")),
            "record_of_owner (owner=? AND kind=? AND (listed_at,key)<(?,?))",
        ),
        (
            IndexQuery(order=IndexOrder.OLDEST, space=SPACE, behind=(7, b"key")),
            "record_of_site (space=? AND kind=? AND (listed_at,key)>(?,?))",
        ),
    ],
)
def test_a_page_begins_in_its_index(query: IndexQuery, plan: str) -> None:
    db = sqlite3.connect(":memory:")
    create_tables(db)
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    assert list_records(db, query) == ()
    db.set_trace_callback(None)
    steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statements[0]}")]
    assert any(plan in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
    db.close()
