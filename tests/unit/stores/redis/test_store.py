"""What is particular to sessions in Redis: windows that travel as differences, keys, shelves and their repair."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import InvalidSetting, SessionCorrupt, SessionNotFound
from tenuto.model import Changes, NewSession, OpenTurn, Page, Producer, Retention, SessionQuery, Truncation
from tenuto.model.scope import session_key
from tenuto.stores.redis import RedisStore
from tenuto.stores.redis._cluster import key_slot
from tenuto.stores.redis._keys import RedisKeys, listing_digests
from tenuto.stores.redis._resp import Reply
from tests.clock import FakeClock
from tests.peek import redis_runner
from tests.samples import ACME, ANN, BOB, batch, begin, closing, fresh, listed, once, opening, talk, texts
from tests.servers import RedisCluster, RedisServer
from tests.shared_stores import redis_store


def shown(turn: OpenTurn) -> list[str]:
    return [message.text for message in turn.window]


# Windows


async def test_a_window_holds_what_another_process_added(here: RedisStore, there: RedisStore) -> None:
    await talk(here, ANN, "s", "one", "two")
    await there.sessions.append(ANN, "s", batch("three", "four"))
    await talk(there, ANN, "s", "five", "six")

    turn = await begin(here, ANN, "s", "seven")

    assert shown(turn) == ["one", "two", "three", "four", "five", "six", "seven"]
    assert [message.seq for message in turn.window] == [1, 2, 3, 4, 5, 6, 7]


async def test_a_window_forgets_what_another_process_took_away(here: RedisStore, there: RedisStore) -> None:
    await talk(here, ANN, "s", "one", "two")
    await talk(here, ANN, "s", "three", "four")
    await there.sessions.truncate(ANN, "s", Truncation(after=2))
    await there.sessions.append(ANN, "s", batch("other"))
    turn = await begin(here, ANN, "s", "five")
    assert shown(turn) == ["one", "two", "other", "five"]
    await here.sessions.finish_turn(turn, closing("six"))

    await there.sessions.reset(ANN, "s")
    turn = await begin(here, ANN, "s", "seven")
    assert shown(turn) == ["seven"]


async def test_a_window_of_any_size_is_whole(here: RedisStore, there: RedisStore) -> None:
    for number in range(60):
        await talk(here, ANN, "s", f"q{number}", f"a{number}")
    for size in (0, 1, 2, 3, 20, 64, 90, 200):
        turn = await begin(here, ANN, "s", f"size {size}", window=size)
        log = await texts(there, ANN, "s")
        assert shown(turn) == (log[-size:] if size else [])
        await here.sessions.finish_turn(turn, closing("ok"))


async def test_a_window_respects_caps_and_its_start_whoever_set_them(here: RedisStore, there: RedisStore) -> None:
    capped = NewSession(retention=Retention(max_messages=5))
    for number in range(4):
        await talk(here, ANN, "s", f"q{number}", f"a{number}", create=capped)
    turn = await begin(here, ANN, "s", "q4", create=capped)
    assert shown(turn) == ["q2", "a2", "q3", "a3", "q4"]
    await here.sessions.finish_turn(turn, closing("a4"))

    await there.sessions.patch(ANN, "s", Changes(window_start=10))
    turn = await begin(here, ANN, "s", "q5")
    assert shown(turn) == ["a4", "q5"]


async def test_a_window_that_grew_by_more_than_itself_is_the_newest_part(here: RedisStore, there: RedisStore) -> None:
    await talk(here, ANN, "s", "one", "two")
    await there.sessions.append(ANN, "s", batch(*(f"m{number}" for number in range(50))))

    turn = await begin(here, ANN, "s", "last", window=10)

    assert shown(turn) == [*(f"m{number}" for number in range(41, 50)), "last"]
    await here.sessions.finish_turn(turn, closing("reply"))
    assert shown(await begin(there, ANN, "s", "again", window=12))[:3] == ["m41", "m42", "m43"]


# Totals and keys


async def test_totals_are_exact_beyond_what_lua_counts(store: RedisStore) -> None:
    most = 2**53 - 1
    for _ in range(3):
        turn = await begin(store, ANN, "s", "hi")
        await store.sessions.finish_turn(turn, closing(tokens=most, cost_nanos=most - 1))

    session = await store.sessions.get(ANN, "s")
    assert (session.tokens, session.cost_nanos) == (3 * most, 3 * (most - 1))


async def test_a_key_that_was_taken_back_counts_from_when_it_came_again(store: RedisStore) -> None:
    await store.sessions.append(ANN, "s", batch("kept"))
    await store.sessions.append(ANN, "s", batch("gone", idempotency_key=once("again")))
    await store.sessions.truncate(ANN, "s", Truncation(after=1))
    for number in range(500):
        await store.sessions.append(ANN, "s", batch("hi", idempotency_key=once(f"key-{number}")))
    await store.sessions.append(ANN, "s", batch("back", idempotency_key=once("again")))
    for number in range(500, 1000):
        await store.sessions.append(ANN, "s", batch("hi", idempotency_key=once(f"key-{number}")))

    assert (await store.sessions.append(ANN, "s", batch("back", idempotency_key=once("again")))).duplicate


# What the server is asked


async def test_each_method_is_one_script_and_no_request_searches_keys(redis_server: RedisServer) -> None:
    async with redis_store(redis_server.url, prefix=fresh("count"), clock=FakeClock()) as store:
        await each_method(store, "warm")
        redis_server.call("CONFIG", "RESETSTAT")

        await each_method(store, "s")
        calls = await commands(redis_server)
        await store.sessions.list(ACME, SessionQuery(title="u"))
        await store.sessions.delete(ANN, "s")

        assert calls["evalsha"] == 9
        assert not calls.keys() & {"keys", "scan", "script|load", "eval"}
        assert not (await commands(redis_server)).keys() & {"keys", "scan"}


async def test_every_page_of_a_list_reads_its_sessions_and_one_more(redis_server: RedisServer) -> None:
    clock = FakeClock()
    async with redis_store(redis_server.url, prefix=fresh("pages"), clock=clock) as store:
        for number in range(12):
            await store.sessions.append(ANN, f"s{number}", batch("hi"))
            clock.advance(timedelta(seconds=1))
        await store.sessions.list(ANN, SessionQuery())
        cursor = None
        for _ in range(3):
            redis_server.call("CONFIG", "RESETSTAT")
            page = await store.sessions.list(ANN, SessionQuery(limit=3, cursor=cursor))
            calls = await commands(redis_server)
            assert (len(page.sessions), calls["zrange"], calls["evalsha"]) == (3, 1, 4)
            cursor = page.cursor


async def each_method(store: RedisStore, session_id: str) -> None:
    first = opening(session_id, "one", idempotency_key=once("k"), producer=Producer(id="p", seq=1))
    turn = await store.sessions.begin_turn(ANN, first)
    await store.sessions.renew_turn(turn)
    await store.sessions.finish_turn(turn, closing("two", changes=Changes(title="T", context={"a": 1})))
    await store.sessions.append(ANN, session_id, batch("three"))
    await store.sessions.get(ANN, session_id)
    await store.sessions.messages(ANN, session_id, Page())
    await store.sessions.patch(ANN, session_id, Changes(title="U"))
    await store.sessions.truncate(ANN, session_id, Truncation(after=3))
    await store.sessions.reset(ANN, session_id)


async def commands(server: RedisServer) -> dict[str, int]:
    return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in server.info("commandstats").items()}


async def test_the_keys_of_a_session_share_a_slot_and_hold_no_id() -> None:
    keys = RedisKeys("tenuto")
    names = keys.session(session_key(ANN, "{odd}*:..\N{GRINNING FACE}"))

    assert len({key_slot(name) for name in names}) == 1
    assert all(b"odd" not in name and name.isascii() for name in names)


@pytest.mark.parametrize("prefix", ["", "a{b", "a}b", "a*", "a b", "\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_a_prefix_that_could_reach_elsewhere_is_refused(prefix: str) -> None:
    """T18, T20."""
    with pytest.raises(InvalidSetting):
        RedisKeys(prefix)


async def test_two_prefixes_are_two_installations(redis_server: RedisServer) -> None:
    async with redis_store(f"{redis_server.url}?prefix={fresh('a')}", prefix=fresh("x")) as here:
        await talk(here, ANN, "s", "one", "two")
        other = await RedisStore.open(f"{redis_server.url}?prefix={fresh('b')}")
        with pytest.raises(SessionNotFound):
            await other.sessions.get(ANN, "s")
        await other.close()


async def test_every_key_goes_by_itself_some_time_after_the_deadline(store: RedisStore) -> None:
    """A5: the store drops idle sessions even without a sweep."""
    kept = NewSession(retention=Retention(idle=timedelta(minutes=30)), context={"a": 1})
    turn = await begin(store, ANN, "s", "one", create=kept, idempotency_key=once("k"))
    await store.sessions.finish_turn(turn, closing("two", changes=Changes(attributes={"b": 2})))
    await store.sessions.reset(ANN, "s")
    await store.sessions.append(ANN, "s", batch("three"))

    for key in store.keys.session(session_key(ANN, "s")):
        ttl = await store.link.call("PTTL", key, key=key)
        assert timedelta(hours=1) < timedelta(milliseconds=ttl) <= timedelta(hours=2, minutes=30)

    await begin(store, ANN, "s", "four", retention=Retention(idle=None))
    for key in store.keys.session(session_key(ANN, "s")):
        assert await store.link.call("PTTL", key, key=key) == -1


# Damage


@pytest.mark.parametrize(
    ("family", "command", "words"),
    [
        (0, "HSET", ("s", "seven")),
        (0, "HDEL", ("f",)),
        (0, "HSET", ("f", "{}")),
        (1, "ZADD", (2, '{"seq":2,"turn":1,"id":')),
        (2, "HSET", ("cx", "{")),
    ],
)
async def test_damage_anywhere_sets_the_session_aside_whole(
    store: RedisStore, family: int, command: str, words: tuple[str | int, ...]
) -> None:
    """X6: a corrupt record is kept with the reason, and its id is free again."""
    await talk(store, ANN, "s", "one", "two")
    await store.sessions.patch(ANN, "s", Changes(context={"x": 1}))
    key = session_key(ANN, "s")
    names = store.keys.session(key)
    await store.link.call(command, names[family], *words, key=names[family])

    with pytest.raises(SessionCorrupt):
        await store.sessions.messages(ANN, "s", Page())
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")

    note = store.keys.quarantine(key, redis_runner(store).now())
    assert await store.link.call("EXISTS", *note, key=note[0]) == 5
    assert await store.link.call("HGET", note[-1], "reason", key=note[-1])
    assert await store.link.call("ZSCORE", store.keys.set_aside, key.hex(), key=store.keys.set_aside)
    await talk(store, ANN, "s", "fresh", "start")
    assert await texts(store, ANN, "s") == ["fresh", "start"]


async def test_a_key_of_another_type_is_damage_too(store: RedisStore) -> None:
    head = store.keys.session(session_key(ANN, "s"))[0]
    await store.link.call("SET", head, "not a hash", key=head)

    with pytest.raises(SessionCorrupt):
        await begin(store, ANN, "s", "one")
    assert (await begin(store, ANN, "s", "one")).created


# Shelves


async def test_an_erasure_whose_answer_is_lost_leaves_nothing_of_the_person(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made again, it finds nothing; the expiry index would name the owner for as long as the session was to be kept."""
    new = NewSession(retention=Retention(idle=timedelta(days=30)))
    await store.sessions.append(ANN, "s", batch("hello", "hi", create=new))
    ask = redis_runner(store).session

    async def twice(name: str, *args: Any, **rest: Any) -> Reply:
        reply = await ask(name, *args, **rest)
        return await ask(name, *args, **rest) if name == "erase" else reply

    monkeypatch.setattr(redis_runner(store), "session", twice)

    erased = await store.upkeep.erase(ANN)

    assert ([gone.session_id for gone in erased.removed_sessions], erased.messages) == (["s"], 2)
    left = [await store.link.call("ZRANGE", part, 0, -1, key=part) for part in store.keys.expiries]
    assert not any(left)


async def test_a_listing_tidies_up_after_sessions_that_went_by_themselves(store: RedisStore) -> None:
    await talk(store, ANN, "gone", "one", "two")
    await talk(store, ANN, "here", "one", "two")
    names = store.keys.session(session_key(ANN, "gone"))
    await store.link.call("DEL", *names, key=names[0])

    assert await listed(store, ANN) == ["here"]
    for shelf in listing_digests(ANN):
        assert await store.link.call("ZCARD", store.keys.shelf(shelf), key=store.keys.shelf(shelf)) == 1


async def test_sessions_that_a_crash_left_unlisted_are_put_back(redis_cluster: RedisCluster) -> None:
    """In a cluster shelves follow in a second step; a process that dies in between leaves it undone."""
    async with redis_store(redis_cluster.url, prefix=fresh("crash"), clock=FakeClock()) as store:
        for number in range(20):
            await talk(store, ANN, f"s{number}", "one", "two")
        for shelf in listing_digests(ANN):
            key = store.keys.shelf(shelf)
            await store.link.call("DEL", key, key=key)
        assert (await store.sessions.list(ANN, SessionQuery())).sessions == ()

        # Each sweep looks at some of the server's keys and goes on where the one before it stopped.
        rounds = 0
        while len((await store.sessions.list(ANN, SessionQuery())).sessions) < 20 and rounds < 200:
            await store.upkeep.sweep()
            rounds += 1

        assert len((await store.sessions.list(ANN, SessionQuery())).sessions) == 20
        assert len((await store.sessions.list(ACME, SessionQuery())).sessions) == 20
        assert (await store.sessions.list(BOB, SessionQuery())).sessions == ()


async def test_a_sweep_finds_sessions_whose_deadline_moved(store: RedisStore, fake_clock: FakeClock) -> None:
    """The index is told of a deadline once; the sweep moves the entry on until it is really over."""
    kept = NewSession(retention=Retention(idle=timedelta(minutes=30)))
    await store.sessions.append(ANN, "s", batch("one", create=kept))
    for _ in range(3):
        fake_clock.advance(timedelta(minutes=20))
        await store.sessions.append(ANN, "s", batch("more"))
        assert await store.upkeep.sweep() == ()
    fake_clock.advance(timedelta(minutes=31))

    assert [gone.session_id for gone in await store.upkeep.sweep()] == ["s"]
    assert await store.upkeep.sweep() == ()
