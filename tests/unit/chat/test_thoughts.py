"""The parts of an answer that a model thought about: their order, their two forms, and what a cut makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.chat.thoughts import Thoughts
from tenuto.context import TokenCounter
from tenuto.context.tokens import truncate_parts
from tenuto.model import text_part, tool_call
from tenuto.model.generation import ReasoningDelta, ReasoningDone, ToolCall
from tenuto.model.message import Draft, Role
from tenuto.model.values import JsonObject
from tenuto.sessions.items import item_from_message
from tests.clock import START

CALLS = [ToolCall(id=name, name="add") for name in ("c0", "c1")]


def made(text: str, **fields: Any) -> JsonObject:
    return {"type": "reasoning", "text": text, "signature": "s", "provider": "p", "model": "m", **fields}


def heard(*events: tuple[str, int, int], withheld: bool = False, part: JsonObject | None = None) -> Thoughts:
    """Thoughts of this text, after so many pieces of one character, and so many calls."""
    thoughts = Thoughts(withheld=withheld)
    for index, (text, texts, _) in enumerate(events):
        list(thoughts.hear(ReasoningDelta(text=text, index=index), "x" * texts, 0))
    for index, (text, texts, calls) in enumerate(events):
        list(thoughts.hear(ReasoningDone(part=part or made(text), index=index), "x" * texts, calls))
    return thoughts


@pytest.mark.parametrize(
    ("events", "text", "calls", "order"),
    [
        ((("a", 0, 0),), "xx", 0, ["a", "xx"]),
        ((("a", 0, 0), ("b", 2, 0)), "xxx", 1, ["a", "xx", "b", "x", "c0"]),
        ((("a", 0, 0), ("b", 0, 1)), "", 2, ["a", "c0", "b", "c1"]),
        ((("a", 0, 0), ("b", 0, 9)), "", 2, ["a", "c0", "b", "c1"]),
        ((("a", 0, 0), ("b", 0, 2)), "xx", 0, ["a", "b", "xx"]),
        ((("a", 0, 0),), "", 0, ["a", ""]),
        ((), "", 0, [""]),
        ((), "", 1, ["c0"]),
    ],
)
def test_thoughts_keep_their_place(events: Any, text: str, calls: int, order: list[str]) -> None:
    parts = heard(*events).parts(text, CALLS[:calls], stored=True)

    assert [part.get("text", part.get("id")) for part in parts] == order


def test_what_readers_see_is_stored_and_what_was_made_goes_back() -> None:
    """A changed text says so, and one that its provider cannot verify has an id for pending calls alone."""
    changed = heard(("to [mail]", 0, 0), part=made("to a@b.c"))
    unsigned = heard(("a", 0, 0), part=made("a", signature=None, id="reasoning_content"))

    assert changed.parts("x", (), stored=False)[0] == made("to a@b.c")
    assert changed.parts("x", (), stored=True)[0] == made("to [mail]", redacted=True)
    assert "id" not in unsigned.parts("", CALLS, stored=True)[0]
    assert "id" in unsigned.parts("", CALLS, stored=True, pending=True)[0]


def test_a_withheld_thought_is_told_of_once() -> None:
    """And of its end once, though that comes again when the answer is whole."""
    thoughts = Thoughts(withheld=True)
    pieces = ReasoningDelta(text="a"), ReasoningDelta(text="b")
    events: list[ReasoningDelta | ReasoningDone] = [*pieces, *[ReasoningDone(part=made("ab"))] * 2]

    told = [delta for event in events for delta in thoughts.hear(event, (), 0)]

    assert told == [ReasoningDelta(text=""), ReasoningDelta(text="", part=made("ab", withheld=True))]
    assert thoughts.parts("", (), stored=True)[0] == made("ab", withheld=True)


def test_a_cut_takes_the_thoughts_first_and_leaves_none_in_part() -> None:
    parts = (made("word " * 100), text_part("word " * 100), tool_call("c0", "add", {}))

    cut = truncate_parts(parts, 60, TokenCounter())

    assert [part["type"] for part in cut] == ["text", "tool_call"]


def test_a_message_of_another_api_has_no_thoughts() -> None:
    draft = Draft(id="m", role=Role.ASSISTANT, sent_at=START, parts=(made("a"), text_part("Hello.")))

    assert item_from_message(draft) == {"role": "assistant", "content": "Hello."}
