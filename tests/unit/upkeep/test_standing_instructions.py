"""Standing instructions are preferences without a model: told by the local encoder, with few mistakes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import tenuto
from tenuto.errors import Unavailable
from tenuto.llm.embedding.local import LocalEmbedder
from tenuto.model.memory import MemoryKind, MemorySource
from tenuto.recall.embedding import CachedEmbedder
from tenuto.upkeep.standing_instructions import InstructionFinder
from tests.clock import FakeClock
from tests.samples import ANN

pytestmark = pytest.mark.requirement("D9", "D13")

SENTENCES = json.loads(Path(__file__).with_suffix(".json").with_stem("standing_instructions").read_text("utf-8"))
FRENCH = "From now on answer in French."
HOME = "I live in Bologna with my two cats."


class Broken(LocalEmbedder):
    """The local embedder without its weights."""

    async def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        raise Unavailable("embedder", "failed")


def finder(embedder: LocalEmbedder) -> InstructionFinder:
    return InstructionFinder(CachedEmbedder(embedder, clock=FakeClock(), time_limit=timedelta(minutes=1)))


@pytest.mark.parametrize(("part", "precision", "recall"), [("chosen_on", 1.0, 0.7), ("unseen", 0.9, 0.4)])
async def test_few_of_those_found_are_none(part: str, precision: float, recall: float) -> None:
    """The thresholds and examples were chosen on the first part of the table, without the second."""
    instructions, others = SENTENCES[part]["instructions"], SENTENCES[part]["others"]

    found = [bool(one) for one in await finder(LocalEmbedder()).find(ANN, [*instructions, *others])]

    right, wrong = sum(found[: len(instructions)]), sum(found[len(instructions) :])
    assert right / (right + wrong) >= precision
    assert right / len(instructions) >= recall


async def test_a_standing_instruction_is_a_preference_once_and_what_stands_beside_it_is_a_fact() -> None:
    async with tenuto.open("memory://", embedder="local", on_missing="adopt") as app:
        for text in (f"{HOME} {FRENCH}", f"Hello! {FRENCH}", "请以后都用表格回答。", "Translate it into French."):
            await app.ask(ANN, text)
            await app.upkeep.drain()
        memories = await app.memories()
        found = await memories.list(ANN)

    assert {(one.kind, one.text, one.mentions) for one in found} == {
        (MemoryKind.FACT, HOME, 1),
        (MemoryKind.PREFERENCE, FRENCH, 2),
        (MemoryKind.PREFERENCE, "请以后都用表格回答。", 1),
    }
    assert {one.source for one in found} == {MemorySource.QUOTE}


async def test_without_the_encoder_none_is_found_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert not InstructionFinder(None).may_find(FRENCH)
    assert await InstructionFinder(None).find(ANN, [FRENCH]) == [[]]

    assert await finder(Broken()).find(ANN, [FRENCH, HOME]) == [[], []]
    assert "2 messages were read without looking for standing instructions" in caplog.text
    assert FRENCH not in caplog.text
