"""LISTEN/NOTIFY: changes are reported with their revisions, removals before they are acknowledged; silence is doubt."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tenuto.errors import SessionNotFound
from tenuto.model.stored import Action, Drop, Part, RecordChange
from tenuto.stores.postgres import PostgresRecords, _feed
from tenuto.stores.postgres._feed import PostgresFeed, parse_notification
from tests.backends import engine_over
from tests.internals import ping_postgres
from tests.record_changes import A, B, index_columns, message_entries, record_change
from tests.samples import ANN, batch
from tests.timeouts import wait_until

Pair = tuple[PostgresRecords, PostgresRecords]


class Reports:
    """What a feed reported, in order."""

    def __init__(self) -> None:
        self.changes: list[tuple[bytes | None, int]] = []

    def __call__(self, key: bytes | None, revision: int) -> None:
        self.changes.append((key, revision))


async def test_a_feed_reports_changes_and_removals_before_they_are_acknowledged(pair: Pair) -> None:
    records, other = pair
    reports = Reports()
    assert not other.feed.caught_up()
    async with other.feed.watch(reports):
        assert other.feed.caught_up()
        assert reports.changes == [(None, 0)]
        await records.commit([record_change(A, 0, 5, puts=message_entries(1, 2, 3)), record_change(B, 0, 6)])
        await records.commit([record_change(A, 5, 6)])
        rewritten = replace(
            record_change(A, 6, 7, puts=message_entries(2)), known=replace(record_change(A, 0, 1).known, message=3)
        )
        for strict in (
            rewritten,
            record_change(A, 7, 8, drops=(Drop(part=Part.MESSAGES, first=2),)),
            record_change(A, 8, 9, replaces=True, index=index_columns()),
            RecordChange(key=A, if_revision=9, action=Action.REMOVE),
        ):
            assert await records.commit([strict]) is None
            assert reports.changes[-1] == (A, strict.revision)

    assert reports.changes[1:] == [(A, 5), (B, 6), (A, 6), (A, 7), (A, 8), (A, 0), (A, 9), (A, 0)]
    assert not other.feed.caught_up()


async def test_several_may_watch_and_the_last_one_ends_it(records: PostgresRecords) -> None:
    """A cache and a journal listen on one connection, and hear of own changes as well."""
    one, two = Reports(), Reports()
    async with records.feed.watch(one):
        async with records.feed.watch(two):
            await records.commit([record_change(A, 0, 1)])
            await wait_until(lambda: (A, 1) in one.changes and (A, 1) in two.changes)
        assert records.feed.caught_up()
        await records.commit([record_change(A, 1, 2)])
        await wait_until(lambda: (A, 2) in one.changes)
    assert not records.feed.caught_up()
    assert (A, 2) not in two.changes


async def test_many_changes_of_one_commit_are_all_reported(pair: Pair) -> None:
    """They do not fit into one notification."""
    records, other = pair
    keys = [n.to_bytes(16, "big") for n in range(500)]
    reports = Reports()
    async with other.feed.watch(reports):
        assert await records.commit([record_change(key, 0, n + 1) for n, key in enumerate(keys)]) is None
        assert await records.commit([RecordChange(key=keys[0], if_revision=1, action=Action.REMOVE)]) is None

    assert dict(reports.changes) == {None: 0, keys[0]: 0} | {key: n + 1 for n, key in enumerate(keys) if n}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenuto listener'",
        "SELECT pg_notify('tenuto', 'what is this')",
    ],
    ids=["a lost connection", "a notification of another program"],
)
async def test_what_may_have_been_missed_is_reported_and_the_feed_goes_on(pair: Pair, statement: str) -> None:
    records, other = pair
    reports = Reports()
    async with other.feed.watch(reports):
        await records.pool.fetch(statement)
        await wait_until(lambda: reports.changes.count((None, 0)) > 1)

        await wait_until(other.feed.caught_up)
        await records.commit([record_change(A, 0, 1)])
        await wait_until(lambda: (A, 1) in reports.changes)


async def test_a_deleted_session_is_not_shown_by_a_warm_cache_elsewhere(pair: Pair) -> None:
    """A deletion returns when both have heard of it."""
    async with engine_over(pair[0]) as here, engine_over(pair[1]) as there:
        for n in range(30):
            await here.sessions.append(ANN, f"s{n}", batch("hello"))
            hits = there.cache.hits
            while there.cache.hits == hits:
                await there.sessions.get(ANN, f"s{n}")
            await here.sessions.delete(ANN, f"s{n}")
            with pytest.raises(SessionNotFound):
                await there.sessions.get(ANN, f"s{n}")


async def test_a_ping_counts_from_when_it_was_sent(records: PostgresRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may have stood still before it read the answer: what was changed meanwhile is not in it."""
    now = [1000.0]

    class ReadLate:
        async def execute(self, *_: object) -> None:
            now[0] += _feed.DOUBT

    monkeypatch.setattr(_feed, "PULSE", 0)
    monkeypatch.setattr(_feed, "time", SimpleNamespace(monotonic=lambda: now[0]))
    feed = PostgresFeed(records.pool)

    await ping_postgres(feed, ReadLate())

    assert not feed.caught_up()
    now[0] -= 0.001
    assert feed.caught_up()


def test_a_notification_of_another_program_is_none_of_ours() -> None:
    key = bytes(range(16))
    assert parse_notification("!AAECAwQFBgcICQoLDA0ODwAAAAAAAAAH") == (None, [(key, 7)])
    assert parse_notification("ff!AAECAwQFBgcICQoLDA0ODwAAAAAAAAAH\n") == (255, [(key, 7)])
    for payload in ("", "hello", "hello!", "!AAAA", "zz!AAECAwQFBgcICQoLDA0ODwAAAAAAAAAH"):
        with pytest.raises(ValueError, match=r"."):
            parse_notification(payload)
