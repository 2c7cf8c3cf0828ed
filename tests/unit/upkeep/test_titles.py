"""Titles, as they follow a turn on a store: the model's, the fallback, and renames that win."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import tenuto
from tenuto.errors import ModelFailed, SessionNotFound
from tenuto.model import Changes, Scope, Session
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tests.doubles import FlatMemoryStore
from tests.samples import ANN
from tests.unit.upkeep.app_with_upkeep import (
    ANSWER,
    QUESTION,
    MarkingRedaction,
    PlaceRedaction,
    ScriptedSummarizer,
    SessionsWithUpkeep,
)


async def follow(harness: SessionsWithUpkeep, session: Session) -> str:
    """Follow a turn that claimed the title, and read the title that came of it."""
    harness.upkeep.after_turn.follow(harness.snapshot(session, QUESTION, ANSWER, claims_title=True))
    await harness.upkeep.drain()
    return (await harness.title(session))[0]


@pytest.mark.requirement("A15")
async def test_a_model_gives_the_title() -> None:
    """And the rules are enforced on what it says."""
    harness = SessionsWithUpkeep(ScriptedSummarizer('"Two-Week Trip to Japan!" 🗾'))

    session = await harness.turn()
    await harness.upkeep.drain()

    assert await harness.title(session) == ("Two-Week Trip to Japan", "model")


@pytest.mark.requirement("A15", "A18")
@pytest.mark.parametrize(
    ("answers", "title", "calls"),
    [
        (("A Very Long Plan for a Trip to Japan", "Trip to Japan"), "Trip to Japan", 2),
        (("A Very Long Plan for a Trip to Japan",), "Plan for a Trip...", 2),
        (("A Very Long Plan for a Trip to Japan", ModelFailed("small")), "Plan for a Trip...", 2),
        (("Sure! Here is a title for you:", '{"title": "Trip to Japan"}'), "Trip to Japan", 2),
        (("Sure! Here is a title for you:",), "Can you help me plan a two-week trip to...", 2),
        (("Sure! Here is a title for you:\nTrip to Japan",), "Trip to Japan", 1),
        (("Calling Ann at 4111 1111 1111 1111 in Japan Now",), "Calling Ann at [REDACTED_CC]...", 2),
    ],
)
async def test_a_title_against_the_rules_is_asked_for_once_more_then_cut(
    answers: tuple[str | Exception, ...], title: str, calls: int
) -> None:
    """What is private is taken out before the cut, which would leave a part of it."""
    model = ScriptedSummarizer(*answers)
    harness = SessionsWithUpkeep(model)
    harness.upkeep = harness.another(redaction=MarkingRedaction(**{"4111 1111 1111 1111": "[REDACTED_CC]"}))

    session = await harness.turn()
    await harness.upkeep.drain()

    assert (await harness.title(session))[0] == title
    assert len(model.asked) == calls


@pytest.mark.requirement("A17")
async def test_without_a_model_the_first_line_stays_until_there_is_one() -> None:
    harness = SessionsWithUpkeep()
    session = await harness.turn()
    await harness.upkeep.drain()
    without = await harness.title(session)
    harness.model = ScriptedSummarizer("Spring Trip to Japan")
    harness.upkeep = harness.another()
    harness.clock.advance(timedelta(minutes=2))

    await harness.turn(session.id, "And the hotels?")
    await harness.upkeep.drain()

    assert without == ("Can you help me plan a two-week trip to...", "fallback")
    assert await harness.title(session) == ("Spring Trip to Japan", "model")


@pytest.mark.requirement("A17", "U3")
@pytest.mark.parametrize(
    "said", [ModelFailed("small"), "Trip", "  "], ids=["fails", "breaks the rules", "says nothing"]
)
async def test_the_fallback_stays_when_the_model_fails_and_is_tried_again_after_a_minute(said: str | Exception) -> None:
    model = ScriptedSummarizer(said, "Two-Week Trip to Japan")
    harness = SessionsWithUpkeep(model)
    session = await harness.turn()
    await harness.upkeep.drain()
    first = await harness.title(session)

    await harness.turn(session.id, "too soon")
    await harness.upkeep.drain()
    asked_too_soon = len(model.asked)
    harness.clock.advance(timedelta(minutes=1))
    await harness.turn(session.id, "late enough")
    await harness.upkeep.drain()

    assert first == ("Can you help me plan a two-week trip to...", "fallback")
    assert asked_too_soon == 1
    assert await harness.title(session) == ("Two-Week Trip to Japan", "model")


@pytest.mark.requirement("A16", "A29")
async def test_a_title_that_is_there_costs_no_call() -> None:
    model = ScriptedSummarizer("Two-Week Trip to Japan")
    harness = SessionsWithUpkeep(model)
    session = await harness.turn()
    await harness.upkeep.drain()
    harness.clock.advance(timedelta(days=1))

    await harness.turn(session.id, "More")
    await harness.upkeep.drain()

    assert len(model.asked) == 1


@pytest.mark.requirement("A29", "T13")
async def test_a_hundred_first_requests_cost_one_call() -> None:
    model = ScriptedSummarizer("Two-Week Trip to Japan")
    harness = SessionsWithUpkeep(model)
    made, _ = await harness.sessions.create(ANN)

    await asyncio.gather(*(harness.turn(made.id, f"{QUESTION} {number}") for number in range(100)))
    await harness.upkeep.drain()

    assert len([system for system, _, _ in model.asked if "title" in system]) == 1
    assert (await harness.title(made))[0] == "Two-Week Trip to Japan"


@pytest.mark.requirement("T13", "U3")
@pytest.mark.parametrize(
    ("meanwhile", "title"),
    [(Changes(title="Our holiday"), "Our holiday"), (Changes(context={"colour": "blue"}), "Two-Week Trip to Japan")],
    ids=["a rename", "another change"],
)
async def test_a_rename_while_the_model_thinks_wins_and_other_changes_do_not(meanwhile: Changes, title: str) -> None:
    model = ScriptedSummarizer("Two-Week Trip to Japan")
    harness = SessionsWithUpkeep(model)
    session = await harness.turn(follow=False)
    model.meanwhile = lambda: harness.sessions.patch(ANN, session.id, meanwhile)

    assert await follow(harness, session) == title


class Renaming(FlatMemoryStore):
    """A store where somebody renames the session in the moment a title is to be written."""

    renamed: str | None = None

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        if self.renamed is not None:
            title, self.renamed = self.renamed, None
            await super().patch(scope, session_id, Changes(title=title))
        return await super().patch(scope, session_id, changes)


async def test_a_rename_in_the_very_moment_of_writing_wins() -> None:
    store = Renaming()
    harness = SessionsWithUpkeep(ScriptedSummarizer("Two-Week Trip to Japan"), store=store)
    session = await harness.turn(follow=False)
    store.renamed = "Our holiday"

    assert await follow(harness, session) == "Our holiday"


async def test_a_session_that_is_gone_needs_no_title() -> None:
    harness = SessionsWithUpkeep(ScriptedSummarizer("Two-Week Trip to Japan"))
    session = await harness.turn(follow=False)
    assert harness.model is not None
    harness.model.meanwhile = lambda: harness.sessions.delete(ANN, session.id)

    harness.upkeep.after_turn.follow(harness.snapshot(session, QUESTION, ANSWER, claims_title=True))
    await harness.upkeep.drain()

    with pytest.raises(SessionNotFound):
        await harness.sessions.get(ANN, session.id)


@pytest.mark.parametrize(
    ("redaction", "title"),
    [
        (MarkingRedaction(Japan="[PLACE]", Ann="[NAME]"), "Calling [NAME] About [PLACE]"),
        (PlaceRedaction(NO_REDACTION), "Calling Ann About Japan"),
    ],
    ids=["word by word", "the whole request"],
)
async def test_titles_and_what_their_model_is_asked_are_redacted(redaction: UpkeepRedaction, title: str) -> None:
    model = ScriptedSummarizer("Calling Ann About Japan")
    harness = SessionsWithUpkeep(model)
    harness.upkeep = harness.another(redaction=redaction)

    session = await harness.turn()
    await harness.upkeep.drain()

    assert "[PLACE]" in model.asked[0][1]
    assert "Japan" not in model.asked[0][1]
    assert (await harness.title(session))[0] == title


async def test_a_title_does_not_outlive_the_words_it_is_made_of() -> None:
    async with tenuto.open("memory://") as t:
        ann = t.scope(user="ann")
        first = await t.ask(ann, QUESTION)
        await t.upkeep.drain()
        before = (await t.sessions.get(ann, first.session_id)).title

        await t.ask(ann, "noodles?", session_id=first.session_id, edit=1)
        await t.upkeep.drain()

        head = await t.sessions.get(ann, first.session_id)
        assert before == "Can you help me plan a two-week trip to..."
        assert (head.title, head.metadata["title"]["by"]) == ("noodles?", "fallback")


async def test_a_name_that_somebody_gave_outlives_an_edit() -> None:
    async with tenuto.open("memory://") as t:
        ann = t.scope(user="ann")
        first = await t.ask(ann, QUESTION)
        await t.sessions.patch(ann, first.session_id, Changes(title="Ours"))

        await t.ask(ann, "How do I configure SQLite WAL mode?", session_id=first.session_id, edit=1)
        await t.upkeep.drain()

        assert (await t.sessions.get(ann, first.session_id)).title == "Ours"


async def test_a_title_on_its_way_is_dropped_when_its_words_are_taken_back() -> None:
    harness = SessionsWithUpkeep(ScriptedSummarizer("Two-Week Trip to Japan"))
    session = await harness.turn(follow=False)
    assert harness.model is not None
    late = datetime(2026, 2, 1, tzinfo=UTC).isoformat()
    claim = {"title": {"by": "fallback", "text": session.title, "tried_at": late, "stale": True}}
    harness.model.meanwhile = lambda: harness.sessions.patch(ANN, session.id, Changes(metadata=claim))

    assert await follow(harness, session) == session.title
