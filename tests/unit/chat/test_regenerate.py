"""An answer made anew: the old one stands until the new one is there, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tenuto.chat import ChatRequest, ReplyFinished, TurnStarted
from tenuto.errors import ModelFailed, Superseded, TenutoError, TooLarge, TurnLost, Unavailable
from tenuto.llm import Call, Fail, Hang, Say
from tenuto.llm.scripted import Script
from tenuto.model import AppendResult, FinishTurn, MessagePage, OpenTurn, Session, Truncation
from tenuto.model.generation import TextDelta
from tenuto.model.policy import OnStoreDown
from tenuto.ports import TurnFollowUp
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import Sessions
from tenuto.upkeep import Upkeep
from tests.chats import Adder, Talk, ask, helper, patient, talk, under_way
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore
from tests.samples import ANN
from tests.unit.stored_talks import stored_messages

SAID = ask("Q", "s", idempotency_key="said")
ANEW = ChatRequest(session_id="s", regenerate=True, idempotency_key="anew")
BETTER = [("user", "Q"), ("assistant", "Better.")]


class Dying(FlatMemoryStore):
    """A store that is away from one of its steps on, until it is back."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.dies_at = ""
        self.away = False

    def _reached(self, step: str) -> None:
        self.away = self.away or step == self.dies_at
        if self.away:
            raise Unavailable("session store")

    async def messages(self, *args: Any) -> MessagePage:
        self._reached("messages")
        return await super().messages(*args)

    async def truncate(self, *args: Any, **rest: Any) -> Session:
        self._reached("truncate")
        return await super().truncate(*args, **rest)

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        self._reached("finish")
        return await super().finish_turn(turn, request)

    def back(self) -> None:
        self.dies_at, self.away = "", False


def dying(*scripts: Script, **policy: Any) -> tuple[Talk, Dying, Upkeep]:
    """A talk on such a store, with the upkeep that waits for it."""
    store, made = Dying(), []

    def upkeep(sessions: Sessions) -> TurnFollowUp:
        made.append(Upkeep(sessions=sessions, redaction=UpkeepRedaction(NO_REDACTION), sweep_every=timedelta(hours=1)))
        return made[0].after_turn

    t = talk(*scripts, store=store, assistants=[helper(policies=patient(**policy))], follow_up=upkeep)
    return t, store, made[0]


async def everything(t: Talk) -> tuple[Any, ...]:
    """What a session shows of its talk: every message with its place, and the trace of its first turn."""
    return (await t.sessions.messages(ANN, "s")).messages, await t.store.traces.trace(ANN, "s", 1)


@pytest.mark.parametrize(
    "script",
    [[Fail()], [Say("Half"), Fail()], [Say(" ")], [Call("add", {"a": 1, "b": 2}), Fail()]],
    ids=["at once", "half-way", "nothing said", "after a tool"],
)
async def test_a_model_that_fails_costs_nobody_the_answer_they_had(script: Script) -> None:
    t = talk("Good.", script, "Better.", assistants=[helper(tools=(Adder(),))])
    await t.chat.take_turn(ANN, SAID)
    before = await everything(t)

    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ANEW)

    assert await everything(t) == before
    assert "taken_back" not in (await t.sessions.get(ANN, "s")).metadata
    repeated = await t.chat.take_turn(ANN, SAID)
    assert (repeated.text, repeated.replayed) == ("Good.", True)
    assert (await t.chat.take_turn(ANN, ANEW)).text == "Better."
    assert await stored_messages(t, "s") == BETTER
    with pytest.raises(Superseded):
        await t.chat.take_turn(ANN, SAID)


async def test_a_reader_who_goes_half_way_leaves_the_old_answer() -> None:
    t = talk("Good.", [Say("Half"), hang := Hang()], "Better.")
    await t.chat.take_turn(ANN, SAID)
    before = await everything(t)
    events = t.chat.stream(ANN, ANEW)
    assert isinstance(await anext(events), TurnStarted)
    assert await anext(events) == TextDelta(text="Half")
    await hang.reached.wait()

    await events.aclose()  # type: ignore[attr-defined]  # a generator by nature

    assert await everything(t) == before
    assert (await t.chat.take_turn(ANN, SAID)).replayed
    assert (await t.chat.take_turn(ANN, ANEW)).text == "Better."


async def test_one_who_goes_while_the_old_answer_makes_room_finds_the_new_one() -> None:
    """The two steps belong together: no client finds a message without any answer."""
    t = talk("Good.", "Better.")
    await t.chat.take_turn(ANN, SAID)
    truncate = t.sessions.truncate
    made_room, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **rest: Any) -> Session:
        session = await truncate(*args, **rest)
        made_room.set()
        await go_on.wait()
        return session

    t.sessions.truncate = slow  # type: ignore[method-assign]  # to be there in that moment
    turn = asyncio.create_task(t.chat.take_turn(ANN, ANEW))
    await made_room.wait()
    turn.cancel()
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await turn
    assert await stored_messages(t, "s") == BETTER
    assert (await t.chat.take_turn(ANN, ANEW)).replayed


@pytest.mark.parametrize("step", ["messages", "truncate"])
async def test_a_store_that_dies_before_the_new_answer_has_its_place_brings_the_old_one_back(step: str) -> None:
    t, store, upkeep = dying("Good.", [hang := Hang(), Say("Lost.")], "Better.")
    await t.chat.take_turn(ANN, SAID)
    before = await everything(t)
    turn = await under_way(t, hang, ANEW)
    store.dies_at = step
    hang.release.set()
    with pytest.raises(Unavailable):
        await turn

    store.back()
    await upkeep.drain()

    assert await everything(t) == before
    assert (await t.chat.take_turn(ANN, ANEW)).text == "Better."
    assert await stored_messages(t, "s") == BETTER


@pytest.mark.parametrize("policy", [OnStoreDown.RAISE, OnStoreDown.STATELESS])
async def test_a_store_that_dies_between_the_two_takes_the_new_answer_when_it_is_back(policy: OnStoreDown) -> None:
    t, store, upkeep = dying("Good.", "Better.", on_store_down=policy)
    await t.chat.take_turn(ANN, SAID)
    store.dies_at = "finish"
    if policy is OnStoreDown.STATELESS:
        assert "store" in (await t.chat.take_turn(ANN, ANEW)).degraded
    else:
        with pytest.raises(Unavailable):
            await t.chat.take_turn(ANN, ANEW)

    store.back()
    await upkeep.drain()

    assert await stored_messages(t, "s") == BETTER
    repeated = await t.chat.take_turn(ANN, ANEW)
    assert (repeated.text, repeated.replayed) == ("Better.", True)


async def test_an_answer_that_is_too_large_takes_no_other_s_place() -> None:
    t = talk("Good.", "x" * 2000, assistants=[helper(policies=patient(max_message_bytes=1024))])
    await t.chat.take_turn(ANN, SAID)
    before = await everything(t)

    with pytest.raises(TooLarge):
        await t.chat.take_turn(ANN, ANEW)

    assert await everything(t) == before


@pytest.mark.parametrize("meanwhile", ["reset", "truncate", "delete"])
async def test_what_is_done_to_a_session_meanwhile_wins(meanwhile: str) -> None:
    t = talk("Good.", [hang := Hang(), Say("Better.")])
    await t.chat.take_turn(ANN, SAID)
    turn = await under_way(t, hang, ANEW)
    steps: dict[str, Callable[[], Any]] = {
        "reset": lambda: t.sessions.reset(ANN, "s"),
        "truncate": lambda: t.sessions.truncate(ANN, "s", Truncation(after=1)),
        "delete": lambda: t.sessions.delete(ANN, "s"),
    }
    await steps[meanwhile]()
    hang.release.set()

    with pytest.raises(TenutoError) as excinfo:
        await turn

    assert isinstance(excinfo.value, TurnLost) or meanwhile == "delete"
    if meanwhile != "delete":
        assert await stored_messages(t, "s") == ([] if meanwhile == "reset" else [("user", "Q")])


async def test_a_title_does_not_outlive_the_first_answer_it_was_made_of() -> None:
    """It is made again with the new first answer, and with no later one; and not where that fails."""
    t = talk("Good.", [Fail()], "Better.", "More.", "Most.")
    await t.chat.take_turn(ANN, SAID)
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ANEW)
    assert "stale" not in (await t.sessions.get(ANN, "s")).metadata["title"]
    await t.chat.take_turn(ANN, ANEW)
    assert (await t.sessions.get(ANN, "s")).metadata["title"]["stale"]
    await t.chat.take_turn(ANN, ask("More?", "s"))

    await t.chat.take_turn(ANN, ChatRequest(session_id="s", regenerate=True))

    assert [ended.claims_title for ended in t.ended] == [True, True, False, False]


@pytest.mark.requirement("C9")
async def test_an_answer_made_anew_is_one_turn_from_its_start_to_its_end() -> None:
    """What the first event names is what the last one tells of, and what the log and the trace say."""
    t = talk("Good.", "Better.")
    await t.chat.take_turn(ANN, SAID)

    events = [event async for event in t.chat.stream(ANN, ANEW)]

    started, answered = events[0], events[-1]
    assert isinstance(started, TurnStarted)
    assert isinstance(answered, ReplyFinished)
    assert (started.turn, started.trace_id) == (answered.reply.turn, answered.reply.trace_id)
    [words, answer] = (await t.sessions.messages(ANN, "s")).messages
    assert (words.turn, answer.turn) == (1, 2)
    assert await t.store.traces.trace(ANN, "s", 1) is None
    trace = await t.store.traces.trace(ANN, "s", 2)
    assert trace is not None
    assert (trace.id, trace.answer) == (started.trace_id, "Better.")


async def test_only_the_last_words_are_answered_where_several_have_no_answer() -> None:
    """What was said before them stays talk: a model that failed twice is not asked three questions at once."""
    t = talk([Fail()], [Fail()], "Eight.", "Four.")
    for number, said in enumerate(("What is 2 + 2?", "And 4 + 4?")):
        with pytest.raises(ModelFailed):
            await t.chat.take_turn(ANN, ask(said, "s", idempotency_key=str(number)))

    reply = await t.chat.take_turn(ANN, ANEW)

    assert t.model.requests[-1].messages[-1].text == "What is 2 + 2?\n\nAnd 4 + 4?"
    trace = await t.store.traces.trace(ANN, "s", reply.turn)
    assert trace is not None
    assert trace.request == "And 4 + 4?"
    with pytest.raises(Superseded):
        await t.chat.take_turn(ANN, ask("And 4 + 4?", "s", idempotency_key="1"))
    assert (await t.chat.take_turn(ANN, ask("What is 2 + 2?", "s", idempotency_key="0"))).text == "Four."
