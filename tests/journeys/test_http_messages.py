"""Messages over HTTP: appended once, in order, and brought back exactly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tenuto.model import AppendBatch, Draft, Role, Scope
from tenuto.model.message import SUMMARY
from tests.journeys.http_service import ANN, HttpService, at, code, http_service, says
from tests.samples import SENT_AT
from tests.samples import says as draft


@pytest.fixture
async def service(store_url: str) -> AsyncIterator[HttpService]:
    async with http_service(store=store_url) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        yield service


async def append(service: HttpService, body: Any, **headers: str) -> Any:
    return await service.http.post(at("s", "messages"), headers={**ANN, **headers}, json=body)


async def test_one_message_or_many_are_appended_in_order(service: HttpService) -> None:
    one = await append(service, says("first"))
    many = await append(service, {"messages": [says("second", "assistant"), says("third")]})

    page = (await service.http.get(at("s", "messages"), headers=ANN)).json()

    assert (one.status_code, many.status_code) == (201, 201)
    assert many.json()["duplicate"] is False
    assert [(message["seq"], message["text"]) for message in page["messages"]] == [
        (1, "first"),
        (2, "second"),
        (3, "third"),
    ]
    assert (page["more_before"], page["more_after"]) == (False, False)


async def test_pages_lead_through_a_long_talk_both_ways(service: HttpService) -> None:
    await append(service, {"messages": [says(str(number)) for number in range(1, 11)]})

    async def page(query: str) -> tuple[list[int], bool, bool]:
        body = (await service.http.get(at("s", "messages") + query, headers=ANN)).json()
        return [message["seq"] for message in body["messages"]], body["more_before"], body["more_after"]

    assert await page("?limit=3") == ([8, 9, 10], True, False)
    assert await page("?limit=3&before=8") == ([5, 6, 7], True, True)
    assert await page("?limit=3&after=0") == ([1, 2, 3], False, True)
    assert code(await service.http.get(at("s", "messages") + "?before=2&after=1", headers=ANN)) == (400, "invalid")


async def test_turns_that_were_stored_late_are_shown_at_their_place(service: HttpService) -> None:
    """A process that was cut off alone knew two messages when it journaled a turn; another one went on."""
    late = {"metadata": {"journaled_after": 2}}
    turns = [says("q1"), says("a1", "assistant"), says("q3"), says("a3", "assistant")]
    await append(service, {"messages": [*turns, says("q2") | late, says("a2", "assistant") | late]})

    async def texts(query: str) -> list[str]:
        page = (await service.http.get(at("s", "messages") + query, headers=ANN)).json()
        return [message["text"] for message in page["messages"]]

    assert await texts("") == ["q1", "a1", "q3", "a3", "q2", "a2"]
    assert await texts("?in_place=true") == ["q1", "a1", "q2", "a2", "q3", "a3"]


@pytest.mark.requirement("T19")
async def test_a_message_comes_back_exactly_as_it_was_sent(service: HttpService) -> None:
    """Numbers keep their kind, unknown fields and parts stay, empty lists stay lists."""
    raw = (
        b'{"role":"assistant","parts":[{"type":"text","text":"hi"},{"type":"x_image","url":"u","size":1.0}],'
        b'"big":9007199254740993,"float":1.0,"tiny":1e-7,"empty":[],"nothing":null,"deep":{"a":[{"b":[]}]}}'
    )

    stored = await service.http.post(at("s", "messages"), headers=ANN, content=raw)
    page = await service.http.get(at("s", "messages"), headers=ANN)

    sent = msgspec.json.decode(raw)
    back = msgspec.json.decode(page.content)["messages"][0]
    assert stored.status_code == 201
    assert {name: back[name] for name in sent} == sent
    assert b'"big":9007199254740993' in page.content
    assert b'"float":1.0' in page.content
    assert back["text"] == "hi"


async def test_the_same_key_stores_once_and_another_body_is_refused(service: HttpService) -> None:
    body = {"messages": [says("hello"), says("hi", "assistant")]}

    first = await append(service, body, **{"Idempotency-Key": "k"})
    again = await append(service, body, **{"Idempotency-Key": "k"})
    other = await append(service, {"messages": [says("bye")]}, **{"Idempotency-Key": "k"})
    spent = await append(service, {**body, "usage": {"tokens": 1}}, **{"Idempotency-Key": "k"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["duplicate"] is True
    assert again.json()["messages"] == first.json()["messages"]
    assert again.json()["session"]["message_count"] == 2
    assert code(other) == (409, "idempotency_key_reused")
    assert code(spent) == (409, "idempotency_key_reused")


async def test_a_producers_numbers_are_stored_once_and_without_gaps(service: HttpService) -> None:
    def numbered(seq: int) -> dict[str, Any]:
        return {"messages": [says(f"line {seq}")], "producer": {"id": "journal", "seq": seq}}

    first = await append(service, numbered(1))
    again = await append(service, numbered(1))
    gap = await append(service, numbered(3))
    next_one = await append(service, numbered(2))

    assert (first.status_code, again.status_code, next_one.status_code) == (201, 200, 201)
    assert again.json()["duplicate"] is True
    assert code(gap) == (409, "sequence_gap")
    assert gap.json()["expected"] == 2


@pytest.mark.requirement("A6")
async def test_usage_adds_up_exactly(service: HttpService) -> None:
    for _ in range(3):
        await append(service, {"messages": [says("x")], "usage": {"tokens": 7, "cost_usd": "0.1"}})
    await append(service, {"messages": [says("x")], "usage": {"cost_usd": 0.25}})

    head = (await service.http.get(at("s"), headers=ANN)).json()

    assert (head["tokens"], head["cost_usd"]) == (21, "0.55")


async def test_appending_to_no_session_is_not_found_and_makes_none(service: HttpService) -> None:
    response = await service.http.post(at("none", "messages"), headers=ANN, json=says("hello?"))

    assert code(response) == (404, "session_not_found")
    assert code(await service.http.get(at("none"), headers=ANN)) == (404, "session_not_found")


async def test_summaries_come_only_where_they_are_asked_for(service: HttpService) -> None:
    """They lie in the log between a question and its answer, and have no text of their own."""
    summary = Draft(id="sum", role=Role.ITEM, sent_at=SENT_AT, parts=({"type": SUMMARY, "text": "talk"},))
    batch = AppendBatch(id="b", messages=(draft("Where?"), summary, draft("There.")))
    await service.tenuto.store.sessions.append(Scope(tenant="acme", user="ann"), "s", batch)

    plain = (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"]
    whole = (await service.http.get(at("s", "messages"), headers=ANN, params={"summaries": "true"})).json()["messages"]

    assert [message["text"] for message in plain] == ["Where?", "There."]
    assert [message["seq"] for message in whole] == [1, 2, 3]


async def test_messages_beyond_the_stored_cap_are_counted_in_the_answer() -> None:
    async with http_service(max_messages=5) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        few, many = [
            (await service.http.post(at("s", "messages"), headers=ANN, json={"messages": [says("x")] * count})).json()
            for count in (4, 7)
        ]
        stored = (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"]

    assert [(told["kept"], told["dropped"], len(told["messages"])) for told in (few, many)] == [(4, 0, 4), (5, 2, 7)]
    assert [message["seq"] for message in stored] == [message["seq"] for message in many["messages"][-5:]]
