"""Apps that name their conversations in their own way: each chat is one session of its user, at every door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from tenuto.llm import Echo, ScriptedModel
from tenuto.model.turn import Trace
from tests.journeys.http_service import HttpService, http_service, playing

ANN: Final = {"X-OpenWebUI-Chat-Id": "c1", "X-OpenWebUI-User-Id": "ann"}
BOB: Final = {"X-OpenWebUI-Chat-Id": "c1", "X-OpenWebUI-User-Id": "bob"}
CLAUDE: Final = {"X-Claude-Code-Session-Id": "c1"}
CODEX: Final = {"session-id": "c1", "x-codex-turn-metadata": json.dumps({"request_kind": "turn"})}
COMPLETIONS, RESPONSES, MESSAGES = DOORS = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@asynccontextmanager
async def apps_served(
    apps: str | None = "open-webui,codex,claude-code", **given: Any
) -> AsyncIterator[tuple[HttpService, ScriptedModel]]:
    model = ScriptedModel(Echo())
    async with http_service(**playing(model), apps=apps, **given) as service:
        yield service, model


async def complete(
    service: HttpService, headers: dict[str, str], *texts: str, path: str = COMPLETIONS, **fields: Any
) -> httpx.Response:
    """Ask as an app does: with the whole conversation, whose every second text is an answer."""
    talk = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    field = "input" if path == RESPONSES else "messages"
    if path == MESSAGES:
        fields = {"model": "helper", "max_tokens": 100, **fields}
    response = await service.http.post(path, json={field: talk, **fields}, headers=headers)
    assert response.status_code == 200, response.text
    return response


async def stored(service: HttpService, session: str, **who: str) -> list[str]:
    """The texts of a session."""
    page = await service.http.get(f"/v1/sessions/{session}/messages", headers=who)
    assert page.status_code == 200, page.text
    return [message["text"] for message in page.json()["messages"]]


async def count(service: HttpService, **who: str) -> int:
    return len((await service.http.get("/v1/sessions", headers=who)).json()["sessions"])


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_of_an_app_is_one_session_of_its_user(path: str, stream: bool) -> None:
    async with apps_served() as (service, _):
        first = await complete(service, ANN, "one", path=path, stream=stream)
        session = first.headers["Tenuto-Session"]
        second = await complete(service, ANN, "one", "one", "two", path=path, stream=stream)
        other = await complete(service, BOB, "one", path=path, stream=stream)
        foreign = await complete(service, {**ANN, "X-Tenant-ID": "evil"}, "one", path=path, stream=stream)

        named = [response.headers["Tenuto-Session"] for response in (second, other, foreign)]
        assert named[0] == session
        assert len({session, *named}) == 3
        texts = await stored(service, session, **{"X-User-ID": "ann"})
        assert texts[::2] == ["one", "two"]
        assert len(texts) == 4
        hidden = await service.http.get(f"/v1/sessions/{session}", headers={"X-User-ID": "bob"})
        assert hidden.status_code == 404


async def test_two_apps_with_one_id_have_two_sessions() -> None:
    async with apps_served() as (service, _):
        chat = await complete(service, {"X-OpenWebUI-Chat-Id": "c1"}, "one")
        code = await complete(service, CODEX, "one", path=RESPONSES)
        claude = await complete(service, CLAUDE, "one", path=MESSAGES)

        assert chat.headers["Tenuto-Session"].startswith("open-webui-")
        assert code.headers["Tenuto-Session"].startswith("codex-")
        assert claude.headers["Tenuto-Session"].startswith("claude-code-")
        assert await count(service) == 3


async def test_a_credential_of_a_user_stays_that_user_whatever_the_app_says() -> None:
    async with apps_served(locked=True) as (service, _):
        keys = {name: await service.key(user=name) for name in ("ann", "bob")}
        backend = await service.key()

        anns = await complete(service, {**keys["ann"], **ANN}, "one")
        bobs = await complete(service, {**keys["bob"], **ANN}, "one")
        for_bob = await complete(service, {**backend, **BOB}, "two")

        session = anns.headers["Tenuto-Session"]
        assert await stored(service, session, **keys["ann"]) == ["one", "one"]
        assert bobs.headers["Tenuto-Session"] != session
        # The backend of the tenant may name the user: this is the same chat of the same user.
        assert for_bob.headers["Tenuto-Session"] == bobs.headers["Tenuto-Session"]


async def test_an_id_of_another_user_that_a_caller_names_outright_is_left_alone() -> None:
    async with apps_served() as (service, _):
        session = (await complete(service, ANN, "one")).headers["Tenuto-Session"]

        for path in DOORS:
            named = {"X-User-ID": "bob", "Tenuto-Session": session}
            other = (await complete(service, named, "two", path=path)).headers["Tenuto-Session"]
            again = (await complete(service, named, "two", "two", "three", path=path)).headers["Tenuto-Session"]
            assert other == again != session

        assert await stored(service, session, **{"X-User-ID": "ann"}) == ["one", "one"]


async def test_without_a_setting_nothing_that_an_app_sends_names_a_session() -> None:
    async with apps_served(None) as (service, _):
        response = await complete(service, ANN, "one", user="ann", prompt_cache_key="c1")

        assert "Tenuto-Session" not in response.headers
        assert await count(service) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_task_of_an_app_is_answered_and_leaves_nothing_in_its_chat(stream: bool) -> None:
    async with apps_served() as (service, model):
        session = (await complete(service, ANN, "one")).headers["Tenuto-Session"]
        traces: list[Trace] = []
        (await service.tenuto.chat()).observe(traces.append)
        task = {**ANN, "X-OpenWebUI-Task": "title_generation"}

        titled = await complete(service, task, "one", "one", "Name this chat", stream=stream)
        code = {**CODEX, "x-codex-turn-metadata": json.dumps({"thread_source": "thread_title"})}
        response = await complete(service, code, "Name this", path=RESPONSES, stream=stream)
        claude = {**CLAUDE, "x-claude-code-agent-id": "a1", "X-User-ID": "ann"}
        message = await complete(service, claude, "Search this", path=MESSAGES, stream=stream)

        assert "Name this chat" in titled.text
        answers = (titled, response, message)
        assert [one.headers["Tenuto-App-Task"] for one in answers] == ["title", "title", "subagent"]
        assert "Tenuto-Session" not in titled.headers
        assert await stored(service, session, **{"X-User-ID": "ann"}) == ["one", "one"]
        assert await count(service) == 1
        tasks = [("open-webui", "title"), ("codex", "title"), ("claude-code", "subagent")]
        assert [(trace.app, trace.app_task) for trace in traces] == tasks
        # What the task was asked after is the app's to say.
        assert [message.text for message in model.requests[1].messages][-3:] == ["one", "one", "Name this chat"]
        usage = (await service.http.get("/v1/analytics/usage")).json()
        assert sum(day["turns"] for day in usage["days"]) == 4


async def test_store_false_is_obeyed_and_said_where_it_is_not() -> None:
    async with apps_served() as (service, _):
        obeyed = [await complete(service, ANN, "one", path=path, store=False) for path in (COMPLETIONS, RESPONSES)]
        assert all("Tenuto-Session" not in response.headers for response in obeyed)
        assert await count(service) == 0

        overridden = await complete(service, CODEX, "one", path=RESPONSES, store=False)

        assert overridden.headers["Tenuto-Store"] == "overridden"
        assert overridden.json()["store"] is True
        session = overridden.headers["Tenuto-Session"]
        [trace] = (await service.http.get("/v1/traces", params={"session_id": session})).json()["traces"]
        assert (trace["app"], trace["app_task"], trace["store_overridden"]) == ("codex", "", True)


async def test_our_header_names_the_session_of_a_response_and_an_empty_one_names_none() -> None:
    async with apps_served(None) as (service, _):
        named = {"Tenuto-Session": "mine"}
        first = await complete(service, named, "one", path=RESPONSES)
        await complete(service, named, "one", "one", "two", path=RESPONSES)
        followed = await service.http.post(
            RESPONSES,
            json={"input": "three", "previous_response_id": first.json()["id"]},
            headers={"Tenuto-Session": "other"},
        )
        absent = [await complete(service, {"Tenuto-Session": ""}, "one", path=path) for path in DOORS]

        assert (await stored(service, "mine"))[::2] == ["one", "two"]
        assert followed.status_code == 400
        assert followed.json()["error"]["param"] == "previous_response_id"
        assert [response.headers.get("Tenuto-Session", "")[:5] for response in absent] == ["", "conv_", ""]


async def test_what_an_app_writes_into_messages_instructs_the_turn_and_is_no_talk() -> None:
    async with apps_served() as (service, model):
        block = "<environment_context>cwd: /work</environment_context>"
        talk: list[dict[str, Any]] = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": block},
            {"role": "user", "content": "one"},
        ]

        response = await service.http.post(RESPONSES, json={"input": talk, "instructions": "You code."}, headers=CODEX)

        assert response.status_code == 200, response.text
        assert await stored(service, response.headers["Tenuto-Session"]) == ["one", "one"]
        prompt = "\n".join(message.text for message in model.requests[0].messages if message.role == "system")
        assert [text in prompt for text in ("You code.", "Be brief.", block)] == [True] * 3


async def test_tools_of_unknown_kinds_are_refused_but_for_the_app_that_always_sends_them() -> None:
    async with apps_served() as (service, _):
        body = {"input": "one", "tools": [{"type": "namespace", "name": "n", "tools": []}, {"type": "web_search"}]}

        refused = await service.http.post(RESPONSES, json=body)
        taken = await service.http.post(RESPONSES, json=body, headers=CODEX)

        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[0].type")
        assert (taken.status_code, taken.headers["Tenuto-Dropped-Tools"]) == (200, "namespace, web_search")
        assert taken.json()["tools"] == []


async def test_an_id_that_no_session_may_have_is_refused_in_the_shape_of_the_door() -> None:
    async with apps_served(session_from="header:X-Chat") as (service, _):
        for name, value in (
            ("Tenuto-Session", b"x" * 20_000),
            ("X-OpenWebUI-User-Id", b"x" * 20_000),
            ("X-Chat", b"\xff"),
        ):
            for path in DOORS:
                talk = [{"role": "user", "content": "one"}]
                body: dict[str, Any] = {"input": talk} if path == RESPONSES else {"messages": talk}
                body |= {"model": "helper", "max_tokens": 100} if path == MESSAGES else {}
                response = await service.http.post(path, json=body, headers=[(name.encode(), value)])
                assert response.status_code == 400, name
                assert response.json()["error"]["type"] == "invalid_request_error"

        # Of an id of an app, only a digest is kept.
        assert (await complete(service, {"X-Chat": "x" * 20_000}, "one")).headers["Tenuto-Session"].startswith("app-")
