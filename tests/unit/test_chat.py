"""One turn, from words to answer: what is stored, what the model sees, and what happens when something goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenuto.chat import Answered, ChatLimits, ChatRequest, Reply, Started, ToolEnded
from tenuto.context import Counter
from tenuto.context.summaries import summary_draft
from tenuto.context.tokens import as_text
from tenuto.errors import (
    AssistantNotFound,
    BudgetExhausted,
    Invalid,
    KeyReused,
    MessageNotFound,
    ModelFailed,
    ModelTimeout,
    NothingToAnswer,
    SessionBusy,
    SessionNotFound,
    TooLarge,
    TurnLost,
    Unavailable,
)
from tenuto.llm import UNREADABLE, Call, Chain, Fail, Hang, Say, ScriptedModel, Stop
from tenuto.model import NewSession, Page, Role, Scope
from tenuto.model.budget import Budgets
from tenuto.model.policy import OnMissing, OnStoreDown
from tenuto.model.prompt import Kind, Language, PromptPolicy
from tenuto.model.talk import Ended, Persona, Said, Summary, ToolOutcome
from tenuto.model.trace import Trace, place_of
from tenuto.sessions import AppendRequest
from tenuto.stores.memory import MemoryStore
from tests.clock import FakeClock
from tests.samples import ANN, BOB, SENT_AT
from tests.talking import SMALL, Adder, Talk, ask, helper, patient, talk


async def log_of(of: Talk, session_id: str, scope: Scope = ANN) -> list[tuple[str, str]]:
    """Who said what."""
    page = await of.sessions.messages(scope, session_id, Page(limit=1000))
    return [(message.role.value, message.text) for message in page.messages]


async def trace_of(of: Talk, reply: Reply) -> Trace:
    """What is told of a turn."""
    session_id, number = place_of(reply.trace_id)
    trace = await of.store.trace(ANN, session_id, number)
    assert trace is not None
    return trace


async def test_a_turn_stores_words_and_answer_and_tells_how_it_went() -> None:
    t = talk("Hello Ann.")

    reply = await t.chat.take_turn(ANN, ask("Hello, I am Ann."))

    assert reply.text == "Hello Ann."
    assert reply.created
    assert await log_of(t, reply.session_id) == [("user", "Hello, I am Ann."), ("assistant", "Hello Ann.")]
    trace = await trace_of(t, reply)
    assert (trace.request, trace.answer, trace.model, trace.error) == (
        "Hello, I am Ann.",
        "Hello Ann.",
        "scripted",
        None,
    )
    assert trace.manifest == reply.manifest
    assert {"begin", "assemble", "model"} <= set(trace.steps)
    assert [ended.session.id for ended in t.ended] == [reply.session_id]


async def test_the_model_sees_what_was_said_before() -> None:
    t = talk("First.", "Second.")
    first = await t.chat.take_turn(ANN, ask("One?"))

    await t.chat.take_turn(ANN, ask("Two?", first.session_id))

    seen = [(message.role.value, message.text) for message in t.model.askings[-1].messages]
    assert seen == [("system", "You help."), ("user", "One?"), ("assistant", "First."), ("user", "Two?")]


async def test_what_is_streamed_is_what_is_stored() -> None:
    t = talk([Say("Hel", "lo ", "Ann.")])

    events = [event async for event in t.chat.stream(ANN, ask("Hi"))]

    assert isinstance(events[0], Started)
    assert [event.text for event in events if isinstance(event, Said)] == ["Hel", "lo ", "Ann."]
    assert isinstance(events[-1], Answered)
    assert await log_of(t, events[0].session_id) == [("user", "Hi"), ("assistant", "Hello Ann.")]
    assert events[-1].reply.trace_id == events[0].trace_id


async def test_a_listener_that_goes_cancels_the_model_and_keeps_the_words() -> None:
    hang = Hang()
    t = talk([Say("Half"), hang], "Whole.")
    events = t.chat.stream(ANN, ask("Tell me", "s", key="k"))
    started = await anext(events)
    assert isinstance(started, Started)
    assert await anext(events) == Said(text="Half")
    await hang.reached.wait()

    await events.aclose()  # type: ignore[attr-defined]  # a generator by nature

    assert t.model.cut_short == 1
    assert await log_of(t, "s") == [("user", "Tell me")]
    again = await t.chat.take_turn(ANN, ask("Tell me", "s", key="k"))
    assert again.text == "Whole."
    assert await log_of(t, "s") == [("user", "Tell me"), ("assistant", "Whole.")]


async def test_a_retry_with_the_same_key_brings_the_same_reply_and_asks_no_model() -> None:
    adder = Adder()
    t = talk([Call("add", {"a": 1, "b": 2})], "Three.", assistants=[helper(tools=(adder,))])
    first = await t.chat.take_turn(ANN, ask("1+2?", key="k"))

    again = await t.chat.take_turn(ANN, ask("1+2?", key="k"))

    assert len(t.model.askings) == 2
    assert again.repeated
    assert replace(again, repeated=False, created=True, steps=first.steps) == first
    with pytest.raises(KeyReused):
        await t.chat.take_turn(ANN, ask("2+2?", key="k"))


async def test_a_second_request_on_a_busy_session_waits_and_then_gives_up() -> None:
    hang = Hang()
    t = talk([hang, Say("Done.")])
    first = asyncio.create_task(t.chat.take_turn(ANN, ask("Long?", "s")))
    await hang.reached.wait()

    with pytest.raises(SessionBusy):
        await t.chat.take_turn(ANN, ask("Me too?", "s"))

    hang.release.set()
    assert (await first).text == "Done."
    assert await log_of(t, "s") == [("user", "Long?"), ("assistant", "Done.")]


async def test_an_answer_can_be_made_anew() -> None:
    t = talk("Poor.", "Better.", "Best.")
    first = await t.chat.take_turn(ANN, ask("Why?"))

    again = await t.chat.take_turn(ANN, ChatRequest(session_id=first.session_id, regenerate=True, key="r"))
    repeated = await t.chat.take_turn(ANN, ChatRequest(session_id=first.session_id, regenerate=True, key="r"))

    assert again.text == repeated.text == "Better."
    assert await log_of(t, first.session_id) == [("user", "Why?"), ("assistant", "Better.")]
    assert [message.text for message in t.model.askings[-1].messages] == ["You help.", "Why?"]


async def test_words_can_be_edited_and_sent_again() -> None:
    t = talk("A1.", "A2.", "A2 anew.")
    session = (await t.chat.take_turn(ANN, ask("Q1"))).session_id
    await t.chat.take_turn(ANN, ask("Q2", session))
    seq = next(m.seq for m in (await t.sessions.messages(ANN, session)).messages if m.text == "Q2")

    await t.chat.take_turn(ANN, ask("Q2 edited", session, edit=seq, key="e"))
    repeated = await t.chat.take_turn(ANN, ask("Q2 edited", session, edit=seq, key="e"))

    assert repeated.repeated
    expected = [("user", "Q1"), ("assistant", "A1."), ("user", "Q2 edited"), ("assistant", "A2 anew.")]
    assert await log_of(t, session) == expected


async def test_what_cannot_be_edited_or_answered_anew_is_said() -> None:
    t = talk("A.")
    session = (await t.chat.take_turn(ANN, ask("Q"))).session_id
    for wrong in (99, 2):
        with pytest.raises(MessageNotFound):
            await t.chat.take_turn(ANN, ask("other", session, edit=wrong))
    await t.sessions.reset(ANN, session)

    with pytest.raises(NothingToAnswer):
        await t.chat.take_turn(ANN, ChatRequest(session_id=session, regenerate=True))
    assert (await t.chat.take_turn(ANN, ask("Still there?", session))).text == "A."


async def test_tools_run_between_question_and_answer_and_are_stored_as_pairs() -> None:
    adder = Adder()
    t = talk([Call("add", {"a": 1, "b": 2}, id="c1")], "It is 3.", assistants=[helper(tools=(adder,))])

    events = [event async for event in t.chat.stream(ANN, ask("1+2?", "s"))]

    page = await t.sessions.messages(ANN, "s")
    assert [message.role for message in page.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert page.messages[2].parts[0]["output"] == {"sum": 3}
    assert page.session.context["helper"] == {"last": 3}
    assert [event.name for event in events if isinstance(event, ToolEnded)] == ["add"]
    reply = events[-1]
    assert isinstance(reply, Answered)
    assert reply.reply.data == {"sum": 3}
    trace = await trace_of(t, reply.reply)
    assert [(run.name, run.error) for run in trace.tools] == [("add", None)]
    await t.chat.take_turn(ANN, ask("And more?", "s"))
    assert adder.calls[0].state == {}
    assert t.model.askings[-1].turn is not None
    assert t.model.askings[-1].turn.state == {"last": 3}


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
    assert [run.error for run in (await trace_of(t, reply)).tools] == [code]
    assert t.model.askings[-1].results[0].failed == code


async def test_a_model_that_calls_for_tools_for_ever_is_stopped() -> None:
    t = talk([Call("add", {"a": 1, "b": 2})], assistants=[helper(tools=(Adder(),))], limits=ChatLimits(tool_rounds=3))

    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask("1+2?", "s"))

    assert len(t.model.askings) == 4
    assert t.model.askings[-1].tools == ()
    assert await log_of(t, "s") == [("user", "1+2?")]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([Fail()], ModelFailed),
        ([Say("Half of it"), Fail()], ModelFailed),
        ([Say("  ")], ModelFailed),
        ([Stop()], ModelFailed),
        ([Hang()], ModelTimeout),
    ],
    ids=["fails", "streams half and dies", "says nothing", "ends at once", "hangs"],
)
async def test_a_model_that_fails_leaves_the_words_stored_once_and_the_session_usable(
    script: Any, error: type[Exception]
) -> None:
    """Issue: model times out, returns garbage, streams half and dies."""
    t = talk(script, "Now.", limits=ChatLimits(model_timeout=timedelta(milliseconds=20)))

    with pytest.raises(error):
        await t.chat.take_turn(ANN, ask("Well?", "s", key="k"))

    assert await log_of(t, "s") == [("user", "Well?")]
    assert [trace.error for trace in await t.store.traces(ANN, "s")] == [error("m").code]  # type: ignore[attr-defined]
    assert (await t.chat.take_turn(ANN, ask("Well?", "s", key="k"))).text == "Now."
    assert await log_of(t, "s") == [("user", "Well?"), ("assistant", "Now.")]
    assert [trace.error for trace in await t.store.traces(ANN, "s")] == [None]


async def test_garbage_from_a_model_is_stored_as_sound_text() -> None:
    t = talk([Say("a\0b", "\ud800", "c")])

    reply = await t.chat.take_turn(ANN, ask("?!"))

    assert reply.text == "a\N{REPLACEMENT CHARACTER}b?c"


async def test_a_session_that_has_spent_its_budget_is_refused_before_the_model_is_asked() -> None:
    """A6."""
    t = talk("Costly.", budgets=Budgets(session_tokens=50), model=None)
    t.model._ended = Ended(model="m", input_tokens=40, output_tokens=20, cost_nanos=5)
    await t.chat.take_turn(ANN, ask("One?", "s"))

    with pytest.raises(BudgetExhausted, match="50 tokens"):
        await t.chat.take_turn(ANN, ask("Two?", "s"))

    assert len(t.model.askings) == 1
    assert await log_of(t, "s") == [("user", "One?"), ("assistant", "Costly.")]
    assert (await t.sessions.get(ANN, "s")).tokens == 60
    assert (await t.chat.take_turn(ANN, ask("Another session", "other"))).text == "Costly."


async def test_a_tenant_that_has_spent_its_day_is_refused() -> None:
    t = talk("Costly.", budgets=Budgets(tenant_cost_nanos_per_day=10))
    t.model._ended = Ended(model="m", cost_nanos=10)
    await t.chat.take_turn(ANN, ask("One?"))

    with pytest.raises(BudgetExhausted, match="tenant"):
        await t.chat.take_turn(BOB, ask("Two?"))


async def test_unknown_assistants_and_characters_are_said_and_nothing_is_stored() -> None:
    t = talk("Hi.")

    with pytest.raises(AssistantNotFound, match="helper"):
        await t.chat.take_turn(ANN, ask("Hi", "s", assistant="nobody"))
    with pytest.raises(AssistantNotFound, match="character"):
        await t.chat.take_turn(ANN, ask("Hi", "s", persona="nobody"))
    with pytest.raises(SessionNotFound):
        await t.sessions.get(ANN, "s")


async def test_a_session_goes_on_with_its_own_assistant() -> None:
    t = talk("Hi.", assistants=[helper(), helper(name="other", system={Language.ENGLISH: "You are other."})])
    first = await t.chat.take_turn(ANN, ask("Hi", assistant="other"))

    second = await t.chat.take_turn(ANN, ask("Again", first.session_id))

    assert second.assistant == "other"
    assert t.model.askings[-1].messages[0].text == "You are other."


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_question_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="empty"):
        ask(text)


async def test_a_message_above_the_budget_is_cut_in_the_prompt_and_whole_in_the_log() -> None:
    t = talk("Long.", assistants=[helper(prompt=SMALL)])
    words = "many words " * 2000

    reply = await t.chat.take_turn(ANN, ask(words, "s"))

    assert reply.manifest is not None
    assert reply.manifest.total <= reply.manifest.room
    cut = next(entry for entry in reply.manifest.entries if entry.kind is Kind.QUESTION)
    assert cut.fate == "cut"
    assert (await log_of(t, "s"))[0] == ("user", words)


async def test_a_tool_s_output_above_the_budget_is_cut_for_the_model_and_the_prompt_stays_within_it() -> None:
    class Loud(Adder):
        async def run(self, arguments: Any, turn: Any) -> Any:
            return replace(await super().run({"a": 1, "b": 1}, turn), output="loud " * 5000)

    t = talk([Call("add")], "Ok.", assistants=[helper(tools=(Loud(),), prompt=SMALL)])

    await t.chat.take_turn(ANN, ask("Shout", "s"))

    shown = t.model.askings[-1].messages[-1].parts[0]["output"]
    assert "left out" in shown
    assert len(shown) < 3000


class _Away(MemoryStore):
    """A store that does not answer while `away` is set."""

    away = True

    async def begin_turn(self, *args: Any) -> Any:
        if self.away:
            raise Unavailable("session store")
        return await super().begin_turn(*args)

    async def get(self, *args: Any) -> Any:
        if self.away:
            raise Unavailable("session store")
        return await super().get(*args)

    async def finish_turn(self, *args: Any) -> Any:
        if self.away:
            raise Unavailable("session store")
        return await super().finish_turn(*args)


async def test_without_its_store_an_assistant_answers_or_not_as_its_policy_says() -> None:
    """C13: a dead Redis must not block the chat; X5."""
    stateless = helper(policies=patient(on_store_down=OnStoreDown.STATELESS))
    strict = helper(name="strict", policies=patient(on_store_down=OnStoreDown.RAISE))
    t = talk("Here I am.", store=_Away(), assistants=[stateless, strict])

    reply = await t.chat.take_turn(ANN, ask("Are you there?", "s"))

    assert (reply.text, reply.degraded) == ("Here I am.", ("store",))
    with pytest.raises(Unavailable):
        await t.chat.take_turn(ANN, ask("Are you there?", "s", assistant="strict"))


async def test_a_store_that_dies_under_the_answer_is_told() -> None:
    store = _Away()
    store.away = False
    hang = Hang()
    t = talk(
        [hang, Say("Late.")], store=store, assistants=[helper(policies=patient(on_store_down=OnStoreDown.STATELESS))]
    )
    turn = asyncio.create_task(t.chat.take_turn(ANN, ask("Hello", "s")))
    await hang.reached.wait()
    store.away = True
    hang.release.set()

    reply = await turn

    assert (reply.text, reply.degraded) == ("Late.", ("store",))


async def test_a_reset_during_a_turn_wins() -> None:
    hang = Hang()
    t = talk([hang, Say("Late.")])
    turn = asyncio.create_task(t.chat.take_turn(ANN, ask("Hello", "s")))
    await hang.reached.wait()
    await t.sessions.reset(ANN, "s")
    hang.release.set()

    with pytest.raises(TurnLost):
        await turn

    assert await log_of(t, "s") == []


async def test_a_long_answer_keeps_its_lease() -> None:
    """The lease is renewed while the model works, by real time: after a third of a second here."""
    hang = Hang()
    policies = patient(lease=timedelta(seconds=1))
    t = talk([hang, Say("At last.")], store=MemoryStore(), assistants=[helper(policies=policies)])
    renewed = asyncio.Event()
    renew = t.sessions.renew

    async def noted(turn: Any) -> Any:
        renewed.set()
        return await renew(turn)

    t.sessions.renew = noted  # type: ignore[method-assign]  # to see it happen
    turn = asyncio.create_task(t.chat.take_turn(ANN, ask("Hello", "s")))

    await renewed.wait()
    hang.release.set()

    assert (await turn).text == "At last."


async def test_stale_talk_is_no_context_any_more_but_stays_stored() -> None:
    """D9: staleness and retention are two things."""
    clock = FakeClock()
    policies = patient(stale_after=timedelta(hours=48))
    t = talk("A.", clock=clock, assistants=[helper(policies=policies)])
    await t.chat.take_turn(ANN, ask("Old", "s"))
    clock.advance(timedelta(hours=49))

    await t.chat.take_turn(ANN, ask("New", "s"))
    await t.chat.take_turn(ANN, ask("Newer", "s"))

    assert [message.text for message in t.model.askings[1].messages] == ["You help.", "New"]
    assert [message.text for message in t.model.askings[2].messages] == ["You help.", "New", "A.", "Newer"]
    assert len(await log_of(t, "s")) == 6


async def test_a_profile_and_style_reach_the_prompt_and_are_kept() -> None:
    """E12."""
    t = talk("Hi.")
    reply = await t.chat.take_turn(ANN, ask("Hi", profile={"name": "Ann", "response_style": "brief"}))

    await t.chat.take_turn(ANN, ask("Again", reply.session_id))

    for asking in t.model.askings:
        words = "\n".join(message.text for message in asking.messages)
        assert "Ann" in words
        assert "brief" in words


async def test_an_unknown_session_is_refused_made_or_adopted_as_the_policy_says() -> None:
    """X4."""
    names = {policy: helper(name=policy.value, policies=patient(on_missing=policy)) for policy in OnMissing}
    t = talk("Hi.", assistants=list(names.values()))

    with pytest.raises(SessionNotFound):
        await t.chat.take_turn(ANN, ask("Hi", "gone", assistant="error"))
    new = await t.chat.take_turn(ANN, ask("Hi", "gone", assistant="new_id"))
    adopted = await t.chat.take_turn(ANN, ask("Hi", "gone", assistant="adopt"))

    assert new.session_id != "gone"
    assert adopted.session_id == "gone"


async def test_a_long_session_brings_no_more_than_it_needs() -> None:
    """10,000 messages cost what 100 do: the window that is loaded does not grow."""
    t = talk("Short answer.", assistants=[helper(prompt=SMALL, policies=patient())])
    asked: list[Page] = []
    messages = t.sessions.messages

    async def noted(scope: Scope, session_id: str, page: Page | None = None) -> Any:
        asked.append(page or Page())
        return await messages(scope, session_id, page)

    t.sessions.messages = noted  # type: ignore[method-assign]  # to see it happen
    for n in range(40):
        await t.chat.take_turn(
            ANN,
            ask(
                f"Question number {n}, with some words to fill the budget, and then some more of them"
                + " and more" * 10,
                "s",
            ),
        )

    assert asked == []


async def test_a_head_that_others_filled_costs_the_tools_state_and_not_the_answer() -> None:
    policies = patient(max_head_bytes=1024)
    t = talk([Call("add", {"a": 1, "b": 2})], "3.", assistants=[helper(tools=(Adder(),), policies=policies)])
    t.sessions._policy = policies.sessions
    await t.sessions.create(ANN, NewSession(attributes={"full": "x" * 950}), "s")

    reply = await t.chat.take_turn(ANN, ask("1+2?", "s"))

    assert reply.text == "3."
    assert (await log_of(t, "s"))[-1] == ("assistant", "3.")
    assert "helper" not in (await t.sessions.get(ANN, "s")).context


async def test_a_caller_who_goes_while_the_turn_begins_leaves_the_session_free() -> None:
    """The words may be stored by the time the caller is gone; the lease must not stay with nobody."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def begin_turn(self, *args: Any) -> Any:
            turn = await super().begin_turn(*args)
            begun.set()
            await go_on.wait()
            return turn

    t = talk("Hi.", store=Slow())
    gone = asyncio.create_task(t.chat.take_turn(ANN, ask("Hello", "s", key="k")))
    await begun.wait()
    gone.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await gone

    assert (await t.chat.take_turn(ANN, ask("Hello", "s", key="k"))).text == "Hi."
    assert await log_of(t, "s") == [("user", "Hello"), ("assistant", "Hi.")]


async def test_what_a_failed_answer_has_cost_is_counted() -> None:
    t = talk([Call("add", {"a": 1, "b": 2})], [Fail()], assistants=[helper(tools=(Adder(),))])
    t.model._ended = Ended(model="m", input_tokens=30, output_tokens=10, cost_nanos=7)

    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask("1+2?", "s"))

    session = await t.sessions.get(ANN, "s")
    assert (session.tokens, session.cost_nanos) == (40, 7)


async def test_characters_that_are_kept_apart_are_not_told_of_each_other_by_a_summary() -> None:
    """C13: neither is one made of their talk, nor is one shown that somebody wrote into the log."""
    personas = {name: Persona(id=name, names={Language.ENGLISH: name}) for name in ("ada", "bea")}
    t = talk("Hi.", assistants=[helper(personas=personas, isolated=True)])
    await t.chat.take_turn(ANN, ask("A secret", "s", persona="ada"))
    said = (await t.sessions.messages(ANN, "s")).messages
    summary = Summary(text="ada knows a secret", through=said[-1].seq, through_id=said[-1].id)
    draft = summary_draft(summary, message_id="sum", sent_at=SENT_AT, seen=said[-1].seq, since=1)
    await t.sessions.append(ANN, "s", AppendRequest(messages=(draft,)))

    await t.chat.take_turn(ANN, ask("What do you know?", "s", persona="bea"))

    shown = [message.text for message in t.model.askings[-1].messages]
    assert not any("secret" in text for text in shown)
    assert t.ended[-1].policies.context.compress_over is None


async def test_an_edit_that_is_refused_takes_nothing_back() -> None:
    """Nothing half-done: a message too large to store leaves the talk as it was."""
    t = talk("A1.", "A2.", assistants=[helper(policies=patient(max_message_bytes=1024))])
    await t.chat.take_turn(ANN, ask("Q1", "s"))

    with pytest.raises(TooLarge):
        await t.chat.take_turn(ANN, ask("x" * 2000, "s", edit=1))

    assert await log_of(t, "s") == [("user", "Q1"), ("assistant", "A1.")]


@pytest.mark.parametrize("how", [{"regenerate": True}, {"text": "Other", "edit": 1}])
async def test_going_back_waits_for_a_running_turn_and_does_not_cut_it_off(how: dict[str, Any]) -> None:
    hang = Hang()
    t = talk([hang, Say("Done.")])
    first = asyncio.create_task(t.chat.take_turn(ANN, ask("Long?", "s")))
    await hang.reached.wait()

    with pytest.raises(SessionBusy):
        await t.chat.take_turn(ANN, ChatRequest(session_id="s", **how))

    hang.release.set()
    assert (await first).text == "Done."
    assert await log_of(t, "s") == [("user", "Long?"), ("assistant", "Done.")]


async def test_an_edit_that_went_no_further_than_taking_back_can_be_sent_again() -> None:
    t = talk("A1.", "A2.")
    await t.chat.take_turn(ANN, ask("Q1", "s"))
    await t.sessions.truncate(ANN, "s", 0)

    await t.chat.take_turn(ANN, ask("Q1 edited", "s", edit=1, key="e"))

    assert await log_of(t, "s") == [("user", "Q1 edited"), ("assistant", "A2.")]


async def test_only_one_s_own_words_can_be_edited_in_a_shared_chat() -> None:
    room = Scope(tenant="acme", channel="lark", chat="c1")
    ann, bob = replace(room, user="ann"), replace(room, user="bob")
    t = talk("Hi.")
    await t.chat.take_turn(ann, ask("I am Ann", "s"))

    with pytest.raises(MessageNotFound):
        await t.chat.take_turn(bob, ask("I am not", "s", edit=1))

    assert (await log_of(t, "s", room))[0] == ("user", "I am Ann")


async def test_a_store_that_fails_while_history_is_fetched_leaves_the_session_free() -> None:
    t = talk("A.", assistants=[helper(policies=patient(), prompt=PromptPolicy())])
    for n in range(30):
        await t.chat.take_turn(ANN, ask(f"Q{n}", "s"))
    messages = t.sessions.messages

    async def away(*args: Any, **kwargs: Any) -> Any:
        raise Unavailable("session store")

    t.sessions.messages = away  # type: ignore[method-assign]  # the store dies in between
    with pytest.raises(Unavailable):
        await t.chat.take_turn(ANN, ask("Now?", "s", key="k"))
    t.sessions.messages = messages  # type: ignore[method-assign]

    assert (await t.chat.take_turn(ANN, ask("Now?", "s", key="k"))).text == "A."


@pytest.mark.parametrize("field", ["data", "state", "output"])
async def test_a_tool_that_answers_with_what_is_no_json_fails_alone(field: str) -> None:
    class Odd(Adder):
        async def run(self, arguments: Any, turn: Any) -> Any:
            odd: Any = {"output": 1, field: {"price": Decimal("9.9")}}
            return ToolOutcome(**odd)

    t = talk([Call("add")], "Sorry.", assistants=[helper(tools=(Odd(),))])

    reply = await t.chat.take_turn(ANN, ask("How much?", "s"))

    assert (reply.text, reply.degraded) == ("Sorry.", ("tools",))
    assert (await t.chat.take_turn(ANN, ask("Still there?", "s"))).text == "Sorry."


async def test_what_breaks_off_is_charged_to_session_and_tenant() -> None:
    """A6: hanging up before the end gives no free tokens."""
    hang = Hang()
    t = talk([Say("Half of a long answer"), hang], budgets=Budgets(tenant_tokens_per_day=10_000))
    events = t.chat.stream(ANN, ask("Tell me", "s"))
    await anext(events)
    await anext(events)
    await hang.reached.wait()

    await events.aclose()  # type: ignore[attr-defined]  # a generator by nature

    session = await t.sessions.get(ANN, "s")
    spent = await t.store.read_state(Scope(tenant="acme"), "spent", FakeClock()().date().isoformat())
    assert session.tokens > 10
    assert spent is not None
    assert spent.value["tokens"] == session.tokens


async def test_a_reply_that_spent_the_budget_can_still_be_fetched_by_its_key() -> None:
    t = talk("Costly.", budgets=Budgets(session_tokens=5, tenant_tokens_per_day=5))
    await t.chat.take_turn(ANN, ask("One?", "s", key="k"))

    again = await t.chat.take_turn(ANN, ask("One?", "s", key="k"))

    assert (again.text, again.repeated) == ("Costly.", True)
    with pytest.raises(BudgetExhausted):
        await t.chat.take_turn(ANN, ask("Two?", "s", key="other"))


async def test_staleness_is_remembered_when_the_first_answer_after_the_pause_fails() -> None:
    clock = FakeClock()
    policies = patient(stale_after=timedelta(hours=48))
    t = talk("A.", [Fail()], "B.", clock=clock, assistants=[helper(policies=policies)])
    await t.chat.take_turn(ANN, ask("Old", "s"))
    clock.advance(timedelta(hours=49))
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask("New", "s"))

    await t.chat.take_turn(ANN, ask("Newer", "s"))

    assert not any("Old" in message.text for message in t.model.askings[-1].messages)


async def test_the_hard_budget_holds_over_calls_results_and_what_is_told_of_tools() -> None:
    class Loud(Adder):
        async def run(self, arguments: Any, turn: Any) -> Any:
            return ToolOutcome(output="loud " * 5000)

    many = [Call("add", {"note": "words " * 5}) for _ in range(5)]
    t = talk(many, many, "Ok.", assistants=[helper(tools=(Loud(),), prompt=PromptPolicy(budget=1200, reply=100))])
    counter = Counter()

    with contextlib.suppress(ModelFailed):
        await t.chat.take_turn(ANN, ask("Shout", "s"))

    assert len(t.model.askings) >= 2
    for asking in t.model.askings:
        shown = sum(counter.part(part) for message in asking.messages for part in message.parts)
        told = sum(counter.count(as_text(msgspec.to_builtins(tool))) for tool in asking.tools)
        assert shown + told <= 1100


async def test_more_calls_at_once_than_anybody_needs_are_not_all_run() -> None:
    adder = Adder()
    t = talk([Call("add", {"a": 1, "b": 1}) for _ in range(40)], "2.", assistants=[helper(tools=(adder,))])

    assert (await t.chat.take_turn(ANN, ask("1+1?", "s"))).text == "2."
    assert len(adder.calls) == 16


async def test_a_chain_has_time_for_each_of_its_models() -> None:
    """A first model that hangs until its own time is up leaves the second one its own."""

    class Slow:
        name = "slow"

        async def answer(self, asking: Any, tools: Any) -> AsyncIterator[Any]:
            await asyncio.sleep(0.05)
            if asking is not None:
                raise ModelTimeout("slow")
            yield

    chain = Chain([Slow(), ScriptedModel("Here.")])
    t = talk(limits=ChatLimits(model_timeout=timedelta(seconds=0.05)), model=chain)  # type: ignore[arg-type]

    reply = await t.chat.take_turn(ANN, ask("Hello?"))

    assert (reply.text, reply.degraded) == ("Here.", ("fallback_model",))


async def test_a_trace_keeps_only_so_much_of_long_words() -> None:
    t = talk("long " * 5000)

    reply = await t.chat.take_turn(ANN, ask("many " * 5000, "s"))

    trace = await trace_of(t, reply)
    assert max(len(trace.request), len(trace.answer)) <= 8000
    assert reply.text == "long " * 5000
