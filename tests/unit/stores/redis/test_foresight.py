"""What a process believes of a session it has seen, and how it learns that another process changed it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenuto.errors import SessionNotFound, TurnLost
from tenuto.model import Changes, OpenTurn, Page, Producer, Retention
from tenuto.model.scope import session_key
from tenuto.ports import Store
from tenuto.stores.redis import RedisStore
from tenuto.stores.redis._script_io import begin_turn_args as begin_ask
from tests.peek import redis_runner, redis_window
from tests.samples import ANN, batch, begin, closing, once, opening, talk, texts
from tests.servers import RedisServer


def shown(turn: OpenTurn) -> list[str]:
    return [message.text for message in turn.window]


async def numbered(store: Store, session_id: str) -> list[tuple[int, int, str]]:
    page = await store.sessions.messages(ANN, session_id, Page(limit=100))
    return [(message.seq, message.turn, message.text) for message in page.messages]


async def test_what_another_process_appends_within_a_turn_moves_the_reply(here: Store, there: Store) -> None:
    """The reply was sent with a place that is taken by now."""
    turn = await begin(here, ANN, "s", "one")
    await there.sessions.append(ANN, "s", batch("two"))

    done = await here.sessions.finish_turn(turn, closing("three"))

    assert [(message.seq, message.turn) for message in done.messages] == [(3, 1)]
    assert (done.session.messages, done.session.last_seq, done.session.version) == (3, 3, 3)
    assert await numbered(there, "s") == [(1, 1, "one"), (2, 2, "two"), (3, 1, "three")]


async def test_what_another_process_appends_between_turns_moves_the_words(here: Store, there: Store) -> None:
    await talk(here, ANN, "s", "one", "two")
    await there.sessions.append(ANN, "s", batch("three"))

    turn = await begin(here, ANN, "s", "four")

    assert shown(turn) == ["one", "two", "three", "four"]
    assert [(message.seq, message.turn) for message in turn.user_messages] == [(4, 3)]
    assert await numbered(there, "s") == [(1, 1, "one"), (2, 1, "two"), (3, 2, "three"), (4, 3, "four")]


async def test_a_change_of_the_head_elsewhere_shows_at_the_end_of_a_turn(here: Store, there: Store) -> None:
    turn = await begin(here, ANN, "s", "one")
    await there.sessions.patch(ANN, "s", Changes(title="Named", context={"city": "Xi'an"}))

    done = await here.sessions.finish_turn(turn, closing("two"))

    assert (done.session.title, done.session.context) == ("Named", {"city": "Xi'an"})
    assert done.session == await there.sessions.get(ANN, "s")


async def test_a_change_of_the_head_elsewhere_shows_at_the_next_turn(here: Store, there: Store) -> None:
    await talk(here, ANN, "s", "one", "two")
    await here.sessions.patch(ANN, "s", Changes(context={"language": "en"}))
    await there.sessions.patch(ANN, "s", Changes(title="Named", attributes={"vip": True}, context={"language": "zh"}))

    turn = await begin(here, ANN, "s", "three")

    told = (turn.session.title, turn.session.attributes, turn.session.context)
    assert told == ("Named", {"vip": True}, {"language": "zh"})
    assert turn.session == await there.sessions.get(ANN, "s")


async def test_an_unchanged_session_is_told_as_it_is_stored(here: Store, there: Store) -> None:
    await talk(here, ANN, "s", "one", "two")
    await here.sessions.patch(ANN, "s", Changes(title="Named"))
    await here.sessions.append(ANN, "s", batch("aside"))

    turn = await begin(here, ANN, "s", "three", retention=Retention(idle=timedelta(days=2), max_messages=4))
    assert turn.session == await there.sessions.get(ANN, "s")
    assert (shown(turn), turn.number, turn.created) == (["one", "two", "aside", "three"], 3, False)
    done = await here.sessions.finish_turn(turn, closing("four", "five", tokens=2**50, cost_nanos=7))

    assert done.session == await there.sessions.get(ANN, "s")
    assert await numbered(there, "s") == [(3, 2, "aside"), (4, 3, "three"), (5, 3, "four"), (6, 3, "five")]


async def test_a_session_made_anew_elsewhere_is_not_taken_for_the_one_seen(here: Store, there: Store) -> None:
    """Its counts are those of the old one; only the beginning of its epoch tells them apart."""
    await talk(here, ANN, "s", "one", "two")
    await there.sessions.delete(ANN, "s")
    await talk(there, ANN, "s", "new", "other")

    turn = await begin(here, ANN, "s", "three")

    assert shown(turn) == ["new", "other", "three"]
    assert turn.session == await there.sessions.get(ANN, "s")


async def test_a_session_that_is_gone_is_made_anew_or_not_found(here: Store, there: Store) -> None:
    await talk(here, ANN, "s", "one", "two")
    await there.sessions.delete(ANN, "s")

    with pytest.raises(SessionNotFound):
        await begin(here, ANN, "s", "three", create=None)
    turn = await begin(here, ANN, "s", "four")

    assert (turn.created, turn.expired, shown(turn)) == (True, False, ["four"])


async def test_a_caller_who_alters_what_it_was_told_alters_nothing_here(here: Store) -> None:
    await talk(here, ANN, "s", "one", "two")
    told = await here.sessions.patch(ANN, "s", Changes(context={"city": "Xi'an"}))
    told.context["city"] = "elsewhere"
    turn = await begin(here, ANN, "s", "three")
    turn.session.context["city"] = "nowhere"
    turn.session.metadata["mark"] = 1

    done = await here.sessions.finish_turn(turn, closing("four"))

    assert (done.session.context, done.session.metadata) == ({"city": "Xi'an"}, {})


async def test_numbers_of_a_producer_count_on_a_seen_session_too(here: Store, there: Store) -> None:
    turn = await begin(here, ANN, "s", "one", producer=Producer(id="p", seq=1))
    done = await here.sessions.finish_turn(turn, closing("two", producer=Producer(id="p", seq=1)))
    assert done.messages == ()
    again = await begin(here, ANN, "s", "one", producer=Producer(id="p", seq=1))
    assert (again.user_messages, shown(again)) == ((), ["one"])
    done = await here.sessions.finish_turn(again, closing("two", producer=Producer(id="p", seq=2)))

    assert [message.seq for message in done.messages] == [2]
    assert await texts(there, ANN, "s") == ["one", "two"]


async def test_a_turn_that_nobody_disturbs_takes_ten_commands(here: Store, redis_server: RedisServer) -> None:
    """Read the head, store the message, two places on shelves, write the head: twice, however long the history."""
    await talk(here, ANN, "s", "one", "two")
    before = commands(redis_server)

    turn = await begin(here, ANN, "s", "three", idempotency_key=once("k"))
    await here.sessions.finish_turn(turn, closing("four", tokens=5))

    after = commands(redis_server)
    ran = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    ran.pop("cmdstat_info", None)
    assert ran == {"cmdstat_evalsha": 2, "cmdstat_hmget": 2, "cmdstat_zadd": 6, "cmdstat_hset": 2}


async def test_variables_that_nobody_changed_do_not_travel_again(
    here: Store, there: Store, redis_server: RedisServer
) -> None:
    """Every session with a chat has some: title, assistant, language."""
    await talk(here, ANN, "s", "one", "two")
    await here.sessions.patch(
        ANN, "s", Changes(context={"language": "en"}, attributes={"a": 1}, metadata={"m": [1, {"n": 2}]})
    )
    before = commands(redis_server)

    turn = await begin(here, ANN, "s", "three")
    done = await here.sessions.finish_turn(turn, closing("four"))

    assert commands(redis_server).get("cmdstat_hgetall") == before.get("cmdstat_hgetall")
    held = (done.session.context, done.session.attributes, done.session.metadata)
    assert held == ({"language": "en"}, {"a": 1}, {"m": [1, {"n": 2}]})
    assert done.session == await there.sessions.get(ANN, "s")


def commands(server: RedisServer) -> dict[str, int]:
    return {name: told["calls"] for name, told in server.info("commandstats").items() if "|" not in name}


@pytest.mark.parametrize("known", [True, False])
async def test_a_window_brings_no_more_than_was_asked_for(here: RedisStore, there: Store, known: bool) -> None:
    """Only what is asked for and not known travels, however long the log."""
    await here.sessions.append(ANN, "s", batch(*(f"word {number}" for number in range(50))))
    await talk(here, ANN, "s", "one", "two")
    await there.sessions.append(ANN, "s", batch("aside"))
    key, now = session_key(ANN, "s"), redis_runner(here).now()
    asked = opening("s", "three", window=10)
    seen = redis_window(here, key, 10) if known else None

    reply = await redis_runner(here).session("begin_turn", key, ANN, begin_ask(ANN, asked, now, now + 1, seen))

    assert len(reply[-1]) == (1 if known else 9)


async def test_nothing_that_was_seen_outlives_a_connection(here: RedisStore, redis_server: RedisServer) -> None:
    """A server that comes back may have lost its latest writes; what it counts to again may be something else."""
    await talk(here, ANN, "s", "one", "two")
    key = session_key(ANN, "s")
    assert redis_window(here, key) is not None

    redis_server.call("CLIENT", "KILL", "TYPE", "normal")
    await here.upkeep.ping()

    assert redis_window(here, key) is None
    assert shown(await begin(here, ANN, "s", "three")) == ["one", "two", "three"]


async def test_damage_that_shows_at_the_end_of_a_turn_is_a_lost_turn(here: RedisStore) -> None:
    """What cannot be read is set aside, and its error is one of ours."""
    turn = await begin(here, ANN, "s", "one")
    head = here.keys.session(session_key(ANN, "s"))[0]
    await here.link.call("HSET", head, "f", "{}", key=head)

    with pytest.raises(TurnLost):
        await here.sessions.finish_turn(turn, closing("two", changes=Changes(title="Named")))

    assert (await begin(here, ANN, "s", "anew")).created
