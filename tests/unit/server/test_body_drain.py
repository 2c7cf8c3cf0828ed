"""Reading on behind an answer: to the end of the body, and no further than the bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message, Receive

from tenuto.server.middleware import BodyDrain, closes_after_response

START: Message = {"type": "http.response.start", "status": 413, "headers": []}
ANSWER: Message = {"type": "http.response.body", "body": b"too large"}
PIECE = b"x" * 1024 * 1024


class Line:
    """The connection: pieces that come, and what was sent when how much had been read."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self.read = 0
        self.sent: list[tuple[bytes, bool, int]] = []

    async def receive(self) -> Message:
        piece = await anext(self._pieces, b"")
        self.read += len(piece)
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.sent.append((message["body"], message.get("more_body", False), self.read))


async def _pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield PIECE


async def _stuck() -> AsyncIterator[bytes]:
    yield PIECE
    await asyncio.Event().wait()


async def _answer(line: Line) -> None:
    draining = BodyDrain(line.receive, line.send)
    await draining.send(START)
    await draining.send(ANSWER)


async def test_the_answer_goes_at_once_and_ends_when_the_body_has_come() -> None:
    line = Line(_pieces(3))

    await _answer(line)

    assert line.sent == [(b"too large", True, 0), (b"", False, 3 * len(PIECE))]


async def test_nobody_is_read_for_ever() -> None:
    line = Line(_pieces(1000))

    await _answer(line)

    assert line.read == 64 * len(PIECE)
    assert line.sent[-1][:2] == (b"", False)


async def test_nobody_is_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.server.middleware._MOST_SECONDS", 0.01)
    line = Line(_stuck())

    await _answer(line)

    assert line.sent[-1] == (b"", False, len(PIECE))


async def test_a_body_that_was_read_costs_nothing_more() -> None:
    line = Line(_pieces(1))
    draining = BodyDrain(line.receive, line.send)
    receive: Receive = draining.receive
    while (await receive())["more_body"]:
        pass

    await draining.send(START)
    await draining.send(ANSWER)

    assert line.sent == [(b"too large", False, len(PIECE))]


@pytest.mark.parametrize(
    ("version", "headers", "expected"),
    [
        ("1.1", {"connection": "close", "content-length": "9"}, True),
        ("1.1", {"connection": "Close", "transfer-encoding": "chunked"}, True),
        ("1.0", {"content-length": "9"}, True),
        ("1.1", {"content-length": "9"}, False),
        ("1.1", {"connection": "close"}, False),
        ("1.1", {"connection": "close", "content-length": "9", "expect": "100-continue"}, False),
    ],
)
def test_only_a_connection_that_ends_while_a_body_comes_is_read_on(
    version: str, headers: dict[str, str], expected: bool
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]

    assert closes_after_response({"type": "http", "http_version": version, "headers": raw}) is expected
