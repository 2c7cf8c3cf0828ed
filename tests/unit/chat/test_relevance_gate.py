"""The gate by meaning in a turn: what it lets in, what it asks for, and who decides when it does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

import tenuto
from tenuto.app import Tenuto
from tenuto.chat import Reply
from tenuto.errors import Unavailable
from tenuto.llm import ScriptedModel
from tenuto.model.prompt import Disposition, Kind, Reason
from tenuto.recall import embedding
from tests.chats import PERSONAS, Talk, ask, helper, patient, talk
from tests.clock import FakeClock
from tests.internals import patient_gate
from tests.samples import ANN, BOB
from tests.servers.openai_server import start_model_server
from tests.unit.stored_talks import write_summary

pytestmark = pytest.mark.requirement("B10")


MAIL = "ann@example.com"
CAT = "My cat has stopped eating since yesterday."
KITTEN = "Might a kitten lose appetite when moving house?"
ROUTER = "How can somebody reset the password of a router?"
# Shares its words with the talk, and nothing else.
FRAME = "Has yesterday's cat statue stopped at customs?"


@dataclass
class Subjects:
    """An embedder that knows what texts are about: animals lie in one direction, everything else in another."""

    asked: list[list[str]] = field(default_factory=list)
    remote: bool = False
    fault: Exception | None = None
    hangs: bool = False
    length: int = 2
    meanwhile: Callable[[], None] | None = None

    name = "subjects"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        if self.hangs:
            await asyncio.Event().wait()
        if self.meanwhile is not None:
            self.meanwhile()
        if self.fault is not None:
            raise self.fault
        return [self.about(text) for text in texts]

    def about(self, text: str) -> list[float]:
        animal = any(word in text for word in ("My cat", "kitten", "vet"))
        return [float(animal), float(not animal), *[0.0] * (self.length - 2)]


async def after_the_cat(t: Talk, question: str, session: str = "s", scope: Any = ANN) -> Reply:
    """What becomes of a question after talk about a cat."""
    await t.chat.take_turn(scope, ask(CAT, session))
    return await t.chat.take_turn(scope, ask(question, session))


def shown(t: Talk) -> str:
    """All that the model saw last."""
    return "\n".join(message.text for message in t.model.requests[-1].messages)


def chat(embedder: Subjects | None, *, clock: FakeClock | None = None, **fields: Any) -> Talk:
    patience = timedelta(milliseconds=20) if embedder and embedder.hangs else timedelta(seconds=5)
    assistant = helper(**{"relevance": 0.15, **fields})
    return talk("Please call a vet.", embedder=embedder, clock=clock, patience=patience, assistants=[assistant])


@pytest.fixture
def embedder() -> Subjects:
    return Subjects()


@pytest.fixture
def t(embedder: Subjects) -> Talk:
    """A talk with a gate by meaning."""
    return chat(embedder)


# What it lets in


async def test_talk_that_shares_no_word_with_the_question_is_let_in_by_meaning() -> None:
    by_words, by_meaning = chat(None), chat(Subjects())

    await after_the_cat(by_words, KITTEN)
    reply = await after_the_cat(by_meaning, KITTEN)

    assert CAT not in shown(by_words)
    assert CAT in shown(by_meaning)
    assert reply.degraded == ()


async def test_talk_that_shares_only_words_is_left_out_and_the_trace_says_why() -> None:
    by_words, by_meaning = chat(None), chat(Subjects())

    await after_the_cat(by_words, FRAME)
    await after_the_cat(by_meaning, FRAME)
    trace = await by_meaning.store.traces.trace(ANN, "s", 2)

    assert CAT in shown(by_words)
    assert CAT not in shown(by_meaning)
    assert trace is not None
    assert trace.manifest is not None
    told = [entry for entry in trace.manifest.entries if entry.kind is Kind.MESSAGE]
    assert [(entry.disposition, entry.reason, entry.count) for entry in told] == [
        (Disposition.DROPPED, Reason.IRRELEVANT, 2)
    ]


@pytest.mark.parametrize(
    ("relevance", "question"),
    [(0.15, "And what does it cost?"), (0.0, ROUTER)],
    ids=["a question that points back", "an assistant without a gate"],
)
async def test_what_needs_no_comparison_asks_no_embedder(embedder: Subjects, relevance: float, question: str) -> None:
    t = chat(embedder, relevance=relevance)

    await after_the_cat(t, question)

    assert CAT in shown(t)
    assert embedder.asked == []


@pytest.mark.requirement("D9")
async def test_what_went_stale_is_not_compared() -> None:
    """The window begins anew, so there is nothing the question could belong to."""
    clock, embedder = FakeClock(), Subjects()
    t = chat(embedder, clock=clock, policies=patient(stale_after=timedelta(minutes=30)))
    await t.chat.take_turn(ANN, ask(CAT, "s"))
    clock.advance(timedelta(hours=1))

    await t.chat.take_turn(ANN, ask(KITTEN, "s"))

    assert embedder.asked == []


async def test_talk_that_only_the_summary_tells_of_is_compared() -> None:
    t = talk("Hold the button.", embedder=Subjects(), assistants=[helper(relevance=0.15)])
    await t.chat.take_turn(ANN, ask(ROUTER, "s"))
    await write_summary(t, "My cat is ill and goes to the vet.", messages=2)

    await t.chat.take_turn(ANN, ask(KITTEN, "s"))

    assert "My cat is ill and goes to the vet." in shown(t)


@pytest.mark.requirement("C13")
async def test_where_characters_are_kept_apart_only_their_own_talk_is_compared(embedder: Subjects) -> None:
    """Nothing of what one was told reaches the other, not even as a comparison."""
    t = chat(embedder, personas=PERSONAS, isolated=True)
    await t.chat.take_turn(ANN, ask(CAT, "s", persona="ada"))
    await t.chat.take_turn(ANN, ask(ROUTER, "s", persona="bea"))

    await t.chat.take_turn(ANN, ask(FRAME, "s", persona="bea"))

    assert embedder.asked == [[FRAME, ROUTER, "Please call a vet."]]


# What it asks for


async def test_a_text_is_embedded_once(embedder: Subjects, t: Talk) -> None:
    await after_the_cat(t, KITTEN)
    await t.chat.take_turn(ANN, ask(ROUTER, "s"))
    await t.chat.take_turn(ANN, ask(ROUTER, "s"))

    assert embedder.asked == [[KITTEN, CAT, "Please call a vet."], [ROUTER]]


async def test_nobody_is_spared_a_text_because_somebody_else_said_it(embedder: Subjects, t: Talk) -> None:
    await after_the_cat(t, KITTEN, "a", ANN)
    await after_the_cat(t, KITTEN, "b", BOB)

    assert embedder.asked[0] == embedder.asked[1]


async def test_only_so_many_vectors_are_known(embedder: Subjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_MOST_VECTORS", 1)
    t = chat(embedder)

    await after_the_cat(t, KITTEN)
    await t.chat.take_turn(ANN, ask(ROUTER, "s"))

    assert embedder.asked[1] == [ROUTER, CAT, KITTEN]


async def test_a_vector_that_nobody_needs_is_forgotten_after_ten_minutes() -> None:
    """Nothing of a user erased in another process is used after that; it goes with the next question."""
    clock, embedder = FakeClock(), Subjects()
    t = chat(embedder, clock=clock)
    await after_the_cat(t, KITTEN)
    clock.advance(timedelta(minutes=9))
    await t.chat.take_turn(ANN, ask(ROUTER, "s"))
    clock.advance(timedelta(minutes=9))
    still = await t.chat.take_turn(ANN, ask(FRAME, "s"))
    clock.advance(timedelta(minutes=11))

    await t.chat.take_turn(ANN, ask("Where may a kitten sleep?", "s"))

    assert still.degraded == ()
    assert embedder.asked[1:] == [
        [ROUTER],
        [FRAME],
        ["Where may a kitten sleep?", CAT, "Please call a vet.", KITTEN, ROUTER, FRAME],
    ]


async def test_no_vector_outlives_the_erasure_of_anybody() -> None:
    """Whose text a vector was made of cannot be told any more, so all of them go."""
    async with served() as (app, asked):
        first = await app.ask(ANN, CAT)
        await app.ask(ANN, KITTEN, session_id=first.session_id)
        await app.privacy.erase(BOB, by="the test")
        await app.ask(ANN, ROUTER, session_id=first.session_id)

    assert CAT in asked[0]["input"]
    assert CAT in asked[1]["input"]


async def test_vectors_that_are_on_their_way_during_an_erasure_are_not_kept(embedder: Subjects, t: Talk) -> None:
    """What is asked for before comes back after it."""
    embedder.meanwhile = t.chat.clear_caches
    await after_the_cat(t, KITTEN)
    embedder.meanwhile = None

    await t.chat.take_turn(ANN, ask(ROUTER, "s"))
    await t.chat.take_turn(ANN, ask(FRAME, "s"))

    assert CAT in embedder.asked[0]
    assert CAT in embedder.asked[1]
    assert embedder.asked[2] == [FRAME]


async def test_the_last_twelve_messages_are_compared(embedder: Subjects, t: Talk) -> None:
    for number in range(1, 9):
        await t.chat.take_turn(ANN, ask(f"Number {number}", "s"))

    await t.chat.take_turn(ANN, ask(ROUTER, "s"))

    [asked] = embedder.asked
    assert asked == [ROUTER, "Number 3", "Please call a vet.", *(f"Number {number}" for number in range(4, 9))]


async def test_of_long_texts_the_beginning_is_compared(embedder: Subjects, t: Talk) -> None:
    await after_the_cat(t, KITTEN + " Or so." * 500)

    assert [len(text) for text in embedder.asked[0]] == [1_000, len(CAT), len("Please call a vet.")]
    assert CAT in shown(t)


# When it does not answer


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])
async def test_words_decide_when_the_embedder_does_not_answer(hangs: bool) -> None:
    t = chat(Subjects(fault=Unavailable("embedder"), hangs=hangs))

    words_alike = await after_the_cat(t, FRAME)
    seen = shown(t)
    none_alike = await after_the_cat(t, KITTEN, "other")
    trace = await t.store.traces.trace(ANN, "s", 2)

    assert CAT in seen
    assert CAT not in shown(t)
    assert words_alike.degraded == none_alike.degraded == ("embedder",)
    assert trace is not None
    assert trace.degraded == ("embedder",)


async def test_an_embedder_that_failed_is_left_alone_for_a_while() -> None:
    clock, embedder = FakeClock(), Subjects(fault=Unavailable("embedder"))
    t = chat(embedder, clock=clock)
    await after_the_cat(t, KITTEN)
    embedder.fault = None

    resting = await t.chat.take_turn(ANN, ask(ROUTER, "s"))
    asked = len(embedder.asked)
    clock.advance(timedelta(seconds=31))
    back = await t.chat.take_turn(ANN, ask(ROUTER, "s"))

    assert (resting.degraded, asked) == (("embedder",), 1)
    assert (back.degraded, len(embedder.asked)) == ((), 2)


async def test_vectors_of_another_length_are_compared_with_no_older_ones() -> None:
    clock, embedder = FakeClock(), Subjects()
    t = chat(embedder, clock=clock)
    await after_the_cat(t, KITTEN)
    embedder.length = 3

    changed = await t.chat.take_turn(ANN, ask(ROUTER, "s"))
    clock.advance(timedelta(seconds=31))
    after = await t.chat.take_turn(ANN, ask("Whom may somebody ask about kittens and vets in Ulm?", "s"))

    assert (changed.degraded, after.degraded) == (("embedder",), ())
    assert CAT in embedder.asked[-1]


# What an embedder elsewhere is shown


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[Tenuto, list[dict[str, Any]]]]:
    """An installation whose embedder is a server, and what that was asked."""
    with start_model_server() as server:
        server.embeds = Subjects().about
        async with tenuto.open(
            "memory://",
            models={"scripted": ScriptedModel("Please call a vet.")},
            assistants=[helper(relevance=0.15)],
            model="scripted",
            assistant="helper",
            embedder="openai:served",
            model_base_url=f"{server.url}/v1",
            memories=False,
            **settings,
        ) as app:
            patient_gate(await app.chat())
            yield app, server.asked


async def asked_about_mail(app: Tenuto) -> Reply:
    first = await app.ask(ANN, f"{CAT} Write to {MAIL}.")
    return await app.ask(ANN, f"Might a kitten write to {MAIL} today?", session_id=first.session_id)


async def test_a_providers_embedder_is_asked_over_its_protocol() -> None:
    async with served() as (app, asked):
        reply = await asked_about_mail(app)

    assert reply.degraded == ()
    assert [body["input"][0] for body in asked] == [f"Might a kitten write to {MAIL} today?"]


async def test_a_providers_embedder_is_shown_what_a_model_is_shown() -> None:
    """No private data leaves by the gate that would not leave by the prompt."""
    async with served(privacy_model="redact") as (app, asked):
        await asked_about_mail(app)

    assert asked[0]["input"] == [
        "Might a kitten write to [REDACTED_EMAIL] today?",
        f"{CAT} Write to [REDACTED_EMAIL].",
        "Please call a vet.",
    ]


async def test_a_cut_shows_a_providers_embedder_no_half_of_a_value() -> None:
    async with served(privacy_model="redact") as (app, asked):
        first = await app.ask(ANN, CAT)
        await app.ask(ANN, "x" * (embedding.EMBEDDED_CHARACTERS - 8) + f" {MAIL}", session_id=first.session_id)

    assert "ann@" not in asked[0]["input"][0]
    assert len(asked[0]["input"][0]) == embedding.EMBEDDED_CHARACTERS
