"""Bulk embeddings: in pieces, after the questions of turns, and no longer than their caller waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tenuto.recall.embedding import CachedEmbedder
from tests.clock import FakeClock
from tests.letter_memories import LetterEmbedder
from tests.samples import ANN


class Stepwise(LetterEmbedder):
    """An embedder of this machine that finishes a call each time it is let to."""

    def __init__(self) -> None:
        super().__init__(remote=False)
        self.calls: list[list[str]] = []
        self._steps = asyncio.Semaphore(0)
        self._running = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        async with self._running:
            self.calls.append(list(texts))
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
    await asyncio.sleep(0)
    work.cancel()
    for _ in range(3):
        await stepwise.finish_one()

    assert work.cancelled()
    assert len(stepwise.calls) == 1
