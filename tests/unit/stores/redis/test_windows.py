"""How much of sessions a process keeps in memory to foresee answers: bounded in bytes, whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.model import Message, Role, Session, text_part, tool_result
from tenuto.stores.redis import _window_cache
from tenuto.stores.redis._window_cache import WindowCache
from tests.peek import cached_bytes
from tests.samples import HEAD, SENT_AT

LARGE = "x" * 100_000


def _session(number: int, **values: Any) -> Session:
    return replace(HEAD, id=f"s{number}", messages=1, last_seq=1, **values)


def _message(seq: int = 1, **values: Any) -> Message:
    fields = {"parts": (text_part("hello"),), **values}
    return Message(id=f"m{seq}", role=Role.TOOL, sent_at=SENT_AT, seq=seq, turn=1, **fields)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ({"context": {"k": LARGE}}, {}),
        ({"attributes": {"k": LARGE}}, {}),
        ({}, {"parts": (tool_result("call", LARGE),)}),
        ({}, {"metadata": {"k": LARGE}}),
        ({}, {"parts": (text_part(LARGE),)}),
    ],
    ids=["context", "attributes", "tool result", "metadata", "text"],
)
def test_whatever_is_large_counts(head: dict[str, Any], words: dict[str, Any]) -> None:
    windows = WindowCache()
    for number in range(1000):
        windows.keep(b"%d" % number, _session(number, **head), 1, (_message(**words),), 1)

    kept = sum(windows.get(b"%d" % number) is not None for number in range(1000))

    assert 50 < kept <= _window_cache._MOST_BYTES // len(LARGE)


def test_what_is_dropped_is_no_longer_counted() -> None:
    windows = WindowCache()
    log = tuple(_message(seq, parts=(text_part("y" * seq),)) for seq in range(1, 200))
    session = replace(_session(1, context={"k": 1}), messages=199, last_seq=199)
    windows.keep(b"a", session, 1, log, len(log))
    grown = replace(session, messages=201, last_seq=201)
    windows.extend(b"a", grown, 1, (_message(200), _message(201)))
    seen = windows.get(b"a")
    assert seen is not None
    assert (len(seen.messages), seen.size) == (20, cached_bytes(windows))

    windows.drop(b"a")

    assert cached_bytes(windows) == 0


def test_no_more_is_kept_than_the_largest_window_that_was_asked_for() -> None:
    windows = WindowCache()
    log = tuple(_message(seq) for seq in range(1, 200))
    session = replace(_session(1), messages=199, last_seq=199)

    kept = []
    for window in (0, 40, 30, 1000):
        windows.keep(b"a", session, 1, log, len(log), window)
        seen = windows.get(b"a")
        assert seen is not None
        kept.append([message.seq for message in seen.messages])

    assert kept == [list(range(200 - size, 200)) for size in (20, 40, 40, 64)]
