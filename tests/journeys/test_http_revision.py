"""Going back and on over HTTP, on every store: late repetitions, and characters that stay who they are."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.llm import Fail, Say, ScriptedModel
from tenuto.model.generation import Persona
from tenuto.model.prompt import Language
from tests.journeys.http_service import ANN, HttpService, at, code, http_service, playing

PERSONAS = {name: Persona(id=name, system={Language.ENGLISH: f"You are {name}."}) for name in ("ada", "bea")}


async def texts(service: HttpService) -> list[str]:
    page = await service.http.get(at("s", "messages"), headers=ANN)
    return [message["text"] for message in page.json()["messages"] if message["role"] != "item"]


async def send(service: HttpService, key: str, **body: Any) -> Any:
    return await service.http.post(
        "/v1/chat", json={"session_id": "s", **body}, headers={**ANN, "Idempotency-Key": key}
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_key_whose_words_were_edited_is_a_conflict_and_says_nothing_again(store_url: str, stream: bool) -> None:
    model = ScriptedModel("One.", "Two.", "Three.")
    async with http_service(store=store_url, **playing(model)) as service:
        await send(service, "said", message="Q")
        await send(service, "edited", message="Q edited", edit=1)
        late = await send(service, "said", message="Q", stream=stream)

        assert code(late) == (409, "superseded")
        assert "Q" not in late.json()["detail"]
        assert await texts(service) == ["Q edited", "Two."]
        assert (await send(service, "edited", message="Q edited", edit=1)).json()["replayed"]
        anew = await send(service, "anew", regenerate=True)
        assert anew.json()["answer"] == "Three."
        assert code(await send(service, "edited", message="Q edited", edit=1)) == (409, "superseded")
        assert await texts(service) == ["Q edited", "Three."]
        assert len(model.requests) == 3


@pytest.mark.requirement("C13")
async def test_a_session_goes_on_with_its_character_over_http(store_url: str) -> None:
    """Said again, edited or answered anew, without naming it."""
    model = ScriptedModel("Hi.")
    async with http_service(store=store_url, **playing(model, personas=PERSONAS, isolated=True)) as service:
        first = await send(service, "1", message="Who is there?", persona="ada")
        await send(service, "2", message="And you?")
        await send(service, "3", regenerate=True)
        await send(service, "4", message="Who?", edit=1)

        assert first.status_code == 200
        assert [asking.messages[0].text for asking in model.requests] == ["You help.\n\nYou are ada."] * 4
        traces = (await service.http.get("/v1/traces?session_id=s", headers=ANN)).json()["traces"]
        assert {trace["persona"] for trace in traces} == {"ada"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_cannot_be_made_anew_stays(store_url: str, stream: bool) -> None:
    """The model fails: 503, and message, trace and key of the answer from before are as they were."""
    model = ScriptedModel("One.", [Say("Tw"), Fail()], "Three.")
    async with http_service(store=store_url, **playing(model)) as service:
        first = (await send(service, "said", message="Q")).json()
        before = (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"]
        failed = await send(service, "anew", regenerate=True, stream=stream)
        after = (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"]

        assert "model_failed" in failed.text
        assert failed.status_code == (200 if stream else 503)
        assert after == before
        assert (await service.http.get(f"/v1/traces/{first['trace_id']}", headers=ANN)).json()["answer"] == "One."
        assert (await send(service, "said", message="Q")).json()["replayed"]
        assert (await send(service, "anew", regenerate=True, stream=stream)).status_code == 200
        assert await texts(service) == ["Q", "Three."]


async def test_nothing_is_replaced_that_its_caller_has_not_seen(store_url: str) -> None:
    """Of two tabs, one does not know yet what was said in the other one."""
    model = ScriptedModel("One.", "Two.", "Three.", "Four.", "Five.")
    wishes: list[dict[str, Any]] = [{"regenerate": True}, {"edit": 1, "message": "Q edited"}, {"message": "Q more"}]
    async with http_service(store=store_url, **playing(model)) as service:
        await send(service, "1", message="Q")
        await send(service, "2", message="Q too")
        unseen = [await send(service, f"late {wish}", **wish, after_seq=2) for wish in wishes]
        untouched = await texts(service)
        anew = await send(service, "anew", regenerate=True, after_seq=4)
        [*_, newest] = (await service.http.get(at("s", "messages"), headers=ANN)).json()["messages"]
        edited = await send(service, "edited", message="Q edited", edit=1, after_seq=newest["seq"])

        assert [code(one) for one in unseen] == [(409, "version_conflict")] * 3
        assert untouched == ["Q", "One.", "Q too", "Two."]
        assert (anew.json()["answer"], edited.json()["answer"]) == ("Three.", "Four.")
        assert await texts(service) == ["Q edited", "Four."]
        assert (await send(service, "edited", message="Q edited", edit=1, after_seq=newest["seq"])).json()["replayed"]


async def test_a_reset_keeps_the_assistant_and_what_tools_leave_stays_inside(store_url: str) -> None:
    """A goods session is a goods session after a reset; its answers show no more than they say."""
    async with http_service(store=store_url) as service:
        await service.http.post("/v1/chat", json={"message": "cheap phones?", "assistant": "goods"}, headers=ANN)
        [session] = (await service.http.get("/v1/sessions", headers=ANN)).json()["sessions"]
        page = (await service.http.get(at(session["id"], "messages"), headers=ANN)).json()
        export = (await service.http.get(at(session["id"], "export"), headers=ANN)).json()
        reset = await service.http.post(at(session["id"], "reset"), headers=ANN)
        body = {"message": "the first one", "session_id": session["id"]}
        reply = (await service.http.post("/v1/chat", json=body, headers=ANN)).json()

        assert page["messages"][-1]["metadata"]["data"]["goods"]
        assert "state" not in page["messages"][-1]["metadata"]
        assert "goods" not in session["context"]
        assert export["messages"][-1]["metadata"]["state"]["goods"]["items"]
        assert reset.json()["metadata"] == {"assistant": "goods", "privacy_also": ["ADDRESS", "ORDER_ID"]}
        assert (reply["assistant"], reply["data"].get("goods", [])) == ("goods", [])
