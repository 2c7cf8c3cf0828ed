"""The gate opens for what belongs to the talk and closes for what does not (B10)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tenuto.context import cosine, has_relevant_history, points_back
from tenuto.model import Message, Role, text_part
from tests.samples import SENT_AT


def talk(*lines: str) -> list[Message]:
    """User and assistant in turns."""
    return [
        Message(
            id=f"m{seq}",
            role=Role.USER if seq % 2 else Role.ASSISTANT,
            sent_at=SENT_AT,
            parts=(text_part(line),),
            seq=seq,
            turn=(seq + 1) // 2,
        )
        for seq, line in enumerate(lines, start=1)
    ]


PHONES = talk("有没有便宜的手机推荐？", "有三款：红米 Note 13、荣耀 X50 和真我 12，价格都在一千元左右。")
RULES = talk("What are the family rules of the Yan clan?", "The Yan family rules are ten, the first is filial piety.")


@pytest.mark.parametrize(
    "question",
    [
        "其中性价比最高的是哪个？",
        "红米的电池怎么样？",
        "第一款多少钱？",
        "手机有保修吗",
        "那荣耀呢？",
        "为什么？",
        "还有别的吗",
    ],
)
def test_a_follow_up_in_chinese_opens_it(question: str) -> None:
    assert has_relevant_history(question, PHONES)


@pytest.mark.parametrize(
    "question",
    [
        "What does the first one mean?",
        "Which of them is oldest?",
        "Is piety still taught?",
        "Why?",
        "Who wrote the rules?",
    ],
)
def test_a_follow_up_in_english_opens_it(question: str) -> None:
    assert has_relevant_history(question, RULES)


@pytest.mark.parametrize("question", ["明天上海天气如何，需要带伞吗？", "How do I reset my router password?"])
def test_another_subject_closes_it(question: str) -> None:
    assert not has_relevant_history(question, PHONES)
    assert not has_relevant_history(question, RULES)


def test_without_talk_there_is_nothing_to_be_relevant() -> None:
    assert not has_relevant_history("它呢？", [])
    assert not has_relevant_history("它呢？", talk(""))


def test_the_simple_gate_asks_only_whether_there_is_talk() -> None:
    assert has_relevant_history("How do I reset my router password?", PHONES, threshold=0)


def test_a_similarity_by_meaning_takes_the_place_of_words() -> None:
    asked: list[Sequence[str]] = []

    def by_meaning(_question: str, texts: Sequence[str]) -> list[float]:
        asked.append(texts)
        return cosine([1.0, 0.0], [[0.6, 0.8] for _ in texts])

    assert has_relevant_history("How do I reset my router password?", PHONES, by_meaning, threshold=0.5)
    assert not has_relevant_history("How do I reset my router password?", PHONES, by_meaning, threshold=0.7)
    assert len(asked[0]) == 2


def test_cosine_of_nothing_is_nothing() -> None:
    assert cosine([0.0, 0.0], [[1.0, 0.0]]) == [0.0]


def test_tools_are_not_talk() -> None:
    tool = Message(id="t", role=Role.TOOL, sent_at=SENT_AT, parts=(text_part("router password"),), seq=1, turn=1)

    assert not has_relevant_history("How do I reset my router password?", [tool])


def test_a_full_question_points_nowhere() -> None:
    assert not points_back("Which phones under 1000 yuan do you sell?")
    assert points_back("and the second?")
