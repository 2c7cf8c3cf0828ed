"""Capture: what is remembered after a turn, once, of the user's own words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import TenutoError, Unavailable
from tenuto.llm import Hang, ScriptedModel
from tenuto.llm.scripted import Fail, Say
from tenuto.model import NewSession, Scope, Truncation
from tenuto.model.memory import Memory, MemoryKind, MemorySource
from tenuto.model.scope import speaker_tag
from tenuto.recall import merge
from tenuto.recall.records import MemoryLog
from tenuto.recall.service import Memories
from tenuto.upkeep.capture import quotable_sentences
from tenuto.upkeep.quotes import LONGEST, junk_reason
from tests.clock import FakeClock
from tests.samples import ANN, BOB

pytestmark = pytest.mark.requirement("D9", "D10", "D11", "D12", "D13", "T15")


BOLOGNA = "I live in Bologna with my two cats."
GARDEN = "I also have a small garden."
MAIL = "ann@example.com"
GROUP = Scope(tenant="acme", user="ann", channel="lark", chat="team")


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[tuple[Tenuto, Memories]]:
    async with tenuto.open("memory://", **{"embedder": "none", "on_missing": "adopt", **settings}) as app:
        yield app, await app.memories()


async def remembered(app: Tenuto, scope: Scope = ANN, **filters: Any) -> list[Memory]:
    await app.upkeep.drain()
    return list(await (await app.memories()).list(scope, **filters))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (BOLOGNA, [BOLOGNA]),
        ("Hi! My sister Clara works at Ferrari. What is the weather like?", ["My sister Clara works at Ferrari."]),
        ("我住在杭州，养了两只猫。今天天气怎么样？", ["我住在杭州，养了两只猫。"]),
        ("Thanks a lot!", []),
        ("Where do I live?", []),
        ("Tell me about my orders", []),
        ("Paris is the capital of France.", []),
        ("I do.", []),
        ("I'm vegan.", ["I'm vegan."]),
        ("我是医生。", ["我是医生。"]),
        ("本人姓王。", ["本人姓王。"]),
        ("Remember that the parcel comes at noon.", ["Remember that the parcel comes at noon."]),
        ("", []),
        ("🙂🙂", []),
        ("I " + "x" * 500, []),
        # A statement and a request in one sentence: what was said stays as it was said.
        ("I prefer step-by-step explanations, can you help?", ["I prefer step-by-step explanations, can you help?"]),
        ("I'm vegan, what can I eat?", ["I'm vegan, what can I eat?"]),
        ("我喜欢详细的解释，你能帮我看看这个吗？", ["我喜欢详细的解释，你能帮我看看这个吗？"]),
        ("Given the above, what should I do?", []),
        ("When I was five, where did I live?", []),
        ("Hey, can you tell me my name?", []),
        # What a statement about the user was about stands beside it.
        ("The deal is big. I sold it! It took a year. Right?", ["The deal is big. I sold it! It took a year."]),
        ("I sold it. It took a year. I am glad.", ["I sold it. It took a year.", "I am glad."]),
        ("I sold it. " + "It took a year. " * 60, ["I sold it." + " It took a year." * 24]),
    ],
)
def test_statements_of_the_user_are_quoted_and_the_rest_is_not(text: str, kept: list[str]) -> None:
    assert quotable_sentences(text) == kept
    assert all(junk_reason(sentence) == "" for sentence in kept)


NAMES = [f"{letter}nna" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"My friend {name} keeps bees." for name in NAMES),
        "\n".join(f"- I got a boat of {name}" for name in NAMES),
        "I know " + ", ".join(f"a person with the name of {name}" for name in NAMES),
        "I know " + " and ".join(f"a person with the name of {name}" for name in NAMES),
        "我认识" + "、".join(f"一个名字叫{name}的很好的老朋友和同事" for name in NAMES),
    ],
    ids=["sentences", "lines", "clauses", "words", "中文"],
)
async def test_all_that_one_message_states_is_remembered(text: str) -> None:
    async with opened() as (app, _):
        await app.ask(ANN, text)
        found = await remembered(app)

    assert [name for name in NAMES if not any(name in one.text for one in found)] == []
    assert len(found) <= 17
    assert all(len(one.text) <= LONGEST for one in found)


def test_a_long_sentence_is_not_parted_within_a_number() -> None:
    numbers = [f"49 {number} 22{number} 33" for number in range(100, 140)]

    parts = quotable_sentences("I called " + " and then ".join(numbers))

    assert len(parts) > 1
    assert all(sum(number in part for part in parts) == 1 for number in numbers)


async def test_that_a_message_is_read_in_part_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tenuto.upkeep.capture")
    async with opened() as (app, _):
        await app.ask(ANN, f"{BOLOGNA} " + "The sea is blue. " * 600 + GARDEN)
        found = await remembered(app)

    assert len(found) == 1
    assert "1 messages were read for memories up to their character 8000 only" in caplog.messages


def claims(*each: dict[str, Any]) -> str:
    """The answer of a model with these notes on a message; what a note does not say is right for a fact of the user."""
    right = {"kind": "fact", "about": "user", "whose": "I", "quote": BOLOGNA, "lasting": True, "aspect": None}
    return json.dumps({"messages": [{"message": 1, "notes": [{**right, **one} for one in each]}]})


SHORT = "Keep answers short."


@pytest.mark.requirement("A11")
async def test_a_turn_is_remembered_with_its_place_and_through_the_policy() -> None:
    async with opened() as (app, _):
        reply = await app.ask(ANN, f"{BOLOGNA} My address is {MAIL}, write to me.")
        found = await remembered(app)
        nobody = await remembered(app, BOB)

    assert {one.text for one in found} == {BOLOGNA, "My address is [REDACTED_EMAIL], write to me."}
    assert {(one.kind, one.source, one.session_id, one.seqs) for one in found} == {
        (MemoryKind.FACT, MemorySource.QUOTE, reply.session_id, (1,))
    }
    assert nobody == []


@pytest.mark.requirement("A27")
async def test_an_answer_is_not_captured_and_a_repeated_statement_counts() -> None:
    """What was recalled comes back in answers; only the user's own words are remembered."""
    async with opened() as (app, _):
        await app.ask(ANN, BOLOGNA)
        await app.upkeep.drain()
        reply = await app.ask(ANN, "Where do I live?")
        await app.ask(ANN, BOLOGNA.upper())
        found = await remembered(app)

    assert BOLOGNA in reply.text
    assert [(one.text, one.mentions) for one in found] == [(BOLOGNA, 2)]


async def test_a_models_facts_supersede_each_other_by_subject_and_a_failed_model_is_replaced_by_quotes() -> None:
    employer = {"subject": "employer", "replaces": True}
    notes = [
        claims({"quote": "I work at Acme now.", **employer}),
        claims({"quote": "I work at Bolt now.", **employer}),
        claims({"kind": "preference", "aspect": "length", "quote": "I like short answers."}),
        "no JSON",
    ]
    models = {"main": ScriptedModel("Fine."), "small": ScriptedModel(*notes)}
    async with opened(models=models, model="main", summarizer_model="small") as (app, memories):
        # A title would ask the small model, too.
        await app.sessions.create(ANN, NewSession(title="Work"), session_id="s")
        for text in ("I work at Acme now.", "I work at Bolt now.", "I like short answers.", BOLOGNA):
            await app.ask(ANN, text, session_id="s")
            await app.upkeep.drain()
        found = await remembered(app, superseded=True)
        preferences = await memories.preferences(ANN)

    by_text = {one.text: one for one in found}
    assert set(by_text) == {"I work at Acme now.", "I work at Bolt now.", "I like short answers.", BOLOGNA}
    assert by_text["I work at Acme now."].superseded_by == by_text["I work at Bolt now."].id
    assert [one.text for one in preferences] == ["I like short answers."]
    assert by_text[BOLOGNA].source is MemorySource.QUOTE


async def test_a_statement_after_small_talk_is_captured() -> None:
    async with opened() as (app, _):
        for text in ("Thanks a lot!", BOLOGNA, "Where do I live?", "Thanks a lot!", GARDEN):
            await app.ask(ANN, text, session_id="s")
        found = await remembered(app)

    assert {one.text for one in found} == {BOLOGNA, GARDEN}


async def test_an_edited_message_takes_its_memories_with_it() -> None:
    async with opened() as (app, _):
        first = await app.ask(ANN, BOLOGNA)
        await app.upkeep.drain()
        await app.ask(ANN, "I live in Milan with my two dogs.", session_id=first.session_id, edit=1)
        found = await remembered(app)

    assert [one.text for one in found] == ["I live in Milan with my two dogs."]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_was_edited_away_is_forgotten_before_the_answer_and_without_one(fails: bool) -> None:
    """Else a process that is killed after it has answered leaves it for good."""
    model = ScriptedModel("Fine.", [Fail()] if fails else "Fine.")
    async with opened(models={"main": model, "small": ScriptedModel([Fail()])}, model="main") as (app, memories):
        await app.ask(ANN, BOLOGNA, session_id="s")
        assert len(await remembered(app)) == 1
        with pytest.raises(TenutoError) if fails else nullcontext():
            await app.ask(ANN, "Never mind.", session_id="s", edit=1)
        capturer = app.upkeep.after_turn._capturer
        assert capturer is not None
        if fails:
            await capturer.stop()
        # What a killed process does not do any more.
        app.upkeep.after_turn._capturer, memories.captures = None, None
        assert await memories.list(ANN) == ()


@pytest.mark.parametrize(("died", "kept"), [(True, {BOLOGNA, GARDEN}), (False, {GARDEN})])
async def test_what_a_dead_process_left_is_captured_and_what_was_forgotten_is_not(
    tmp_path: Path, died: bool, kept: set[str]
) -> None:
    store = f"sqlite:///{tmp_path}/chat.db"
    async with tenuto.open(store, embedder="none", on_missing="adopt", memories=not died) as app:
        await app.ask(ANN, BOLOGNA, session_id="s")
        await app.upkeep.drain()
        await (await app.memories()).forget(ANN, everything=True)

    async with tenuto.open(store, embedder="none") as app:
        await app.ask(ANN, GARDEN, session_id="s")
        found = await remembered(app)

    assert {one.text for one in found} == kept
    assert {one.mentions for one in found} == {1}


async def test_a_long_backlog_of_a_dead_process_is_read_in_portions(tmp_path: Path) -> None:
    """Also what was said an hour before, and no more than once."""
    store, clock = f"sqlite:///{tmp_path}/chat.db", FakeClock()
    said = [f"I keep {number} boats in harbour {number}." for number in range(1, 36)]
    given: dict[str, Any] = {"embedder": "none", "on_missing": "adopt", "clock": clock}
    async with tenuto.open(store, **given) as app:
        await app.ask(ANN, said[0], session_id="s")
        await app.upkeep.drain()
    async with tenuto.open(store, memories=False, **given) as app:
        for text in said[1:]:
            await app.ask(ANN, text, session_id="s")
    clock.advance(timedelta(hours=1))

    async with tenuto.open(store, **given) as app:
        await app.ask(ANN, "Thanks a lot!", session_id="s")
        found = await remembered(app, limit=100)
        backlog = app.upkeep.backlog

    assert sorted((one.text, one.mentions) for one in found) == sorted((text, 1) for text in said)
    assert backlog == (0, None)


async def test_a_capture_that_fails_stays_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mark does not move before what it read is stored."""
    async with opened() as (app, memories):
        add_all = memories._records.add_all

        async def fail(*_: object) -> None:
            raise Unavailable("session store")

        monkeypatch.setattr(memories._records, "add_all", fail)
        await app.ask(ANN, BOLOGNA, session_id="s")
        nothing = await remembered(app)
        unread = app.upkeep.backlog.statements
        through = (await memories.last_log(ANN)).captured.get("s", 0)
        monkeypatch.setattr(memories._records, "add_all", add_all)
        await app.ask(ANN, "Thanks a lot!", session_id="s")
        found = await remembered(app)

    assert (nothing, unread, through) == ([], 1, 0)
    assert [(one.text, one.mentions) for one in found] == [(BOLOGNA, 1)]


async def test_a_session_that_begins_anew_under_its_id_is_read_from_its_beginning() -> None:
    async with opened() as (app, _):
        for number in range(4):
            await app.ask(ANN, f"I keep {number} boats.", session_id="s")
        await app.upkeep.drain()
        await app.sessions.delete(ANN, "s")
        await app.ask(ANN, BOLOGNA, session_id="s")
        found = await remembered(app)

    assert BOLOGNA in {one.text for one in found}


async def test_more_preferences_than_are_kept_become_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hinder nothing that was said with them or later."""
    monkeypatch.setattr(merge, "MAX_PREFERENCES", 0)
    note = {"kind": "preference", "aspect": "length", "quote": SHORT}
    models = {"main": ScriptedModel("Fine."), "small": ScriptedModel("A title", claims(note))}
    async with opened(models=models, model="main", summarizer_model="small") as (app, _):
        await app.sessions.create(ANN, NewSession(title="Work"), session_id="s")
        await app.ask(ANN, f"{SHORT} I am busy.", session_id="s")
        await app.ask(ANN, f"{SHORT} I am busy.", session_id="s")
        found = await remembered(app)

    assert [one.kind for one in found if one.text == SHORT] == [MemoryKind.FACT]


@pytest.mark.requirement("D13")
async def test_what_is_captured_again_later_is_the_same_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process died before it noted how far it had read; the session has changed since then."""
    store = f"sqlite:///{tmp_path}/chat.db"
    found = list[Memory]()
    for number, text in enumerate((BOLOGNA, GARDEN)):
        async with tenuto.open(store, embedder="none", on_missing="adopt") as app:
            monkeypatch.setattr(await app.memories(), "last_log", lambda *_: asyncio.sleep(0, MemoryLog()))
            await app.ask(ANN, text, session_id="s")
            found = await remembered(app)
            assert len(found) == number + 1

    assert {(one.text, one.mentions) for one in found} == {(BOLOGNA, 1), (GARDEN, 1)}


async def test_what_is_said_elsewhere_too_outlives_an_edit_and_so_does_what_was_corrected_by_hand() -> None:
    async with opened() as (app, memories):
        for session in ("s", "t"):
            await app.ask(ANN, BOLOGNA, session_id=session)
            await app.upkeep.drain()
        await app.ask(ANN, GARDEN, session_id="t")
        by_hand = next(one for one in await remembered(app) if one.text == GARDEN)
        await memories.edit(ANN, by_hand.id, text="I had a small garden.")
        await app.ask(ANN, "Never mind the cats in the garden", session_id="t", edit=1)
        found = await remembered(app)

    assert {(one.text, one.mentions) for one in found} == {(BOLOGNA, 1), ("I had a small garden.", 1)}


async def test_a_capture_that_runs_on_after_an_erasure_stores_nothing() -> None:
    hang = Hang()
    models = {"main": ScriptedModel("Fine."), "small": ScriptedModel([hang, Say("none")])}
    async with opened(models=models, model="main", summarizer_model="small") as (app, _):
        await app.sessions.create(ANN, NewSession(title="Work"), session_id="s")
        await app.ask(ANN, BOLOGNA, session_id="s")
        capturing = asyncio.create_task(app.upkeep.drain())
        await hang.reached.wait()
        await app.privacy.erase(ANN, by="otto")
        hang.release.set()
        await capturing
        found = await remembered(app, superseded=True)
        left = await app.store.state.list_state_locations(ANN)

    assert (found, left) == ([], ())


async def test_what_is_stored_in_the_moment_of_an_erasure_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (app, memories):
        remember = memories.remember

        async def remember_late(*given: Any) -> tuple[Memory, ...]:
            await app.privacy.erase(ANN, by="otto")
            return await remember(*given)

        await app.ask(ANN, BOLOGNA)
        monkeypatch.setattr(memories, "remember", remember_late)
        found = await remembered(app, superseded=True)
        left = await app.store.state.list_state_locations(ANN)

    assert (found, left) == ([], ())


@pytest.mark.parametrize("removed", ["edited", "truncated", "reset"])
@pytest.mark.parametrize("slow", ["model", "embedder"])
async def test_what_is_removed_while_it_is_captured_is_not_remembered(
    removed: str, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said elsewhere or before, too, stays."""
    monkeypatch.setattr("tenuto.chat.turn._HEARING_SECONDS", 0.01)
    hang, reached, goes_on = Hang(), asyncio.Event(), asyncio.Event()
    models = {"main": ScriptedModel("Fine."), "small": ScriptedModel([hang if slow == "model" else Fail(), Fail()])}
    async with opened(models=models, model="main", summarizer_model="small") as (app, memories):
        said = Memory(
            id="t1",
            kind=MemoryKind.FACT,
            text=GARDEN,
            said_at=memories.now(),
            source=MemorySource.QUOTE,
            session_id="t",
            seqs=(1,),
        )
        await memories.remember(ANN, [said])
        await app.ask(ANN, GARDEN, session_id="s")
        await app.ask(ANN, BOLOGNA, session_id="s")
        if slow == "embedder":
            embed = memories.vectors.of_memories

            async def embed_late(scope: Scope, texts: Sequence[str]) -> Any:
                reached.set()
                await goes_on.wait()
                return await embed(scope, texts)

            monkeypatch.setattr(memories.vectors, "of_memories", embed_late)
        capturing = asyncio.create_task(app.upkeep.drain())
        await (hang.reached if slow == "model" else reached).wait()
        match removed:
            case "edited":
                await app.ask(ANN, "Never mind.", session_id="s", edit=1)
            case "truncated":
                await app.sessions.truncate(ANN, "s", Truncation(after=0))
            case _:
                await app.sessions.reset(ANN, "s")
        hang.release.set()
        goes_on.set()
        await capturing
        found = await remembered(app)

    assert {(one.text, one.mentions) for one in found} == {(GARDEN, 1)}
    # It names no place that is not there, by which it would be taken back once more.
    assert "s" not in {one.session_id for one in found}


async def test_an_erased_user_leaves_the_memories_of_chats() -> None:
    async with opened(memories_in_groups=True) as (app, _):
        await app.ask(GROUP, BOLOGNA)
        await app.ask(replace(GROUP, user="bob"), GARDEN)
        await app.upkeep.drain()
        receipt = await app.privacy.erase(ANN, by="otto")
        found = await remembered(app, GROUP)

    assert [one.text for one in found] == [GARDEN]
    assert receipt.counts["chat_memories"] == 1


async def test_what_is_said_after_it_had_expired_is_remembered_anew() -> None:
    """Though the sweep has not removed the earlier one."""
    clock = FakeClock()
    async with opened(clock=clock) as (app, memories):
        await memories.add(ANN, BOLOGNA, expires_at=clock() + timedelta(days=1))
        clock.advance(timedelta(days=2))
        await app.ask(ANN, BOLOGNA)
        found = await remembered(app)

    assert [(one.text, one.mentions) for one in found] == [(BOLOGNA, 1)]


@pytest.mark.parametrize(("in_groups", "kept"), [(True, [BOLOGNA]), (False, [])])
async def test_a_group_is_remembered_by_setting_and_for_the_chat_alone(in_groups: bool, kept: list[str]) -> None:
    async with opened(memories_in_groups=in_groups) as (app, _):
        await app.ask(GROUP, BOLOGNA)
        of_chat, of_user = await remembered(app, GROUP), await remembered(app, ANN)

    assert [one.text for one in of_chat] == kept
    assert [one.speaker for one in of_chat] == [speaker_tag("acme", "ann") for _ in kept]
    assert of_user == []


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_caller_without_a_user_is_remembered_only_by_setting(allowed: bool) -> None:
    async with opened(memories_without_user=allowed) as (app, _):
        await app.ask(Scope(tenant="acme"), BOLOGNA)
        await app.ask(Scope(tenant="acme", visitor=True), BOLOGNA)
        reply = await app.ask(Scope(tenant="acme"), "Where do I live?")
        found = [one.memory async for one in (await app.memories()).stored(Scope(tenant="acme"))]

    assert ([one.text for one in found] == [BOLOGNA]) is allowed
    assert (BOLOGNA in reply.text) is allowed
