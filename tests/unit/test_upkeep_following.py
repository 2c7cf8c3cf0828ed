"""What follows a turn, on a store: titles that respect renames, summaries that survive what happens meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.context.summaries import is_summary, summary_in
from tenuto.errors import ModelFailed, SessionNotFound, Unavailable
from tenuto.model import Appended, Batch, Changes, Closing, Keeping, Message, Page, Scope, Session
from tenuto.model.policy import ContextPolicy, Preset, SessionPolicy
from tenuto.model.prompt import Language, PromptPolicy
from tenuto.model.talk import Summary, TurnEnded
from tenuto.sessions import Announcer, Sessions, TurnRequest
from tenuto.sessions.titles import opening_changes
from tenuto.stores.memory import MemoryStore
from tenuto.upkeep import Upkeep
from tests.clock import FakeClock
from tests.samples import ANN, answers, says

QUESTION = "Can you help me plan a two-week trip to Japan in spring?"
ANSWER = "A two-week trip to Japan in spring could start in Tokyo."
RETOLD = "The user plans a trip to Japan. They decided on Tokyo first. The rail pass is open."


class Model:
    """A small model that says what it is told to, and remembers what it was asked."""

    def __init__(self, *said: str | Exception) -> None:
        self.said = list(said)
        self.asked: list[tuple[str, str, int]] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def __call__(self, scope: Scope, system: str, text: str, most: int) -> str:
        self.asked.append((system, text, most))
        if self.meanwhile is not None:
            await self.meanwhile()
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, Exception):
            raise said
        return said


class House:
    """Sessions over memory, their upkeep, and turns as chat takes them."""

    def __init__(
        self, model: Model | None = None, *, cap: int | None = 500, store: MemoryStore | None = None, **context: Any
    ) -> None:
        self.clock = FakeClock()
        self.model = model
        policy = SessionPolicy(keeping=Keeping(max_messages=cap))
        self.policies = Preset(sessions=policy, context=ContextPolicy(**{"compress_over": 30, **context}))
        self.store = store or MemoryStore(clock=self.clock)
        self.sessions = Sessions(store=self.store, policy=policy, announcer=Announcer(clock=self.clock))
        self.upkeep = self.another()
        self._words = count(1)

    def another(self, **rest: Any) -> Upkeep:
        """Another process on the same store."""
        settled = {"small": self.model, "clock": self.clock, **rest}
        return Upkeep(sessions=self.sessions, sweep_every=timedelta(minutes=5), **settled)

    async def turn(
        self, session_id: str | None = None, question: str = QUESTION, answer: str = ANSWER, follow: bool = True
    ) -> Session:
        """One turn, followed as chat has it followed."""
        begun = await self.sessions.begin(ANN, TurnRequest(words=(says(question),), session_id=session_id))
        has_model = self.model is not None
        claim = opening_changes(begun.session, question, Language.ENGLISH, self.clock(), model=has_model)
        done = await self.sessions.finish(begun, Closing(reply=(answers(answer),), changes=claim))
        if follow:
            self.upkeep.follow(self.ended(done.session, question, answer, titles=claim is not None))
        return done.session

    def ended(self, session: Session, question: str = "", answer: str = "", **rest: Any) -> TurnEnded:
        given = {
            "scope": ANN,
            "session": session,
            "assistant": "general",
            "language": Language.ENGLISH,
            "policies": self.policies,
            "prompt": PromptPolicy(),
            "question": question,
            "answer": answer,
            **rest,
        }
        return TurnEnded(**given)

    async def talk(self, turns: int, session_id: str | None = None) -> Session:
        """So many turns, with nothing following them."""
        session = None
        for _ in range(turns):
            number = next(self._words)
            asked = f"Question {number} about the trip to Japan, Tokyo and the rail pass."
            session = await self.turn(
                session_id, asked, f"Answer {number}: we decided on hotel {number}.", follow=False
            )
            session_id = session.id
        assert session is not None
        return session

    async def log(self, session: Session) -> tuple[Message, ...]:
        return (await self.sessions.messages(ANN, session.id, Page(limit=1000))).messages

    async def summary(self, session: Session) -> Summary | None:
        head = await self.sessions.get(ANN, session.id)
        return summary_in(await self.log(session), head.window_start)

    async def entries(self, session: Session) -> list[Message]:
        return [message for message in await self.log(session) if is_summary(message)]

    async def title(self, session: Session) -> tuple[str, str]:
        head = await self.sessions.get(ANN, session.id)
        return head.title, head.metadata.get("title", {}).get("by", "")


# Titles


async def test_a_model_gives_the_title() -> None:
    """A15: and the rules are enforced on what it says."""
    house = House(Model('"Two-Week Trip to Japan!" 🗾'))

    session = await house.turn()
    await house.upkeep.drain()

    assert await house.title(session) == ("Two-Week Trip to Japan", "model")


async def test_without_a_model_a_phrase_of_the_talk_is_the_title_and_stays_it() -> None:
    house = House()
    session = await house.turn()
    await house.upkeep.drain()

    house.clock.advance(timedelta(minutes=2))
    await house.turn(session.id, "And what about the hotels in Kyoto city?")
    await house.upkeep.drain()

    assert await house.title(session) == ("Plan Two-Week Trip to Japan", "extract")


async def test_a_model_that_appears_later_makes_the_extracted_title_better() -> None:
    house = House()
    session = await house.turn()
    await house.upkeep.drain()
    house.model = Model("Spring Trip to Japan")
    house.upkeep = house.another()
    house.clock.advance(timedelta(minutes=2))

    await house.turn(session.id, "And the hotels?")
    await house.upkeep.drain()

    assert await house.title(session) == ("Spring Trip to Japan", "model")


@pytest.mark.parametrize(
    "said", [ModelFailed("small"), "Trip", "  "], ids=["fails", "breaks the rules", "says nothing"]
)
async def test_the_fallback_stays_when_the_model_fails_and_is_tried_again_after_a_minute(said: str | Exception) -> None:
    """A17, U3."""
    model = Model(said, "Two-Week Trip to Japan")
    house = House(model)
    session = await house.turn()
    await house.upkeep.drain()
    first = await house.title(session)

    await house.turn(session.id, "too soon")
    await house.upkeep.drain()
    asked_too_soon = len(model.asked)
    house.clock.advance(timedelta(minutes=1))
    await house.turn(session.id, "late enough")
    await house.upkeep.drain()

    assert first == ("Can you help me plan a two-week trip to...", "fallback")
    assert asked_too_soon == 1
    assert await house.title(session) == ("Two-Week Trip to Japan", "model")


async def test_a_title_that_is_there_costs_no_call() -> None:
    """A16, A29."""
    model = Model("Two-Week Trip to Japan")
    house = House(model)
    session = await house.turn()
    await house.upkeep.drain()
    house.clock.advance(timedelta(days=1))

    await house.turn(session.id, "More")
    await house.upkeep.drain()

    assert len(model.asked) == 1


async def test_a_hundred_first_requests_cost_one_call() -> None:
    """T13."""
    model = Model("Two-Week Trip to Japan")
    house = House(model)
    made, _ = await house.sessions.create(ANN)

    await asyncio.gather(*(house.turn(made.id, f"{QUESTION} {number}") for number in range(100)))
    await house.upkeep.drain()

    assert len([system for system, _, _ in model.asked if "title" in system]) == 1
    assert (await house.title(made))[0] == "Two-Week Trip to Japan"


async def test_a_rename_while_the_model_thinks_wins() -> None:
    """T13, U3."""
    model = Model("Two-Week Trip to Japan")
    house = House(model)
    session = await house.turn(follow=False)
    model.meanwhile = lambda: house.sessions.patch(ANN, session.id, Changes(title="Our holiday"))

    house.upkeep.follow(house.ended(session, QUESTION, ANSWER, titles=True))
    await house.upkeep.drain()

    assert (await house.title(session))[0] == "Our holiday"


class Renaming(MemoryStore):
    """A store where somebody renames the session in the moment a title is to be written."""

    renamed: str | None = None

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        if self.renamed is not None:
            title, self.renamed = self.renamed, None
            await super().patch(scope, session_id, Changes(title=title))
        return await super().patch(scope, session_id, changes)


async def test_a_rename_in_the_very_moment_of_writing_wins() -> None:
    store = Renaming()
    house = House(Model("Two-Week Trip to Japan"), store=store)
    session = await house.turn(follow=False)
    store.renamed = "Our holiday"

    house.upkeep.follow(house.ended(session, QUESTION, ANSWER, titles=True))
    await house.upkeep.drain()

    assert (await house.title(session))[0] == "Our holiday"


async def test_other_changes_in_that_moment_do_not_cost_the_title() -> None:
    house = House(Model("Two-Week Trip to Japan"))
    session = await house.turn(follow=False)
    assert house.model is not None
    house.model.meanwhile = lambda: house.sessions.patch(ANN, session.id, Changes(context={"colour": "blue"}))

    house.upkeep.follow(house.ended(session, QUESTION, ANSWER, titles=True))
    await house.upkeep.drain()

    assert (await house.title(session))[0] == "Two-Week Trip to Japan"


async def test_a_session_that_is_gone_needs_no_title() -> None:
    house = House(Model("Two-Week Trip to Japan"))
    session = await house.turn(follow=False)
    assert house.model is not None
    house.model.meanwhile = lambda: house.sessions.delete(ANN, session.id)

    house.upkeep.follow(house.ended(session, QUESTION, ANSWER, titles=True))
    await house.upkeep.drain()

    with pytest.raises(SessionNotFound):
        await house.sessions.get(ANN, session.id)


async def test_titles_are_redacted() -> None:
    model = Model("Calling Ann About Japan")
    house = House(model)
    house.upkeep = house.another(redact=lambda text: text.replace("Japan", "[PLACE]").replace("Ann", "[NAME]"))

    session = await house.turn()
    await house.upkeep.drain()

    assert "Japan" not in model.asked[0][1]
    assert (await house.title(session))[0] == "Calling [NAME] About [PLACE]"


# Summaries


async def test_a_long_session_is_compressed_to_twenty_messages_and_a_summary() -> None:
    """E13, X7."""
    house = House()
    session = await house.talk(16)

    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    summary = await house.summary(session)
    assert summary is not None
    assert (summary.through, summary.made_by) == (12, "extract")
    assert "trip to Japan" in summary.text
    assert len(await house.log(session)) == 33


async def test_the_next_summary_builds_on_the_one_before_and_reads_no_old_talk_again() -> None:
    """T12: incremental; the model sees the previous summary and the new messages alone."""
    model = Model(RETOLD)
    house = House(model)
    session = await house.talk(16)
    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()
    await house.talk(8, session.id)

    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    _, text, _ = model.asked[1]
    assert RETOLD in text
    assert "Question 6 " not in text
    assert "Question 7 " in text
    summary = await house.summary(session)
    assert summary is not None
    assert (summary.through, summary.made_by) == (28, "model")
    assert len(await house.entries(session)) == 2


@pytest.mark.parametrize(
    "said",
    [
        ModelFailed("small"),
        TimeoutError(),
        "",
        "I'm sorry, but I cannot assist with that request.",
        "旅行计划的摘要。" * 9,
        "a" * 5000,
    ],
    ids=["fails", "times out", "says nothing", "refuses", "wrong language", "noise"],
)
async def test_extraction_stands_in_for_a_model_that_is_of_no_use(said: str | Exception) -> None:
    """T12: a failing summariser loses nothing."""
    house = House(Model(said))
    session = await house.talk(16)

    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    summary = await house.summary(session)
    assert summary is not None
    assert (summary.through, summary.made_by) == (12, "extract")


async def test_a_model_that_talks_too_long_is_cut_between_sentences() -> None:
    house = House(Model((RETOLD + " ") * 30), summary_characters=200)
    session = await house.talk(16)

    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    summary = await house.summary(session)
    assert summary is not None
    assert summary.made_by == "model"
    assert len(summary.text) <= 200
    assert summary.text.endswith(".")


async def test_nothing_is_made_anew_while_nothing_changes() -> None:
    """T12."""
    model = Model(RETOLD)
    house = House(model)
    session = await house.talk(16)

    for _ in range(3):
        house.upkeep.follow(house.ended(session))
        await house.upkeep.drain()

    assert len(model.asked) == 1
    assert len(await house.entries(session)) == 1


async def test_two_processes_that_compress_the_same_range_store_one_entry() -> None:
    house = House(Model(RETOLD))
    session = await house.talk(16)
    both = [house.another(), house.another()]

    for upkeep in both:
        upkeep.follow(house.ended(session))
    for upkeep in both:
        await upkeep.drain()

    assert len(await house.entries(session)) == 1


@pytest.mark.parametrize("what", ["truncate", "reset", "delete", "begin anew"])
async def test_words_taken_back_while_the_model_thinks_leave_no_summary(what: str) -> None:
    model = Model(RETOLD)
    house = House(model)
    session = await house.talk(16)

    async def take_back() -> None:
        match what:
            case "truncate":
                await house.sessions.truncate(ANN, session.id, 5)
            case "reset":
                await house.sessions.reset(ANN, session.id)
            case _:
                await house.sessions.delete(ANN, session.id)
        if what == "begin anew":
            await house.sessions.create(ANN, session_id=session.id)

    model.meanwhile = take_back
    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    if what == "delete":
        with pytest.raises(SessionNotFound):
            await house.sessions.get(ANN, session.id)
    else:
        assert await house.entries(session) == []


class Forgetting(MemoryStore):
    """A store where the session is truncated in the moment a summary is appended."""

    after: int | None = None

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        if self.after is not None:
            after, self.after = self.after, None
            await super().truncate(scope, session_id, after)
        return await super().append(scope, session_id, batch)


async def test_a_summary_of_words_taken_back_in_the_last_moment_is_never_read() -> None:
    store = Forgetting()
    house = House(store=store)
    session = await house.talk(16)
    store.after = 5

    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()
    assert len(await house.entries(session)) == 1
    await house.talk(20, session.id)

    assert await house.summary(session) is None
    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()
    summary = await house.summary(session)
    assert summary is not None
    assert "Question 10 " not in summary.text


async def test_truncating_below_a_summary_brings_the_one_before_it_back() -> None:
    house = House()
    session = await house.talk(16)
    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()
    await house.talk(8, session.id)
    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    await house.sessions.truncate(ANN, session.id, 35)

    summary = await house.summary(session)
    assert summary is not None
    assert summary.through == 12


async def test_work_that_a_crash_cut_off_is_found_due_again() -> None:
    model = Model(RETOLD)
    never = asyncio.Event()
    model.meanwhile = never.wait
    house = House(model)
    session = await house.talk(16)
    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain(timedelta(0))
    assert await house.entries(session) == []

    model.meanwhile = None
    house.upkeep = house.another()
    house.upkeep.follow(house.ended(await house.talk(1, session.id)))
    await house.upkeep.drain()

    assert len(await house.entries(session)) == 1


async def test_a_long_log_that_was_never_compressed_is_worked_off_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.upkeep.compressing._STEP", 120)
    monkeypatch.setattr("tenuto.upkeep.compressing._PAGE", 40)
    house = House(cap=None)
    session = await house.talk(200)

    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    summary = await house.summary(session)
    assert summary is not None
    assert summary.through == 380
    assert 3 <= len(await house.entries(session)) <= 6


async def test_the_store_is_not_asked_when_the_turn_knows_that_nothing_is_due() -> None:
    house = House()
    session = await house.talk(5)
    loaded = await house.log(session)
    await house.sessions.delete(ANN, session.id)

    house.upkeep.follow(house.ended(session, loaded=loaded))

    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tenuto summary"]


async def test_near_the_cap_the_turn_itself_secures_what_would_slide_out() -> None:
    """Never lossy: the answer is stored after what it pushes out was covered, by extraction, without the model."""
    model = Model(RETOLD)
    house = House(model, cap=20)
    session = await house.talk(9)
    begun = await house.sessions.begin(ANN, TurnRequest(words=(says("one more"),), session_id=session.id))
    reply = tuple(answers(f"reply {number}") for number in range(6))

    await house.upkeep.secure(house.ended(begun.session), covered=0, adding=len(reply))
    await house.sessions.finish(begun, Closing(reply=reply))

    summary = await house.summary(session)
    log = await house.log(session)
    assert summary is not None
    assert model.asked == []
    assert log[0].seq <= summary.through + 1


async def test_far_from_the_cap_securing_asks_nothing_of_the_store() -> None:
    house = House()
    session = await house.talk(3)
    await house.sessions.delete(ANN, session.id)

    await house.upkeep.secure(house.ended(session), covered=0, adding=6)


class Away(MemoryStore):
    """A store that stops answering."""

    away = False

    async def messages(self, scope: Scope, session_id: str, page: Page) -> Any:
        if self.away:
            raise Unavailable("session store")
        return await super().messages(scope, session_id, page)


async def test_a_store_that_is_away_harms_neither_turn_nor_session(caplog: pytest.LogCaptureFixture) -> None:
    store = Away()
    house = House(store=store, cap=40)
    session = await house.talk(18)
    store.away = True

    with caplog.at_level(logging.WARNING):
        await house.upkeep.secure(house.ended(session), covered=0, adding=10)
        house.upkeep.follow(house.ended(session))
        await house.upkeep.drain()

    assert caplog.text.count("a summary was put off: Unavailable") == 2
    assert "Japan" not in caplog.text


async def test_summaries_are_redacted_and_logs_tell_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = Model("Garbage about Japan in prose that nobody asked for whatsoever")
    house = House(model)
    house.upkeep = house.another(redact=lambda text: text.replace("Japan", "[PLACE]"))
    session = await house.talk(16)

    with caplog.at_level(logging.DEBUG):
        house.upkeep.follow(house.ended(session))
        await house.upkeep.drain()

    summary = await house.summary(session)
    assert summary is not None
    assert "Japan" not in summary.text
    assert "Japan" not in model.asked[0][1]
    assert "Japan" not in caplog.text


async def test_a_forked_session_keeps_its_summary() -> None:
    house = House()
    session = await house.talk(16)
    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    fork = await house.sessions.fork(ANN, session.id)

    assert await house.summary(fork) == await house.summary(session)


async def test_messages_that_may_only_be_small_get_small_summaries() -> None:
    house = House()
    house.policies = replace(house.policies, sessions=SessionPolicy(max_message_bytes=1024))
    house.sessions = Sessions(store=house.store, policy=house.policies.sessions, announcer=Announcer(clock=house.clock))
    house.upkeep = house.another()
    session = await house.talk(16)

    house.upkeep.follow(house.ended(session))
    await house.upkeep.drain()

    assert await house.summary(session) is not None
