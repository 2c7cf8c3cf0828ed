"""Extractive summaries: sentences that were said, their speakers, decisions and open points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.context import TokenCounter
from tenuto.context.extract import summarise
from tenuto.context.sentences import condense, plain_sentences
from tenuto.model import Message, Role, text_part, tool_call, tool_result
from tenuto.model.prompt import Language
from tenuto.recall import terms
from tests.samples import stored

pytestmark = pytest.mark.requirement("E13", "T12")


COUNTER = TokenCounter()
EN, ZH = Language.ENGLISH, Language.CHINESE
USER, ASSISTANT, TOOL = Role.USER, Role.ASSISTANT, Role.TOOL


def log(*said: tuple[Role, str | tuple[dict[str, Any], ...]]) -> list[Message]:
    return [
        stored(seq, role=role, parts=(text_part(what),) if isinstance(what, str) else what, turn=seq)
        for seq, (role, what) in enumerate(said, 1)
    ]


TRIP = log(
    (USER, "Hi! I am planning a trip to Japan in April with my two kids, Mia and Leo. Our budget is 6000 dollars."),
    (ASSISTANT, "Japan in April is lovely. I suggest Tokyo, Kyoto and Hiroshima. Would you like hotels?"),
    (USER, "Hotels please, Leo is allergic to peanuts. Let's go with five nights in Tokyo."),
    (ASSISTANT, (tool_call("c", "search_hotels", {"city": "Tokyo"}),)),
    (TOOL, (tool_result("c", {"hotels": [{"name": "Hotel Sakura"}, {"name": "Park Inn"}], "pages": "x" * 9000}),)),
    (ASSISTANT, "Park Inn costs 95 dollars a night and has a family room."),
    (USER, "Park Inn sounds good, we'll take it."),
    (ASSISTANT, "A Japan Rail Pass costs 450 dollars per adult."),
    (USER, "I am not sure about the rail pass yet."),
)
RULES = log(
    (USER, "你好，我想了解一下严氏家训里关于孝悌的内容。"),
    (ASSISTANT, "您好！严氏家训强调孝悌为本，敬爱兄长，和睦乡里。"),
    (USER, "我在写一篇三千字的论文，下周五截止。那就按历史背景和现代意义两部分来写。"),
    (ASSISTANT, "没问题。历史背景部分建议引用明代族谱，现代意义部分可以引用2012年的老年人权益保障法。"),
    (USER, "参考文献的格式还没确定，回头再问导师。"),
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


def users(*texts: str) -> list[Message]:
    return log(*((USER, text) for text in texts))


def paragraph(summary: str, heading: str) -> str:
    """What stands under a heading."""
    return summary.partition(f"{heading}\n")[2].partition(":\n")[0].partition("：\n")[0]


@pytest.mark.requirement("E13")
@pytest.mark.parametrize(
    ("messages", "language", "paragraphs"),
    [
        (
            TRIP,
            EN,
            {
                "Main points:": [
                    "User: I am planning a trip to Japan",
                    "allergic to peanuts",
                    "Assistant: Park Inn costs",
                ],
                "Agreed:": ["five nights in Tokyo", "we'll take it"],
                "Open:": ["not sure about the rail pass"],
            },
        ),
        (RULES, ZH, {"主要内容：": ["用户：", "孝悌"], "约定：": ["下周五截止"], "待定：": ["参考文献的格式还没确定"]}),
    ],
    ids=["en", "zh"],
)
def test_a_summary_holds_main_points_decisions_and_open_points(
    messages: Sequence[Message], language: Language, paragraphs: dict[str, list[str]]
) -> None:
    """At most 200 characters where that is the limit."""
    limit = 200 if language is ZH else None
    summary = short(messages, characters=limit, language=language)

    assert limit is None or len(summary) <= limit
    for heading, texts in paragraphs.items():
        places = [paragraph(summary, heading).find(text) for text in texts]
        assert -1 not in places
        assert places == sorted(places)


def test_a_question_without_an_answer_is_open() -> None:
    messages = log((USER, "Which ferry goes to Naxos?"), (ASSISTANT, "The blue one."), (USER, "Which bus goes to Ulm?"))

    summary = short(messages)

    assert "Naxos" in paragraph(summary, "Main points:")
    assert "Ulm" in paragraph(summary, "Open:")


def test_the_middle_and_the_end_are_found_as_well_as_the_beginning() -> None:
    """Never the first so many characters."""
    chatter = [(role, "The weather was fine and the garden was green again.") for role in (USER, ASSISTANT)] * 40
    messages = log(*chatter, (USER, "We decided to sell the house in Bonn for 400000 euros."), *chatter)

    summary = short(messages, tokens=60)

    assert "sell the house in Bonn" in summary
    assert summary.count("garden was green") == 1


@pytest.mark.parametrize(("fact", "language"), [("My daughter is five.", EN), ("我女儿五岁。", ZH)])
def test_what_users_say_of_themselves_outlasts_the_topic(fact: str, language: Language) -> None:
    topic = "The {} checks {} modules." if language is EN else "{}检查{}个模块。"
    tools = ("compiler", "linker", "parser") if language is EN else ("编译器", "链接器", "解析器")
    talk = [topic.format(tool, number) for tool in tools for number in range(1, 7)]

    first = short(users(*talk[:9], fact, *talk[9:]), tokens=60, language=language)
    second = short(users(*talk), first, tokens=60, language=language)

    assert fact.rstrip(".。") in first
    assert fact.rstrip(".。") in second


def test_tool_outputs_are_condensed() -> None:
    summary = short(TRIP, tokens=400)

    assert "Tool: search_hotels(city=Tokyo) → hotels 2: Hotel Sakura, Park Inn" in summary
    assert "xxxxx" * 30 not in summary


@pytest.mark.parametrize(
    ("value", "line"),
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
def test_a_tool_output_fits_a_line(value: Any, line: str) -> None:
    assert condense(value) == line


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
    assert plain_sentences(text) == sentences


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("sign", [".", "!", "?", "。", "A. ", "“", ".)"])
def test_a_long_run_of_signs_is_split_in_linear_time(sign: str) -> None:
    assert plain_sentences("a" + sign * 66_000 + "b")


@pytest.mark.requirement("T12")
def test_an_earlier_summary_is_merged_and_not_made_again() -> None:
    """Its sentences come back as they are, and new ones stand behind them."""
    first = short(TRIP[:6], tokens=150)

    second = short(TRIP[6:], first, tokens=150)

    assert "I am planning a trip to Japan" in second
    assert "Let's go with five nights in Tokyo." in second
    assert "we'll take it" in second
    assert second.index("planning a trip") < second.index("Rail Pass costs")


def test_a_models_summary_is_merged_and_keeps_its_share_of_the_room() -> None:
    earlier = "The user plans a trip to Japan with Mia and Leo.\n\nThe budget of 6000 dollars is fixed."

    second = short(users(*(f"I like the {place} and my {place} plan." for place in PLACES * 3)), earlier, tokens=80)

    assert "plans a trip to Japan with Mia and Leo" in second
    assert "budget of 6000 dollars" in second
    assert "Assistant: The user plans" not in second


def test_a_sentence_that_denies_another_is_kept_beside_it() -> None:
    summary = short(users("Our guests eat meat.", "Our guests do not eat meat."))

    assert "do not eat meat" in summary


def test_an_open_point_that_was_settled_is_no_longer_open() -> None:
    first = short(TRIP, tokens=200)
    later = users("We decided: no rail pass, single tickets are cheaper for sure.")

    second = short(later, first, tokens=200)

    assert "not sure about the rail pass" in first
    assert "not sure about the rail pass" not in second
    assert "no rail pass" in second


def test_of_decisions_about_the_same_thing_the_last_one_holds() -> None:
    hotels = [f"We decided to stay in hotel number {number}." for number in range(1, 5)]

    first = short(users(*hotels[:3]))
    second = short(users(hotels[3]), first)

    assert [number for number in range(1, 5) if f"hotel number {number}" in first] == [3]
    assert [number for number in range(1, 5) if f"hotel number {number}" in second] == [4]


PLACES = ("bakery", "mill", "school", "bank", "church", "gym", "park", "inn", "zoo", "well")
DISTRICTS = [f"District {number} has a {place}." for number, place in enumerate(PLACES, 1)]
ROOMS = [f"第{number}间会议室可以坐{number + 10}个人。" for number in range(1, 11)]


@pytest.mark.requirement("T12")
@pytest.mark.parametrize(("said", "language"), [(DISTRICTS, EN), (ROOMS, ZH)], ids=["en", "zh"])
def test_sentences_alike_about_other_things_are_kept_while_there_is_room(said: list[str], language: Language) -> None:
    """A summary has room for hundreds of tokens, and does not drop facts for being put alike."""
    first = short(users(*said[:6]), language=language)

    second = short(users(*said[6:]), first, language=language)

    assert all(text.rstrip(".。") in second for text in said)


def test_near_repetitions_come_after_all_that_is_new() -> None:
    alike = [f"The museum in district {number} opens at nine and costs {number} euros." for number in range(1, 20)]
    other = "The contract with the bank ends soon."

    summary = short(users(*alike, other), tokens=70)

    assert other in summary
    assert summary.count("museum") > 1


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


def test_messages_without_words_still_have_a_summary() -> None:
    items = log((Role.ITEM, ({"type": "reasoning"},)), (ASSISTANT, ()))

    assert short(items) == "(Nothing was said in words.)"
    assert "Earlier words." in short(items, "Earlier words.")
    assert short(items, language=ZH) == "（没有文字内容。）"


def test_a_sentence_without_a_full_stop_gets_one_before_the_next() -> None:
    assert "is called Rex. We moved" in short(users("My dog is called Rex", "We moved to Oslo in May"))
    assert "旺财。 我们" in short(users("我的狗叫旺财", "我们五月搬到了杭州"), language=ZH)


def test_the_work_for_each_portion_of_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the messages are, so many sentences are tokenized and no more; a decision is among them."""
    tokenized: list[str] = []

    def counted_terms(text: str) -> list[str]:
        tokenized.append(text)
        return terms(text)

    monkeypatch.setattr("tenuto.context.extract.terms", counted_terms)
    long = ["".join(f"Sentence {n} {k} tells of thing {n % 37}. " for k in range(50)) for n in range(600)]

    summary = short(users(*long[:450], long[450] + "We decided to sell the house.", *long[451:]))

    assert len(tokenized) < 1000
    assert "sell the house" in summary


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
    limits: dict[str, Any] = {"tokens": tokens, "characters": characters, "language": language}
    messages = log(*said)

    first = short(messages, **limits)

    for summary in (first, short(messages, first, **limits), short([*messages, *messages], previous, **limits)):
        assert summary.strip()
    for summary in (first, short(messages, first, **limits)):
        assert COUNTER.count(summary) <= tokens
        assert characters is None or len(summary) <= characters
    assert first == short(messages, **limits)
