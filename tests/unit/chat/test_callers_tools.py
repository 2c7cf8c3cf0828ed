"""Turns of foreign clients: messages instead of a text, and tools that the caller runs between two turns."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.chat import CallRequested, ChatRequest, ReplyFinished
from tenuto.chat.request import EventSink
from tenuto.errors import Invalid, ModelFailed, TooLarge, UnknownToolCall
from tenuto.llm import Call, Fail, Say
from tenuto.llm.scripted import Script
from tenuto.model import Draft, Role
from tenuto.model.generation import ToolCall, ToolSpec
from tenuto.model.parameters import AnswerSchema
from tenuto.model.prompt import LayoutName, PromptPolicy
from tenuto.model.values import JsonObject
from tenuto.sessions import AppendRequest, fresh_id
from tenuto.sessions.items import draft_from_item, item_from_message
from tests.chats import SMALL, Adder, Talk, ask, helper, patient, talk
from tests.clock import START
from tests.samples import ANN, stored

WEATHER = ToolSpec(name="weather", description="The weather of a city.", parameters={"type": "object"})
ASKED = ToolCall(id="c1", name="weather", arguments={"city": "Oslo"})
CALL = Call("weather", {"city": "Oslo"}, id="c1")
OUTPUT: JsonObject = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def given(*items: JsonObject, session_id: str | None = "s", **fields: Any) -> ChatRequest:
    """A request with these entries of the Responses API."""
    messages = tuple(draft_from_item(item, new_id=fresh_id, now=START) for item in items)
    return ChatRequest(messages=messages, session_id=session_id, **fields)


def user(text: str) -> JsonObject:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def log(t: Talk) -> list[Draft]:
    return list((await t.sessions.messages(ANN, "s")).messages)


def shown(t: Talk) -> list[tuple[str, str]]:
    """What the model was shown last: roles, and texts or ids of calls."""
    return [
        (message.role, part.get("text") or part.get("id") or part["call_id"])
        for message in t.model.requests[-1].messages
        for part in message.parts
    ]


async def test_a_call_ends_the_turn_and_its_output_is_answered_by_the_next() -> None:
    """Stored as any turn, streamed, replayed by its key, and regenerated without losing the output."""
    t = talk([Say("Let me look."), CALL], "It rains.", "Rain it is.")
    asking = ask("Is it wet in Oslo?", "s", tools=(WEATHER,), idempotency_key="k", reply_metadata={"echo": 1})

    events = [event async for event in t.chat.stream(ANN, asking)]
    again = await t.chat.take_turn(ANN, asking)
    told = await t.chat.take_turn(ANN, given(OUTPUT, tools=(WEATHER,), idempotency_key="l"))

    assert [event.call for event in events if isinstance(event, CallRequested)] == [ASKED]
    assert isinstance(events[-1], ReplyFinished)
    assert (events[-1].reply.text, events[-1].reply.calls) == ("Let me look.", (ASKED,))
    assert (again.text, again.calls, again.replayed) == ("Let me look.", (ASKED,), True)
    assert (told.text, told.calls, told.title) == ("It rains.", (), "Is it wet in Oslo?")
    question, call, output, answer = await log(t)
    assert [part["type"] for part in call.parts] == ["text", "tool_call"]
    assert (call.metadata["echo"], output.role, item_from_message(output)) == (1, Role.TOOL, OUTPUT)
    talked = [("system", "You help."), ("user", question.text), ("assistant", "Let me look."), ("assistant", "c1")]
    assert shown(t) == [*talked, ("tool", "c1")]

    anew = await t.chat.take_turn(ANN, ChatRequest(session_id="s", regenerate=True, tools=(WEATHER,)))

    assert (anew.text, shown(t)) == ("Rain it is.", [*talked, ("tool", "c1")])
    assert [message.id for message in await log(t)][:3] == [question.id, call.id, output.id]
    assert answer.id not in [message.id for message in await log(t)]


async def test_an_answer_in_a_demanded_form_is_text_from_then_on() -> None:
    """The call that gives it has no output, and without one no later prompt would show it."""
    t = talk([Say("Here."), CALL], "Indeed.", assistants=[helper(postprocess=lambda text, _, __: f"{text}!")])
    schema = AnswerSchema(name="weather", schema=WEATHER.parameters)
    form = ask("Where does it rain?", "s", schema=schema, idempotency_key="k")

    events = [event async for event in t.chat.stream(ANN, form)]
    again = await t.chat.take_turn(ANN, form)
    await t.chat.take_turn(ANN, ask("Sure?", "s"))

    assert not [event for event in events if isinstance(event, CallRequested)]
    assert (again.text, again.calls) == ('{"city":"Oslo"}', ())
    assert shown(t)[1:] == [("user", "Where does it rain?"), ("assistant", again.text), ("user", "Sure?")]
    with pytest.raises(Invalid, match="schema: "):
        await t.chat.take_turn(ANN, ask("So?", "s", schema=AnswerSchema(schema={"type": "town"})))


async def test_an_output_that_is_sent_again_after_a_failure_is_answered_once() -> None:
    """A client without keys repeats its request; the model sees one output."""
    t = talk(CALL, Fail(), "It rains.")
    await t.chat.take_turn(ANN, ask("Is it wet in Oslo?", "s", tools=(WEATHER,)))
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, given(OUTPUT))

    reply = await t.chat.take_turn(ANN, given(OUTPUT))

    assert reply.text == "It rains."
    assert shown(t)[2:] == [("assistant", "c1"), ("tool", "c1")]


async def test_an_output_of_no_call_is_refused_and_leaves_nothing() -> None:
    t = talk("Hello.")
    await t.chat.take_turn(ANN, ask("Hi", "s"))

    with pytest.raises(UnknownToolCall):
        await t.chat.take_turn(ANN, given(OUTPUT))

    assert [message.text for message in await log(t)] == ["Hi", "Hello."]
    assert (await t.chat.take_turn(ANN, ask("Hi again", "s"))).text == "Hello."


async def test_outputs_find_their_calls_beyond_the_window() -> None:
    """A client may send its whole history, or the outputs of more calls than a turn loads messages."""
    t = talk("Hello.")
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": "weather", "arguments": "{}"} for n in range(90)]
    outputs = [{**OUTPUT, "call_id": call["call_id"]} for call in calls]
    one_by_one = [item for pair in zip(calls, outputs, strict=True) for item in pair]

    whole = await t.chat.take_turn(ANN, given(user("Is it wet?"), *one_by_one, user("Why?")))
    await t.sessions.append(ANN, "s", AppendRequest(messages=given(user("And now?"), *calls).messages))
    told = await t.chat.take_turn(ANN, given(*outputs))

    assert [whole.text, told.text] == ["Hello."] * 2
    assert [name for role, name in shown(t) if role == "tool"][-90:] == [call["call_id"] for call in calls]


async def test_own_tools_run_before_the_turn_ends_with_the_callers() -> None:
    """Each call stands right before its output, also where the rest of the history is not relevant."""
    adder = Adder()
    calls: Script = [Say("Both."), Call("add", {"a": 1, "b": 2}, id="own"), CALL]
    t = talk("Noted.", calls, "Done.", assistants=[helper(tools=(adder,), relevance=0.9)])
    await t.chat.take_turn(ANN, ask("The bicycle in the garden shed needs a new chain", "s"))

    reply = await t.chat.take_turn(ANN, ask("Add and look", "s", tools=(WEATHER,)))
    await t.chat.take_turn(ANN, given(OUTPUT, user("Which planets of the solar system have rings?")))

    assert (reply.text, reply.calls, len(adder.calls)) == ("", (ASKED,), 1)
    assert shown(t)[1:] == [
        ("user", "Add and look"),
        ("assistant", "Both."),
        ("assistant", "own"),
        ("tool", "own"),
        ("assistant", "c1"),
        ("tool", "c1"),
        ("user", "Which planets of the solar system have rings?"),
    ]


@pytest.mark.parametrize(
    ("choice", "offered", "required"),
    [
        ("auto", ["add", "weather", "news"], False),
        ("none", ["add"], False),
        ("required", ["weather", "news"], True),
        ("news", ["weather", "news"], True),
    ],
)
async def test_the_choice_of_tools_decides_what_is_offered(choice: str, offered: list[str], required: bool) -> None:
    t = talk("Hello.", assistants=[helper(tools=(Adder(),))])
    news = replace(WEATHER, name="news")

    await t.chat.take_turn(ANN, ask("Hi", tools=(WEATHER, news), tool_choice=choice))

    request = t.model.requests[0]
    assert ([tool.name for tool in request.tools], request.requires_call) == (offered, required)


async def test_a_turn_has_instructions_and_input_of_its_own() -> None:
    """Instructions end with the turn; its other input stays in the prompt, also if the history does not."""
    strict = helper(relevance=0.9, prompt=PromptPolicy(layout=LayoutName.GOODS))
    t = talk("Bonjour.", assistants=[strict])
    await t.chat.take_turn(ANN, ask("The bicycle in the garden shed needs a new chain", "s", reply_tokens=7))
    french = {"role": "developer", "content": "Answer in French."}
    asking = given(french, user("Which planets of the solar system have rings?"), instructions="Be brief.")
    # What was counted in a thread is not counted again.
    counted = tuple(replace(message, tokens=17) for message in asking.messages)

    await t.chat.take_turn(ANN, replace(asking, messages=counted, tools=(WEATHER,)))

    assert shown(t) == [
        ("system", "You help.\n\nBe brief."),
        ("system", "Answer in French."),
        ("user", "Which planets of the solar system have rings?"),
    ]
    assert [request.reply_tokens for request in t.model.requests] == [7, None]
    assert [message.tokens for message in (await log(t))[2:4]] == [17, 17]
    await t.chat.take_turn(ANN, ask("Why?", "s"))
    assert "Be brief." not in "".join(text for _, text in shown(t))


async def test_metadata_that_cannot_be_stored_is_refused_before_the_model_is_asked() -> None:
    t = talk("Hello.", assistants=[helper(policies=patient(max_message_bytes=4096))])

    with pytest.raises(TooLarge):
        await t.chat.take_turn(ANN, ask("Hi", "s", reply_metadata={"echo": "x" * 4000}))

    await t.chat.take_turn(ANN, ask("Hi again", "s", reply_metadata={"echo": "x" * 3000}))
    assert ([message.text for message in await log(t)], len(t.model.requests)) == (["Hi again", "Hello."], 1)


@pytest.mark.parametrize("what", ["tools", "instructions", "messages"])
async def test_what_fills_the_prompt_is_refused_before_anything_is_stored(what: str) -> None:
    t = talk("Hello.", assistants=[helper(prompt=SMALL)])
    much = "the garden is green " * 200
    await t.chat.take_turn(ANN, ask("Hi", "s", tools=(WEATHER,), instructions="Be brief."))
    developer = given({"role": "developer", "content": much}, user("Hi again"))
    filled = {
        "tools": ask("Hi again", "s", tools=(replace(WEATHER, description=much),)),
        "instructions": ask("Hi again", "s", instructions=much),
        "messages": replace(developer, session_id="s"),
    }

    with pytest.raises(Invalid, match=rf"^{what}: \d+ tokens .*; .*prompt\.budget raises it") as excinfo:
        await t.chat.take_turn(ANN, filled[what])

    codes = {"tools": "invalid"}
    assert excinfo.value.code == codes.get(what, "instructions_too_long")
    assert [message.text for message in await log(t)] == ["Hi", "Hello."]


@pytest.mark.requirement("T12")
async def test_a_conversation_brought_at_once_loses_its_oldest_turns_first() -> None:
    """A budget cuts the input of one request as it cuts a session."""
    t = talk("Fine.", assistants=[helper(prompt=SMALL)])
    said = [f"{number} " + "the garden is green " * 8 for number in range(20)]
    items = [{"role": role, "content": text} for text in said for role in ("user", "assistant")]

    reply = await t.chat.take_turn(ANN, given(*items, {"role": "user", "content": "And now?"}))

    assert reply.title.startswith("0 the garden")
    whole = [text for _, text in shown(t)[1:-1]]
    assert 4 < len(whole) < len(items)
    assert whole == [item["content"] for item in items][-len(whole) :]


async def test_a_turn_without_a_session_takes_the_same() -> None:
    t = talk("It rains.")
    before = (stored(1, "Is it wet in Oslo?", role=Role.USER, turn=1),)
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}

    reply = await t.chat.answer_once(ANN, given(call, OUTPUT, instructions="Be brief."), before, EventSink())

    assert reply.text == "It rains."
    assert shown(t) == [
        ("system", "You help.\n\nBe brief."),
        ("user", "Is it wet in Oslo?"),
        ("assistant", "c1"),
        ("tool", "c1"),
    ]
