"""Talking over HTTP: whole and streamed, again and anew, and every way it can go wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tenuto.llm import Call, Fail, Hang, Say, ScriptedModel
from tenuto.llm.scripted import Script
from tenuto.model.generation import ModelDone
from tenuto.model.policy import Preset
from tests.chats import Adder, hurried, patient
from tests.journeys.http_service import ANN, BOB, EVE, PROBLEM, HttpService, http_service, playing
from tests.samples import one_field_each

pytestmark = pytest.mark.requirement("C6", "C9", "A6")


@asynccontextmanager
async def talking(
    *scripts: Script, tools: Sequence[Any] = (), policies: Preset | None = None, **given: Any
) -> AsyncIterator[tuple[HttpService, ScriptedModel]]:
    """A server whose default assistant is a scripted model's."""
    model = ScriptedModel(*scripts)
    async with http_service(**playing(model, tools=tuple(tools), policies=policies or patient()), **given) as service:
        yield service, model


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Server-sent events, as a client reads them."""
    found = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def lasting(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply without what tells one call from its repetition; titles get better behind the turn."""
    return {name: value for name, value in reply.items() if name not in ("replayed", "created", "steps", "title")}


async def say(service: HttpService, message: str, who: dict[str, str] = ANN, **body: Any) -> httpx.Response:
    return await service.http.post("/v1/chat", json={"message": message, **body}, headers=who)


async def test_a_conversation_over_http() -> None:
    async with talking("Hello Ann.", "You are Ann.") as (service, model):
        first = (await say(service, "I am Ann.")).json()
        second = (await say(service, "Who am I?", session_id=first["session_id"])).json()

        assert second["answer"] == "You are Ann."
        assert second["turn"] == 2
        assert second["context"]["total"] == sum(entry["tokens"] for entry in second["context"]["entries"])
        shown = [message.text for message in model.requests[-1].messages]
        assert shown == ["You help.", "I am Ann.", "Hello Ann.", "Who am I?"]
        listed = (await service.http.get("/v1/sessions", headers=ANN)).json()["sessions"]
        assert [session["id"] for session in listed] == [first["session_id"]]


@pytest.mark.requirement("D27")
async def test_in_a_group_the_model_is_told_who_said_what() -> None:
    """By the name in the profile."""
    room, question = {"X-Channel": "lark", "X-Chat-ID": "oc_1"}, "What is my favourite colour?"
    async with talking("Noted.", "I do not know.") as (service, model):
        first = await say(service, "My favourite colour is green.", {**ANN, **room}, profile={"name": "Ann"})
        group = first.json()["session_id"]
        await say(service, question, {**BOB, **room}, session_id=group)

        assert model.requests[0].messages[-1].text == "Ann: My favourite colour is green."
        *_, anns, _, bobs = (message.text for message in model.requests[1].messages)
        assert anns == "Ann: My favourite colour is green."
        assert bobs.startswith("User ")
        assert bobs.endswith(f": {question}")
        assert "bob" not in bobs
    async with http_service() as service:
        first = await say(service, "My favourite colour is green.", {**ANN, **room}, profile={"name": "Ann"})
        asked = await say(service, question, {**BOB, **room}, session_id=first.json()["session_id"])

        assert asked.json()["answer"] == "Ann said: “My favourite colour is green.”"


async def test_the_same_answer_streams() -> None:
    async with talking(
        [Call("add", {"a": 1, "b": 2}), Say("Let me see. ")], [Say("It ", "is ", "3.")], tools=[Adder()]
    ) as (service, _):
        response = await say(service, "1+2?", stream=True)

        assert response.headers["content-type"].startswith("text/event-stream")
        events = events_of(response.text)
        assert [name for name, _ in events] == [
            "start", "delta", "tool", "tool", "delta", "delta", "delta", "done"
        ]  # fmt: skip
        assert events[-1][1]["answer"] == "It is 3."
        assert events[-1][1]["data"] == {"sum": 3}
        assert events[0][1]["trace_id"] == events[-1][1]["trace_id"]


async def test_what_fails_before_the_first_event_is_an_ordinary_error() -> None:
    async with talking("Hi.") as (service, _):
        response = await say(service, "Hi", stream=True, assistant="nobody")

        assert (response.status_code, response.headers["content-type"]) == (404, PROBLEM)
        assert response.json()["code"] == "assistant_not_found"


async def test_what_fails_in_the_middle_is_an_event_and_a_retry_resumes() -> None:
    async with talking([Say("Half"), Fail()], "Whole.") as (service, _):
        headers = {**ANN, "Idempotency-Key": "k"}
        broken = await service.http.post("/v1/chat", json={"message": "Go", "stream": True}, headers=headers)
        again = await service.http.post("/v1/chat", json={"message": "Go"}, headers=headers)

        events = events_of(broken.text)
        assert [name for name, _ in events] == ["start", "delta", "error"]
        assert events[-1][1]["code"] == "model_failed"
        assert {name: events[-1][1][name] for name in ("session_id", "trace_id")}.items() <= events[0][1].items()
        assert events[-1][1]["request_id"]
        assert again.json()["answer"] == "Whole."
        assert again.json()["session_id"] == events[0][1]["session_id"]
        messages = await service.http.get(f"/v1/sessions/{again.json()['session_id']}/messages", headers=ANN)
        assert [message["text"] for message in messages.json()["messages"]] == ["Go", "Whole."]


async def test_an_idempotent_retry_returns_the_same_reply_streamed_or_not() -> None:
    async with talking("Once.") as (service, model):
        headers = {**ANN, "Idempotency-Key": "k"}
        first = (await service.http.post("/v1/chat", json={"message": "Go"}, headers=headers)).json()
        again = (await service.http.post("/v1/chat", json={"message": "Go"}, headers=headers)).json()
        streamed = await service.http.post("/v1/chat", json={"message": "Go", "stream": True}, headers=headers)
        other = await service.http.post("/v1/chat", json={"message": "Stop"}, headers=headers)

        assert len(model.requests) == 1
        assert lasting(again) == lasting(first)
        assert lasting(events_of(streamed.text)[-1][1]) == lasting(first)
        assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")


async def test_a_busy_session_is_a_conflict_with_a_code() -> None:
    hang = Hang()
    async with talking([hang, Say("Done.")], policies=hurried()) as (service, _):
        first = asyncio.create_task(say(service, "Long", session_id="s"))
        await hang.reached.wait()
        second = await say(service, "Me too", session_id="s")
        hang.release.set()

        assert (second.status_code, second.json()["code"]) == (409, "session_busy")
        assert (await first).json()["answer"] == "Done."


async def test_answers_are_made_anew_and_words_edited() -> None:
    async with talking("One.", "Two.", "Three.") as (service, _):
        session = (await say(service, "Q")).json()["session_id"]
        anew = await service.http.post("/v1/chat", json={"session_id": session, "regenerate": True}, headers=ANN)
        edited = await say(service, "Q edited", session_id=session, edit=1)

        assert anew.json()["answer"] == "Two."
        assert edited.json()["answer"] == "Three."
        messages = await service.http.get(f"/v1/sessions/{session}/messages", headers=ANN)
        assert [message["text"] for message in messages.json()["messages"]] == ["Q edited", "Three."]


@pytest.mark.requirement("A6")
async def test_a_spent_budget_is_429_before_the_model_is_asked() -> None:
    async with talking("Costly.", session_budget_tokens=5) as (service, model):
        await say(service, "Spend it", session_id="s")
        refused = await say(service, "More", session_id="s")

        assert (refused.status_code, refused.json()["code"]) == (429, "budget_exhausted")
        assert len(model.requests) == 1


async def test_a_trace_tells_everything_to_its_owner_alone() -> None:
    done = ModelDone(model="scripted", input_tokens=100, output_tokens=20, cost_nanos=1_500_000)
    model = ScriptedModel([Call("add", {"a": 1, "b": 2})], "3.", ended=done)
    async with http_service(**playing(model, tools=(Adder(),), policies=patient())) as service:
        reply = (await say(service, "1+2?")).json()
        trace = (await service.http.get(f"/v1/traces/{reply['trace_id']}", headers=ANN)).json()

        assert (trace["request"], trace["answer"]) == ("1+2?", "3.")
        assert [(run["name"], run["output"]) for run in trace["tools"]] == [("add", {"sum": 3})]
        assert trace["context"] == reply["context"]
        spans = {span["name"]: span for span in trace["spans"]}
        assert [span["name"] for span in trace["spans"]] == ["begin", "assemble", "model", "tools", "model", "trace"]
        starts = [span["start"] for span in trace["spans"]]
        assert starts == sorted(starts)
        assert spans["tools"]["start"] <= trace["tools"][0]["start"] <= spans["model"]["start"]
        none = {"cached_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0}
        each = {"input_tokens": 100, "output_tokens": 20, **none, "cost_usd": "0.0015"}
        assert [span["usage"] for span in trace["spans"]] == [None, None, each, None, each, None]
        listed = (await service.http.get("/v1/traces", headers=ANN)).json()["traces"]
        one = (await service.http.get(f"/v1/traces?session_id={reply['session_id']}", headers=ANN)).json()["traces"]
        assert listed == one == [trace]
        for stranger in (BOB, EVE):
            hidden = await service.http.get(f"/v1/traces/{reply['trace_id']}", headers=stranger)
            assert (hidden.status_code, hidden.json()["code"]) == (404, "trace_not_found")
        for odd in ("x", "%00", "e30", "WyJzIiwwLCJ0Il0"):
            assert (await service.http.get(f"/v1/traces/{odd}", headers=ANN)).status_code in (400, 404)


async def test_a_failed_turn_can_be_looked_at() -> None:
    async with talking([Fail()]) as (service, _):
        failed = await say(service, "Go", session_id="s")
        first = (await say(service, "First words")).json()
        opened = await service.http.get(f"/v1/sessions/{first['session_id']}", headers=ANN)
        traces = (await service.http.get("/v1/traces?session_id=s", headers=ANN)).json()["traces"]

        assert (failed.status_code, failed.json()["code"]) == (503, "model_failed")
        assert [(trace["error"], trace["request"]) for trace in traces] == [("model_failed", "Go")]
        assert (failed.json()["session_id"], failed.json()["trace_id"]) == ("s", traces[0]["trace_id"])
        assert failed.json()["request_id"] == failed.headers["x-request-id"]
        assert opened.status_code == 200


TENANT = {"X-Tenant-ID": ANN["X-Tenant-ID"]}
# Who asks for which turns of `traced`, and the requests that they get; whether there are more.
TRACE_LISTS: list[tuple[dict[str, str], dict[str, Any], list[str], bool]] = [
    (ANN, {}, ["2", "1", "0"], False),
    (ANN, {"limit": 2}, ["2", "1"], True),
    (ANN, {"outcome": "failed"}, ["1"], False),
    (ANN, {"outcome": "failed", "session_id": "s", "limit": 1}, ["1"], False),
    (ANN, {"session_id": "s", "limit": 1}, ["1"], True),
    (ANN, {"model": "another"}, [], False),
    (ANN, {"assistant": "nobody"}, [], False),
    (ANN, {"since": "1", "until": "2"}, ["1"], False),
    (ANN, {"until": "2", "limit": 1}, ["1"], True),
    (TENANT, {"user": "ann", "outcome": "answered"}, ["2", "0"], False),
    (TENANT, {"user": "bob", "outcome": "failed"}, [], False),
    (TENANT, {"user": "ann", "session_id": "b"}, [], False),
    (TENANT, {"model": "scripted", "limit": 1}, ["Bob's"], True),
]


@asynccontextmanager
async def traced() -> AsyncIterator[HttpService]:
    """Three turns of Ann in two sessions, of which one failed, and then one of Bob's."""
    async with talking("One.", [Fail()], "Three.") as (service, _):
        for number, session in enumerate(("s", "s", "r")):
            await say(service, f"{number}", session_id=session)
        await say(service, "Bob's", BOB, session_id="b")
        yield service


async def trace_list(service: HttpService, who: dict[str, str], **query: Any) -> dict[str, Any]:
    listed: dict[str, Any] = (await service.http.get("/v1/traces", params=query, headers=who)).json()
    return listed


async def test_turns_are_listed_newest_first_and_by_what_they_are(subtests: pytest.Subtests) -> None:
    async with traced() as service:
        began_at = {trace["request"]: trace["began_at"] for trace in (await trace_list(service, ANN))["traces"]}
        for who, query, requests, truncated in TRACE_LISTS:
            # Times are told by the turn that began then.
            asked = {name: began_at[value] if name in ("since", "until") else value for name, value in query.items()}
            with subtests.test(f"{'ann' if who is ANN else 'tenant'} {query}"):
                listed = await trace_list(service, who, **asked)

                assert [trace["request"] for trace in listed["traces"]] == requests
                assert listed["truncated"] is truncated


async def test_a_list_of_turns_reads_so_many_sessions_of_those_that_are_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.sessions.traces._SESSIONS", 1)
    async with traced() as service:
        listed = [await trace_list(service, TENANT, **query) for query in ({}, {"user": "ann"})]

    assert [[trace["request"] for trace in each["traces"]] for each in listed] == [["Bob's"], ["2"]]
    assert [each["truncated"] for each in listed] == [True, True]


async def test_a_brief_list_has_all_of_a_turn_but_its_details() -> None:
    async with traced() as service:
        [brief, *_] = (await trace_list(service, ANN, brief=True))["traces"]
        body = (await service.http.get(f"/v1/traces/{brief['trace_id']}", headers=ANN)).json()

    assert brief.items() < body.items()
    assert body.keys() - brief.keys() == {"tools", "spans", "data", "context"}


async def test_a_query_for_turns_that_means_none_is_refused(service: HttpService) -> None:
    for query, what in {
        "user=bob": "user: ",
        "outcome=lost": "outcome",
        "since=yesterday": "since",
        "until=2026-01-01T00:00:00": "until",
        "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "since must be before until",
        "before=2": "before: ",
    }.items():
        response = await service.http.get(f"/v1/traces?{query}", headers=ANN)
        assert (response.status_code, response.json()["code"]) == (400, "invalid"), query
        assert what in response.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        *one_field_each(message=["", "  \n", 5, "a\x00b"], regenerate=[True]),
        {"message": "a", "unknown": 1},
        {"message": "a", "edit": 0, "session_id": "s"},
        {"message": "a", "regenerate": True, "session_id": "s"},
        {"message": "a", "language": "fr"},
        {"message": "a", "profile": []},
    ],
)
async def test_bad_questions_are_refused_with_a_sentence(body: dict[str, Any]) -> None:
    async with talking("Hi.") as (service, model):
        response = await service.http.post("/v1/chat", json=body, headers=ANN)

        assert response.status_code == 400
        assert response.json()["detail"]
        assert model.requests == []


async def test_a_question_of_a_megabyte_is_answered_and_a_larger_one_refused() -> None:
    async with talking("Long.") as (service, _):
        fits = await say(service, "words " * 150_000)
        large = await say(service, "words " * 200_000)

        assert fits.status_code == 200
        assert fits.json()["context"]["total"] <= fits.json()["context"]["prompt_limit"]
        assert (large.status_code, large.json()["code"]) == (413, "too_large")


async def test_assistants_are_listed(service: HttpService) -> None:
    listed = (await service.http.get("/v1/assistants", headers=ANN)).json()["assistants"]

    assert {one["name"] for one in listed} >= {"general", "goods", "npc"}
    assert [one["name"] for one in listed if one["default"]] == ["general"]
    assert {one["model"] for one in listed} == {"offline"}


@pytest.mark.requirement("X13")
async def test_chat_answers_under_api_as_well() -> None:
    async with talking("Hi.") as (service, _):
        assert (await service.http.post("/api/v1/chat", json={"message": "Hi"}, headers=ANN)).json()["answer"] == "Hi."
