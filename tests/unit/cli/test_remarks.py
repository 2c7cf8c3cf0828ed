"""What the terminal says beneath an answer that was not given as usual."""

from __future__ import annotations

from tenuto.cli.conversation import remarks


def test_what_was_missing_and_what_keeps_the_answer_are_two_things() -> None:
    """Promise 8: an answer in the journal is not one without a journal."""
    assert remarks(()) == []
    assert remarks(("store", "tools")) == ["(degraded: answered without store, tools)"]
    assert remarks(("tools", "journal")) == [
        "(degraded: answered without tools)",
        "(degraded: the store does not answer; the journal keeps this turn until it does)",
    ]
