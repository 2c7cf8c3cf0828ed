"""Apps that send the whole chat each time: its session has what the app shows, and so has every prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.llm import Echo, Hang, Say, ScriptedModel
from tenuto.model import Scope
from tenuto.model.generation import ModelDone, ModelEvent, ModelRequest, TextDelta, ToolCall, ToolCallRequested
from tenuto.model.message import is_summary
from tenuto.model.privacy import Mode
from tenuto.model.turn import Trace
from tenuto.ports import Tool
from tests.journeys.http_service import ANN, HttpService, http_service, playing
from tests.journeys.private_chat import PSEUDONYMS
from tests.providers.samples import GIF, PNG, data_url
from tests.servers.loopback import serving

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
    chat: str = "chat"
    named: bool = False
    session: str = ""
    shown: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    history: str = ""

    async def answer(self) -> None:
        """Get the answer to what is shown."""
        body = {"model": "helper", "messages": [SYSTEM, *self.shown], **({"tools": self.tools} if self.tools else {})}
        headers = {**ANN, "X-OpenWebUI-Chat-Id" if self.named else "Tenuto-Session": self.chat}
        response = await self.service.http.post("/v1/chat/completions", headers=headers, json=body)
        assert response.status_code == 200, response.text
        self.history, self.session = response.headers["Tenuto-History"], response.headers["Tenuto-Session"]
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
        """Drop a question with its answer, and ask on; the first as well, where the whole chat is sent."""
        questions = [place for place, one in enumerate(self.shown) if one["role"] == "user"]
        if len(questions) > 2:
            place = number % (len(questions) - 1) if self.named else 1 + number % (len(questions) - 2)
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
    def said(part: dict[str, Any]) -> str:
        match part["type"]:
            case "text":
                return str(part["text"])
            case "tool_call" | "function":
                return str(part["id"])
        return f"{part['output']}{part['call_id']}"

    return f"{message.role.value}: {''.join(map(said, message.parts))}"


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

    async def chat(self, steps: Steps, *, named: bool, tools: bool, restarts: bool) -> None:
        self.chats += 1
        app = App(self.service, self.model, f"chat-{self.chats}", named, tools=[ADD] if tools else [])
        for place, (step, number) in enumerate([("ask", 0), ("ask", 1), *steps]):
            if restarts:
                # What a process remembers of its last requests helps, and decides nothing.
                self.service.app.state.service.sent_turns._histories.clear()
            await STEPS[step](app, number if step != "ask" else 100 + place)
            await app.check()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    model = Answers()
    with asyncio.Runner() as runner:
        opening = http_service(**playing(model), apps="open-webui")
        yield Server(runner, runner.run(opening.__aenter__()), model)
        runner.run(opening.__aexit__(None, None, None))


@settings(deadline=None, max_examples=40)
@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5)), max_size=6),
    named=st.booleans(),
    tools=st.booleans(),
    restarts=st.booleans(),
)
def test_session_and_prompts_have_what_the_app_shows(
    server: Server, steps: Steps, named: bool, tools: bool, restarts: bool
) -> None:
    server.runner.run(server.chat(steps, named=named, tools=tools, restarts=restarts))


async def complete(service: HttpService, *texts: str, **headers: str) -> httpx.Response:
    """Ask with a whole chat, whose every second text is an answer."""
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    headers = {**ANN, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await service.http.post("/v1/chat/completions", headers=headers, json={"messages": messages})


async def listed(service: HttpService, session: str) -> list[str]:
    """All of a session, what was put aside included."""
    page = await service.http.get(f"/v1/sessions/{session}/messages", headers=ANN)
    return [message["text"] for message in page.json()["messages"]]


async def test_a_compaction_puts_the_talk_aside_and_loses_nothing() -> None:
    summary = "This session is being continued from a previous conversation. The user likes tea."
    model = Answers()
    async with http_service(**playing(model), apps="claude-code") as service:
        chat = {"X-Claude-Code-Session-Id": "c"}
        await complete(service, "one", **chat)
        await complete(service, "one", "answer 0", "two", **chat)
        answer = await complete(service, summary, **chat)
        await complete(service, summary, "answer 2", "three", **chat)
        edited = await complete(service, summary, "answer 2", "four", **chat)

        assert (answer.headers["Tenuto-History"], edited.headers["Tenuto-History"]) == ("put-aside", "edited")
        kept = ["one", "answer 0", "two", "answer 1", summary, "answer 2", "four", "answer 4"]
        assert await listed(service, answer.headers["Tenuto-Session"]) == kept
        assert [one.text for one in model.requests[-1].messages if one.role != "system"] == kept[4:7]


async def test_two_apps_on_one_session_lose_nothing_to_each_other() -> None:
    async with http_service(**playing(Answers()), apps="open-webui,claude-code") as service:
        chats = ({"X-OpenWebUI-Chat-Id": "a"}, {"X-Claude-Code-Session-Id": "b"})
        await complete(service, "one", Tenuto_Session="shared", **chats[0])
        await complete(service, "else", Tenuto_Session="shared", **chats[1])
        answer = await complete(service, "one", "answer 0", "two", Tenuto_Session="shared", **chats[0])

        assert answer.headers["Tenuto-History"] == "put-aside"
        assert await listed(service, "shared") == [
            *("one", "answer 0", "else", "answer 1", "one", "answer 0", "two", "answer 2")
        ]


@pytest.mark.parametrize("door", ["chat/completions", "responses", "messages"])
async def test_what_an_app_asks_besides_its_chat_is_answered_and_leaves_it_alone(door: str) -> None:
    """Known without a mark: it does not go on from the chat, and is asked in another way."""
    async with http_service(**playing(Answers()), apps="open-webui", model_aliases="m=helper") as service:
        traces: list[Trace] = []
        (await service.tenuto.chat()).observe(traces.append)
        headers = {**ANN, "X-OpenWebUI-Chat-Id": "c"}
        fields = {"max_tokens": 100} if door == "messages" else {}
        tool = {"messages": {"name": "add", "input_schema": {"type": "object"}}}.get(door, ADD)
        said = []
        for text, tools in (("one", [tool]), ("Give this chat a name", [])):
            asked = {"input" if door == "responses" else "messages": [{"role": "user", "content": text}]}
            body = {"model": "m", **asked, **fields, **({"tools": tools} if tools else {})}
            said.append(await service.http.post(f"/v1/{door}", headers=headers, json=body))

        first, besides = said
        assert "answer 1" in besides.text
        told = [besides.headers.get(f"Tenuto-{name}") for name in ("History", "App-Task", "Session")]
        assert told == ["stateless", "other", None]
        assert [trace.app_task for trace in traces] == ["", "other"]
        assert await listed(service, first.headers["Tenuto-Session"]) == ["one", "answer 0"]


async def test_a_message_alone_is_appended_where_no_app_sends_the_whole_chat() -> None:
    async with http_service(**playing(Answers())) as service:
        said = [(await complete(service, text, Tenuto_Session="s")).headers["Tenuto-History"] for text in ("a", "b")]
        again = await complete(service, "b", Tenuto_Session="s")

        assert (said, again.headers["Tenuto-History"]) == (["new", "continued"], "continued")
        assert await listed(service, "s") == ["a", "answer 0", "b", "answer 1", "b", "answer 2"]


async def test_a_client_that_says_a_thing_twice_at_once_may_go_on_with_messages_alone() -> None:
    async with http_service(**playing(Answers())) as service:
        for text in ("yes", "yes", "no", "no"):
            await complete(service, text, Tenuto_Session="s")
        last = await complete(service, "yes", Tenuto_Session="s")

        assert last.headers["Tenuto-History"] == "continued"
        said = ["yes", "answer 1", "no", "answer 2", "no", "answer 3", "yes", "answer 4"]
        assert await listed(service, "s") == said


async def test_a_first_question_that_was_changed_stands_once_with_the_answers_behind_it() -> None:
    """An app may keep the answer to a question whose words or picture were changed."""
    async with http_service(**playing(Answers()), apps="open-webui") as service:
        firsts: list[list[str | bytes]] = [["one"], ["two"], ["two", PNG], ["two", GIF], ["two"], [GIF]]
        histories = []
        for first in firsts:
            parts = [{"type": "text", "text": one} if isinstance(one, str) else image_part(one) for one in first]
            asked = {"role": "user", "content": parts}
            rest = [{"role": "assistant", "content": "kept"}, {"role": "user", "content": "and then?"}]
            headers, body = {**ANN, "X-OpenWebUI-Chat-Id": "c"}, {"messages": [asked, *rest]}
            answer = await service.http.post("/v1/chat/completions", headers=headers, json=body)
            page = await service.http.get(f"/v1/sessions/{answer.headers['Tenuto-Session']}/messages", headers=ANN)
            stored = page.json()["messages"]

            assert [one["text"] for one in stored[1:3]] == ["kept", "and then?"]
            assert len(stored) == 4
            kinds = [part["type"].removesuffix("_url") for part in parts]
            assert [part["type"] for part in stored[0]["parts"]] == kinds
            histories.append(answer.headers["Tenuto-History"])
        assert histories[-1] == "edited"


def image_part(content: bytes) -> dict[str, Any]:
    return {
        "type": "image_url",
        "image_url": {"url": data_url(content, "image/gif" if content is GIF else "image/png")},
    }


async def test_two_questions_at_once_are_both_answered_and_the_later_one_stands() -> None:
    """Each turn begins only if the session is as it was read; else it is read again."""
    async with http_service(**playing(Answers()), apps="open-webui") as service:
        first = await complete(service, "one", X_OpenWebUI_Chat_Id="c")
        both = await asyncio.gather(
            *(complete(service, "one", "answer 0", text, X_OpenWebUI_Chat_Id="c") for text in ("two", "other"))
        )

        assert sorted(one.headers["Tenuto-History"] for one in both) == ["continued", "edited"]
        texts = await listed(service, first.headers["Tenuto-Session"])
        assert texts[:2] == ["one", "answer 0"]
        assert texts[2] in ("two", "other")
        assert len(texts) == 4


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_answer_and_the_next_question_is_taken(stream: bool) -> None:
    hang = Hang()
    model = ScriptedModel([Say("The first"), hang, Say(" and the rest")], "Next.")
    async with http_service(**playing(model), apps="open-webui") as service, serving(service.app) as address:
        headers = {**ANN, "X-OpenWebUI-Chat-Id": "c"}
        messages = [{"role": "user", "content": "one"}]
        async with httpx.AsyncClient(base_url=address) as client:
            body = {"messages": messages, "stream": stream}
            asking = asyncio.create_task(client.post("/v1/chat/completions", headers=headers, json=body))
            await hang.reached.wait()
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
        messages += [{"role": "assistant", "content": "The fi"}, {"role": "user", "content": "two"}]
        body = {"messages": messages, "stream": stream}
        answer = await service.http.post("/v1/chat/completions", headers=headers, json=body)

        assert (answer.status_code, answer.headers["Tenuto-History"]) == (200, "continued")
        page = await service.http.get(f"/v1/sessions/{answer.headers['Tenuto-Session']}/messages", headers=ANN)
        said = [(one["text"], bool(one["metadata"].get("stopped"))) for one in page.json()["messages"]]
        # Nothing stands there that the app does not show, though more was made.
        assert said == [("one", False), ("The fi", True), ("two", False), ("Next.", False)]


@pytest.mark.parametrize("mode", [Mode.REDACT, Mode.PSEUDONYM])
async def test_a_history_is_compared_as_the_privacy_policy_stores_it(mode: Mode) -> None:
    async with http_service(**playing(Answers()), **{**PSEUDONYMS, "privacy_message": mode}) as service:
        chat = ["My mail is eve@example.com.", "answer 0", "And bob@example.com?"]
        said = []
        for texts in (chat[:1], chat, chat, [*chat, "answer 2", "two"]):
            service.app.state.service.sent_turns._histories.clear()
            said.append((await complete(service, *texts, Tenuto_Session="s")).headers["Tenuto-History"])

        assert said == ["new", "continued", "regenerated", "continued"]
        texts = await listed(service, "s")
        assert texts[3:] == ["answer 2", "two", "answer 3"]
        assert "example" not in "".join(texts)


@pytest.mark.parametrize("mode", [Mode.REDACT, Mode.PSEUDONYM])
async def test_of_a_stopped_answer_nothing_private_is_stored_by_what_the_app_shows(mode: Mode) -> None:
    hang = Hang()
    model = ScriptedModel([Say("Ask eve@example.com to come"), hang], "Next.")
    given: dict[str, Any] = {**PSEUDONYMS, "privacy_message": mode, "apps": "open-webui"}
    async with http_service(**playing(model), **given) as service, serving(service.app) as address:
        headers = {**ANN, "X-OpenWebUI-Chat-Id": "c"}
        async with httpx.AsyncClient(base_url=address) as client:
            body = {"messages": [{"role": "user", "content": "one"}], "stream": True}
            asking = asyncio.create_task(client.post("/v1/chat/completions", headers=headers, json=body))
            await hang.reached.wait()
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
        answer = await complete(service, "one", "Ask eve@example.com to", "two", X_OpenWebUI_Chat_Id="c")

        assert answer.headers["Tenuto-History"] == "continued"
        texts = await listed(service, answer.headers["Tenuto-Session"])
        assert (texts[0], *texts[2:]) == ("one", "two", "Next.")
        assert texts[1].startswith("Ask [")
        assert texts[1].endswith("] to")


@pytest.mark.parametrize("first", [(), ("start",)])
async def test_the_newest_messages_alone_go_on_where_they_stand_though_some_are_said_twice(
    first: tuple[str, ...],
) -> None:
    async with http_service(**playing(ScriptedModel(Echo()))) as service:
        shown: list[str] = []
        for question in (*first, "ok", "one", "ok", "two"):
            answer = await complete(service, *shown, question, Tenuto_Session="s")
            shown += [question, answer.json()["choices"][0]["message"]["content"]]
        trimmed = await complete(service, *shown[-4:], "three", Tenuto_Session="s")
        edited = await complete(service, *shown[-4:], "four", Tenuto_Session="s")

        said = [answer.headers["Tenuto-History"] for answer in (trimmed, edited)]
        assert said == ["continued", "edited"]
        assert await listed(service, "s") == [*shown, "four", "four"]


async def test_what_a_client_without_a_name_asks_in_another_way_removes_nothing() -> None:
    """A title, perhaps: with an app's name it is answered apart."""
    model = Answers()
    async with http_service(**playing(model)) as service:
        await complete(service, "one", Tenuto_Session="s")
        await complete(service, "one", "answer 0", "two", Tenuto_Session="s")
        body = {"messages": [{"role": "user", "content": "Name this chat."}], "stream": True}
        headers = {**ANN, "Tenuto-Session": "s"}
        besides = await service.http.post("/v1/chat/completions", headers=headers, json=body)

        assert besides.headers["Tenuto-History"] == "put-aside"
        kept = ["one", "answer 0", "two", "answer 1", "Name this chat.", "answer 2"]
        assert await listed(service, "s") == kept
        assert [one.text for one in model.requests[-1].messages if one.role != "system"] == kept[4:5]


async def test_a_key_leaves_out_nothing_of_the_history_that_begins_a_session() -> None:
    model = Answers()
    async with http_service(**playing(model)) as service:
        given = {"Tenuto_Session": "s", "Idempotency_Key": "k"}
        first = await complete(service, "one", "said before", "two", **given)
        again = await complete(service, "one", "said before", "two", **given)

        assert first.json()["choices"] == again.json()["choices"]
        assert await listed(service, "s") == ["one", "said before", "two", "answer 0"]
        prompt = [one.text for one in model.requests[0].messages if one.role != "system"]
        assert (prompt, len(model.requests)) == (["one", "said before", "two"], 1)


async def test_what_says_nothing_replaces_nothing_and_more_than_a_session_keeps_is_said() -> None:
    async with http_service(**playing(Answers()), apps="open-webui", memories=False) as service:
        chat = {"X_OpenWebUI_Chat_Id": "c"}
        first = await complete(service, "one", **chat)
        silent = await complete(service, "", **chat)
        many = await complete(service, *(f"text {number}" for number in range(601)), X_OpenWebUI_Chat_Id="big")

        assert silent.headers["Tenuto-History"] == "continued"
        assert (await listed(service, first.headers["Tenuto-Session"]))[:2] == ["one", "answer 0"]
        other = await complete(service, *(f"other {number}" for number in range(601)), X_OpenWebUI_Chat_Id="big")

        assert (many.json()["degraded"], other.json()["degraded"]) == (["history"], ["history"])
        assert (many.headers["Tenuto-History"], other.headers["Tenuto-History"]) == ("new", "put-aside")
        kept = await service.http.get(f"/v1/sessions/{many.headers['Tenuto-Session']}", headers=ANN)
        assert kept.json()["message_count"] == 500
