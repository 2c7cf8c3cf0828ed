"""Summaries without a model: sentences that were said, who said them, decisions, open questions (E13, T12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.context import Counter
from tenuto.context import extract as extraction
from tenuto.context.extract import summarise
from tenuto.context.sentences import condensed, split
from tenuto.model import Message, Role, text_part, tool_call, tool_result
from tenuto.model.prompt import Language
from tests.samples import SENT_AT

COUNTER = Counter()
EN, ZH = Language.ENGLISH, Language.CHINESE
USER, ASSISTANT, TOOL = Role.USER, Role.ASSISTANT, Role.TOOL


def log(*said: tuple[Role, str | tuple[dict[str, Any], ...]]) -> list[Message]:
    return [
        Message(
            id=f"m{seq}",
            role=role,
            sent_at=SENT_AT,
            parts=(text_part(what),) if isinstance(what, str) else what,
            seq=seq,
            turn=seq,
        )
        for seq, (role, what) in enumerate(said, 1)
    ]


TRIP = log(
    (USER, "Hi! I am planning a trip to Japan in April with my two kids, Mia and Leo. Our budget is 6000 dollars."),
    (ASSISTANT, "Great! Japan in April is lovely. I suggest Tokyo, Kyoto and Hiroshima. Would you like hotels?"),
    (USER, "Hotels please, Leo is allergic to peanuts. Let's go with five nights in Tokyo."),
    (ASSISTANT, (text_part("Let me look."), tool_call("c", "search_hotels", {"city": "Tokyo"}))),
    (TOOL, (tool_result("c", {"hotels": [{"name": "Hotel Sakura"}, {"name": "Park Inn"}], "pages": "x" * 9000}),)),
    (ASSISTANT, "Park Inn costs 95 dollars a night and has a family room."),
    (USER, "Park Inn sounds good, we'll take it."),
    (ASSISTANT, "A Japan Rail Pass costs 450 dollars per adult."),
    (USER, "I am not sure about the rail pass yet, we will decide later."),
    (ASSISTANT, "You're welcome!"),
)
RULES = log(
    (USER, "你好，我想了解一下严氏家训里关于孝悌的内容。"),
    (ASSISTANT, "您好！严氏家训强调孝悌为本，敬爱兄长，和睦乡里。"),
    (USER, "我在写一篇三千字的论文，下周五截止。那就按历史背景和现代意义两部分来写。"),
    (ASSISTANT, "没问题。历史背景部分建议引用明代族谱，现代意义部分可以引用2012年的老年人权益保障法。"),
    (USER, "参考文献的格式还没确定，回头再问导师。"),
    (ASSISTANT, "明白了。"),
)


def short(
    messages: Sequence[Message],
    previous: str = "",
    *,
    tokens: int = 400,
    characters: int | None = None,
    language: Language = EN,
    **rest: Any,
) -> str:
    return summarise(
        messages, previous, tokens=tokens, characters=characters, language=language, counter=COUNTER, **rest
    )


def paragraph(summary: str, heading: str) -> str:
    """What stands under a heading."""
    return summary.partition(f"{heading}\n")[2].partition(":\n")[0].partition("：\n")[0]


def test_an_english_summary_tells_the_topic_the_agreements_and_what_is_open() -> None:
    summary = short(TRIP, tokens=180)

    assert "User: I am planning a trip to Japan in April with my two kids, Mia and Leo." in summary
    assert "we'll take it" in paragraph(summary, "Agreed:")
    assert "allergic to peanuts" in paragraph(summary, "Agreed:")
    assert "not sure about the rail pass" in paragraph(summary, "Open:")
    assert "welcome" not in summary
    assert "Let me look" not in summary


def test_a_chinese_summary_does_too_within_two_hundred_characters() -> None:
    """E13: at most 200 characters: main content, agreements, open issues."""
    summary = short(RULES, characters=200, language=ZH)

    assert len(summary) <= 200
    assert "用户：" in summary
    assert "孝悌" in paragraph(summary, "主要内容：")
    assert "下周五截止" in paragraph(summary, "约定：")
    assert "参考文献的格式还没确定" in paragraph(summary, "待定：")
    assert "明白了" not in summary


def test_sentences_stay_in_their_order_and_with_their_speakers() -> None:
    summary = short(TRIP, tokens=400)

    places = [summary.index(words) for words in ("I am planning", "I suggest Tokyo", "Park Inn costs 95")]
    assert places == sorted(places)
    assert "Assistant: Park Inn costs 95" in summary.replace("\nTool", "\nAssistant")


def test_what_is_said_in_the_middle_and_at_the_end_is_found_as_well_as_the_beginning() -> None:
    """Never the first so many characters."""
    chatter = [(role, "The weather was fine and the garden was green again.") for role in (USER, ASSISTANT)] * 40
    messages = log(*chatter, (USER, "We decided to sell the house in Bonn for 400000 euros."), *chatter)

    summary = short(messages, tokens=60)

    assert "sell the house in Bonn" in summary
    assert summary.count("garden was green") == 1


def test_tool_outputs_are_condensed() -> None:
    summary = short(TRIP, tokens=400)

    assert "Tool: search_hotels(city=Tokyo) → hotels 2: Hotel Sakura, Park Inn" in summary
    assert "xxxxx" * 30 not in summary


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, ""),
        ([], ""),
        ({"a": 1, "b": None, "c": "x"}, "a=1, c=x"),
        ([{"name": "one"}, {"title": "two"}, 3], "3: one, two, 3"),
        ([[1], [2]], "2"),
        ({"hits": [{"id": 7}], "next": {"name": "p2"}}, "hits 1: 7, next (p2)"),
        ("First sentence. Second one.", "First sentence."),
        (0, "0"),
        (True, "True"),
    ],
)
def test_what_a_tool_says_fits_a_line(value: Any, told: str) -> None:
    assert condensed(value) == told


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dr. Smith paid 3.5 dollars. It was J. Doe's idea!", ["Dr. Smith paid 3.5 dollars.", "It was J. Doe's idea!"]),
        ("他说：“好的。”然后走了。真的吗？", ["他说：“好的。”", "然后走了。", "真的吗？"]),
        ("# Title\n- one item\n2. second", ["Title", "one item", "second"]),
        ("Look:\n```python\nprint(1)\n```\nDone.", ["Look:", "Done."]),
        ("...\n!!!\n👍", []),
    ],
)
def test_sentences_are_found_in_both_languages(text: str, sentences: list[str]) -> None:
    assert split(text) == sentences


def test_an_earlier_summary_is_joined_in_and_not_made_anew() -> None:
    """T12: the previous summary is merged. Its words come back as they are, and new ones stand behind them."""
    first = short(TRIP[:6], tokens=150)

    second = short(TRIP[6:], first, tokens=150)

    assert "I am planning a trip to Japan" in second
    assert "Let's go with five nights in Tokyo." in second
    assert "we'll take it" in second
    assert second.index("planning a trip") < second.index("Rail Pass costs")


def test_a_models_summary_is_joined_in_sentence_by_sentence() -> None:
    earlier = "The user plans a trip to Japan with Mia and Leo.\n\nThe budget of 6000 dollars is fixed."

    second = short(TRIP[6:], earlier, tokens=150)

    assert "plans a trip to Japan with Mia and Leo" in second
    assert "budget of 6000 dollars" in second
    assert "Assistant: The user plans" not in second


def test_an_open_question_that_was_answered_is_no_longer_open() -> None:
    first = short(TRIP, tokens=200)
    later = log((USER, "We decided: no rail pass, single tickets are cheaper for sure."))

    second = short(later, first, tokens=200)

    assert "not sure about the rail pass" in first
    assert "not sure about the rail pass" not in second
    assert "no rail pass" in second


def test_of_decisions_about_the_same_thing_the_last_one_holds() -> None:
    hotels = [
        (role, words)
        for number in (1, 2, 3)
        for role, words in ((USER, f"We decided to stay in hotel number {number}."), (ASSISTANT, "A good choice."))
    ]

    summary = short(log(*hotels))

    assert "hotel number 3" in summary
    assert "hotel number 1" not in summary
    assert "hotel number 4" in short(log((USER, "We decided to stay in hotel number 4.")), summary)
    assert "hotel number 3" not in short(log((USER, "We decided to stay in hotel number 4.")), summary)


DISTRICTS = [
    f"District {number} has a {place}."
    for number, place in enumerate(
        ["bakery", "mill", "school", "bank", "church", "gym", "park", "inn", "zoo", "well"], 1
    )
]
ROOMS = [f"第{number}间会议室可以坐{number + 10}个人。" for number in range(1, 11)]


@pytest.mark.parametrize(("said", "language"), [(DISTRICTS, EN), (ROOMS, ZH)], ids=["en", "zh"])
def test_what_says_nearly_the_same_of_other_things_is_told_while_there_is_room(
    said: list[str], language: Language
) -> None:
    """T12: a summary has room for hundreds of tokens, and does not drop facts for being put alike."""
    first = short(log(*((USER, text) for text in said[:6])), language=language)

    second = short(log(*((USER, text) for text in said[6:])), first, language=language)

    assert all(text.rstrip(".。") in second for text in said)


def test_near_repetitions_come_after_all_that_is_new() -> None:
    alike = [f"The museum in district {number} opens at nine and costs {number} euros." for number in range(1, 20)]
    other = "The contract with the bank ends soon."

    summary = short(log(*((USER, text) for text in (*alike, other))), tokens=70)

    assert other in summary
    assert summary.count("museum") > 1


def test_an_assistants_words_said_again_with_nothing_new_are_left_out() -> None:
    said = log(
        (USER, "Which hotels are there in the old town of Kyoto?"),
        (ASSISTANT, "The Park Inn in the old town of Kyoto costs 95 euros a night."),
        (ASSISTANT, "Indeed the lovely Park Inn in the old town of Kyoto costs 95 euros a night."),
        (ASSISTANT, "The Park House in the old town of Kyoto costs 80 euros a night."),
    )

    summary = short(said)

    assert summary.count("95 euros") == 1
    assert "80 euros" in summary


TOPICS = {
    EN: (
        ("The compiler ", "The linker ", "The parser "),
        ("checks ", "builds "),
        ("3 modules", "3 crates", "3 traits"),
        ".",
    ),
    ZH: (("编译器", "链接器", "解析器"), ("检查", "构建"), ("三个模块", "三个程序", "三个类型"), "。"),
}


@pytest.mark.parametrize(
    ("told", "language"),
    [
        ("My name is Ann.", EN),
        ("I live in Leeds.", EN),
        ("My daughter is five.", EN),
        ("We're flying to Oslo.", EN),
        ("I prefer window seats.", EN),
        ("我叫李雷。", ZH),
        ("我女儿五岁。", ZH),
        ("我打算去大连。", ZH),
        ("我不喜欢香菜。", ZH),
    ],
)
def test_what_people_tell_of_themselves_outlasts_what_the_talk_is_about(told: str, language: Language) -> None:
    who, does, what, end = TOPICS[language]
    talk = [(USER, subject + verb + thing + end) for subject in who for verb in does for thing in what]

    first = short(log(*talk[:9], (USER, told), *talk[9:]), tokens=60, language=language)
    second = short(log(*talk), first, tokens=60, language=language)

    assert told.rstrip(".。") in first
    assert told.rstrip(".。") in second


def test_the_offline_models_own_chatter_takes_no_room_and_answers_all_the_same() -> None:
    said = log(
        (USER, "What is the capital of France?"), (ASSISTANT, "I am the offline model, and nothing here answers that.")
    )
    said[1] = replace(said[1], metadata={"offline": True}, turn=1)

    assert short(said) == "Main points:\nUser: What is the capital of France?"
    said[1] = replace(said[1], metadata={"offline": True, "data": {"goods": []}})
    assert "Assistant: I am the offline model" in short(said)


def test_what_is_redacted_never_reaches_the_summary() -> None:
    summary = short(TRIP, redact=lambda text: text.replace("Leo", "[NAME]").replace("Park Inn", "[HOTEL]"))

    assert "Leo" not in summary
    assert "Park Inn" not in summary
    assert "[NAME]" in summary


def test_talk_without_words_still_has_a_summary() -> None:
    items = log((Role.ITEM, ({"type": "reasoning"},)), (ASSISTANT, ()))

    assert short(items) == "(Nothing was said in words.)"
    assert "Earlier words." in short(items, "Earlier words.")
    assert short(items, language=ZH) == "（没有文字内容。）"


def test_work_does_not_grow_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the messages are, so many sentences are looked at closely and no more."""
    looked: list[int] = []
    original = extraction._centrality

    def looking(about: Sequence[frozenset[str]]) -> list[float]:
        looked.append(len(about))
        return original(about)

    monkeypatch.setattr(extraction, "_centrality", looking)
    messages = log(*((USER, f"Sentence {n} tells of thing {n % 37}. " * 2000) for n in range(500)))

    short(messages)

    assert len(looked) == 2
    assert max(looked) <= extraction._MOST_SENTENCES


texts = st.one_of(
    st.text(max_size=80),
    st.builds(
        lambda parts, times: " ".join(parts) * times,
        st.lists(
            st.sampled_from(["We decided.", "why?", "家训。", "👨‍👩‍👧", "a" * 300, "User: x", "\n", "Open:"]),
            max_size=6,
        ),
        st.sampled_from([1, 1, 5, 60]),
    ),
)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from([USER, ASSISTANT, Role.SYSTEM]), texts), max_size=12),
    texts,
    st.integers(16, 300),
    st.one_of(st.none(), st.integers(16, 400)),
    st.sampled_from(Language),
)
def test_a_summary_keeps_its_limits_whatever_was_said(
    said: list[tuple[Role, str]], previous: str, tokens: int, characters: int | None, language: Language
) -> None:
    messages = log(*said)
    first = short(messages, tokens=tokens, characters=characters, language=language)

    again = short(messages, first, tokens=tokens, characters=characters, language=language)

    for summary in (first, again, short(messages, tokens=tokens, characters=characters, language=language)):
        assert summary.strip()
        assert COUNTER.count(summary) <= tokens
        assert characters is None or len(summary) <= characters
    assert first == short(messages, tokens=tokens, characters=characters, language=language)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("sign", [".", "!", "?", "。", "A. ", "“", ".)"])
def test_a_long_run_of_signs_is_split_at_once(sign: str) -> None:
    assert split("a" + sign * 66_000 + "b")


@pytest.mark.parametrize(
    ("said", "language", "written"),
    [
        (["My dog is called Rex", "We moved to Oslo in May"], EN, "My dog is called Rex. We moved to Oslo in May"),
        (["我的狗叫旺财", "我们五月搬到了杭州"], ZH, "我的狗叫旺财。 我们五月搬到了杭州"),
    ],
    ids=["en", "zh"],
)
def test_what_was_said_without_a_full_stop_does_not_run_into_the_next(
    said: list[str], language: Language, written: str
) -> None:
    assert written in short(log(*((USER, text) for text in said)), language=language)
