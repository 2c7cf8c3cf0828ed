"""Summaries, as they follow a turn on a store: what they cover, and what may happen meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.context import TokenCounter
from tenuto.context.compression import SummaryLimits
from tenuto.context.extract import summarise
from tenuto.context.summary_request import build_summary_request
from tenuto.errors import ModelFailed, SessionNotFound, Unavailable
from tenuto.model import AppendBatch, AppendResult, FinishTurn, Message, Page, Role, Scope, Session, Truncation
from tenuto.model.generation import Summary, TurnSnapshot
from tenuto.model.message import is_summary, text_part, tool_result
from tenuto.model.policy import SessionPolicy
from tenuto.model.prompt import Language
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import AppendRequest, EventEmitter, Sessions, TurnRequest
from tenuto.upkeep.compressor import Compressor
from tests.doubles import FlatMemoryStore
from tests.samples import ANN, answers, says, stored
from tests.unit.upkeep.app_with_upkeep import (
    SUMMARY,
    MarkingRedaction,
    PlaceRedaction,
    ScriptedSummarizer,
    SessionsWithUpkeep,
)


async def talked(model: ScriptedSummarizer | None = None, **given: Any) -> tuple[SessionsWithUpkeep, Session]:
    """Sessions with upkeep, and a session in it of two messages more than are left uncompressed."""
    harness = SessionsWithUpkeep(model, **given)
    return harness, await harness.talk(16)


async def compress(harness: SessionsWithUpkeep, session: Session, **rest: Any) -> Summary:
    """Follow a turn, and read the summary that came of it."""
    await follow(harness, session, **rest)
    summary = await harness.summary(session)
    assert summary is not None
    return summary


async def follow(harness: SessionsWithUpkeep, session: Session, **rest: Any) -> None:
    harness.upkeep.after_turn.follow(harness.snapshot(session, **rest))
    await harness.upkeep.drain()


@pytest.mark.requirement("A1", "E13", "E20", "X7")
async def test_a_long_session_is_compressed_to_twenty_messages_and_a_summary() -> None:
    harness, session = await talked()

    summary = await compress(harness, session)

    assert (summary.through, summary.made_by) == (12, "extract")
    assert "trip to Japan" in summary.text
    assert len(await harness.log(session)) == 33


@pytest.mark.requirement("T12")
async def test_the_next_summary_builds_on_the_one_before_and_reads_no_old_talk_again() -> None:
    """Incremental; the model sees the previous summary and the new messages alone, each that it covers."""
    harness, session = await talked(model := ScriptedSummarizer(SUMMARY))
    first = await compress(harness, session)
    await harness.talk(8, session.id)

    summary = await compress(harness, session)

    talk = [one for one in await harness.log(session) if not is_summary(one)]
    for (_, text, _), after, through in zip(
        model.asked, (0, first.through), (first.through, summary.through), strict=True
    ):
        assert [one.seq for one in talk if one.text in text] == [one.seq for one in talk if after < one.seq <= through]
    assert SUMMARY in model.asked[1][1]
    assert (summary.through, summary.made_by) == (28, "model")
    assert len(await harness.entries(session)) == 2


@pytest.mark.requirement("S4", "T12")
async def test_system_messages_that_a_summary_covers_stay_whole_beside_it() -> None:
    """Each text once, however many summaries follow; a developer's prompt is never told in short."""
    harness = SessionsWithUpkeep(ScriptedSummarizer(SUMMARY))
    session = await harness.talk(1)
    for guide in ("Speak of gardens.", "Be short.", "Speak of gardens."):
        system = replace(says(guide), role=Role.SYSTEM)
        await harness.sessions.append(ANN, session.id, AppendRequest(messages=(system,)))
    session = await harness.talk(16, session.id)

    first = await compress(harness, session)
    session = await harness.talk(8, session.id)
    second = await compress(harness, session)

    assert second.through > first.through
    assert first.instructions == second.instructions == ("Be short.", "Speak of gardens.")


@pytest.mark.requirement("T12")
@pytest.mark.parametrize("asked", [0, 3])
async def test_each_covered_message_is_read_by_the_model_or_extracted(
    asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a long talk the model reads the last portions; what precedes them, or all without it, is extracted."""
    extracted = list[str]()

    def spy(messages: Sequence[Message], *rest: Any, **named: Any) -> str:
        extracted.extend(message.text for message in messages)
        return summarise(messages, *rest, **named)

    monkeypatch.setattr("tenuto.upkeep.compressor.summarise", spy)
    monkeypatch.setattr("tenuto.context.summary_request._PORTION", 40)
    model = ScriptedSummarizer(SUMMARY)
    harness, session = await talked(model if asked else None)
    summary = await compress(harness, session)

    covered = [one.text for one in await harness.log(session) if one.seq <= summary.through]
    # Before that stands the summary of what precedes it, which quotes.
    requests = [text.partition("The conversation since then:")[2] for _, text, _ in model.asked]
    read = [text for text in covered if any(text in request for request in requests)]
    assert len(model.asked) == asked
    assert len(read) < len(covered)
    assert [*extracted, *read] == covered


async def test_no_second_job_waits_while_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came meanwhile is found due after the next turn. Characters have summaries of their own."""
    runs: list[TurnSnapshot] = []
    gate = asyncio.Event()

    async def compress(_: Compressor, ended: TurnSnapshot) -> None:
        runs.append(ended)
        await gate.wait()

    monkeypatch.setattr(Compressor, "compress", compress)
    harness = SessionsWithUpkeep()
    session = await harness.talk(16)
    for persona in (None, None, "elder", None, "elder"):
        harness.upkeep.after_turn.follow(replace(harness.snapshot(session), persona=persona))
        await asyncio.sleep(0)

    gate.set()
    await harness.upkeep.drain()
    assert [run.persona for run in runs] == [None, "elder"]

    await follow(harness, session)
    assert len(runs) == 3


@pytest.mark.requirement("D15", "E13")
@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        (("Which hotel?", "The Grand."), ("two or three short paragraphs", "agreed or decided", "still open")),
        (("哪家酒店比较好？", "我们推荐大饭店。"), ("两到三个短段落", "达成的约定或决定", "尚未解决的问题")),
    ],
)
async def test_a_model_is_asked_for_agreements_and_open_issues(turn: tuple[str, str], wanted: tuple[str, ...]) -> None:
    harness = SessionsWithUpkeep(model := ScriptedSummarizer(SUMMARY))
    session = await harness.turn(None, *turn, follow=False)
    for _ in range(15):
        session = await harness.turn(session.id, *turn, follow=False)

    await follow(harness, session)

    [(system, *_)] = model.asked
    assert [words for words in wanted if words not in system] == []


@pytest.mark.requirement("T12")
@pytest.mark.parametrize(
    "said",
    [
        pytest.param(ModelFailed("small"), id="fails"),
        pytest.param(TimeoutError(), id="times out"),
        pytest.param("", id="says nothing"),
        pytest.param("I'm sorry, but I cannot assist with that request.", id="refuses"),
        pytest.param("旅行计划的摘要。" * 9, id="wrong language"),
        pytest.param("a" * 5000, id="noise"),
        pytest.param("The user plans a trip to Japan with Lisa and hotel 1.", id="invents a name"),
        pytest.param("The user plans a trip to Japan for 800 euros, hotel 1.", id="invents a number"),
        pytest.param("The user plans a trip to Japan, with a rail pass.", id="drops the numbers"),
    ],
)
async def test_extraction_stands_in_for_a_model_that_is_of_no_use(said: str | Exception) -> None:
    """A failing summariser loses nothing."""
    harness, session = await talked(ScriptedSummarizer(said))

    summary = await compress(harness, session)

    assert (summary.through, summary.made_by) == (12, "extract")


ENGLISH = ("Which hotel near the station do you recommend?", "The Grand is close and quiet.")
CHINESE = ("车站附近哪家酒店比较好？", "我们推荐安静的大饭店。")


@pytest.mark.requirement("E13")
@pytest.mark.parametrize(
    ("turns", "last", "heading"),
    [
        ([CHINESE] * 16, Language.ENGLISH, "主要内容："),
        ([ENGLISH] * 16, Language.CHINESE, "Main points:"),
        ([CHINESE, CHINESE, ENGLISH] * 6, Language.ENGLISH, "主要内容："),
        ([ENGLISH, ENGLISH, CHINESE] * 6, Language.CHINESE, "Main points:"),
        ([("9 + 1 = ?", "10")] * 16, Language.CHINESE, "主要内容："),
    ],
    ids=["Chinese", "English", "mostly Chinese", "mostly English", "nothing tells"],
)
async def test_a_summary_is_in_the_language_of_most_of_the_users_words(
    turns: list[tuple[str, str]], last: Language, heading: str
) -> None:
    """Whatever the last question was asked in."""
    model = ScriptedSummarizer(ModelFailed("small"))
    for harness in (SessionsWithUpkeep(), SessionsWithUpkeep(model)):
        session = await harness.turn(None, *turns[0], follow=False)
        for asked, answered in turns[1:]:
            session = await harness.turn(session.id, asked, answered, follow=False)

        summary = await compress(harness, session, language=last)

        assert summary.text.startswith(heading)
    [(system, *_)] = model.asked
    assert ("对话" in system) == (heading == "主要内容：")


async def test_a_few_words_in_another_language_turn_no_summary_around() -> None:
    harness = SessionsWithUpkeep()
    session = await harness.turn(None, *CHINESE, follow=False)
    for asked, answered in [*[CHINESE] * 15, *[ENGLISH] * 2, *[CHINESE] * 8]:
        session = await harness.turn(session.id, asked, answered, follow=False)
        await follow(harness, session, language=Language.ENGLISH)

    entries = await harness.entries(session)
    assert len(entries) > 1
    assert all(part["text"].startswith("主要内容：") for entry in entries for part in entry.parts)


async def test_a_model_that_talks_too_long_is_cut_between_sentences() -> None:
    harness, session = await talked(ScriptedSummarizer((SUMMARY + " ") * 30), summary_characters=200)

    summary = await compress(harness, session)

    assert summary.made_by == "model"
    assert len(summary.text) <= 200
    assert summary.text.endswith(".")


@pytest.mark.requirement("T12")
async def test_nothing_is_made_anew_while_nothing_changes() -> None:
    harness, session = await talked(model := ScriptedSummarizer(SUMMARY))

    for _ in range(3):
        await follow(harness, session)

    assert len(model.asked) == 1
    assert len(await harness.entries(session)) == 1


async def test_two_processes_that_compress_the_same_range_store_one_entry() -> None:
    harness, session = await talked(ScriptedSummarizer(SUMMARY))
    both = [harness.another(), harness.another()]

    for upkeep in both:
        upkeep.after_turn.follow(harness.snapshot(session))
    for upkeep in both:
        await upkeep.drain()

    assert len(await harness.entries(session)) == 1


@pytest.mark.parametrize("what", ["truncate", "reset", "delete", "begin anew"])
async def test_words_taken_back_while_the_model_thinks_leave_no_summary(what: str) -> None:
    harness, session = await talked(model := ScriptedSummarizer(SUMMARY))

    async def take_back() -> None:
        match what:
            case "truncate":
                await harness.sessions.truncate(ANN, session.id, Truncation(after=5))
            case "reset":
                await harness.sessions.reset(ANN, session.id)
            case _:
                await harness.sessions.delete(ANN, session.id)
        if what == "begin anew":
            await harness.sessions.create(ANN, session_id=session.id)

    model.meanwhile = take_back
    await follow(harness, session)

    if what == "delete":
        with pytest.raises(SessionNotFound):
            await harness.sessions.get(ANN, session.id)
    else:
        assert await harness.entries(session) == []


class Forgetting(FlatMemoryStore):
    """A store where the session is truncated in the moment a summary is appended."""

    after: int | None = None

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        if self.after is not None:
            after, self.after = self.after, None
            await super().truncate(scope, session_id, Truncation(after=after))
        return await super().append(scope, session_id, batch)


async def test_a_summary_of_words_taken_back_in_the_last_moment_is_never_read() -> None:
    store = Forgetting()
    harness, session = await talked(store=store)
    store.after = 5

    await follow(harness, session)
    assert len(await harness.entries(session)) == 1
    await harness.talk(20, session.id)

    assert await harness.summary(session) is None
    assert "Question 10 " not in (await compress(harness, session)).text


async def test_a_summary_counts_the_messages_it_speaks_for_whatever_their_numbers() -> None:
    """Numbers jump over entries and words taken back; the count goes on from summary to summary."""
    harness = SessionsWithUpkeep()
    session = await harness.talk(4)
    await harness.sessions.truncate(ANN, session.id, Truncation(after=4))
    await harness.talk(14, session.id)
    first = await compress(harness, session)
    await harness.talk(8, session.id)
    second = await compress(harness, session)

    assert (first.through, first.messages) == (16, 12)
    covered = [m for m in await harness.log(session) if m.seq <= second.through and not is_summary(m)]
    assert second.messages == len(covered) < second.through


async def test_truncating_below_a_summary_brings_the_one_before_it_back() -> None:
    harness, session = await talked()
    await follow(harness, session)
    await harness.talk(8, session.id)
    await follow(harness, session)

    await harness.sessions.truncate(ANN, session.id, Truncation(after=35))

    summary = await harness.summary(session)
    assert summary is not None
    assert summary.through == 12


async def test_work_that_a_crash_cut_off_is_found_due_again() -> None:
    model = ScriptedSummarizer(SUMMARY)
    never = asyncio.Event()
    model.meanwhile = never.wait
    harness, session = await talked(model)
    harness.upkeep.after_turn.follow(harness.snapshot(session))
    await harness.upkeep.drain(timedelta(0))
    assert await harness.entries(session) == []

    model.meanwhile = None
    harness.upkeep = harness.another()
    harness.upkeep.after_turn.follow(harness.snapshot(await harness.talk(1, session.id)))
    await harness.upkeep.drain()

    assert len(await harness.entries(session)) == 1


async def test_a_long_log_that_was_never_compressed_is_worked_off_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.upkeep.compressor._STEP", 120)
    monkeypatch.setattr("tenuto.upkeep.compressor._PAGE", 40)
    harness = SessionsWithUpkeep(cap=None)
    session = await harness.talk(200)

    summary = await compress(harness, session)

    assert summary.through == 380
    assert 3 <= len(await harness.entries(session)) <= 6


async def test_the_store_is_not_asked_when_the_turn_knows_that_nothing_is_due() -> None:
    harness = SessionsWithUpkeep()
    session = await harness.talk(5)
    loaded = await harness.log(session)
    await harness.sessions.delete(ANN, session.id)

    harness.upkeep.after_turn.follow(harness.snapshot(session, log_tail=loaded))

    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tenuto summary"]


async def test_near_the_cap_the_turn_itself_secures_what_would_slide_out() -> None:
    """Never lossy: the answer is stored after what it pushes out was covered, by extraction, without the model."""
    model = ScriptedSummarizer(SUMMARY)
    harness = SessionsWithUpkeep(model, cap=20)
    session = await harness.talk(9)
    turn = await harness.sessions.begin(ANN, TurnRequest(user_messages=(says("one more"),), session_id=session.id))
    reply = tuple(answers(f"reply {number}") for number in range(6))

    await harness.upkeep.after_turn.secure(harness.snapshot(turn.session), through=0, adding=len(reply))
    await harness.sessions.finish(turn, FinishTurn(reply=reply))

    summary = await harness.summary(session)
    log = await harness.log(session)
    assert summary is not None
    assert model.asked == []
    assert log[0].seq <= summary.through + 1


class Away(FlatMemoryStore):
    """A store that stops answering."""

    away = False
    refused = 0

    async def messages(self, scope: Scope, session_id: str, query: Page) -> Any:
        if self.away:
            self.refused += 1
            raise Unavailable("session store")
        return await super().messages(scope, session_id, query)


async def test_far_from_the_cap_securing_asks_nothing_of_the_store(caplog: pytest.LogCaptureFixture) -> None:
    store = Away()
    harness = SessionsWithUpkeep(store=store, cap=40)
    session = await harness.talk(3)
    store.away = True

    with caplog.at_level(logging.DEBUG, logger="tenuto"):
        await harness.upkeep.after_turn.secure(harness.snapshot(session), through=0, adding=6)

    assert (store.refused, caplog.text) == (0, "")


async def test_a_store_that_is_away_harms_neither_turn_nor_session(caplog: pytest.LogCaptureFixture) -> None:
    store = Away()
    harness = SessionsWithUpkeep(store=store, cap=40)
    session = await harness.talk(18)
    store.away = True

    with caplog.at_level(logging.WARNING):
        await harness.upkeep.after_turn.secure(harness.snapshot(session), through=0, adding=10)
        await follow(harness, session)

    assert caplog.text.count("a summary was postponed: Unavailable") == 2
    assert "Japan" not in caplog.text


@pytest.mark.requirement("A11")
async def test_summaries_are_redacted_and_logs_tell_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedSummarizer("Garbage about Japan in prose that nobody asked for whatsoever")
    harness = SessionsWithUpkeep(model)
    harness.upkeep = harness.another(redaction=MarkingRedaction(Japan="[PLACE]"))
    session = await harness.talk(16)

    with caplog.at_level(logging.DEBUG):
        summary = await compress(harness, session)

    assert "Japan" not in summary.text
    assert "Japan" not in model.asked[0][1]
    assert "Japan" not in caplog.text


@pytest.mark.requirement("S9")
def test_a_request_for_a_summary_holds_no_text_that_was_not_redacted() -> None:
    """Words of both, and outputs of tools, whatever the policy for models keeps."""
    talk = [
        stored(1, "We go to Japan"),
        stored(2, role=Role.ASSISTANT, parts=(text_part("Japan, then"), tool_result("c", {"place": "Japan"}))),
        stored(3, role=Role.TOOL, parts=(tool_result("c", "Tokyo, Japan"),)),
    ]

    asked = build_summary_request(
        talk,
        "",
        Language.ENGLISH,
        SummaryLimits(tokens=200),
        lambda text: text.replace("Japan", "[PLACE]"),
        TokenCounter(),
    )

    assert "Japan" not in asked.text
    assert asked.text.count("[PLACE]") == 4


class BySink(UpkeepRedaction):
    """Summaries and models have different words to hide, and nothing is looked at as a whole."""

    def for_summary(self, scope: Scope, text: str) -> str:
        return text.replace("rail", "[SUMMARY]")

    def for_model(self, scope: Scope, text: str) -> str:
        return text.replace("Tokyo", "[MODEL]")


async def test_the_policies_for_summaries_and_models_hold_for_the_request_and_its_answer() -> None:
    model = ScriptedSummarizer("The user plans a trip to Japan and has a rail pass. Hotel 1 is open.")
    harness = SessionsWithUpkeep(model)
    harness.upkeep = harness.another(redaction=BySink(NO_REDACTION))
    summary = await compress(harness, await harness.talk(16))

    _, asked, _ = model.asked[0]
    assert ("rail" in asked, "Tokyo" in asked) == (False, False)
    assert (summary.made_by, "rail" in summary.text) == ("model", False)


async def test_the_model_for_summaries_is_asked_with_what_was_looked_at_as_a_whole() -> None:
    model = ScriptedSummarizer(SUMMARY)
    harness = SessionsWithUpkeep(model)
    harness.upkeep = harness.another(redaction=PlaceRedaction(NO_REDACTION))
    session = await harness.talk(16)

    await follow(harness, session)

    assert "[PLACE]" in model.asked[0][1]
    assert "Japan" not in model.asked[0][1]


async def test_what_a_summary_speaks_for_is_rewritten_and_what_is_live_stays() -> None:
    harness = SessionsWithUpkeep()
    harness.upkeep = harness.another(redaction=MarkingRedaction(Japan="[PLACE]"))
    session = await harness.talk(16)

    summary = await compress(harness, session)

    log = [message for message in await harness.log(session) if not is_summary(message)]
    past = [message.text for message in log if message.seq <= summary.through]
    live = [message.text for message in log if message.seq > summary.through]
    assert past
    assert not any("Japan" in text for text in past)
    assert any("[PLACE]" in text for text in past)
    assert any("Japan" in text for text in live)


async def test_a_forked_session_keeps_its_summary() -> None:
    harness, session = await talked()
    await follow(harness, session)

    fork = await harness.sessions.fork(ANN, session.id)

    assert await harness.summary(fork) == await harness.summary(session)


async def test_a_small_message_limit_holds_for_summaries_too() -> None:
    harness = SessionsWithUpkeep()
    harness.policies = replace(harness.policies, sessions=SessionPolicy(max_message_bytes=1024))
    harness.sessions = Sessions(
        store=harness.store.sessions,
        upkeep=harness.store.upkeep,
        policy=harness.policies.sessions,
        events=EventEmitter(clock=harness.clock),
    )
    harness.upkeep = harness.another()
    session = await harness.talk(16)

    assert len((await compress(harness, session)).text) <= 106
