"""Turns of programs that call their own model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import tenuto
from tenuto.context import tokens
from tests.samples import ANN

pytestmark = pytest.mark.requirement("A34")


@pytest.fixture
def loaded_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[threading.Thread]]:
    """The threads in which the tokenizer is loaded, as in a process that has not counted yet."""
    load, threads = tokens._rs_bpe, list[threading.Thread]()

    def noted(encoding: str) -> Callable[[str], int]:
        threads.append(threading.current_thread())
        return load(encoding)

    monkeypatch.setattr(tokens, "_rs_bpe", noted)
    tokens._counting.cache_clear()
    yield threads
    tokens._counting.cache_clear()


async def test_other_turns_go_on_while_the_first_window_loads_the_tokenizer(loaded_in: list[threading.Thread]) -> None:
    async with tenuto.open("memory://", embedder="none", on_missing="adopt") as app:
        await app.finish(await app.begin(ANN, "I live in Bologna.", session_id="s"), "Fine.")
        turn = await app.begin(ANN, "I have two cats.", session_id="s")

    assert [one is threading.main_thread() for one in loaded_in] == [False]
    assert [one.text for one in turn.window] == ["I live in Bologna.", "Fine.", "I have two cats."]
