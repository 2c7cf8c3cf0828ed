"""The port of a backend: bytes, a revision to compare, columns to find by; and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tenuto.model import Scope, Status
from tenuto.model.scope import owner_key, site_key
from tenuto.model.stored import (
    WORD_BYTES,
    Action,
    AsideRecords,
    Drop,
    Entry,
    IndexOrder,
    IndexQuery,
    Kind,
    Known,
    LogCopy,
    Part,
    RecordChange,
    Totals,
    ValuePlace,
    WordChange,
)
from tenuto.ports import RecordStore
from tests.record_changes import A, B, C, index_columns, message_entries, record_change
from tests.record_stores import RECORD_STORES, RecordBackend
from tests.samples import ACME, ANN, BOB, EVE


@pytest.fixture(params=RECORD_STORES, ids=lambda backend: backend.name)
async def records(request: pytest.FixtureRequest) -> AsyncIterator[RecordStore]:
    backend: RecordBackend = request.param
    async with backend.open(request.getfixturevalue) as opened:
        yield opened


def numbers(entries: tuple[Entry, ...]) -> list[int]:
    return [entry.number for entry in entries]


async def test_a_record_comes_back_with_all_that_is_beside_it(records: RecordStore) -> None:
    beside = (Entry(part=Part.KEYS, number=3, body=b"k"), Entry(part=Part.PRODUCERS, number=0, body=b"p"))
    trace = Entry(part=Part.TRACES, number=1, body=b"t")
    assert await records.load(A, 10) is None

    puts = (*message_entries(1, 2, 3), *beside, trace)
    assert await records.commit([record_change(A, 0, 41, profile=b"profile", deadline=5, puts=puts)]) is None

    record = await records.load(A, 2)
    assert record is not None
    assert (record.key, record.revision, record.head, record.profile) == (A, 41, b"head 41", b"profile")
    assert (record.deadline, record.entries, numbers(record.messages)) == (5, beside, [2, 3])
    assert (await records.page(A, Part.TRACES, 0, 9, 9)).entries == (trace,)


async def test_a_commit_on_another_revision_changes_nothing_and_tells_what_stands(records: RecordStore) -> None:
    page = Entry(part=Part.KEYS, number=0, body=b"old")
    await records.commit([record_change(A, 0, 7, puts=(*message_entries(1, 2), page))])
    await records.commit(
        [record_change(A, 7, 8, puts=(*message_entries(3), Entry(part=Part.KEYS, number=1, body=b"new")))]
    )

    refused = await records.commit([record_change(A, 7, 8, head=b"late", tail=9, known=Known(message=2, page=0))])

    assert refused is not None
    (standing,) = refused.standing
    assert standing is not None
    assert (standing.revision, standing.head, numbers(standing.messages)) == (8, b"head 8", [3])
    assert [entry.body for entry in standing.entries] == [b"new"]
    assert await records.commit([record_change(B, 7, 8)]) is not None
    assert await records.commit([record_change(A, 0, 9)]) is not None
    assert (await records.load(A, 9, Known(message=2, page=0))) == standing
    assert await records.load(B, 9) is None


async def test_several_changes_are_made_together_or_not_at_all(records: RecordStore) -> None:
    assert await records.commit([record_change(A, 0, 5), record_change(B, 0, 6)]) is None

    refused = await records.commit(
        [record_change(A, 5, 6, head=b"x"), record_change(B, 5, 7, head=b"x"), record_change(C, 0, 1)]
    )

    assert refused is not None
    assert [record and record.revision for record in refused.standing] == [5, 6, None]
    assert [record and record.head for record in await records.load_all((A, B, C))] == [b"head 5", b"head 6", None]


async def test_what_is_not_given_stays(records: RecordStore) -> None:
    await records.commit(
        [record_change(A, 0, 1, profile=b"p", deadline=9, index=index_columns(title="t"), puts=message_entries(1))]
    )

    await records.commit([record_change(A, 1, 2)])

    record = await records.load(A, 9)
    assert record is not None
    assert (record.profile, record.deadline, numbers(record.messages)) == (b"p", 9, [1])
    (found,) = await records.list(IndexQuery(order=IndexOrder.NEWEST, space=site_key(ANN)))
    assert (found.index.title, found.record.revision) == ("t", 2)
    await records.commit([record_change(A, 2, 3, deadline=None)])
    record = await records.load(A, 9)
    assert record is not None
    assert record.deadline is None


async def test_entries_are_dropped_before_new_ones_are_put(records: RecordStore) -> None:
    await records.commit([record_change(A, 0, 1, puts=message_entries(1, 2, 3, 4, 5))])

    drops = (Drop(part=Part.MESSAGES, last=1), Drop(part=Part.MESSAGES, first=3, keep=(4,)))
    await records.commit(
        [record_change(A, 1, 2, drops=drops, puts=(*message_entries(2, text="new"), *message_entries(9)))]
    )

    page = await records.page(A, Part.MESSAGES, 0, 99, 99)
    assert [entry.body for entry in page.entries] == [b"new2", b"m4", b"m9"]
    await records.commit([record_change(A, 2, 3, replaces=True, index=index_columns(), puts=message_entries(1))])
    assert numbers((await records.page(A, Part.MESSAGES, 0, 99, 99)).entries) == [1]


async def test_a_page_is_of_one_revision(records: RecordStore) -> None:
    await records.commit([record_change(A, 0, 4, puts=message_entries(*range(1, 8)))])

    pages = [await records.page(A, Part.MESSAGES, *span) for span in ((2, 6, 3), (2, 6, -3), (9, 9, 1))]

    assert [(page.revision, numbers(page.entries)) for page in pages] == [(4, [2, 3, 4]), (4, [4, 5, 6]), (4, [])]
    assert (await records.page(B, Part.MESSAGES, 0, 9, 9)).revision == 0


async def test_a_copy_is_of_the_source_as_it_was_read(records: RecordStore) -> None:
    await records.commit([record_change(A, 0, 4, puts=message_entries(1, 2, 3, 4))])
    copies = LogCopy(source=A, revision=4, first=2, through=3)

    assert await records.commit([record_change(B, 0, 1, copies=copies, puts=message_entries(7))]) is None
    await records.commit([record_change(A, 4, 5, drops=(Drop(part=Part.MESSAGES),))])
    refused = await records.commit([record_change(C, 0, 1, copies=copies)])

    assert numbers((await records.page(B, Part.MESSAGES, 0, 9, 9)).entries) == [2, 3, 7]
    assert refused is not None
    assert refused.source_changed
    assert await records.load(C, 0) is None


async def test_a_touch_moves_a_deadline_forwards_and_nothing_else(records: RecordStore) -> None:
    await records.commit([record_change(A, 0, 1, deadline=10)])

    await records.touch(A, 20)
    await records.touch(A, 15)
    await records.touch(B, 15)

    record = await records.load(A, 0)
    assert record is not None
    assert (record.deadline, record.revision) == (20, 1)
    assert await records.commit([record_change(A, 1, 2, deadline=UNSET)]) is None
    assert await records.load(B, 0) is None


async def test_a_removed_record_is_gone_with_everything(records: RecordStore) -> None:
    await records.commit([record_change(A, 0, 1, puts=message_entries(1))])

    assert await records.commit([RecordChange(key=A, if_revision=2, action=Action.REMOVE)]) is not None
    assert await records.commit([RecordChange(key=A, if_revision=1, action=Action.REMOVE)]) is None
    await records.commit([record_change(A, 0, 1)])

    record = await records.load(A, 9)
    assert record is not None
    assert record.messages == ()


async def test_a_record_set_aside_frees_its_key_and_is_kept_for_its_owner(records: RecordStore) -> None:
    trace = Entry(part=Part.TRACES, number=1, body=b"t")
    await records.commit(
        [record_change(A, 0, 1, totals=Totals(sessions=1, messages=2), puts=(*message_entries(1, 2), trace))]
    )

    assert await records.commit([RecordChange(key=A, if_revision=1, action=Action.SET_ASIDE)]) is None

    assert await records.load(A, 9) is None
    assert await records.list(IndexQuery(order=IndexOrder.NEWEST, space=site_key(ANN))) == ()
    assert [(index.scope, index.name) for index in await records.list_aside()] == [(ANN, "s")]
    assert await records.forget_aside(owner_key(BOB)) == AsideRecords()
    assert await records.forget_aside(owner_key(ANN)) == AsideRecords(records=1, messages=2, traces=1)
    assert await records.forget_aside(owner_key(ANN)) == AsideRecords()
    assert await records.list_aside() == ()


async def test_records_are_found_in_order_by_their_columns(records: RecordStore) -> None:
    rows = [
        (A, index_columns(ANN, "a", listed_at=3, title="tea")),
        (B, index_columns(ANN, "b", listed_at=3, status=Status.ARCHIVED)),
        (C, index_columns(BOB, "c", listed_at=1, title="green tea")),
        (b"4" * 16, index_columns(EVE, "d", listed_at=2)),
    ]
    for key, index in rows:
        await records.commit([record_change(key, 0, 1, index=index, deadline=index.listed_at * 10)])

    async def find(order: IndexOrder, **query: Any) -> list[str]:
        return [found.index.name for found in await records.list(IndexQuery(order=order, **query))]

    acme = site_key(ACME)
    assert await find(IndexOrder.NEWEST, space=acme) == ["b", "a", "c"]
    assert await find(IndexOrder.OLDEST, space=acme) == ["c", "a", "b"]
    assert await find(IndexOrder.NEWEST, space=acme, behind=(3, A), limit=1) == ["c"]
    assert await find(IndexOrder.NEWEST, space=acme, limit=2) == ["b", "a"]
    assert await find(IndexOrder.NEWEST, space=acme, owner=owner_key(ANN)) == ["b", "a"]
    assert await find(IndexOrder.NEWEST, space=acme, status=Status.ARCHIVED) == ["b"]
    assert await find(IndexOrder.NEWEST, space=acme, title="tea") == ["a", "c"]
    assert await find(IndexOrder.DEADLINE, due=20) == ["c", "d"]
    assert await records.sites(b"", 9) == tuple(
        Scope(tenant=scope.tenant) for scope in sorted((ANN, EVE), key=site_key)
    )
    assert [found.record.key for found in await records.scan(A, 2)] == [B, C]


@pytest.mark.parametrize("order", [IndexOrder.NEWEST, IndexOrder.OLDEST])
async def test_a_page_goes_on_behind_a_place_whoever_shares_its_time(records: RecordStore, order: IndexOrder) -> None:
    keys = [bytes([number]) * 16 for number in (1, 40, 127, 128, 200, 255)]
    for number, key in enumerate(keys):
        await records.commit([record_change(key, 0, 1, index=index_columns(listed_at=min(9, 7 + number)))])
    ordered = keys if order is IndexOrder.OLDEST else keys[::-1]
    # Also where the record of the place is gone.
    await records.commit([RecordChange(key=keys[3], if_revision=1, action=Action.REMOVE)])

    for at, key in enumerate(ordered):
        behind = (min(9, 7 + keys.index(key)), key)
        page = await records.list(IndexQuery(order=order, space=site_key(ACME), behind=behind, limit=2))
        assert [found.record.key for found in page] == [one for one in ordered[at + 1 :] if one != keys[3]][:2]


async def test_values_are_found_by_their_place(records: RecordStore) -> None:
    drawer = b"d" * 16
    for number, name in enumerate(("b", "a", "é", "a%")):
        index = index_columns(ANN, name, kind=Kind.VALUE, drawer=drawer, namespace="prefs")
        await records.commit([record_change(bytes([number]) * 16, 0, 1, index=index)])
    own = replace(index_columns(ACME, "own", kind=Kind.VALUE, drawer=drawer, namespace="prefs"), scope=None)
    await records.commit([record_change(b"o" * 16, 0, 1, index=own)])

    async def find(**query: Any) -> list[str]:
        asked = IndexQuery(order=IndexOrder.PLACE, kind=Kind.VALUE, space=site_key(ANN), **query)
        return [found.index.name for found in await records.list(asked)]

    assert await find(owner=owner_key(ANN)) == ["a", "a%", "b", "é"]
    assert await find(drawer=drawer, behind=ValuePlace(owner_key(ANN), drawer, "a%"), owner=owner_key(ANN)) == [
        "b",
        "é",
    ]
    assert sorted(await find(named=True)) == ["a", "a%", "b", "é"]
    assert sorted(await find()) == ["a", "a%", "b", "own", "é"]


async def test_sums_are_of_what_has_not_expired(records: RecordStore) -> None:
    given = zip((A, B, C, b"4" * 16), ((ANN, None), (ANN, 50), (BOB, 10), (EVE, None)), strict=True)
    for number, (key, (scope, deadline)) in enumerate(given, 1):
        sums = Totals(sessions=1, messages=number, tokens=10 * number, cost_nanos=100 * number)
        made = record_change(key, 0, 1, index=index_columns(scope), totals=sums, deadline=deadline)
        await records.commit([made])
    await records.commit([record_change(A, 1, 2, totals=Totals(sessions=1, messages=4))])

    assert await records.totals(site_key(ANN), owner_key(ANN), 10) == Totals(
        sessions=2, messages=6, tokens=20, cost_nanos=200
    )
    assert (await records.totals(site_key(ANN), None, 9)).messages == 9
    assert (await records.totals(site_key(ANN), None, 10)).messages == 6


def word(name: str) -> bytes:
    return name.encode().ljust(WORD_BYTES, b"_")


def words(added: str = "", removed: str = "", *, forgets: bool = False) -> WordChange:
    some, gone = (tuple(map(word, names.split())) for names in (added, removed))
    return WordChange(added=some, removed=gone, forgets=forgets)


async def test_sessions_are_found_by_their_words(records: RecordStore) -> None:
    async def found(*groups: str, scope: Scope = ANN, **query: Any) -> list[str]:
        wanted = tuple(tuple(map(word, group.split())) for group in groups)
        asked = IndexQuery(order=IndexOrder.NEWEST, space=site_key(scope), words=wanted, **query)
        return [one.index.name for one in await records.list(asked)]

    async def make(key: bytes, name: str, some: WordChange, listed_at: int, scope: Scope = ANN) -> None:
        columns = index_columns(scope, name, listed_at=listed_at)
        assert await records.commit([record_change(key, 0, 1, index=columns, words=some)]) is None

    await make(A, "a", words("kyoto tea"), 1)
    await make(B, "b", words("kyoto hotel"), 2, BOB)
    await make(C, "c", words("kyoto tea hotel"), 3, EVE)

    assert await found("kyoto") == ["b", "a"]
    assert await found("kyoto", owner=owner_key(ANN)) == ["a"]
    assert await found("kyoto", "hotel tea", limit=1) == ["b"]
    assert await found("kyoto", "hotel tea", behind=(2, B)) == ["a"]
    assert await found("kyoto", "tea") == ["a"]
    assert await found("kyoto", "bus") == []
    assert await found("kyoto", status=Status.ARCHIVED) == []
    assert await found("hotel", scope=EVE) == ["c"]

    columns = index_columns(ANN, "a", listed_at=1)
    assert await records.commit([record_change(A, 1, 2)]) is None
    assert await found("tea") == ["a"]
    await records.commit([record_change(A, 2, 3, index=columns, words=words("bus kyoto", "tea"))])
    assert (await found("kyoto", "bus"), await found("tea")) == (["a"], [])
    await records.commit([record_change(A, 3, 4, index=columns, words=words("hotel", forgets=True))])
    assert (await found("kyoto"), await found("hotel")) == (["b"], ["b", "a"])
    await records.commit([record_change(A, 4, 5, index=index_columns(BOB, "a"), replaces=True, words=words("tea"))])
    assert (await found("hotel"), await found("tea", owner=owner_key(BOB))) == (["b"], ["a"])
    assert await found("tea", owner=owner_key(ANN)) == []
    await records.commit([RecordChange(key=B, if_revision=1, action=Action.REMOVE)])
    await records.commit([RecordChange(key=A, if_revision=5, action=Action.SET_ASIDE)])
    await make(A, "a", words("bus"), 4)
    assert (await found("kyoto"), await found("hotel"), await found("tea"), await found("bus")) == ([], [], [], ["a"])


async def test_a_change_of_words_that_is_refused_changes_none(records: RecordStore) -> None:
    columns = index_columns()
    asked = IndexQuery(order=IndexOrder.NEWEST, space=site_key(ANN), words=((word("tea"),),))
    await records.commit([record_change(A, 0, 1, words=words("tea"))])

    assert await records.commit([record_change(A, 5, 6, index=columns, words=words("bus", forgets=True))]) is not None

    assert len(await records.list(asked)) == 1
