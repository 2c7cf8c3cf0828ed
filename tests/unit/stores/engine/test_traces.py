"""Traces are pages beside a record, read apart from it."""

from __future__ import annotations

from random import Random

import pytest

from tenuto.ports import utc_now
from tenuto.stores.engine import Engine
from tenuto.stores.memory import InMemoryRecords
from tests.samples import ANN, batch, talk


@pytest.mark.timeout(20)  # Else it would read again and again.
async def test_a_page_that_is_newer_than_the_cached_record_is_news_of_it() -> None:
    records = InMemoryRecords()
    here, there = (Engine(records, clock=utc_now, chance=Random(number)) for number in range(2))
    await talk(here, ANN, "s", "hello", "hi")
    before = await here.traces.traces(ANN, "s")

    await there.sessions.append(ANN, "s", batch("changed without a feed"))

    assert await here.traces.traces(ANN, "s") == before
    assert (await here.sessions.get(ANN, "s")).messages == 3
