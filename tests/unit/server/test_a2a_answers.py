"""The answer of a turn as pieces of an artifact of A2A: a projection of the events of the turn."""

from __future__ import annotations

import pytest

from tenuto.chat import ChatEvent, Reply
from tenuto.chat.request import ToolStarted
from tenuto.model.generation import TextDelta
from tenuto.model.task import Task, TaskStatus
from tenuto.server.a2a.runs import AnswerStream
from tests.clock import FakeClock

NOW = FakeClock()()
TASK = Task(
    id="t",
    type="turn",
    goal="",
    session_id="s",
    status=TaskStatus.RUNNING,
    result=None,
    created_at=NOW,
    updated_at=NOW,
    completed_at=None,
    expires_at=NOW,
    version=1,
)
TOLD: list[ChatEvent] = [TextDelta(text="The "), TextDelta(text="tile "), TextDelta(text="museum")]
AFTER_A_TOOL: list[ChatEvent] = [TextDelta(text="Let me look."), TextDelta(text=" "), ToolStarted(name="search"), *TOLD]


def pieces(events: list[ChatEvent], answer: str) -> list[tuple[str, bool, bool]]:
    stream = AnswerStream(TASK)
    reply = Reply(session_id="s", trace_id="x", turn=1, assistant="general", text=answer)
    told = [piece for event in events for piece in stream.feed(event)] + [stream.conclude(reply)]
    assert {(piece.task_id, piece.context_id) for piece in told} == {("t", "s")}
    return [(piece.artifact.parts[0].text, piece.append, piece.last_chunk) for piece in told]


def test_each_piece_is_told_once_and_the_last_one_says_so() -> None:
    assert pieces(TOLD, "The tile museum") == [("The ", False, False), ("tile ", True, False), ("museum", True, True)]


@pytest.mark.parametrize("events", [[], [TextDelta(text="The")], TOLD])
def test_an_answer_that_differs_replaces_what_was_told(events: list[ChatEvent]) -> None:
    assert pieces(events, "Another one")[-1] == ("Another one", False, True)


def test_the_answer_begins_anew_after_a_tool() -> None:
    assert pieces(AFTER_A_TOOL, "The tile museum")[-3:] == pieces(TOLD, "The tile museum")
