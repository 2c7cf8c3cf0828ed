"""Apps that send the whole chat each time: its session has what the app shows, and so has every prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.llm import ScriptedModel
from tenuto.model import Scope
from tenuto.model.generation import ModelDone, ModelEvent, ModelRequest, TextDelta, ToolCall, ToolCallRequested
from tenuto.model.message import is_summary
from tenuto.ports import Tool
from tests.journeys.http_service import ANN, HttpService, http_service, playing

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
SYSTEM = {"role": "system", "content": "Be brief."}


class Answers(ScriptedModel):
    """No answer twice; in a chat with tools every third is a call."""

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        number = len(self.requests)
        self.requests.append(request)
        if request.tools and number % 3 == 2:
            yield ToolCallRequested(call=ToolCall(id=f"call_{number}", name="add", arguments={}))
        else:
            yield TextDelta(text=f"answer {number}")
        yield ModelDone(model="scripted")


@dataclass
class App:
    """A chat as an app keeps it: it shows its own list, and sends all of it."""

    service: HttpService
    model: ScriptedModel
    session: str = "chat"
    shown: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    history: str = ""

    async def answer(self) -> None:
        """Get the answer to what is shown."""
        body = {"model": "helper", "messages": [SYSTEM, *self.shown], **({"tools": self.tools} if self.tools else {})}
        headers = {**ANN, "Tenuto-Session": self.session}
        response = await self.service.http.post("/v1/chat/completions", headers=headers, json=body)
        assert response.status_code == 200, response.text
        self.history = response.headers["Tenuto-History"]
        message = response.json()["choices"][0]["message"]
        calls = {"tool_calls": message["tool_calls"]} if "tool_calls" in message else {}
        self.shown.append({"role": "assistant", "content": message["content"], **calls})
        for call in message.get("tool_calls", ()):
            self.shown.append({"role": "tool", "tool_call_id": call["id"], "content": f"output of {call['id']}"})
        if calls:
            await self.answer()

    async def ask(self, text: str) -> None:
        self.shown.append({"role": "user", "content": text})
        await self.answer()

    async def from_question(self, number: int, text: str | None) -> None:
        """Go back to a question, ask it again or another in its place."""
        questions = [place for place, one in enumerate(self.shown) if one["role"] == "user"]
        if not questions:
            return
        place = questions[number % len(questions)]
        self.shown[place:] = [self.shown[place] if text is None else {"role": "user", "content": text}]
        await self.answer()

    async def without_turn(self, number: int) -> None:
        """Drop a question in the middle with its answer, and ask on."""
        questions = [place for place, one in enumerate(self.shown) if one["role"] == "user"]
        if len(questions) > 2:
            place = 1 + number % (len(questions) - 2)
            del self.shown[questions[place] : questions[place + 1]]
        await self.ask(f"question without {number}")

    async def check(self) -> None:
        """The prompt and the session have what is shown."""
        shown = [words_of(one) for one in self.shown]
        prompt = [words_of_part(one) for one in self.model.requests[-1].messages if one.role.value != "system"]
        assert prompt == shown[:-1]
        assert await self.stored() == shown

    async def stored(self) -> list[str]:
        """What of the session is context."""
        page = await self.service.tenuto.sessions.messages(Scope(tenant="acme", user="ann"), self.session)
        start = page.session.window_start
        return [words_of_part(one) for one in page.messages if one.seq >= start and not is_summary(one)]


def words_of(message: dict[str, Any]) -> str:
    calls = "".join(call["id"] for call in message.get("tool_calls", ()))
    return f"{message['role']}: {message['content'] or ''}{calls}{message.get('tool_call_id', '')}"


def words_of_part(message: Any) -> str:
    said = "".join(
        {
            "text": lambda part: part["text"],
            "tool_call": lambda part: part["id"],
            "function": lambda part: part["id"],
            "tool_result": lambda part: f"{part['output']}{part['call_id']}",
        }[part["type"]](part)
        for part in message.parts
    )
    return f"{message.role.value}: {said}"


STEPS: dict[str, Callable[[App, int], Any]] = {
    "ask": lambda app, number: app.ask(f"question {number}"),
    "regenerate": lambda app, number: app.from_question(-1, None),
    "again from": lambda app, number: app.from_question(number, None),
    "edit": lambda app, number: app.from_question(number, f"edited {number}"),
    "drop": lambda app, number: app.without_turn(number),
}
Steps = list[tuple[str, int]]


class Server:
    """A server for many chats of a test that is no coroutine."""

    def __init__(self, runner: asyncio.Runner, service: HttpService, model: ScriptedModel) -> None:
        self.runner, self.service, self.model = runner, service, model
        self.chats = 0

    async def chat(self, steps: Steps, *, tools: bool, restarts: bool) -> None:
        self.chats += 1
        app = App(self.service, self.model, f"chat-{self.chats}", tools=[ADD] if tools else [])
        for place, (step, number) in enumerate([("ask", 0), ("ask", 1), *steps]):
            if restarts:
                # What a process remembers of its last requests helps, and decides nothing.
                self.service.app.state.service.sent_turns._known.clear()
            await STEPS[step](app, number if step != "ask" else 100 + place)
            await app.check()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    model = Answers()
    with asyncio.Runner() as runner:
        opening = http_service(**playing(model))
        yield Server(runner, runner.run(opening.__aenter__()), model)
        runner.run(opening.__aexit__(None, None, None))


@settings(deadline=None, max_examples=40)
@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5)), max_size=6),
    tools=st.booleans(),
    restarts=st.booleans(),
)
def test_session_and_prompts_have_what_the_app_shows(server: Server, steps: Steps, tools: bool, restarts: bool) -> None:
    server.runner.run(server.chat(steps, tools=tools, restarts=restarts))
