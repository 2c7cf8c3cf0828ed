"""Laws of notes: whatever a model answers, the user's own sentences are remembered, or the message is quoted."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenuto.upkeep.model_notes import MOST, read_notes
from tenuto.upkeep.quotes import LONGEST

SENTENCES = [
    "I live in Bologna.",
    "My daughter is allergic to peanuts!",
    "我女儿对花生过敏。",
    "Keep answers short",
    "Ich heiße Zoë; und du?",
    "ﬁne İstanbul 🙂",
    "a" * 500,
]
MESSAGES = st.lists(st.lists(st.sampled_from(SENTENCES), max_size=4).map(" ".join) | st.text(max_size=60), max_size=3)
WORDS = st.sampled_from(["", "I", "My", "allergic", "女儿", "Bologna"]) | st.text(max_size=8)


@st.composite
def answers(draw: st.DrawFn, texts: list[str]) -> str:
    """Notes that quote parts of any of the messages, or something else, under labels of any kind."""

    def quote() -> str:
        text = draw(st.sampled_from([*texts, *SENTENCES, ""]))
        begins = draw(st.integers(0, len(text)))
        return text[begins : draw(st.integers(begins, len(text)))]

    def note() -> Any:
        labels = {
            "kind": draw(st.sampled_from(["fact", "preference", "request", "secret"])),
            "about": draw(st.sampled_from(["user", "person", "other"])),
            "whose": draw(WORDS),
            "lasting": draw(st.booleans()),
            "aspect": draw(st.sampled_from(["length", None])),
            "subject": draw(WORDS),
            "replaces": draw(st.booleans()),
        }
        return draw(st.sampled_from([{"quote": quote(), **labels}, quote(), None]))

    entries = [
        {"message": draw(st.integers(-1, 5)), "notes": [note() for _ in range(draw(st.integers(0, 10)))]}
        for _ in range(draw(st.integers(0, 4)))
    ]
    return json.dumps({"messages": entries})


@given(st.data())
def test_nothing_is_remembered_but_what_the_user_said(data: st.DataObject) -> None:
    texts = data.draw(MESSAGES)

    results = read_notes(data.draw(answers(texts)), texts)

    assert results is not None
    assert len(results) == len(texts)
    for text, notes in zip(texts, results, strict=True):
        assert len(notes or ()) <= MOST
        assert len({note.text for note in notes or ()}) == len(notes or ())
        for note in notes or ():
            assert text[note.start : note.start + len(note.text)] == note.text
            assert 0 < len(note.text) <= LONGEST
            assert not note.replaces or note.subject


@given(st.text() | st.text(alphabet='{}[]":,messages12 '), MESSAGES)
def test_no_answer_breaks_the_reading_of_it(answer: str, texts: list[str]) -> None:
    results = read_notes(answer, texts)

    assert results is None or len(results) == len(texts)
