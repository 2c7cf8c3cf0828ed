"""What the terminal gets to see of strangers' words."""

from __future__ import annotations

import json
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tenuto.cli.terminal import age, pluralize, safe_json, show_json, show_table, visible
from tests.samples import SENT_AT

STEERING = ["\x1b", "\x07", "\x00", "\r", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u2028", "\ud800"]


@pytest.mark.requirement("T18")
@pytest.mark.parametrize("character", STEERING)
def test_a_steering_character_is_shown_by_its_number(character: str) -> None:
    """An escape sequence in a title or an id reaches no terminal."""
    shown = visible(f"a{character}b", lines=True)

    assert character not in shown
    assert f"{ord(character):02x}" in shown


def test_line_breaks_and_tabs_stay_where_lines_are_wanted() -> None:
    assert visible("a\n\tb", lines=True) == "a\n\tb"
    assert visible("a\n\tb") == "a\\x0a\\x09b"


def test_joined_emoji_and_chinese_stay_as_they_are() -> None:
    text = "👩‍🚀 你好 é"

    assert visible(text) == text


@given(st.text(st.characters(codec="utf-8")))
def test_json_without_steering_characters_says_the_same(text: str) -> None:
    shown = safe_json(msgspec.json.encode({"text": text}).decode())

    assert json.loads(shown) == {"text": text}
    assert not set(shown) & set(STEERING)


def test_json_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"title": "\x9b31m", "n": 9007199254740993})

    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"title": "\x9b31m", "n": 9007199254740993}
    assert "\x9b" not in printed.out
    assert printed.err == ""


def test_a_table_takes_no_markup_and_cuts_no_id(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    session_id = "0198c2f4-7d1e-7cc3-98c4-dc0c0c07398f"
    title = "[red]你好 \x1b]0;x\x07" + "long " * 20

    show_table(("ID", "TITLE", "AGE"), [(session_id, title, "12m")], flexible="TITLE", numbers=("AGE",))

    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["ID", "TITLE", "AGE"]
    assert row.startswith(f"{session_id}  [red]你好 \\x1b")
    assert row.endswith("…  12m")
    assert cell_len(heading) == cell_len(row) == 60


def test_columns_that_may_give_way_share_what_room_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = (f"t-{'a' * 24}-{'b' * 16}", "legal_consultation", "completed", "16s", "There is a problem with it.")

    show_table(("ID", "TYPE", "STATUS", "CHANGED", "GOAL"), [row], flexible=("GOAL", "TYPE"), numbers=("CHANGED",))

    heading, shown = capsys.readouterr().out.splitlines()
    assert shown == f"{row[0]}  legal_…  completed      16s  There…"
    assert heading.split() == ["ID", "TYPE", "STATUS", "CHANGED", "GOAL"]


def test_a_terminal_that_is_too_narrow_still_shows_whole_ids(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    show_table(("ID", "TITLE"), [("x" * 36, "title")], flexible="TITLE")

    assert "x" * 36 in capsys.readouterr().out


def test_age_counts_in_its_largest_unit() -> None:
    spans = [
        timedelta(seconds=-5),
        timedelta(seconds=59),
        timedelta(minutes=59),
        timedelta(hours=23),
        timedelta(days=40),
    ]

    assert [age(SENT_AT - span, SENT_AT) for span in spans] == ["0s", "59s", "59m", "23h", "40d"]


def test_counting_words() -> None:
    assert [pluralize(n, "turn") for n in (0, 1, 1200)] == ["0 turns", "1 turn", "1,200 turns"]
    assert [pluralize(2, word) for word in ("memory", "data key")] == ["2 memories", "2 data keys"]


@pytest.mark.parametrize(
    ("columns", "terminal", "shown"), [("80", True, "…000000a1"), ("150", True, "{id}"), ("80", False, "{id}")]
)
def test_only_a_narrow_terminal_gets_the_ends_of_ids(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str, terminal: bool, shown: str
) -> None:
    made, chosen = "0198c0de-0001-7000-8000-0000000000a1", "a-name-that-a-caller-chose"
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)

    rows = [(name, "A title of some length", "active", "12") for name in (made, chosen)]
    show_table(("ID", "TITLE", "STATUS", "A COLUMN OF NUMBERS"), rows, flexible="TITLE", ids="ID")

    first, second = (line.split()[0] for line in capsys.readouterr().out.splitlines()[1:])
    assert (first, second) == (shown.format(id=made), chosen)
