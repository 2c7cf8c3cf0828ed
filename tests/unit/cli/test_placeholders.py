"""Marks at the terminal: painted where there are colours, whatever chunks they come in."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.cli import placeholders as at
from tenuto.cli.placeholders import Marks, PlaceholderStream, count_redacted, last_turn_messages
from tenuto.model import Draft, Role
from tests.samples import says

_PAINT = re.compile(r"\x1b\[[0-9;]*m")
MARKED = "\x1b[36m\x1b[2m"
PIECES = st.sampled_from(
    ["[EMAIL_1]", "[REDACTED_CC]", "[ERASED]", "[CASE_2]", "[", "]", "[[", "[STEP_1]", "so ", "\n"]
)


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at, "has_colours", lambda: True)


@given(st.lists(PIECES).map("".join), st.lists(st.integers(0, 60)))
def test_a_stream_paints_what_the_whole_text_would_be_painted(text: str, cuts: list[int]) -> None:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    stream = PlaceholderStream(Marks(["CASE"]))

    parts = [stream.feed(text[start:end]) for start, end in pairwise(places)]

    shown = "".join(parts) + stream.flush()
    assert shown == Marks(["CASE"]).paint(text)
    assert _PAINT.sub("", shown) == text


def test_marks_are_painted_and_what_looks_like_one_is_not() -> None:
    shown = Marks(["CASE"]).paint("[EMAIL_1] [REDACTED_CC] [WITHHELD] [CASE_1] [STEP_1] [email_1]")

    assert shown.count(MARKED) == 4
    assert shown.endswith(" [STEP_1] [email_1]")


def test_what_steers_a_terminal_stays_harmless_beside_a_mark() -> None:
    shown = Marks().paint("\x1b[31m[EMAIL_1]\u202e")

    assert shown == f"\\x1b[31m{MARKED}[EMAIL_1]\x1b[0m\\u202e"


def test_nothing_is_painted_or_held_back_where_there_are_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at, "has_colours", lambda: False)
    stream = PlaceholderStream(Marks())

    assert stream.feed("to [EMA") == "to [EMA"
    assert stream.feed("IL_1]") + stream.flush() == "IL_1]"


def test_values_are_counted_from_the_last_question_on() -> None:
    talk = [
        _message(Role.USER, {"EMAIL": 5}),
        _message(Role.ASSISTANT, {}),
        _message(Role.USER, {"EMAIL": 1, "CC": 1}),
        _message(Role.ASSISTANT, {"EMAIL": 1, "odd": "many"}),
    ]

    assert count_redacted(last_turn_messages(talk)) == {"EMAIL": 2, "CC": 1}
    assert count_redacted([_message(Role.USER, "a sender's own")]) == {}
    assert last_turn_messages([]) == ()


def _message(role: Role, redacted: object) -> Draft:
    return says("words", role, metadata={"redacted": redacted})
