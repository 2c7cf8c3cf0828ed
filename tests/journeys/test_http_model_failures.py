"""Why a model did not answer, told at every door, in the trace, and to operators."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec
import pytest

from tenuto.access import KeyRole
from tenuto.errors import FailureReason, ModelFailed, ModelKeyRefused, ModelTimeout
from tenuto.llm import Call, Fail, FallbackChain, OfflineModel, Say, ScriptedModel
from tenuto.model.generation import StepChanged, ToolContext, ToolOutput
from tests.chats import Adder, helper
from tests.journeys.http_service import ANN, HttpService, http_service, playing

WHY = {
    FailureReason.UNREACHABLE: ModelFailed("m", "cannot be reached, or broke off", FailureReason.UNREACHABLE),
    FailureReason.REFUSED: ModelKeyRefused("m", "refuses our key or its permissions (401)"),
    FailureReason.LIMIT: ModelFailed("m", "is asked too often (429)", FailureReason.LIMIT),
    FailureReason.TOO_SLOW: ModelTimeout("m"),
    FailureReason.CONTENT_FILTER: ModelFailed("m", "declined to answer", FailureReason.CONTENT_FILTER),
    FailureReason.OTHER: ModelFailed("m", "failed at its provider (500)"),
}
SAID = [{"role": "user", "content": "Hi"}]
PART = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
AG_UI = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi"}]}
PLAIN = '"reason":"{0}"'
CHUNK = '"type":"data-error","data":{{"code":"{1}","reason":"{0}"}}'
EVENT = '"type":"CUSTOM","name":"tenuto.error","value":{{"code":"{1}","reason":"{0}"}}'
# For each door what is sent, and how its answer has the reason.
DOORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "whole": ("/v1/chat", {"message": "Hi"}, PLAIN),
    "events": ("/v1/chat", {"message": "Hi", "stream": True}, PLAIN),
    "completions": ("/v1/chat/completions", {"model": "helper", "messages": SAID}, PLAIN),
    "chunks": ("/v1/chat/completions", {"model": "helper", "messages": SAID, "stream": True}, PLAIN),
    "message": ("/v1/messages", {"model": "helper", "max_tokens": 9, "messages": SAID}, PLAIN),
    "blocks": ("/v1/messages", {"model": "helper", "max_tokens": 9, "messages": SAID, "stream": True}, PLAIN),
    "response": ("/v1/responses", {"model": "helper", "input": "Hi", "stream": True}, PLAIN),
    "AI SDK": ("/v1/ai-sdk/chat", {"id": "c", "messages": [PART]}, CHUNK),
    "AG-UI": ("/v1/ag-ui/helper", AG_UI, EVENT),
}


@pytest.mark.parametrize("reason", FailureReason)
async def test_every_door_and_the_trace_tell_why_the_model_failed(reason: FailureReason) -> None:
    error = WHY[reason]
    async with http_service(**playing(ScriptedModel([Say("Half"), Fail(error)]))) as service:
        for name, (path, body, place) in DOORS.items():
            response = await service.http.post(path, headers=ANN, json=body)
            assert place.format(reason, error.code) in response.text, (name, response.text)
        traces = (await service.http.get("/v1/traces?brief=true", headers=ANN)).json()["traces"]

    assert {(trace["error"], trace["reason"], trace["error_message"]) for trace in traces} == {
        (error.code, reason, str(error))
    }


async def test_the_status_names_the_model_that_fails_until_it_answers_again() -> None:
    script = [[Fail(WHY[FailureReason.LIMIT])]] * 3 + [[Say("Well.")]] * 4
    async with http_service(**playing(ScriptedModel(*script))) as service:
        before = await _status(service)
        first = await _turn_and_status(service)
        third = [await _turn_and_status(service) for _ in range(2)][-1]
        fourth = await _turn_and_status(service)
        well = [await _turn_and_status(service) for _ in range(3)][-1]
        metrics = (await service.http.get("/metrics")).text

    assert (before["level"], before["models"][0]["answered"]) == ("ok", 0)
    assert [(found["code"], found["level"], found["subject"]) for found in first["findings"]] == [
        ("model_limit", "warning", "scripted")
    ]
    assert first["findings"][0]["message"] == "The model m is asked too often (429)."
    assert [(found["code"], found["level"]) for found in third["findings"]] == [("model_limit", "error")]
    assert (third["models"][0]["failed_in_a_row"], third["models"][0]["failure_rate"]) == (3, 1.0)
    # One answer after three failures is no proof.
    assert [(found["code"], found["level"]) for found in fourth["findings"]] == [("model_limit", "warning")]
    assert (well["level"], well["models"][0]["answered"], well["models"][0]["failed"]) == ("ok", 4, 3)
    assert well["models"][0]["last_failure"]["reason"] == "limit"
    assert well["models"][0]["p50_ms"] <= well["models"][0]["p95_ms"]
    assert 'tenuto_model_calls_total{model="scripted",outcome="limit"} 3.0' in metrics


async def test_what_a_tool_raised_is_in_the_trace_under_the_privacy_policy() -> None:
    tool = Adder(fault=ValueError("no order of ann@example.com"))
    async with http_service(**playing(ScriptedModel([Call("add")], "Sorry."), tools=(tool,))) as service:
        reply = await service.http.post("/v1/chat", headers=ANN, json={"message": "1+2?"})
        trace = await service.http.get(f"/v1/traces/{reply.json()['trace_id']}", headers=ANN)

    [run] = trace.json()["tools"]
    assert run["error"] == "tool_failed"
    assert run["exception"].startswith("ValueError: no order of [REDACTED_EMAIL] (chats.py:")
    assert "no order" not in reply.text


@pytest.mark.parametrize("before", [485, 7_985])
async def test_a_value_at_the_place_of_a_cut_is_redacted_whole(before: int) -> None:
    tool = Adder(fault=ValueError("x " * (before // 2) + "4111 1111 1111 1111" + " x" * 8_000))
    async with http_service(**playing(ScriptedModel([Call("add")], "Sorry."), tools=(tool,))) as service:
        reply = await service.http.post("/v1/chat", headers=ANN, json={"message": "1+2?"})
        trace = await service.http.get(f"/v1/traces/{reply.json()['trace_id']}", headers=ANN)

    [run] = trace.json()["tools"]
    assert "4111" not in run["exception"]
    assert 1_000 < len(run["exception"]) < 9_000


@pytest.mark.requirement("B2")
async def test_what_code_raised_is_shown_to_operators_and_users_get_the_code(subtests: pytest.Subtests) -> None:
    """By credential and door; a tool that fails in a turn, and an assistant's own code that fails the turn."""

    async def respond(turn: ToolContext) -> AsyncGenerator[StepChanged | ToolOutput, None]:
        if turn.question:
            raise LookupError("no route to db.internal")
        yield ToolOutput(output=None)

    tool = Adder(fault=ValueError("no route to db.internal"))
    given = playing(ScriptedModel([Call("add")], "Sorry."), tools=(tool,))
    given["assistants"].append(helper(name="broken", respond=respond))
    async with http_service(**given, locked=True) as service:
        user = await service.key(user="ann")
        told = [
            await service.http.post("/v1/chat", headers=user, json={"message": "1+2?", **body})
            for body in ({}, {"assistant": "broken"}, {"assistant": "broken", "stream": True})
        ]
        traces = (await service.http.get("/v1/traces?brief=true", headers=user)).json()["traces"]
        ids = {trace["assistant"]: trace["trace_id"] for trace in traces}
        credentials = {
            "user": (user, False),
            "backend": ({**await service.key(), "X-User-ID": "ann"}, True),
            "admin": (await service.key(user="ann", role=KeyRole.ADMIN), True),
        }
        for who, (key, sees) in credentials.items():
            for code, id_ in (("tool_failed", ids["helper"]), ("assistant_failed", ids["broken"])):
                one = f"/v1/traces/{id_}"
                # The trace of a character has its tools, and no error of the turn.
                beside = [f"/v1/npc/traces/{id_}"] if code == "tool_failed" else []
                for path in (one, f"{one}?text=true", "/v1/traces", *beside):
                    with subtests.test(who, code=code, path=path):
                        shown = (await service.http.get(path, headers=key)).text
                        assert code in shown
                        assert ("db.internal" in shown) == sees

    assert not [response.text for response in told if "db.internal" in response.text or "LookupError" in response.text]
    assert (told[1].status_code, told[1].json()["code"]) == (500, "assistant_failed")
    assert told[1].json()["trace_id"] in [trace["trace_id"] for trace in traces]
    assert "its operator finds the cause in the trace" in told[1].json()["detail"]
    assert '"code":"assistant_failed"' in told[2].text


async def test_why_the_fallback_answered_is_in_the_trace_for_operators() -> None:
    first = ScriptedModel([Fail(WHY[FailureReason.REFUSED])])
    chain = FallbackChain([first, OfflineModel(stand_in=True)])
    given = {**playing(ScriptedModel()), "models": {"scripted": chain}}
    async with http_service(**given, locked=True) as service:
        user, admin = await service.key(user="ann"), await service.key(user="ann", role=KeyRole.ADMIN)
        reply = (await service.http.post("/v1/chat", headers=user, json={"message": "Hi"})).json()
        seen = [
            (await service.http.get(f"/v1/traces/{reply['trace_id']}", headers=key)).json() for key in (user, admin)
        ]

    assert reply["degraded"] == ["fallback_model"]
    assert "cannot be reached" not in reply["answer"]
    assert [(trace["error"], trace["reason"]) for trace in seen] == [(None, None), (None, "refused")]
    assert seen[0]["error_message"] == ""
    assert seen[1]["error_message"] == str(WHY[FailureReason.REFUSED])


async def _turn_and_status(service: HttpService) -> dict[str, Any]:
    await service.http.post("/v1/chat", headers=ANN, json={"message": "the-words"})
    return await _status(service)


async def _status(service: HttpService) -> dict[str, Any]:
    response: httpx.Response = await service.http.get("/v1/status")
    assert "the-words" not in response.text
    found: dict[str, Any] = msgspec.json.decode(response.content)
    return found
