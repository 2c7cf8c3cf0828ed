"""Tools within a turn, and budgets: of one prompt, of a session, of a tenant's day."""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenuto.chat import ChatLimits, ReplyFinished, ToolFinished
from tenuto.context import TokenCounter
from tenuto.errors import BudgetExhausted, Invalid, ModelFailed, ToolError, Unavailable
from tenuto.llm import UNREADABLE, Call, Fail, Hang, Say
from tenuto.model import Role
from tenuto.model.generation import ModelDone, ToolContext, ToolOutput
from tenuto.model.prompt import Kind, PromptPolicy
from tenuto.model.session import Budgets
from tenuto.model.values import Json, JsonObject, to_text
from tenuto.sessions.usage import UsageLedger
from tests.chats import SMALL, Adder, ask, helper, talk
from tests.clock import FakeClock
from tests.samples import ANN, BOB
from tests.unit.stored_talks import stored_messages, stored_trace


async def test_tools_run_between_question_and_answer_and_are_stored_as_pairs() -> None:
    adder = Adder()
    t = talk([Call("add", {"a": 1, "b": 2}, id="c1")], "It is 3.", assistants=[helper(tools=(adder,))])

    events = [event async for event in t.chat.stream(ANN, ask("1+2?", "s"))]

    page = await t.sessions.messages(ANN, "s")
    assert [message.role for message in page.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert page.messages[2].parts[0]["output"] == {"sum": 3}
    assert page.messages[3].metadata["state"] == {"helper": {"last": 3}}
    assert "helper" not in page.session.context
    assert [event.name for event in events if isinstance(event, ToolFinished)] == ["add"]
    reply = events[-1]
    assert isinstance(reply, ReplyFinished)
    assert reply.reply.data == {"sum": 3}
    trace = await stored_trace(t, reply.reply)
    assert [(run.name, run.error) for run in trace.tools] == [("add", None)]
    await t.chat.take_turn(ANN, ask("And more?", "s"))
    assert adder.calls[0].state == {}
    assert t.model.requests[-1].tool_context is not None
    assert t.model.requests[-1].tool_context.state == {"last": 3}


class PlannedAdder(Adder):
    """Adds before the model is asked."""

    def plan(self, turn: ToolContext) -> JsonObject | None:
        return {"a": 40, "b": 2} if "sum" in turn.question else None

    def render(self, output: Json, turn: ToolContext) -> str:
        return str(output)


async def test_a_model_sees_what_a_tool_that_ran_first_answered() -> None:
    t = talk("42.", "Well.", assistants=[helper(tools=(PlannedAdder(),), run_first=("add",))])

    await t.chat.take_turn(ANN, ask("The sum, please?", "s"))
    await t.chat.take_turn(ANN, ask("And now?", "s"))

    with_sum, without = ["\n".join(message.text for message in asked.messages) for asked in t.model.requests]
    assert '{"sum":42}' in with_sum
    assert '{"sum":42}' not in without


@pytest.mark.parametrize(
    ("call", "fault", "code"),
    [
        (Call("subtract"), None, "no_such_tool"),
        (Call("add", {"a": "x"}), None, "tool_failed"),
        (Call("add", {UNREADABLE: "{"}), None, "invalid"),
        (Call("add", {"a": 1, "b": 2}), Invalid("a is odd"), "invalid"),
        (Call("add", {"a": 1, "b": 2}), Unavailable("abacus"), "unavailable"),
    ],
)
async def test_a_tool_that_fails_is_told_to_the_model_and_the_turn_goes_on(
    call: Call, fault: Exception | None, code: str
) -> None:
    t = talk([call], "I could not.", assistants=[helper(tools=(Adder(fault=fault),))])

    reply = await t.chat.take_turn(ANN, ask("1+2?", "s"))

    assert reply.text == "I could not."
    assert reply.degraded == ("tools",)
    assert [run.error for run in (await stored_trace(t, reply)).tools] == [code]
    assert t.model.requests[-1].tool_results[0].error == code


async def test_the_message_of_a_tool_error_reaches_the_model_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    t = talk([Call("add")], "Sorry.", assistants=[helper(tools=(Adder(fault=ToolError("unknown unit")),))])

    reply = await t.chat.take_turn(ANN, ask("1+2?", "s"))

    assert t.model.requests[-1].messages[-1].parts[0]["output"] == "unknown unit"
    assert [run.error for run in (await stored_trace(t, reply)).tools] == ["tool_error"]
    assert "unknown unit" not in caplog.text


async def test_a_failed_tool_is_logged_with_its_places_and_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    fault = ValueError("the user's words")
    t = talk([Call("add")], "Sorry.", assistants=[helper(tools=(Adder(fault=fault),))])

    reply = await t.chat.take_turn(ANN, ask("1+2?", "s"))

    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "ValueError at chats.py:" in line
    assert "words" not in caplog.text
    # The trace has them, behind the privacy policy; the model has them not.
    [run] = (await stored_trace(t, reply)).tools
    assert re.fullmatch(r"ValueError: the user's words \(chats\.py:\d+ in run < tenuto\)", run.exception)
    assert "words" not in str(t.model.requests[-1].messages)


async def test_a_model_that_calls_for_tools_for_ever_is_stopped() -> None:
    t = talk([Call("add", {"a": 1, "b": 2})], assistants=[helper(tools=(Adder(),))], limits=ChatLimits(tool_rounds=3))

    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask("1+2?", "s"))

    assert len(t.model.requests) == 4
    assert t.model.requests[-1].tool_choice == "none"
    assert await stored_messages(t, "s") == [("user", "1+2?")]


@pytest.mark.parametrize("field", ["data", "state", "output"])
async def test_a_tool_that_answers_with_what_is_no_json_fails_alone(field: str) -> None:
    class Odd(Adder):
        async def run(self, arguments: Any, turn: Any) -> Any:
            odd: Any = {"output": 1, field: {"price": Decimal("9.9")}}
            return ToolOutput(**odd)

    t = talk([Call("add")], "Sorry.", assistants=[helper(tools=(Odd(),))])

    reply = await t.chat.take_turn(ANN, ask("How much?", "s"))

    assert (reply.text, reply.degraded) == ("Sorry.", ("tools",))
    assert (await t.chat.take_turn(ANN, ask("Still there?", "s"))).text == "Sorry."


async def test_more_calls_at_once_than_anybody_needs_are_not_all_run() -> None:
    adder = Adder()
    t = talk([Call("add", {"a": 1, "b": 1}) for _ in range(40)], "2.", assistants=[helper(tools=(adder,))])

    assert (await t.chat.take_turn(ANN, ask("1+1?", "s"))).text == "2."
    assert len(adder.calls) == 16


async def test_a_tools_output_above_the_budget_is_cut_for_the_model() -> None:
    class Loud(Adder):
        async def run(self, arguments: Any, turn: Any) -> Any:
            return replace(await super().run({"a": 1, "b": 1}, turn), output="loud " * 5000)

    t = talk([Call("add")], "Ok.", assistants=[helper(tools=(Loud(),), prompt=SMALL)])

    await t.chat.take_turn(ANN, ask("Shout", "s"))

    shown = t.model.requests[-1].messages[-1].parts[0]["output"]
    assert "left out" in shown
    assert len(shown) < 3000


async def test_a_message_above_the_budget_is_cut_in_the_prompt_and_whole_in_the_log() -> None:
    t = talk("Long.", assistants=[helper(prompt=SMALL)])
    words = "many words " * 2000

    reply = await t.chat.take_turn(ANN, ask(words, "s"))

    assert reply.manifest is not None
    assert reply.manifest.total <= reply.manifest.prompt_limit
    cut = next(entry for entry in reply.manifest.entries if entry.kind is Kind.QUESTION)
    assert cut.disposition == "cut"
    assert (await stored_messages(t, "s"))[0] == ("user", words)


async def test_the_hard_budget_holds_over_calls_results_and_what_is_told_of_tools() -> None:
    class Loud(Adder):
        async def run(self, arguments: Any, turn: Any) -> Any:
            return ToolOutput(output="loud " * 5000)

    many = [Call("add", {"note": "words " * 5}) for _ in range(5)]
    t = talk(
        many, many, "Ok.", assistants=[helper(tools=(Loud(),), prompt=PromptPolicy(budget=1200, reply_tokens=100))]
    )
    counter = TokenCounter()

    with contextlib.suppress(ModelFailed):
        await t.chat.take_turn(ANN, ask("Shout", "s"))

    assert len(t.model.requests) >= 2
    for asking in t.model.requests:
        shown = sum(counter.count_part(part) for message in asking.messages for part in message.parts)
        told = sum(counter.count(to_text(msgspec.to_builtins(tool))) for tool in asking.tools)
        assert shown + told <= 1100


@pytest.mark.requirement("A6")
async def test_a_session_that_has_spent_its_budget_is_refused_before_the_model_is_asked() -> None:
    cost = ModelDone(model="m", input_tokens=40, output_tokens=20, cost_nanos=5)
    t = talk("Costly.", budgets=Budgets(session_tokens=50), ended=cost)
    await t.chat.take_turn(ANN, ask("One?", "s"))

    with pytest.raises(BudgetExhausted, match="50 tokens"):
        await t.chat.take_turn(ANN, ask("Two?", "s"))

    assert len(t.model.requests) == 1
    assert await stored_messages(t, "s") == [("user", "One?"), ("assistant", "Costly.")]
    assert (await t.sessions.get(ANN, "s")).tokens == 60
    assert (await t.chat.take_turn(ANN, ask("Another session", "other"))).text == "Costly."


async def test_a_tenant_that_has_spent_its_day_is_refused() -> None:
    t = talk("Costly.", budgets=Budgets(tenant_cost_nanos_per_day=10), ended=ModelDone(model="m", cost_nanos=10))
    await t.chat.take_turn(ANN, ask("One?"))

    with pytest.raises(BudgetExhausted, match="tenant"):
        await t.chat.take_turn(BOB, ask("Two?"))


async def test_what_a_failed_answer_has_cost_is_counted() -> None:
    cost = ModelDone(model="m", input_tokens=30, output_tokens=10, cost_nanos=7)
    t = talk([Call("add", {"a": 1, "b": 2})], [Fail()], assistants=[helper(tools=(Adder(),))], ended=cost)

    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask("1+2?", "s"))

    session = await t.sessions.get(ANN, "s")
    assert (session.tokens, session.cost_nanos) == (40, 7)


@pytest.mark.requirement("A6")
async def test_what_breaks_off_is_charged_to_session_and_tenant() -> None:
    """Hanging up before the end gives no free tokens."""
    hang = Hang()
    t = talk([Say("Half of a long answer"), hang], budgets=Budgets(tenant_tokens_per_day=10_000))
    events = t.chat.stream(ANN, ask("Tell me", "s"))
    await anext(events)
    await anext(events)
    await hang.reached.wait()

    await events.aclose()  # type: ignore[attr-defined]  # a generator by nature

    session = await t.sessions.get(ANN, "s")
    spent = await UsageLedger(state=t.store.state, clock=FakeClock()).spent_today(ANN)
    assert session.tokens > 10
    assert (spent.turns, spent.tokens) == (0, session.tokens)


async def test_a_reply_that_spent_the_budget_can_still_be_fetched_by_its_key() -> None:
    t = talk("Costly.", budgets=Budgets(session_tokens=5, tenant_tokens_per_day=5))
    await t.chat.take_turn(ANN, ask("One?", "s", idempotency_key="k"))

    again = await t.chat.take_turn(ANN, ask("One?", "s", idempotency_key="k"))

    assert (again.text, again.replayed) == ("Costly.", True)
    with pytest.raises(BudgetExhausted):
        await t.chat.take_turn(ANN, ask("Two?", "s", idempotency_key="other"))


async def test_arguments_that_cannot_be_read_do_not_fill_the_prompt() -> None:
    written = '{"a": "' + "word " * 12_000
    t = talk(Call("add", {UNREADABLE: written}), "Three.", assistants=[helper(tools=(Adder(),))])

    reply = await t.chat.take_turn(ANN, ask("1 + 2?", "s"))

    [call] = [part for message in t.model.requests[1].messages for part in message.parts if part["type"] == "tool_call"]
    assert (reply.text, written.startswith(call["arguments"][UNREADABLE])) == ("Three.", True)
