"""Texts that an app writes into messages of users are told apart from what the users say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.model import Draft, Role, text_part
from tenuto.server.apps.own_texts import without_own_texts

MARKS = (("<reminder>", "</reminder>"), ("# AGENTS.md", "</INSTRUCTIONS>"))
AT = datetime(2026, 1, 1, tzinfo=UTC)


def said(*texts: str, role: Role = Role.USER) -> Draft:
    return Draft(id="m", role=role, sent_at=AT, parts=tuple(map(text_part, texts)), tokens=9)


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
def test_blocks_at_the_ends_are_the_apps(text: str, rest: str, own: list[str]) -> None:
    talk = without_own_texts([said(text)], MARKS)

    assert [message.text for message in talk.messages] == [rest]
    assert list(talk.instructions) == own
    assert (talk.messages[0].tokens == 9) is not bool(own)


def test_a_message_of_the_app_alone_is_no_talk_and_the_same_text_counts_once() -> None:
    block = "<reminder>x</reminder>"
    image: dict[str, Any] = {"type": "image", "attachment": "a"}
    messages = [said(block), said(block, "Hello"), said(block, role=Role.ASSISTANT)]
    messages.append(Draft(id="p", role=Role.USER, sent_at=AT, parts=(text_part(block), image)))

    talk = without_own_texts(messages, MARKS)

    assert [(one.role, len(one.parts)) for one in talk.messages] == [
        (Role.USER, 1),
        (Role.ASSISTANT, 1),
        (Role.USER, 1),
    ]
    assert talk.messages[0].text == "Hello"
    assert talk.messages[2].parts == (image,)
    assert talk.instructions == (block,)


def test_without_marks_messages_stay_as_they_are() -> None:
    messages = (said("<reminder>x</reminder>"),)

    assert without_own_texts(messages, ()) == (messages, ())
