"""Bulk embeddings: in pieces, after the questions of turns, and no longer than their caller waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tenuto.recall.embedding import CachedEmbedder
from tests.clock import FakeClock
from tests.letter_memories import LetterEmbedder
from tests.samples import ANN, BOB


class Stepwise(LetterEmbedder):
    """An embedder of this machine that finishes a call each time it is let to."""

    def __init__(self) -> None:
        super().__init__(remote=False)
        self.calls: list[list[str]] = []
        self.begun = asyncio.Event()
        self._steps = asyncio.Semaphore(0)
        self._running = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        async with self._running:
            self.calls.append(list(texts))
            self.begun.set()
            await self._steps.acquire()
            return await super().embed(texts)

    async def finish_one(self) -> None:
        self._steps.release()
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def stepwise() -> Stepwise:
    return Stepwise()


@pytest.fixture
def embedder(stepwise: Stepwise) -> CachedEmbedder:
    return CachedEmbedder(stepwise, clock=FakeClock(), time_limit=timedelta(minutes=1))


async def test_a_question_waits_for_one_piece_of_bulk_work(stepwise: Stepwise, embedder: CachedEmbedder) -> None:
    """However many requests for embeddings there are, and for memories without a vector as well."""
    bulk = [
        asyncio.create_task(embedder.embed_whole([f"text {n}" for n in range(30)])),
        asyncio.create_task(embedder.embed_whole(["long " * 2_000])),
        asyncio.create_task(embedder.embed_patiently([f"memory {n}" for n in range(30)])),
    ]
    await asyncio.sleep(0)
    question = asyncio.create_task(embedder.embed(ANN, ["Where do I live?"]))
    await asyncio.sleep(0)
    before = len(stepwise.calls)
    for _ in range(2):
        await stepwise.finish_one()

    assert before == 1
    assert question.done()
    while not all(task.done() for task in bulk):
        await stepwise.finish_one()
    assert [len(task.result() or ()) for task in bulk] == [30, 1, 30]
    assert max(len(call) for call in stepwise.calls) <= 8
    assert max(sum(map(len, call)) for call in stepwise.calls) <= 2_000


async def test_a_long_text_is_embedded_in_chunks_whose_mean_is_its_vector() -> None:
    letters = LetterEmbedder(remote=False)
    embedder = CachedEmbedder(letters, clock=FakeClock(), time_limit=timedelta(minutes=1))

    [long], [short] = (
        await embedder.embed_whole(["a" * 1_000 + "b" * 1_000 + "c" * 500]),
        await embedder.embed_whole(["ab"]),
    )

    assert [len(text) for text in letters.asked] == [1_000, 1_000, 500, 2]
    # Each chunk by its length; the sum of squares is 1.
    assert [round(number, 3) for number in long[:4]] == [0.696, 0.696, 0.174, 0.0]
    assert short[0] == pytest.approx(1.01)


async def test_work_whose_caller_left_ends_with_its_piece(stepwise: Stepwise, embedder: CachedEmbedder) -> None:
    work = asyncio.create_task(embedder.embed_whole(["long " * 10_000]))
    await stepwise.begun.wait()
    work.cancel()
    for _ in range(3):
        await stepwise.finish_one()

    assert work.cancelled()
    assert len(stepwise.calls) == 1


async def test_statements_of_several_callers_are_embedded_together_behind_a_question(
    stepwise: Stepwise, embedder: CachedEmbedder
) -> None:
    """One that leaves takes its own along, and no other."""
    first = asyncio.create_task(embedder.embed_later(ANN, ["I have a boat."]))
    await stepwise.begun.wait()
    later = [asyncio.create_task(embedder.embed_later(BOB, [f"I have {n} cats.", "I sing."])) for n in range(4)]
    question = asyncio.create_task(embedder.embed(ANN, ["Where do I live?"]))
    await asyncio.sleep(0)
    later.pop(2).cancel()
    while not all(task.done() for task in (first, question, *later)):
        await stepwise.finish_one()

    assert stepwise.calls == [
        ["I have a boat."],
        ["Where do I live?"],
        ["I have 0 cats.", "I sing.", "I have 1 cats.", "I sing.", "I have 3 cats.", "I sing."],
    ]
    assert {len(task.result() or ()) for task in later} == {2}


async def test_a_failed_piece_fails_its_callers_alone(embedder: CachedEmbedder, stepwise: Stepwise) -> None:
    work = asyncio.create_task(embedder.embed_later(ANN, ["I have a boat."]))
    await stepwise.begun.wait()
    stepwise.away = True
    behind = asyncio.create_task(embedder.embed_whole(["I have a cat."]))
    await stepwise.finish_one()
    stepwise.away = False
    await stepwise.finish_one()

    assert await work is None
    assert len(await behind) == 1


async def test_the_vector_of_a_question_is_that_of_its_statement(embedder: CachedEmbedder, stepwise: Stepwise) -> None:
    for way in (embedder.embed, embedder.embed_later):
        asking = asyncio.create_task(way(ANN, ["I have a boat."]))
        await stepwise.finish_one()
        assert await asking

    assert stepwise.calls == [["I have a boat."]]
