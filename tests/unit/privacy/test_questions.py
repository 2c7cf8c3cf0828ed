"""How often a turn asks an external detector: once for each text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.privacy.detection.external import ExternalDetector
from tests.clock import Ticks
from tests.samples import ANN, BOB
from tests.servers.analyzer import analyzer, entities_response
from tests.unit.privacy.scripted_detector import ScriptedDetector, external_detector

WORDS = "Plan my trip to Lisbon"


@asynccontextmanager
async def asking(**settings: Any) -> AsyncIterator[tuple[Tenuto, list[str]]]:
    """An app whose external detector finds nothing, and the texts it was sent."""
    shown: list[str] = []

    async def answer(body: bytes) -> bytes:
        shown.append(json.loads(body)["text"])
        return entities_response()

    patient: dict[str, Any] = {"privacy_detector_timeout": timedelta(minutes=1)}
    async with analyzer(answer) as url, tenuto.open("memory://", privacy_detector=url, **patient, **settings) as app:
        yield app, shown


@pytest.mark.parametrize("message", ["keep", "redact"])
async def test_a_new_session_asks_once_for_its_words(message: str) -> None:
    """The title, the messages, the trace and upkeep all need the matches."""
    async with asking(privacy_message=message, privacy_model=message) as (app, shown):
        await app.ask(ANN, WORDS)
        await app.upkeep.drain()

    assert shown.count(WORDS) == 1


@pytest.mark.parametrize("on_missing", ["adopt", "new_id", "error"])
async def test_a_turn_in_a_session_that_is_there_asks_once_for_its_words(on_missing: str) -> None:
    """A session that may be new needs a title; the trace then uses the cached answer."""
    async with asking(on_missing=on_missing) as (app, shown):
        first = await app.ask(ANN, "Hello there", assistant="general")
        await app.upkeep.drain()
        await app.ask(ANN, WORDS, session_id=first.session_id, assistant="general")
        await app.upkeep.drain()

    assert shown.count(WORDS) == 1


async def test_a_session_that_went_and_comes_back_has_its_title_from_the_beginning() -> None:
    async with asking(on_missing="adopt") as (app, _):
        first = await app.ask(ANN, "Hello there", assistant="general")
        await app.sessions.delete(ANN, first.session_id)
        again = await app.ask(ANN, WORDS, session_id=first.session_id, assistant="general")
        session = await app.sessions.get(ANN, again.session_id)

    assert (again.session_id, again.created) == (first.session_id, True)
    assert "Lisbon" in session.title


async def test_an_answer_is_remembered_for_its_own_user_and_a_few_minutes() -> None:
    """A failure is no answer: the next one asks again."""
    clock, detector = Ticks(), ScriptedDetector("Lisbon")
    outside = external_detector(detector, clock)
    detector.fails = Unavailable("external detector")
    assert await found(outside, ANN) == []

    detector.fails = None
    assert [await found(outside, ANN), await found(outside, ANN)] == [["PERSON"], ["PERSON"]]
    assert len(detector.shown) == 2

    await found(outside, BOB)
    assert len(detector.shown) == 3
    clock.now += 180
    await found(outside, ANN)
    assert len(detector.shown) == 4


async def test_no_more_answers_are_remembered_than_a_few_hundred() -> None:
    detector = ScriptedDetector()
    outside = external_detector(detector)
    for turn in range(513):
        await outside.add_matches(ANN, [f"{WORDS}, {turn}"], [[]])

    await outside.add_matches(ANN, [f"{WORDS}, 512"], [[]])
    assert len(detector.shown) == 513
    await outside.add_matches(ANN, [f"{WORDS}, 0"], [[]])
    assert len(detector.shown) == 514


async def found(outside: ExternalDetector, scope: Scope) -> list[str]:
    (finds,) = await outside.add_matches(scope, [WORDS], [[]])
    return [one.type for one in finds]
