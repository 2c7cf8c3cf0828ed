"""Turns over HTTP: the words are stored, the session is held, the reply ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.clock import FakeClock
from tests.journeys.door import ANN, BOB, EVE, Door, at, code, says, served


@pytest.fixture
async def door(fake_clock: FakeClock, store_url: str) -> AsyncIterator[Door]:
    async with served(clock=fake_clock, busy_wait=timedelta(0), store=store_url) as door:
        yield door


async def begin(door: Door, text: str, path: str = "/v1/turns", **headers: str) -> httpx.Response:
    return await door.http.post(path, headers={**ANN, **headers}, json={"message": says(text)})


async def end(door: Door, turn: Any, how: str = "finish", **body: Any) -> httpx.Response:
    return await door.http.post(f"/v1/turns/{turn['turn_id']}/{how}", headers=ANN, json=body)


async def test_a_turn_is_begun_and_finished_and_the_next_sees_it(door: Door) -> None:
    turn = (await begin(door, "Hello!")).json()
    session = turn["session"]["id"]
    done = await end(
        door,
        turn,
        message=says("Hello Ann.", "assistant"),
        usage={"tokens": 12, "cost_usd": "0.0003"},
        changes={"title": "Greetings"},
    )
    follow = (await begin(door, "Who am I?", at(session, "turns"))).json()

    assert (turn["state"], turn["number"], turn["created"]) == ("opened", 1, True)
    assert done.status_code == 200
    assert done.json()["session"]["title"] == "Greetings"
    assert (done.json()["session"]["tokens"], done.json()["session"]["cost_usd"]) == (12, "0.0003")
    assert [message["text"] for message in follow["window"]] == ["Hello!", "Hello Ann.", "Who am I?"]
    assert [message["text"] for message in follow["user_messages"]] == ["Who am I?"]


async def test_finishing_again_stores_nothing_more(door: Door) -> None:
    turn = (await begin(door, "Hello!")).json()

    first = await end(door, turn, message=says("Hi", "assistant"))
    again = await end(door, turn, message=says("Hi", "assistant"))

    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert again.json()["session"]["message_count"] == 2


async def test_changes_that_are_too_large_are_refused_and_the_turn_goes_on(door: Door) -> None:
    turn = (await begin(door, "Hello!")).json()
    reply = says("Hi", "assistant")

    refused = await end(door, turn, message=reply, changes={"context": {"a": "x" * 300_000}})
    finished = await end(door, turn, message=reply, changes={"context": {"a": "x"}})

    assert code(refused) == (413, "too_large")
    assert finished.json()["session"]["context"] == {"a": "x"}
    assert finished.json()["session"]["message_count"] == 2


async def test_a_second_turn_waits_its_turn(door: Door, fake_clock: FakeClock) -> None:
    """Told is when to try again: in five seconds, or when the lease runs out if that is sooner."""
    turn = (await begin(door, "first")).json()
    path = at(turn["session"]["id"], "turns")

    busy = await begin(door, "second", path)
    fake_clock.advance(timedelta(seconds=118))
    busy_still = await begin(door, "second", path)
    await end(door, turn, "abandon")
    free = await begin(door, "second", path)

    assert code(busy) == (409, "session_busy")
    assert busy.json()["retry_after"] == 5
    assert busy.headers["retry-after"] == "5"
    assert busy_still.json()["retry_after"] == 2
    assert free.status_code == 201


async def test_the_same_key_resumes_and_later_brings_the_reply(door: Door) -> None:
    key = {"Idempotency-Key": "turn-1"}
    turn = (await begin(door, "Hello!", **key)).json()
    await end(door, turn, "abandon")

    resumed = await begin(door, "Hello!", **key)
    await end(door, resumed.json(), message=says("Hi", "assistant"))
    finished = await begin(door, "Hello!", **key)
    other = await begin(door, "Something else", **key)

    assert (resumed.status_code, resumed.json()["state"]) == (200, "resumed")
    assert resumed.json()["session"]["id"] == turn["session"]["id"]
    assert (finished.status_code, finished.json()["state"]) == (200, "finished")
    assert [message["text"] for message in finished.json()["reply"]] == ["Hi"]
    assert finished.json()["session"]["message_count"] == 2
    assert code(other) == (409, "idempotency_key_reused")


async def test_a_renewed_turn_holds_on(door: Door, fake_clock: FakeClock) -> None:
    turn = (await begin(door, "think")).json()
    fake_clock.advance(timedelta(seconds=100))

    renewed = await end(door, turn, "renew")
    fake_clock.advance(timedelta(seconds=100))
    busy = await begin(door, "second", at(turn["session"]["id"], "turns"))

    assert renewed.json() == {"turn_id": turn["turn_id"], "lease_until": "2026-01-15T09:03:40Z"}
    assert code(busy) == (409, "session_busy")


async def test_a_lease_that_ran_out_goes_to_the_next(door: Door, fake_clock: FakeClock) -> None:
    turn = (await begin(door, "slow")).json()
    fake_clock.advance(timedelta(minutes=3))

    taken = await begin(door, "next", at(turn["session"]["id"], "turns"))
    late = await end(door, turn, message=says("too late", "assistant"))

    assert taken.status_code == 201
    assert code(late) == (409, "turn_lost")
    assert code(await end(door, turn, "renew")) == (409, "turn_lost")


@pytest.mark.parametrize("how", ["reset", "delete"])
async def test_a_turn_on_a_session_that_was_reset_or_deleted_is_lost(door: Door, how: str) -> None:
    turn = (await begin(door, "Hello!")).json()
    session = turn["session"]["id"]
    await (door.http.delete(at(session), headers=ANN) if how == "delete" else _reset(door, session))

    assert code(await end(door, turn, message=says("Hi", "assistant"))) == (409, "turn_lost")


async def _reset(door: Door, session: str) -> None:
    await door.http.post(at(session, "reset"), headers=ANN)


@pytest.mark.parametrize("stranger", [BOB, EVE], ids=["other user", "other tenant"])
async def test_somebody_elses_turn_cannot_be_finished(door: Door, stranger: dict[str, str]) -> None:
    turn = (await begin(door, "Hello!")).json()

    stolen = await door.http.post(
        f"/v1/turns/{turn['turn_id']}/finish", headers=stranger, json={"message": says("mine", "assistant")}
    )

    assert code(stolen) == (409, "turn_lost")
    assert (await door.http.get(at(turn["session"]["id"]), headers=ANN)).json()["message_count"] == 1


@pytest.mark.parametrize(
    "token", ["x", "%00", "WyJhIiwiYiIsImMiLDBd", "WyJhIiwiYiIsImMiXQ", "W1tbW1tbW1tb", "%F0%9F%98%80"]
)
async def test_what_is_no_turn_is_not_found(door: Door, token: str) -> None:
    refused = await door.http.post(f"/v1/turns/{token}/finish", headers=ANN)

    assert refused.status_code in (400, 404)
    assert refused.json()["code"] in ("turn_not_found", "invalid_text")


@pytest.mark.requirement("X4")
async def test_a_turn_in_an_unknown_session_is_refused(door: Door) -> None:
    """The platform preset says so."""
    assert code(await begin(door, "Hello?", at("none", "turns"))) == (404, "session_not_found")


@pytest.mark.requirement("B6")
async def test_where_the_preset_says_so_an_unknown_session_begins_anew(store_url: str) -> None:
    """An unknown id is never an error there; a new one comes back."""
    async with served(preset="goods_qa", store=store_url) as door:
        turn = await begin(door, "cheap phones?", at("none", "turns"))

    assert turn.status_code == 201
    assert turn.json()["session"]["id"] != "none"
    assert len(turn.json()["window"]) == 1
