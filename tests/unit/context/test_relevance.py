"""The gate opens for what belongs to the talk and closes for what does not."""

from __future__ import annotations

import math

import pytest

from tenuto.context import cosine, has_relevant_history, near_enough, points_back
from tenuto.model import Message, Role, text_part
from tests.samples import SENT_AT, dialogue

pytestmark = pytest.mark.requirement("B10")


PHONES = dialogue("有没有便宜的手机推荐？", "有三款：红米 Note 13、荣耀 X50 和真我 12，价格都在一千元左右。")
RULES = dialogue(
    "What are the family rules of the Yan clan?", "The Yan family rules are ten, the first is filial piety."
)


@pytest.mark.parametrize(
    ("history", "question", "relevant"),
    [
        (PHONES, "其中性价比最高的是哪个？", True),
        (PHONES, "红米的电池怎么样？", True),
        (PHONES, "第一款多少钱？", True),
        (PHONES, "手机有保修吗", True),
        (PHONES, "那荣耀呢？", True),
        (PHONES, "明天上海天气如何，需要带伞吗？", False),
        (RULES, "What does the first one mean?", True),
        (RULES, "Is piety still taught?", True),
        (RULES, "Why?", True),
        (RULES, "Who wrote the rules?", True),
        (RULES, "How do I reset my router password?", False),
    ],
)
def test_a_follow_up_opens_the_gate_and_another_subject_does_not(
    history: tuple[Message, ...], question: str, relevant: bool
) -> None:
    assert has_relevant_history(question, history) is relevant


def test_without_talk_there_is_nothing_to_be_relevant() -> None:
    assert not has_relevant_history("它呢？", [])
    assert not has_relevant_history("它呢？", dialogue(""))


def test_the_simple_gate_asks_only_whether_there_is_talk() -> None:
    assert has_relevant_history("How do I reset my router password?", PHONES, threshold=0)


@pytest.mark.requirement("B10")
def test_by_meaning_the_two_nearest_texts_decide() -> None:
    """One text that is near by accident does not open it."""
    near, far = [0.9, math.sqrt(1 - 0.81)], [-0.9, math.sqrt(1 - 0.81)]

    assert near_enough([1.0, 0.0], [far, near, near])
    assert near_enough([1.0, 0.0], [near])
    assert not near_enough([1.0, 0.0], [far, near])
    assert not near_enough([1.0, 0.0], [])


def test_a_higher_threshold_wants_more_likeness_by_meaning_too() -> None:
    vector = [0.5, math.sqrt(0.75)]
    opened = [near_enough([1.0, 0.0], [vector], threshold) for threshold in (0.0, 0.1, 0.15, 0.4, 0.6, 1.0)]

    assert opened == [True, True, True, True, False, False]
    assert near_enough([1.0, 0.0], [[2.0, 0.0]], 1.0)


def test_cosine_of_nothing_is_nothing() -> None:
    assert cosine([0.0, 0.0], [[1.0, 0.0]]) == [0.0]


def test_tools_are_not_talk() -> None:
    tool = Message(id="t", role=Role.TOOL, sent_at=SENT_AT, parts=(text_part("router password"),), seq=1, turn=1)

    assert not has_relevant_history("How do I reset my router password?", [tool])


@pytest.mark.parametrize(
    ("question", "back"),
    [
        ("and the second?", True),
        ("What about delivery before Friday?", True),
        ("Are there any later ones?", True),
        ("白色有货吗", True),
        ("妈妈的血压也有点高", True),
        ("Which phones under 1000 yuan do you sell?", False),
        ("What time is it in Rome now?", False),
        ("Is it legal to fly a drone over a park?", False),
        ("Which films are shown this weekend in Ulm?", False),
        ("教我一首简单的吉他曲。", False),
        ("这个周末有什么新电影上映？", False),
    ],
)
def test_a_question_that_refers_back_or_goes_on_points_back(question: str, back: bool) -> None:
    assert points_back(question) is back


def test_of_a_very_long_text_the_beginning_is_looked_at() -> None:
    """A question of a megabyte must not block the event loop for a second."""
    long = "Which phones do you sell? " * 40_000
    far = dialogue("Routers are here. " * 1_000 + "Tablets.")

    assert points_back("Is that one cheap? " + long)
    assert not points_back(long + "And the first one of them?")
    assert not has_relevant_history("Which tablets do shops sell in Ulm?", far)
