"""What happens to a turn when its model, its store or its caller goes away, and who holds the session meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from tenuto.chat import ChatLimits, ReplyFinished, TurnStarted
from tenuto.errors import DecryptionFailed, ModelFailed, ModelTimeout, TurnLost, Unavailable
from tenuto.llm import Call, Fail, FallbackChain, Hang, Say, ScriptedModel, Stop
from tenuto.model.generation import TextDelta
from tenuto.model.policy import OnStoreDown
from tenuto.model.prompt import PromptPolicy
from tests.chats import Adder, ask, helper, patient, talk, under_way
from tests.doubles import FlatMemoryStore
from tests.samples import ANN
from tests.unit.stored_talks import stored_messages


async def test_a_listener_that_goes_cancels_the_model_and_keeps_the_words() -> None:
    t = talk([Say("Half"), hang := Hang()], "Whole.")
    events = t.chat.stream(ANN, ask("Tell me", "s", idempotency_key="k"))
    started = await anext(events)
    assert isinstance(started, TurnStarted)
    assert await anext(events) == TextDelta(text="Half")
    await hang.reached.wait()

    await events.aclose()  # type: ignore[attr-defined]  # a generator by nature

    assert t.model.cancelled == 1
    assert await stored_messages(t, "s") == [("user", "Tell me")]
    again = await t.chat.take_turn(ANN, ask("Tell me", "s", idempotency_key="k"))
    assert again.text == "Whole."
    assert await stored_messages(t, "s") == [("user", "Tell me"), ("assistant", "Whole.")]


async def test_words_of_failed_turns_are_joined_with_the_next_question() -> None:
    t = talk([Fail()], [Fail()], "Yes.", [Fail()], "Bye.")

    for words in ("One?", "Two?", "Three?", "Four?", "Five?"):
        with contextlib.suppress(ModelFailed):
            await t.chat.take_turn(ANN, ask(words, "s"))

    asked = t.model.requests[-1]
    assert [message.text for message in asked.messages[1:]] == ["One?\n\nTwo?\n\nThree?", "Yes.", "Four?\n\nFive?"]
    assert [request.cacheable_messages for request in t.model.requests] == [1, 1, 1, 3, 3]


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
    script: Any, error: type[Exception], later: Callable[[float], None]
) -> None:
    """Issue: model times out, returns garbage, streams half and dies."""
    t = talk(script, "Now.", limits=ChatLimits(model_timeout=timedelta(seconds=30)))
    turn = asyncio.create_task(t.chat.take_turn(ANN, ask("Well?", "s", idempotency_key="k")))
    if isinstance(script[-1], Hang):
        await script[-1].reached.wait()
        later(31)

    with pytest.raises(error):
        await turn

    assert await stored_messages(t, "s") == [("user", "Well?")]
    assert [trace.error for trace in await t.store.traces.traces(ANN, "s")] == [error("m").code]  # type: ignore[attr-defined]
    assert (await t.chat.take_turn(ANN, ask("Well?", "s", idempotency_key="k"))).text == "Now."
    assert await stored_messages(t, "s") == [("user", "Well?"), ("assistant", "Now.")]
    assert [trace.error for trace in await t.store.traces.traces(ANN, "s")] == [None]


async def test_garbage_from_a_model_is_stored_as_sound_text() -> None:
    t = talk([Say("a\0b", "\ud800", "c")])

    reply = await t.chat.take_turn(ANN, ask("?!"))

    assert reply.text == "a\N{REPLACEMENT CHARACTER}b?c"


async def test_a_chain_has_time_for_each_of_its_models(later: Callable[[float], None]) -> None:
    """A first model that hangs until its own time is up leaves the second one its own."""

    class Slow:
        name = "slow"

        async def stream_answer(self, request: Any, tools: Any) -> AsyncIterator[Any]:
            later(30)
            await asyncio.sleep(0)
            if request is not None:
                raise ModelTimeout("slow")
            yield

    chain = FallbackChain([Slow(), ScriptedModel("Here.")])
    t = talk(limits=ChatLimits(model_timeout=timedelta(seconds=30)), model=chain)  # type: ignore[arg-type]

    reply = await t.chat.take_turn(ANN, ask("Hello?"))

    assert (reply.text, reply.degraded) == ("Here.", ("fallback_model",))


class _Away(FlatMemoryStore):
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


@pytest.mark.requirement("C13", "X5")
async def test_without_its_store_an_assistant_answers_or_not_as_its_policy_says() -> None:
    """A dead Redis must not block the chat."""
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
    turn = await under_way(t, hang, ask("Hello", "s"))
    store.away = True
    hang.release.set()

    reply = await turn

    assert (reply.text, reply.degraded) == ("Late.", ("store",))


@pytest.mark.parametrize("what", ["get", "begin_turn", "finish_turn"])
async def test_a_missing_key_is_no_store_that_is_away(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sealed is there and cannot be read: no answer is given as if the session were empty."""

    async def sealed(*args: Any) -> Any:
        if what == "finish_turn" and args[1].abandoned:
            return await finish(*args)
        raise DecryptionFailed("does not open")

    t = talk("A.", assistants=[helper(policies=patient(on_store_down=OnStoreDown.STATELESS))])
    await t.sessions.create(ANN, None, "s")
    finish = t.store.sessions.finish_turn
    monkeypatch.setattr(t.store.sessions, what, sealed)

    with pytest.raises(DecryptionFailed):
        await t.chat.take_turn(ANN, ask("Hello", "s"))

    monkeypatch.undo()
    assert (await t.chat.take_turn(ANN, ask("Hello", "s"))).degraded == ()


async def test_a_store_that_fails_while_history_is_fetched_leaves_the_session_free() -> None:
    t = talk("A.", assistants=[helper(policies=patient(), prompt=PromptPolicy())])
    for n in range(20):
        await t.chat.take_turn(ANN, ask(f"Q{n}", "s"))
    messages = t.sessions.messages

    async def away(*args: Any, **kwargs: Any) -> Any:
        raise Unavailable("session store")

    t.sessions.messages = away  # type: ignore[method-assign]  # the store dies in between
    with pytest.raises(Unavailable):
        await t.chat.take_turn(ANN, ask("Now?", "s", idempotency_key="k"))
    t.sessions.messages = messages  # type: ignore[method-assign]

    assert (await t.chat.take_turn(ANN, ask("Now?", "s", idempotency_key="k"))).text == "A."


async def test_a_reset_during_a_turn_wins() -> None:
    t = talk([hang := Hang(), Say("Late.")])
    turn = await under_way(t, hang, ask("Hello", "s"))
    await t.sessions.reset(ANN, "s")
    hang.release.set()

    with pytest.raises(TurnLost):
        await turn

    assert await stored_messages(t, "s") == []


async def test_a_long_answer_keeps_its_lease(later: Callable[[float], None]) -> None:
    """The lease is renewed while the model works, each time a third of it has passed."""
    t = talk([hang := Hang(), Say("At last.")], assistants=[helper(policies=patient(lease=timedelta(seconds=6)))])
    renewed = asyncio.Event()
    renew = t.sessions.renew

    async def noted(turn: Any) -> Any:
        held = await renew(turn)
        renewed.set()
        return held

    t.sessions.renew = noted  # type: ignore[method-assign]  # to see it happen
    turn = await under_way(t, hang, ask("Hello", "s"))
    for _ in range(3):
        renewed.clear()
        later(31)
        await renewed.wait()
    hang.release.set()

    assert (await turn).text == "At last."


async def test_a_caller_who_goes_while_the_turn_begins_leaves_the_session_free() -> None:
    """The words may be stored by the time the caller is gone; the lease must not stay behind."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(FlatMemoryStore):
        async def begin_turn(self, *args: Any) -> Any:
            turn = await super().begin_turn(*args)
            begun.set()
            await go_on.wait()
            return turn

    t = talk("Hi.", store=Slow())
    gone = asyncio.create_task(t.chat.take_turn(ANN, ask("Hello", "s", idempotency_key="k")))
    await begun.wait()
    gone.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await gone

    assert (await t.chat.take_turn(ANN, ask("Hello", "s", idempotency_key="k"))).text == "Hi."
    assert await stored_messages(t, "s") == [("user", "Hello"), ("assistant", "Hi.")]


async def test_the_trace_of_a_cancelled_turn_shows_what_its_reader_was_given() -> None:
    """The model may be far ahead of a client that reads slowly and leaves."""
    t = talk([Say(*"abcdefgh"), hang := Hang()])
    events = t.chat.stream(ANN, ask("Tell me", "s"))
    heard = [await anext(events) for _ in range(4)]
    await hang.reached.wait()

    await events.aclose()  # type: ignore[attr-defined]  # a generator by nature

    assert heard[1:] == [TextDelta(text="a"), TextDelta(text="b"), TextDelta(text="c")]
    [trace] = await t.store.traces.traces(ANN, "s")
    assert (trace.answer, trace.error) == ("abc", "cancelled")


async def test_it_shows_no_more_when_the_model_was_done_already() -> None:
    finishing = asyncio.Event()

    class Slow(FlatMemoryStore):
        async def finish_turn(self, turn: Any, request: Any) -> Any:
            if not request.abandoned:
                finishing.set()
                await asyncio.Event().wait()
            return await super().finish_turn(turn, request)

    t = talk(
        [Say("Wait. "), Call("add", {"a": 1, "b": 2})],
        [Say("It ", "is ", "3.")],
        store=Slow(),
        assistants=[helper(tools=(Adder(),))],
    )
    events = t.chat.stream(ANN, ask("1+2?", "s"))
    while (event := await anext(events)) != TextDelta(text="It "):
        assert not isinstance(event, ReplyFinished)
    await finishing.wait()

    await events.aclose()  # type: ignore[attr-defined]  # a generator by nature

    [trace] = await t.store.traces.traces(ANN, "s")
    assert (trace.answer, trace.error) == ("It ", "cancelled")
    assert await stored_messages(t, "s") == [("user", "1+2?")]


async def test_a_whole_answer_that_nobody_waits_for_is_traced_as_far_as_the_model_came() -> None:
    t = talk([Say("Half"), hang := Hang()])
    turn = await under_way(t, hang, ask("Tell me", "s"))

    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    assert [(trace.answer, trace.error) for trace in await t.store.traces.traces(ANN, "s")] == [("Half", "cancelled")]


async def test_a_reader_who_takes_their_time_costs_the_model_none_of_its_own(later: Callable[[float], None]) -> None:
    pieces = [f"{number} " for number in range(200)]
    t = talk([Say(*pieces)], limits=ChatLimits(model_timeout=timedelta(seconds=30)))
    events = t.chat.stream(ANN, ask("Count", "s"))
    heard = [await anext(events) for _ in range(3)]
    for _ in range(3):
        # By then the model waits for its reader, who comes back after a day.
        await asyncio.sleep(0)
    later(86_400)
    await asyncio.sleep(0)

    heard += [event async for event in events]

    assert isinstance(heard[-1], ReplyFinished)
    assert heard[-1].reply.text == "".join(pieces)


async def test_a_model_that_hangs_behind_a_slow_reader_is_timed_out(later: Callable[[float], None]) -> None:
    t = talk([Say("Well"), hang := Hang()], limits=ChatLimits(model_timeout=timedelta(seconds=30)))
    turn = await under_way(t, hang, ask("Hello", "s"))

    later(31)

    with pytest.raises(ModelTimeout):
        await turn


async def test_a_model_that_will_not_be_stopped_is_timed_out_all_the_same(later: Callable[[float], None]) -> None:
    asked = asyncio.Event()

    class Stubborn:
        name = "stubborn"

        async def stream_answer(self, request: Any, tools: Any) -> AsyncIterator[Any]:
            asked.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            yield TextDelta(text="As I was saying")

    t = talk(model=Stubborn(), limits=ChatLimits(model_timeout=timedelta(seconds=30)))  # type: ignore[arg-type]
    turn = asyncio.create_task(t.chat.take_turn(ANN, ask("Hello", "s")))
    await asked.wait()

    later(31)

    with pytest.raises(ModelTimeout):
        await turn


async def test_a_caller_who_goes_while_the_lease_is_let_go_is_not_answered(later: Callable[[float], None]) -> None:
    renewing, stopping, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
    t = talk([hang := Hang(), Say("Late.")], "Now.")

    async def renew(turn: Any) -> Any:
        renewing.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await stopped.wait()

    t.sessions.renew = renew  # type: ignore[method-assign]  # a store that takes its time
    turn = await under_way(t, hang, ask("Hello", "s", idempotency_key="k"))
    later(60)
    await renewing.wait()
    hang.release.set()
    await stopping.wait()
    turn.cancel()
    stopped.set()

    with pytest.raises(asyncio.CancelledError):
        await turn

    assert await stored_messages(t, "s") == [("user", "Hello")]
    assert (await t.chat.take_turn(ANN, ask("Hello", "s", idempotency_key="k"))).text == "Now."
