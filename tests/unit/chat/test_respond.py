"""An assistant that works on the question itself, and typed answers of a model for what works for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal

import pytest

from tenuto.chat import ChatRequest
from tenuto.chat.typed_answer import TypedRequest
from tenuto.errors import BudgetExhausted, ModelFailed, ModelTimeout, NoTypedAnswer
from tenuto.llm import Call, Fail, Say, ScriptedModel, Stop
from tenuto.llm.scripted import Script
from tenuto.model.generation import ModelDone, StepChanged, ToolContext, ToolOutput
from tenuto.model.message import Message, Role, text_part
from tenuto.model.prompt import Language
from tenuto.model.session import Budgets
from tenuto.model.values import JsonObject, Value
from tenuto.task_errors import TaskFailed
from tests.chats import ask, helper, talk
from tests.samples import ANN, SENT_AT

pytestmark = pytest.mark.requirement("E14")


class Verdict(Value, frozen=True, kw_only=True):
    """A verdict."""

    side: Literal["left", "right"]
    points: int = 0


ASKED = TypedRequest(system="Decide.", talk=(), session_id=None, language=Language.ENGLISH)


async def test_an_assistant_that_responds_itself_asks_no_model_and_keeps_state() -> None:
    seen: list[ToolContext] = []

    async def respond(turn: ToolContext) -> AsyncGenerator[StepChanged | ToolOutput, None]:
        seen.append(turn)
        yield ToolOutput(output=None, data={"n": len(seen)}, state={"n": len(seen)}, final_answer=f"No. {len(seen)}")

    t = talk("Never said.", assistants=[helper(respond=respond)])

    replies = [await t.chat.take_turn(ANN, ask("Hm?", "s")) for _ in range(2)]

    assert [(reply.text, reply.data) for reply in replies] == [("No. 1", {"n": 1}), ("No. 2", {"n": 2})]
    assert [turn.state for turn in seen] == [{}, {"n": 1}]
    assert t.model.requests == []


async def test_what_it_raises_ends_the_turn_and_each_try_of_a_turn_has_one_key() -> None:
    keys: list[str | None] = []

    async def respond(turn: ToolContext) -> AsyncGenerator[StepChanged | ToolOutput, None]:
        keys.append(turn.turn_key)
        if len(keys) == 1:
            raise TaskFailed("t", "labour", "agent_failed")
        yield ToolOutput(output=None, final_answer="Yes.")

    t = talk(assistants=[helper(respond=respond)])
    first = ask("Hm?", "s", idempotency_key="k")

    with pytest.raises(TaskFailed, match="task t failed at step labour: agent_failed"):
        await t.chat.take_turn(ANN, first)
    await t.chat.take_turn(ANN, first)
    for anew in (ChatRequest(session_id="s", regenerate=True), ask("Hm?", "s")):
        await t.chat.take_turn(ANN, anew)

    tried, again, *others = keys
    assert tried == again
    assert len({tried, *others}) == 3
    assert [message.role for message in (await t.sessions.messages(ANN, "s")).messages].count(Role.USER) == 2


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        (Call("answer", {"side": "left", "points": 3}), Verdict(side="left", points=3)),
        (Call("answer", {"side": "left", "points": "3"}), Verdict(side="left", points=3)),
        ([Call("answer", {"side": "up"}), Call("answer", {"side": "right"})], Verdict(side="right")),
        (Say("```json\n", '{"side": "right"}', "\n```"), Verdict(side="right")),
    ],
)
async def test_an_answer_is_a_value_of_the_type(script: Script, verdict: Verdict) -> None:
    t = talk(script)

    assert (await t.chat.ask_typed("helper", ANN, ASKED, Verdict)).value == verdict
    (tool,) = t.model.requests[0].tools
    assert tool.parameters["properties"]["side"] == {"enum": ["left", "right"]}


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("Left.", NoTypedAnswer),
        (Call("answer", {"side": "up"}), NoTypedAnswer),
        ([Call("answer", {"side": "left"}), Stop()], ModelFailed),
        (Fail(ModelTimeout("m")), ModelTimeout),
    ],
)
async def test_any_other_answer_is_a_failure_of_the_model(script: Script, error: type[Exception]) -> None:
    with pytest.raises(error):
        await talk(script).chat.ask_typed("helper", ANN, ASKED, Verdict)


@pytest.mark.parametrize(
    "model",
    [ScriptedModel(name="offline"), ScriptedModel("I can quote.", ended=ModelDone(model="offline", offline=True))],
    ids=["the only model", "the end of a chain"],
)
async def test_the_offline_model_gives_no_typed_answer(model: ScriptedModel) -> None:
    assert (await talk(model=model).chat.ask_typed("helper", ANN, ASKED, Verdict)).value is None


async def test_prose_is_repaired_once() -> None:
    t = talk(model=ScriptedModel("Left, I think.", Call("answer", {"side": "left"})))

    assert (await t.chat.ask_typed("helper", ANN, ASKED, Verdict)).value == Verdict(side="left")
    first, second = t.model.requests
    assert second.messages[len(first.messages)].parts == (text_part("Left, I think."),)
    assert second.requires_call


async def test_a_chain_that_ends_at_the_offline_model_says_so() -> None:
    offline = ModelDone(model="offline", offline=True, used_fallback=True)

    with pytest.raises(NoTypedAnswer):
        await talk(model=ScriptedModel("I can quote.", ended=offline)).chat.ask_typed("helper", ANN, ASKED, Verdict)


async def test_typed_answers_cost_their_tenant() -> None:
    budget: dict[str, Any] = {"budgets": Budgets(tenant_tokens_per_day=10)}
    t = talk(Call("answer", {"side": "left"}), ended=ModelDone(model="m", input_tokens=6, output_tokens=4), **budget)

    await t.chat.ask_typed("helper", ANN, ASKED, Verdict)

    with pytest.raises(BudgetExhausted):
        await t.chat.ask_typed("helper", ANN, ASKED, Verdict)


def talked(*messages: Message) -> TypedRequest:
    return TypedRequest(system="Decide.", talk=messages, session_id=None, language=Language.ENGLISH)


def said(seq: int, *parts: JsonObject) -> Message:
    return Message(id=f"m{seq}", role=Role.USER, sent_at=SENT_AT, seq=seq, turn=1, parts=parts)


async def test_a_long_question_arrives_whole_where_the_prompt_has_room() -> None:
    question = " ".join(f"point{number}" for number in range(1500))
    t = talk(Call("answer", {"side": "left"}))

    request = talked(said(1, text_part("Hi")), said(2, text_part(question)))
    typed = await t.chat.ask_typed("helper", ANN, request, Verdict)

    assert t.model.requests[0].messages[-1].text == question
    assert typed == (Verdict(side="left"), ())


@pytest.mark.parametrize("words", [2_500, 40_000], ids=["an earlier message", "the question"])
async def test_what_a_typed_answer_did_without_is_said(words: int) -> None:
    long, picture = "word " * words, {"type": "image", "url": "https://pictures.example/a.png"}
    request = talked(said(1, text_part(long)), said(2, text_part(long if words > 10_000 else "And?"), picture))
    t = talk(Call("answer", {"side": "left"}))

    typed = await t.chat.ask_typed("helper", ANN, request, Verdict)

    earlier, question = (message.text for message in t.model.requests[0].messages[1:])
    assert (len(earlier) < len(long), "left out" in earlier) == (True, True)
    assert words < 10_000 or "left out" in question
    assert words > 10_000 or question == "And?[picture: https://pictures.example/a.png; not shown]"
    assert typed.degraded == ("attachment", "cut")
