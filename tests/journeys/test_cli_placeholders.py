"""Private data in a talk at the terminal: marks are dimmed, and one can ask how much was taken out."""

from __future__ import annotations

import pytest

from tests.journeys.cli_runs import MAIL, PRIVATE_TEXT
from tests.journeys.terminal import CTRL_D, Shell

DIM, MARKED, PLAIN = "\x1b[2m", "\x1b[36m\x1b[2m", "\x1b[0m"


@pytest.mark.requirement("S1")
def test_marks_are_dimmed_and_why_counts_what_was_taken_out(shell: Shell) -> None:
    """The talk that goes on shows what is stored, which holds no value."""
    shell.env |= {"TENUTO_PRIVACY_MESSAGE": "redact"}
    with shell.sit_down() as screen:
        screen.say(PRIVATE_TEXT)
        screen.say("/why", "KIND ")
        before = screen.see("> ")
        assert "private values redacted in the stored messages: " in before
        assert "1 CC" in before or "2 CC" in before
        assert "private values redacted in the stored trace: " in before
        screen.press(CTRL_D)
        screen.end()
    (session,) = shell.ask("sessions", "list")["sessions"]

    with shell.sit_down("--session", session["id"]) as screen:
        screen.see(f"{DIM}> My mail is {PLAIN}{MARKED}[REDACTED_EMAIL]{PLAIN}{DIM}, my card is {PLAIN}")
        screen.say("/why", "private values redacted in the stored messages: ", "> ")
        screen.press(CTRL_D)
        screen.end()
        assert MAIL not in screen.seen


def test_why_says_nothing_of_values_where_there_were_none(shell: Shell) -> None:
    with shell.sit_down() as screen:
        screen.say("My name is Ann.")
        screen.say("/why", "KIND ")
        assert "private value" not in screen.see("> ")
        screen.press(CTRL_D)
        screen.end()


def test_marks_are_plain_text_in_a_pipe(shell: Shell) -> None:
    shell.env |= {"TENUTO_PRIVACY_ANSWER": "redact"}
    shell.run("chat", f"My mail is {MAIL}.")
    (session,) = shell.ask("sessions", "list")["sessions"]
    done = shell.run("chat", "--session", session["id"], "What is my mail?")

    assert "[REDACTED_EMAIL]" in done.stdout
    assert "\x1b" not in done.stdout
