"""What the terminal says beneath an answer that was not given as usual."""

from __future__ import annotations

import pytest

from tenuto.cli.conversation import remarks


@pytest.mark.parametrize(
    ("degraded", "lines"),
    [
        ((), []),
        # Promise 8: an answer in the journal is not one without a journal.
        (("journal",), ["the store does not answer; the journal keeps this turn until it does"]),
        (("store",), ["the store does not answer, and this turn is not stored"]),
        (("fallback_model",), ["answered by the fallback model"]),
        (("tools", "lookup"), ["a tool failed", "nothing was looked up for this answer"]),
        (("detector",), ["the external detector of private data does not answer; the built-in one alone ran"]),
        (("embedder",), ["the embedder does not answer; words alone decided whether earlier messages matter"]),
        (("cut",), ["the model saw a part of a message or of a tool's output; the trace says of which"]),
        (("recall",), ["memories were searched by words alone, or not at all"]),
        (("weather\x1b[2J",), ["answered without weather\\x1b[2J"]),
    ],
)
def test_what_was_degraded_is_said_in_true_sentences(degraded: tuple[str, ...], lines: list[str]) -> None:
    assert remarks(degraded) == [f"(degraded: {line})" for line in lines]
