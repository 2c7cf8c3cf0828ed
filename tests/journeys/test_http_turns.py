"""Turns over HTTP: the words are stored, the session is held, the reply ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.clock import FakeClock
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, at, code, http_service, says


@pytest.fixture
async def service(fake_clock: FakeClock, store_url: str) -> AsyncIterator[HttpService]:
    async with http_service(clock=fake_clock, busy_wait=timedelta(0), store=store_url) as service:
        yield service


async def begin(service: HttpService, text: str, path: str = "/v1/turns", **headers: str) -> httpx.Response:
    return await service.http.post(path, headers={**ANN, **headers}, json={"message": says(text)})


async def end(service: HttpService, turn: Any, how: str = "finish", **body: Any) -> httpx.Response:
    return await service.http.post(f"/v1/turns/{turn['turn_id']}/{how}", headers=ANN, json=body)


async def test_a_turn_is_begun_and_finished_and_the_next_sees_it(service: HttpService) -> None:
    turn = (await begin(service, "Hello!")).json()
    session = turn["session"]["id"]
    done = await end(
        service,
        turn,
        message=says("Hello Ann.", "assistant"),
        usage={"tokens": 12, "cost_usd": "0.0003"},
        changes={"title": "Greetings"},
    )
    follow = (await begin(service, "Who am I?", at(session, "turns"))).json()

    assert (turn["state"], turn["number"], turn["created"]) == ("opened", 1, True)
    assert done.status_code == 200
    assert done.json()["session"]["title"] == "Greetings"
    assert (done.json()["session"]["tokens"], done.json()["session"]["cost_usd"]) == (12, "0.0003")
    assert [message["text"] for message in follow["window"]] == ["Hello!", "Hello Ann.", "Who am I?"]
    assert [message["text"] for message in follow["user_messages"]] == ["Who am I?"]


async def test_finishing_again_stores_nothing_more(service: HttpService) -> None:
    turn = (await begin(service, "Hello!")).json()

    first = await end(service, turn, message=says("Hi", "assistant"))
    again = await end(service, turn, message=says("Hi", "assistant"))

    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert again.json()["session"]["message_count"] == 2


async def test_changes_that_are_too_large_are_refused_and_the_turn_goes_on(service: HttpService) -> None:
    turn = (await begin(service, "Hello!")).json()
    reply = says("Hi", "assistant")

    refused = await end(service, turn, message=reply, changes={"context": {"a": "x" * 300_000}})
    finished = await end(service, turn, message=reply, changes={"context": {"a": "x"}})

    assert code(refused) == (413, "too_large")
    assert finished.json()["session"]["context"] == {"a": "x"}
    assert finished.json()["session"]["message_count"] == 2


async def test_a_second_turn_waits_its_turn(service: HttpService, fake_clock: FakeClock) -> None:
    """Told is when to try again: in five seconds, or when the lease runs out if that is sooner."""
    turn = (await begin(service, "first")).json()
    path = at(turn["session"]["id"], "turns")

    busy = await begin(service, "second", path)
    fake_clock.advance(timedelta(seconds=118))
    busy_still = await begin(service, "second", path)
    await end(service, turn, "abandon")
    free = await begin(service, "second", path)

    assert code(busy) == (409, "session_busy")
    assert busy.json()["retry_after"] == 5
    assert busy.headers["retry-after"] == "5"
    assert busy_still.json()["retry_after"] == 2
    assert free.status_code == 201


async def test_the_same_key_resumes_and_later_brings_the_reply(service: HttpService) -> None:
    key = {"Idempotency-Key": "turn-1"}
    turn = (await begin(service, "Hello!", **key)).json()
    await end(service, turn, "abandon")

    resumed = await begin(service, "Hello!", **key)
    await end(service, resumed.json(), message=says("Hi", "assistant"))
    finished = await begin(service, "Hello!", **key)
    other = await begin(service, "Something else", **key)

    assert (resumed.status_code, resumed.json()["state"]) == (200, "resumed")
    assert resumed.json()["session"]["id"] == turn["session"]["id"]
    assert (finished.status_code, finished.json()["state"]) == (200, "finished")
    assert [message["text"] for message in finished.json()["reply"]] == ["Hi"]
    assert finished.json()["session"]["message_count"] == 2
    assert code(other) == (409, "idempotency_key_reused")


async def test_a_renewed_turn_holds_on(service: HttpService, fake_clock: FakeClock) -> None:
    turn = (await begin(service, "think")).json()
    fake_clock.advance(timedelta(seconds=100))

    renewed = await end(service, turn, "renew")
    fake_clock.advance(timedelta(seconds=100))
    busy = await begin(service, "second", at(turn["session"]["id"], "turns"))

    assert renewed.json() == {"turn_id": turn["turn_id"], "lease_until": "2026-01-15T09:03:40Z"}
    assert code(busy) == (409, "session_busy")


async def test_a_lease_that_ran_out_goes_to_the_next(service: HttpService, fake_clock: FakeClock) -> None:
    turn = (await begin(service, "slow")).json()
    fake_clock.advance(timedelta(minutes=3))

    taken = await begin(service, "next", at(turn["session"]["id"], "turns"))
    late = await end(service, turn, message=says("too late", "assistant"))

    assert taken.status_code == 201
    assert code(late) == (409, "turn_lost")
    assert code(await end(service, turn, "renew")) == (409, "turn_lost")


@pytest.mark.parametrize("how", ["reset", "delete"])
async def test_a_turn_on_a_session_that_was_reset_or_deleted_is_lost(service: HttpService, how: str) -> None:
    turn = (await begin(service, "Hello!")).json()
    session = turn["session"]["id"]
    await (service.http.delete(at(session), headers=ANN) if how == "delete" else _reset(service, session))

    assert code(await end(service, turn, message=says("Hi", "assistant"))) == (409, "turn_lost")


async def _reset(service: HttpService, session: str) -> None:
    await service.http.post(at(session, "reset"), headers=ANN)


@pytest.mark.parametrize("stranger", [BOB, EVE], ids=["other user", "other tenant"])
async def test_somebody_elses_turn_cannot_be_finished(service: HttpService, stranger: dict[str, str]) -> None:
    turn = (await begin(service, "Hello!")).json()

    stolen = await service.http.post(
        f"/v1/turns/{turn['turn_id']}/finish", headers=stranger, json={"message": says("mine", "assistant")}
    )

    assert code(stolen) == (409, "turn_lost")
    assert (await service.http.get(at(turn["session"]["id"]), headers=ANN)).json()["message_count"] == 1


@pytest.mark.parametrize(
    "token", ["x", "%00", "WyJhIiwiYiIsImMiLDBd", "WyJhIiwiYiIsImMiXQ", "W1tbW1tbW1tb", "%F0%9F%98%80"]
)
async def test_what_is_no_turn_is_not_found(service: HttpService, token: str) -> None:
    response = await service.http.post(f"/v1/turns/{token}/finish", headers=ANN)

    assert response.status_code in (400, 404)
    assert response.json()["code"] in ("turn_not_found", "invalid_text")


@pytest.mark.requirement("X4")
async def test_a_turn_in_an_unknown_session_is_refused(service: HttpService) -> None:
    """The platform preset says so."""
    assert code(await begin(service, "Hello?", at("none", "turns"))) == (404, "session_not_found")


@pytest.mark.requirement("B6")
async def test_where_the_preset_says_so_an_unknown_session_begins_anew(store_url: str) -> None:
    """An unknown id is never an error there; a new one comes back."""
    async with http_service(preset="goods_qa", store=store_url) as service:
        turn = await begin(service, "cheap phones?", at("none", "turns"))

    assert turn.status_code == 201
    assert turn.json()["session"]["id"] != "none"
    assert len(turn.json()["window"]) == 1
