"""Clients that name nothing, such as llm or a page of gradio: with a setting, each of their chats is one session."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tenuto.errors import Unavailable
from tenuto.llm import Call, Echo, Say, ScriptedModel
from tenuto.model.privacy import Mode
from tests.apps import STOPPED_WORDS, Llm
from tests.clock import FakeClock
from tests.journeys.app_server import app_server, sent_by, shown_by, shown_to_model
from tests.journeys.http_service import ANN, BOB, EVE, HttpService, http_service, playing

COMPLETIONS, RESPONSES, MESSAGES = DOORS = "/v1/chat/completions", "/v1/responses", "/v1/messages"
WEEK: Final = timedelta(days=7)
TOOLS: Final[list[Any]] = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]


class Client:
    """A client of the wire shape of llm: it sends all that it shows, and keeps no id."""

    def __init__(self, service: HttpService, who: dict[str, str], path: str = COMPLETIONS, **fields: Any) -> None:
        self._service = service
        self._who = who
        self._path = path
        self._fields = fields
        self.talk: list[dict[str, Any]] = []
        self.sessions: list[str] = []
        self.histories: list[str] = []

    async def ask(self, *texts: str) -> httpx.Response:
        self.talk += [{"role": "user", "content": text} for text in texts]
        body: dict[str, Any] = {"messages": [{"role": "system", "content": "Be brief."}, *self.talk], **self._fields}
        if self._path == RESPONSES:
            body["input"] = body.pop("messages")
        elif self._path == MESSAGES:
            body |= {"model": "helper", "max_tokens": 100, "system": "Be brief.", "messages": self.talk}
        response = await self._service.http.post(self._path, json=body, headers=self._who)
        assert response.status_code == 200, response.text
        self.sessions.append(response.headers.get("Tenuto-Session", ""))
        self.histories.append(response.headers.get("Tenuto-History", ""))
        if self._path == COMPLETIONS:
            self.talk.append(response.json()["choices"][0]["message"])
        elif self._path == RESPONSES:
            self.talk += response.json()["output"]
        else:
            self.talk.append({"role": "assistant", "content": response.json()["content"]})
        return response


async def stored(service: HttpService, who: dict[str, str], session: str) -> list[str]:
    page = await service.http.get(f"/v1/sessions/{session}/messages", headers=who)
    return [message["text"] for message in page.json()["messages"]]


async def count(service: HttpService, who: dict[str, str]) -> int:
    return len((await service.http.get("/v1/sessions", headers=who)).json()["sessions"])


@pytest.mark.parametrize("path", DOORS)
async def test_a_chat_is_one_session_and_one_that_begins_alike_another(path: str) -> None:
    async with http_service(**playing(ScriptedModel(Echo())), sessions_by_history=WEEK) as service:
        first, second = Client(service, ANN, path), Client(service, ANN, path)
        for text in ("one", "two", "three"):
            await first.ask(text)
            await second.ask(text if text == "one" else f"{text}!")

        # While both chats are the same word for word, either session may be either chat's.
        assert {*first.sessions, *second.sessions} == {first.sessions[-1], second.sessions[-1]}
        assert await count(service, ANN) == 2
        assert first.histories == second.histories == ["new", "continued", "continued"]
        assert await stored(service, ANN, first.sessions[-1]) == ["one", "one", "two", "two", "three", "three"]
        assert await stored(service, ANN, second.sessions[-1]) == ["one", "one", "two!", "two!", "three!", "three!"]


async def test_a_chat_of_another_user_or_tenant_is_never_gone_on_with() -> None:
    async with http_service(**playing(ScriptedModel(Echo())), sessions_by_history=WEEK) as service:
        anns = Client(service, ANN)
        await anns.ask("one")
        for who in (BOB, EVE):
            theirs = Client(service, who)
            theirs.talk = list(anns.talk)
            await theirs.ask("two")

            assert theirs.sessions[0] != anns.sessions[0]
            assert await stored(service, who, theirs.sessions[0]) == ["one", "one", "two", "two"]

        assert await stored(service, ANN, anns.sessions[0]) == ["one", "one"]


async def test_the_last_answer_is_made_again_and_an_edit_begins_another_session() -> None:
    async with http_service(**playing(ScriptedModel(Echo())), sessions_by_history=WEEK) as service:
        client = Client(service, ANN)
        await client.ask("one")
        await client.ask("two")
        client.talk = client.talk[:3]
        await client.ask()
        client.talk = client.talk[:2]
        await client.ask("deux")

        assert client.histories == ["new", "continued", "regenerated", "new"]
        assert len(set(client.sessions[:3])) == 1
        assert await stored(service, ANN, client.sessions[0]) == ["one", "one", "two", "two"]
        assert await stored(service, ANN, client.sessions[3]) == ["one", "one", "deux", "deux"]


async def test_a_call_and_its_output_are_one_chat() -> None:
    model = ScriptedModel((Call("find", {"number": 4}),), Say("At the depot."), Say("Tomorrow."))
    async with http_service(**playing(model), sessions_by_history=WEEK) as service:
        client = Client(service, ANN, tools=TOOLS)
        await client.ask("Where is parcel 4?")
        call = client.talk[-1]["tool_calls"][0]["id"]
        client.talk.append({"role": "tool", "tool_call_id": call, "content": "depot"})
        await client.ask()
        await client.ask("And when?")

        assert len(set(client.sessions)) == 1
        assert (await stored(service, ANN, client.sessions[0]))[-3:] == ["At the depot.", "And when?", "Tomorrow."]


async def test_a_chat_goes_on_after_a_restart_and_in_another_process_until_it_is_too_old(tmp_path: Path) -> None:
    clock = FakeClock()
    given: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/tenuto.db", "sessions_by_history": WEEK, "clock": clock}
    async with http_service(**playing(ScriptedModel(Echo())), **given) as service:
        client = Client(service, ANN)
        await client.ask("one")
    async with AsyncExitStack() as stack:
        services = [
            await stack.enter_async_context(http_service(**playing(ScriptedModel(Echo())), **given)) for _ in range(2)
        ]
        for turn, service in enumerate([*services, *services]):
            clock.advance(timedelta(days=5))
            client._service = service
            await client.ask(f"turn {turn}")
        clock.advance(timedelta(days=8))
        await client.ask("too late")

        assert len(set(client.sessions[:-1])) == 1
        assert client.sessions[-1] != client.sessions[0]
        assert len(await stored(services[0], ANN, client.sessions[0])) == 10


async def test_it_is_off_by_default_and_leaves_out_what_asks_not_to_be_stored() -> None:
    async with http_service(**playing(ScriptedModel(Echo()))) as service:
        client = Client(service, ANN)
        await client.ask("one")
        await client.ask("two")
        assert client.sessions == ["", ""]
        assert await count(service, ANN) == 0

    async with http_service(**playing(ScriptedModel(Echo())), sessions_by_history=WEEK) as service:
        for path in (COMPLETIONS, RESPONSES):
            client = Client(service, ANN, path, store=False)
            await client.ask("one")
            await client.ask("two")
        assert await count(service, ANN) == 0


async def test_private_data_that_is_stored_redacted_is_known_again() -> None:
    service_settings: dict[str, Any] = {"sessions_by_history": WEEK, "privacy_message": Mode.REDACT}
    async with http_service(**playing(ScriptedModel(Echo())), **service_settings) as service:
        client = Client(service, ANN)
        await client.ask("Mail ann@example.com")
        await client.ask("two")

        assert len(set(client.sessions)) == 1
        texts = await stored(service, ANN, client.sessions[0])
        assert len(texts) == 4
        assert "ann@example.com" not in texts[0]


async def test_a_retry_by_its_key_is_the_same_chat() -> None:
    async with http_service(**playing(ScriptedModel(Echo())), sessions_by_history=WEEK) as service:
        clients = [Client(service, {**ANN, "Idempotency-Key": "k"}) for _ in range(2)]
        for client in clients:
            await client.ask("one")

        assert clients[0].sessions == clients[1].sessions
        assert await stored(service, ANN, clients[0].sessions[0]) == ["one", "one"]


@pytest.mark.parametrize("away", [("read_state", "write_state"), ("write_state",)])
async def test_a_store_that_is_away_where_chats_are_noted_costs_no_answer(
    away: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise Unavailable("state")

    async with http_service(**playing(ScriptedModel(Echo())), sessions_by_history=WEEK) as service:
        client = Client(service, ANN)
        await client.ask("one")
        with monkeypatch.context() as outage:
            for name in away:
                outage.setattr(service.app.state.service.by_history._state, name, refuse)
            await client.ask("two")
            fresh = Client(service, ANN)
            await fresh.ask("three")
        await client.ask("four")

        assert await stored(service, ANN, client.sessions[-1]) == ["one", "one", "two", "two", "four", "four"]
        assert await stored(service, ANN, fresh.sessions[0]) == ["three", "three"]


async def test_two_chats_of_llm_go_on_beside_each_other_through_tools_pictures_a_stop_and_a_restart(
    tmp_path: Path,
) -> None:
    given: dict[str, Any] = {"store": f"sqlite:///{tmp_path / 'chats.db'}", "apps": None, "sessions_by_history": WEEK}
    async with app_server(**given) as server:
        chats = [await server.open(Llm), await server.open(Llm)]
        for number, app in enumerate(chats):
            await app.ask("Hello.")
            await app.ask(f"This is chat {number}.")
            await app.ask("Please use the tool.")
        for app in chats:
            await app.ask("What is in the picture?", picture=True)
            await app.stop("Count to forty.", after=STOPPED_WORDS[-1])
        for app in reversed(chats):
            await app.ask("Go on, please.")

    async with app_server(**given) as again:
        for app in chats:
            app.base_url, app.key = again.base_url, (await again.open(Llm)).key
            await app.ask("After the restart.")
            assert shown_to_model(again.model.requests[-1]) == sent_by(app.sent[-1])

        sessions = await again.sessions()
        talks = [await again.talk(session["id"]) for session in sessions]
        assert sorted(talks) == sorted(map(shown_by, chats))
