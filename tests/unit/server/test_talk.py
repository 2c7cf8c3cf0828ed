"""What a client sends is told apart: the talk, and what the system and the app write beside it."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.server.apps.talk import split_talk

MARKS = (("<reminder>", "</reminder>"), ("# AGENTS.md", "</INSTRUCTIONS>"))
BLOCK = "<reminder>x</reminder>"


def said(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("text", "rest", "own"),
    [
        ("<reminder>Be kind.</reminder>\n\nHello", "Hello", ["<reminder>Be kind.</reminder>"]),
        (
            "Hello\n<reminder>a</reminder>\n<reminder>b</reminder>",
            "Hello",
            ["<reminder>a</reminder>", "<reminder>b</reminder>"],
        ),
        (
            "# AGENTS.md for /x\n<INSTRUCTIONS>run</INSTRUCTIONS> Hi",
            "Hi",
            ["# AGENTS.md for /x\n<INSTRUCTIONS>run</INSTRUCTIONS>"],
        ),
        ("What does <reminder>x</reminder> mean?", "What does <reminder>x</reminder> mean?", []),
        ("<reminder> has no end", "<reminder> has no end", []),
        ("  spaced  ", "  spaced  ", []),
    ],
)
@pytest.mark.parametrize("kind", [None, "text", "input_text"])
def test_blocks_at_the_ends_are_the_apps(text: str, rest: str, own: list[str], kind: str | None) -> None:
    content, left = (text, rest) if kind is None else ([{"type": kind, "text": one}] for one in (text, rest))

    talk = split_talk([said(content)], MARKS)

    assert talk == ([said(left)], [0], "\n\n".join(own))


def test_a_message_of_the_app_alone_is_no_talk_and_the_same_text_counts_once() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    both = said([{"type": "text", "text": BLOCK}, image])

    talk = split_talk([said(BLOCK), said(f"{BLOCK} Hello"), said(BLOCK, "assistant"), both], MARKS)

    assert talk == ([said("Hello"), said(BLOCK, "assistant"), said([image])], [1, 2, 3], BLOCK)


def test_messages_of_the_system_instruct_wherever_they_stand() -> None:
    messages = [said("Be brief.", "system"), said("Hi"), said([{"type": "text", "text": "Now."}], "developer")]

    assert split_talk(messages) == ([said("Hi")], [1], "Be brief.\n\nNow.")


def test_without_marks_messages_stay_as_they_are() -> None:
    assert split_talk([said(BLOCK)]) == ([said(BLOCK)], [0], "")


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("text", [BLOCK, "<image name=>", " "])
@pytest.mark.parametrize("ends", [("", ""), ("x", ""), ("# AGENTS.md", "")])
def test_a_text_of_blocks_alone_takes_linear_time(text: str, ends: tuple[str, str]) -> None:
    """Where each block is cut off in a copy of the rest, or what is not there is looked for again, it takes minutes."""
    marks = (*MARKS, ("<image name=", ">"), ("</image", ">"))
    first, last = ends

    talk = split_talk([said(f"{first}{text * 100_000}{last}")], marks)

    assert "x" not in ends or "x" in str(talk.items)
