"""Many calls in one statement: each gets its own answer, and the work does not grow with the history."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import (
    IdempotencyKeyReused,
    SequenceGap,
    SessionBusy,
    SessionCorrupt,
    SessionForeign,
    SessionNotFound,
    TurnLost,
    Unavailable,
)
from tenuto.model import (
    Changes,
    FinishTurn,
    NewSession,
    Page,
    Producer,
    Retention,
    Rewrite,
    Scope,
    Truncation,
    TurnState,
    Usage,
    text_part,
)
from tenuto.ports import Store, utc_now
from tenuto.stores.cached import CachedStore
from tenuto.stores.postgres import PostgresStore
from tenuto.stores.postgres._errors import InDoubt
from tenuto.stores.postgres._ops import append_op
from tests.doubles import MemoryStore
from tests.patience import LONG
from tests.peek import postgres_rows
from tests.samples import ANN, BOB, EVE, batch, begin, closing, fresh, listed, once, talk, texts
from tests.servers import PostgresDatabase

UNCAPPED = NewSession(retention=Retention(max_messages=None))


async def test_turns_of_many_tenants_share_batches_and_nothing_else(store: PostgresStore) -> None:
    scopes = [Scope(tenant=f"tenant {n}", user="u") for n in range(40)]

    for _ in range(2):
        turns = await asyncio.gather(*(begin(store, scope, "s", f"of {scope.tenant}") for scope in scopes))
        await asyncio.gather(*(store.sessions.finish_turn(turn, closing(f"to {turn.scope.tenant}")) for turn in turns))

    for scope in scopes:
        assert await texts(store, scope, "s") == [f"of {scope.tenant}", f"to {scope.tenant}"] * 2


async def test_each_call_of_a_batch_gets_its_own_answer(store: PostgresStore) -> None:
    await talk(store, ANN, "free", "q", "a")
    await talk(store, BOB, "his", "q", "a")
    await begin(store, ANN, "busy", "q")
    await store.sessions.append(ANN, "keyed", batch("q", idempotency_key=once("k", "one body")))

    answers = await asyncio.gather(
        begin(store, ANN, "free", "q2"),
        begin(store, ANN, "his", "q"),
        begin(store, ANN, "busy", "q"),
        begin(store, ANN, "keyed", "q", idempotency_key=once("k", "another body")),
        begin(store, ANN, "absent", "q", create=None),
        begin(store, ANN, "gap", "q", producer=Producer(id="p", seq=7)),
        begin(store, ANN, "new", "q"),
        begin(store, EVE, "free", "q"),
        return_exceptions=True,
    )

    kinds = [type(answer) for answer in answers]
    assert kinds[1:6] == [SessionForeign, SessionBusy, IdempotencyKeyReused, SessionNotFound, SequenceGap]
    opened = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert [(turn.number, turn.created) for turn in opened] == [(2, False), (1, True), (1, True)]
    assert [message.text for message in opened[0].window] == ["q", "a", "q2"]


async def test_a_known_window_is_left_out_and_another_is_not(store: PostgresStore) -> None:
    heads = [
        (await store.sessions.finish_turn(await begin(store, ANN, name, "q"), closing("a"))).session for name in "abc"
    ]
    known = [(head.incarnation, head.version) for head in heads]
    other_version, other_incarnation = (known[1][0], known[1][1] - 1), ("another", known[2][1])

    turns = await asyncio.gather(
        begin(store, ANN, "a", "q2", known=known[0]),
        begin(store, ANN, "b", "q2", known=other_version),
        begin(store, ANN, "c", "q2", known=other_incarnation),
    )

    shown = [[message.text for message in turn.window] for turn in turns]
    assert shown == [["q2"], ["q", "a", "q2"], ["q", "a", "q2"]]


@pytest.mark.parametrize("elsewhere", ["nothing", "append", "truncate", "reset", "rewrite", "delete"])
async def test_a_cache_and_the_store_make_the_same_window(store: PostgresStore, elsewhere: str) -> None:
    async with CachedStore(store=store, feed=store.feed) as cached:
        for n in range(3):
            last = await talk(cached, ANN, "s", f"q{n}", f"a{n}")
        await store.sessions.truncate(ANN, "s", Truncation(after=5))
        last = await talk(cached, ANN, "s", "q3", "a3")
        match elsewhere:
            case "append":
                await store.sessions.append(ANN, "s", batch("more"))
            case "truncate":
                await store.sessions.truncate(ANN, "s", Truncation(after=2))
            case "reset":
                await store.sessions.reset(ANN, "s")
            case "rewrite":
                masked = replace(last.user_messages[0], parts=(text_part("masked"),))
                await store.sessions.rewrite(ANN, "s", Rewrite(messages=(masked,)))
            case "delete":
                await store.sessions.delete(ANN, "s")
                await talk(store, ANN, "s", "new", "one")

        turn = await begin(cached, ANN, "s", "last", window=4)

        page = await store.sessions.messages(ANN, "s", Page(limit=4))
        assert turn.window == page.messages


async def test_endings_of_a_batch_get_their_own_answers(store: PostgresStore) -> None:
    turns = [await begin(store, ANN, f"s{n}", "q") for n in range(6)]
    await store.sessions.finish_turn(turns[0], closing("a"))
    await store.sessions.reset(ANN, "s1")

    done = await asyncio.gather(
        store.sessions.finish_turn(turns[0], closing("a")),
        store.sessions.finish_turn(turns[1], closing("a")),
        store.sessions.finish_turn(turns[2], closing("a", tokens=3)),
        store.sessions.finish_turn(turns[3], closing("a", changes=Changes(title="T", context={"n": 1.0}))),
        store.sessions.finish_turn(turns[4], FinishTurn(abandoned=True, usage=Usage(tokens=1))),
        store.sessions.finish_turn(turns[5], closing("a", "b", "c")),
        return_exceptions=True,
    )

    assert isinstance(done[1], TurnLost)
    told = [answer for answer in done if not isinstance(answer, BaseException)]
    assert [answer.duplicate for answer in told] == [True, False, False, False, False]
    assert [len(answer.messages) for answer in told] == [0, 1, 1, 0, 3]
    assert (told[2].session.title, repr(told[2].session.context)) == ("T", "{'n': 1.0}")
    assert await texts(store, ANN, "s5") == ["q", "a", "b", "c"]


async def test_two_processes_that_meet_on_the_same_sessions_lose_nothing(database: PostgresDatabase) -> None:
    """T3: keyed and plain appends mixed, in batches that hold the same sessions in different company."""
    stores = [await PostgresStore.open(database.app_url) for _ in range(2)]
    await asyncio.gather(*(stores[0].sessions.append(ANN, f"s{n}", batch(create=UNCAPPED)) for n in range(5)))

    async def work(store: PostgresStore, name: str) -> None:
        for n in range(10):
            for session in range(5):
                guard = {"idempotency_key": once(f"{name}.{n}")} if (n + session) % 3 == 0 else {}
                await store.sessions.append(ANN, f"s{session}", batch(f"{name}.{n}", usage=Usage(tokens=1), **guard))

    await asyncio.gather(*(work(store, f"{place}.{w}") for place, store in enumerate(stores) for w in range(6)))

    for session in range(5):
        said = await texts(stores[0], ANN, f"s{session}")
        assert sorted(said) == sorted(f"{place}.{w}.{n}" for place in range(2) for w in range(6) for n in range(10))
        assert (await stores[1].sessions.get(ANN, f"s{session}")).tokens == 120
    for store in stores:
        await store.close()


async def test_a_key_taken_while_a_turn_waits_is_known(store: PostgresStore, database: PostgresDatabase) -> None:
    """The turn's statement began before the other writer was done, and must not trust what it saw then."""
    await talk(store, ANN, "s", "q", "a")
    await store.sessions.append(ANN, "s", batch("keyed", idempotency_key=once("older")))
    op, _ = append_op(ANN, "s", batch("first", idempotency_key=once("k")), utc_now())
    other = await store.link.connect()

    async with other.transaction():
        await other.fetch("SELECT * FROM append_batches('other000', $1, $2::batch[])", [op[1]], [op])
        waiting = asyncio.create_task(begin(store, ANN, "s", "first", idempotency_key=once("k")))
        await _until_blocked(database)
    turn = await waiting
    await other.close()

    assert turn.state is TurnState.FINISHED
    assert await texts(store, ANN, "s") == ["q", "a", "keyed", "first"]


async def _until_blocked(database: PostgresDatabase) -> None:
    async with asyncio.timeout(LONG):
        blocked = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await postgres_rows(database.admin_url, blocked):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_keyed_turns_of_one_batch_are_new_known_resumed_or_finished(store: PostgresStore) -> None:
    """T3 for keys: what is decided for all at once is decided for each by its own session."""
    for session in ("finished", "unfinished", "reused"):
        turn = await begin(store, ANN, session, "q", idempotency_key=once("k"))
        if session != "unfinished":
            await store.sessions.finish_turn(turn, closing("a"))
        else:
            await store.sessions.finish_turn(turn, FinishTurn(abandoned=True))

    answers = await asyncio.gather(
        *(begin(store, ANN, f"new {n}", "q", idempotency_key=once("k")) for n in range(3)),
        begin(store, ANN, "finished", "q", idempotency_key=once("k")),
        begin(store, ANN, "unfinished", "q", idempotency_key=once("k")),
        begin(store, ANN, "finished", "q2", idempotency_key=once("another")),
        begin(store, ANN, "reused", "q", idempotency_key=once("k", "another body")),
        return_exceptions=True,
    )

    states = [answer.state for answer in answers if not isinstance(answer, BaseException)]
    assert states == [TurnState.OPENED] * 3 + [TurnState.FINISHED, TurnState.RESUMED, TurnState.OPENED]
    assert isinstance(answers[-1], IdempotencyKeyReused)


async def test_a_finished_keyed_turn_is_told_again_with_its_answer(store: PostgresStore) -> None:
    for replies in (("a", "b"), ()):
        session = f"with {len(replies)}"
        await store.sessions.append(ANN, session, batch("before"))
        turn = await begin(store, ANN, session, "q", idempotency_key=once("k"))
        await store.sessions.finish_turn(turn, closing(*replies))

        again = await begin(store, ANN, session, "q", idempotency_key=once("k"))

        assert (again.state, again.id) == (TurnState.FINISHED, turn.id)
        assert [message.text for message in again.user_messages] == ["q"]
        assert [message.text for message in again.reply] == list(replies)


async def test_logs_at_their_cap_slide_together(store: PostgresStore, database: PostgresDatabase) -> None:
    """Below, at and beyond the cap, with a gap that a truncation left, and with more words than the cap takes."""
    capped = NewSession(retention=Retention(max_messages=4))
    sessions = [f"s{n}" for n in range(7)]
    kept = MemoryStore()

    async def live(store: Store) -> list[tuple[list[str], int, int]]:
        for n, session in enumerate(sessions):
            await store.sessions.append(ANN, session, batch(*(f"m{place}" for place in range(n)), create=capped))
        await store.sessions.truncate(ANN, "s4", Truncation(after=3))
        for _ in range(3):
            turns = await asyncio.gather(
                *(begin(store, ANN, name, "q", idempotency_key=once(fresh("k"))) for name in sessions)
            )
            await asyncio.gather(*(store.sessions.finish_turn(turn, closing("a", "b")) for turn in turns))
            await asyncio.gather(*(store.sessions.append(ANN, name, batch("more")) for name in sessions))
        await asyncio.gather(
            *(store.sessions.append(ANN, name, batch(*"vwxyz"[: 2 + n])) for n, name in enumerate(sessions))
        )
        heads = [await store.sessions.get(ANN, name) for name in sessions]
        return [(await texts(store, ANN, head.id), head.messages, head.last_seq) for head in heads]

    assert await live(store) == await live(kept)
    counted = "SELECT count(*), min(seq - first_seq) FROM tenuto.messages JOIN tenuto.sessions USING (ref)"
    stored = await postgres_rows(database.admin_url, counted)
    assert stored == [(4 * len(sessions), 0)]


async def test_many_turns_share_few_transactions(store: PostgresStore, database: PostgresDatabase) -> None:
    """Group commit: a transaction is a flush to disk."""
    await asyncio.gather(*(store.sessions.append(ANN, f"s{n}", batch("hello")) for n in range(64)))
    count = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    before = (await postgres_rows(database.admin_url, count))[0][0]

    turns = await asyncio.gather(*(begin(store, ANN, f"s{n}", "q") for n in range(64)))
    await asyncio.gather(*(store.sessions.finish_turn(turn, closing("a")) for turn in turns))

    assert (await postgres_rows(database.admin_url, count))[0][0] - before <= 16


async def test_a_turn_reads_its_window_and_not_the_history(database: PostgresDatabase) -> None:
    counted = (
        "SELECT sum(idx_tup_fetch) FILTER (WHERE relname = 'messages'), "
        "sum(seq_tup_read) FILTER (WHERE relname IN ('messages', 'sessions')), "
        "sum(n_tup_upd) FILTER (WHERE relname = 'sessions'), "
        "sum(n_tup_hot_upd) FILTER (WHERE relname = 'sessions') FROM pg_stat_user_tables"
    )
    store = await PostgresStore.open(database.app_url)
    for _ in range(10):
        await store.sessions.append(ANN, "s", batch(*(f"m{n}" for n in range(500)), create=UNCAPPED))
    await store.close()
    before = await _settled(database, counted)

    store = await PostgresStore.open(database.app_url)
    for _ in range(20):
        await talk(store, ANN, "s", "q", "a", window=20)
        await store.sessions.messages(ANN, "s", Page(limit=20))
    await store.close()
    after = await _settled(database, counted)

    fetched, scanned, changed, in_place = (new - old for new, old in zip(after, before, strict=True))
    assert fetched <= 20 * (20 + 21 + 2)
    assert scanned == 0
    assert changed == 40
    # A head changes without touching an index, but for the page filling up and the clock's coarse steps.
    assert in_place >= 30


async def test_a_turn_looks_its_session_up_among_any_number_of_them(database: PostgresDatabase) -> None:
    """Also where the server knows nothing of a table yet, or remembers it as small."""
    store = await PostgresStore.open(database.app_url)
    await begin(store, ANN, "first", "q", idempotency_key=once("k"))
    await postgres_rows(database.admin_url, "VACUUM ANALYZE")
    await asyncio.gather(
        *(store.sessions.append(ANN, f"s{n}", batch("hello", idempotency_key=once("k"))) for n in range(300))
    )
    await store.close()

    store = await PostgresStore.open(database.app_url, connections=1)
    before = await _rows_read(store)
    for n in range(20):
        guard = once("turn") if n % 2 else None
        await talk(store, ANN, f"s{n}", "q", "a", idempotency_key=guard)
        await store.sessions.append(ANN, f"s{n}", batch("more"))
        await store.sessions.get(ANN, f"s{n}")
        with pytest.raises(SessionNotFound):
            await store.sessions.get(BOB, f"s{n}")
        await store.sessions.patch(ANN, f"s{n}", Changes(title="T"))
    after = await _rows_read(store)
    await store.close()

    read = {table: after[table] - before[table] for table in after}
    assert read["sessions"] <= 20 * 10
    assert read["keyed"] <= 20 * 3


async def _rows_read(store: PostgresStore) -> dict[str, int]:
    """How many rows of each table the store's only connection has fetched, by any kind of scan."""
    await store.link.fetch("SELECT pg_stat_force_next_flush()")
    counted = "SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) AS read FROM pg_stat_user_tables"
    return {row["relname"]: row["read"] for row in await store.link.fetch(counted)}


async def _settled(database: PostgresDatabase, counted: str) -> tuple[Any, ...]:
    """The server's counters once the closed connections are gone: each adds its own before it goes."""
    open_ = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tenuto%'"
    async with asyncio.timeout(LONG):
        while await postgres_rows(database.admin_url, open_):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return (await postgres_rows(database.admin_url, counted))[0]


async def test_a_damaged_message_sets_its_session_aside_whole(store: PostgresStore, database: PostgresDatabase) -> None:
    """X6: what an attempt added is taken out again; the rest is kept as it was found."""
    await talk(store, ANN, "s", "q", "a")
    await postgres_rows(database.admin_url, "UPDATE tenuto.messages SET body = '{\"seq\":2,' WHERE seq = 2")

    with pytest.raises(SessionCorrupt):
        await begin(store, ANN, "s", "q2")
    fresh = await begin(store, ANN, "s", "q3")

    assert fresh.created
    kept = await postgres_rows(
        database.admin_url,
        "SELECT seq FROM tenuto.messages JOIN tenuto.sessions USING (ref) WHERE set_aside_why = 'a message' ORDER BY 1",
    )
    assert kept == [(1,), (2,)]


async def test_a_damaged_head_does_not_hide_others_in_lists(store: PostgresStore, database: PostgresDatabase) -> None:
    await store.sessions.append(ANN, "good", batch("hello"))
    await store.sessions.append(ANN, "bad", batch("hello"))
    await postgres_rows(database.admin_url, "UPDATE tenuto.sessions SET status = 'nonsense' WHERE id = 'bad'")

    assert await listed(store, ANN) == ["good"]
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "bad")


async def test_keys_that_no_index_could_hold_are_kept_apart(store: PostgresStore) -> None:
    """T18: ids of 16 KB as idempotency key, producer, state key."""
    long = "x" * 16_000
    await store.sessions.append(ANN, long, batch("one", idempotency_key=once(long, long)))
    again = await store.sessions.append(ANN, long, batch("one", idempotency_key=once(long, long)))
    await store.sessions.append(ANN, long, batch("two", producer=Producer(id=long, seq=1)))
    for key in (long + "b", long + "a", long):
        await store.state.write_state(ANN, long, key, key[-1])

    assert again.duplicate
    assert await texts(store, ANN, long) == ["one", "two"]
    assert [entry.value for entry in await store.state.list_state(ANN, long, after=long)] == ["a", "b"]


class _Forgetful:
    """A connection that is lost right after the server carried out a statement, as often as told."""

    def __init__(self, store: PostgresStore, times: int = 1) -> None:
        self._fetch = store.link.fetch
        self.times = times

    async def fetch(self, statement: str, *args: object) -> Any:
        rows = await self._fetch(statement, *args)
        if self.times > 0:
            self.times -= 1
            raise InDoubt("session store")
        return rows


@pytest.fixture
def forgetful(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    """A store that hears no answer to its next statement."""
    monkeypatch.setattr(store.link, "fetch", _Forgetful(store).fetch)
    return store


async def test_a_keyed_turn_with_a_lost_answer_goes_on(forgetful: PostgresStore) -> None:
    store = forgetful
    turn = await begin(store, ANN, "s", "q", idempotency_key=once("k"))
    done = await store.sessions.finish_turn(turn, closing("a"))

    assert (turn.state, [message.text for message in turn.user_messages]) == (TurnState.RESUMED, ["q"])
    assert not done.duplicate
    assert await texts(store, ANN, "s") == ["q", "a"]


async def test_an_unkeyed_turn_is_not_sent_again(forgetful: PostgresStore) -> None:
    with pytest.raises(Unavailable):
        await begin(forgetful, ANN, "s", "q")

    assert await texts(forgetful, ANN, "s") == ["q"]


async def test_an_ending_whose_answer_was_lost_is_known_the_second_time(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = await begin(store, ANN, "s", "q")
    monkeypatch.setattr(store.link, "fetch", _Forgetful(store).fetch)

    done = await store.sessions.finish_turn(turn, closing("a", tokens=3))

    assert done.duplicate
    assert done.session.tokens == 3
    assert await texts(store, ANN, "s") == ["q", "a"]


async def test_a_numbered_append_whose_answer_was_lost_is_stored_once(forgetful: PostgresStore) -> None:
    done = await forgetful.sessions.append(ANN, "s", batch("one", producer=Producer(id="journal", seq=1)))

    assert done.duplicate
    assert await texts(forgetful, ANN, "s") == ["one"]
