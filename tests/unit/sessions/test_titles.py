"""Titles: the fallback, the rules for a model's title, and who may change which title."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tenuto.model import NewSession, Session
from tenuto.model.graphemes import graphemes
from tenuto.model.prompt import Language
from tenuto.model.session import check_title
from tenuto.sessions import titles
from tenuto.sessions.model_titles import SMALL_WORDS, TitleFault, cut_title, read_title, title_request
from tenuto.sessions.titles import (
    TitleSource,
    clip_title,
    fallback_title,
    generated_title,
    title_changes,
    with_fallback_title,
)
from tests.clock import START
from tests.samples import HEAD as SAMPLE

pytestmark = pytest.mark.requirement("A15", "A16", "A17", "A18", "A24", "A29", "T13", "U3")


EN, ZH = Language.ENGLISH, Language.CHINESE
FALLBACK, MODEL = TitleSource.FALLBACK, TitleSource.MODEL
FAMILY = "👨‍👩‍👧"
claim_title = partial(titles.claim_title, limit=40)


@pytest.mark.requirement("A17")
@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("How do I cook rice?", "How do I cook rice?"),
        ("\n\n  first   line \nsecond line", "first line"),
        ("Can you help me plan a two-week trip to Japan in spring?", "Can you help me plan a two-week trip to..."),
        ("Supercalifragilisticexpialidocious-and-more-of-it", "Supercalifragilisticexpialidocious-and-m..."),
        ("a " + "b" * 60, "a " + "b" * 38 + "..."),
        ("一" * 50, "一" * 40 + "..."),
        (FAMILY * 41, FAMILY * 40 + "..."),
        ("one\u2028two", "one"),
        (" \n\t ", "New conversation"),
    ],
)
def test_the_fallback_is_the_first_line_cut_at_forty_characters(question: str, title: str) -> None:
    """A character is a grapheme, so that no family is torn apart."""
    assert fallback_title(question, EN, 40) == title


@pytest.mark.requirement("A18", "A24")
def test_a_title_of_more_than_sixty_characters_keeps_fifty_seven() -> None:
    assert clip_title("x" * 60, 60) == "x" * 60
    assert clip_title("x" * 61, 60) == "x" * 57 + "..."
    assert clip_title("家" * 61, 60) == "家" * 57 + "..."
    assert clip_title(FAMILY * 51, 50) == FAMILY * 47 + "..."


odd = st.lists(st.sampled_from([FAMILY, "e\u0301", "x", " ", "\n", "家", "\u0301" * 300])).map("".join)


@given(st.one_of(st.text(), odd))
def test_any_question_gives_a_title_that_every_store_accepts(question: str) -> None:
    if "\0" in question or any("\ud800" <= character <= "\udfff" for character in question):
        return

    title = fallback_title(question, EN, 40)

    assert check_title(title)
    assert len(graphemes(title)) <= 43


def clean_title(completion: str, question: str) -> str | None:
    """What becomes of an answer that is no better the second time."""
    text = read_title(completion, question, "", 60).text
    return cut_title(text, question, 60) if text is not None else None


ENGLISH, CHINESE, RUSSIAN = "How do I cook rice?", "怎么煮米饭？", "Как сварить рис?"
JAPANESE, KOREAN, THAI = "東京での旅行計画を手伝ってください", "밥은 어떻게 짓나요?", "หุงข้าวอย่างไร"


@pytest.mark.requirement("A15", "A18")
@pytest.mark.parametrize(
    ("completion", "title", "question"),
    [
        ('"Planning a Trip to Japan."', "Planning a Trip to Japan", ENGLISH),
        ("Title: **python async basics** 🚀", "Python Async Basics", ENGLISH),
        ("<think>Let me see.</think>\n\nDebugging SQLite WAL Mode", "Debugging SQLite WAL Mode", ENGLISH),
        ('Here is a title: "iPhone vs Android Phones"', "iPhone vs Android Phones", ENGLISH),
        ("# John's New API Key\n\nHope you like it!", "John's New API Key", ENGLISH),
        ("HOW TO COOK RICE", "How to Cook Rice", ENGLISH),
        ("TCP VS UDP", "TCP vs UDP", "tcp vs udp?"),
        ("sqlite wal mode", "SQLite WAL Mode", "What does WAL mean in SQLite?"),
        ("planning a two week trip to japan in spring", "Planning a Two Week Trip...", ENGLISH),
        ("fix foo_bar in main.py", "Fix foo_bar in main.py", ENGLISH),
        ("[REDACTED_EMAIL] Writes to [PHONE_1].", "[REDACTED_EMAIL] Writes to [PHONE_1]", ENGLISH),
        ("<script>alert('x')</script>Cooking <i>Rice</i> at<br/> Home", "Cooking Rice at Home", ENGLISH),
        ("<script>alert(1)</script>", None, ENGLISH),
        ("Trip Planning", None, ENGLISH),
        ("word " * 20, "Word Word Word Word Word...", ENGLISH),
        ("Donaudampfschifffahrt " * 4, ("Donaudampfschifffahrt " * 4)[:57] + "...", "Was ist das?"),
        ("Sure! Here is a title for you:\n\nCooking Rice at Home", "Cooking Rice at Home", ENGLISH),
        ("Of course, a title follows\n\nCooking Rice at Home\nHope you like it!", "Cooking Rice at Home", ENGLISH),
        ("Sure! Here is a title for you", None, ENGLISH),
        ("Of course! Here's one: Cooking Rice at Home", "Cooking Rice at Home", ENGLISH),
        ("Here's your title → Cooking Rice at Home", "Cooking Rice at Home", ENGLISH),
        ("A good title would be Cooking Rice at Home", "Cooking Rice at Home", ENGLISH),
        ("Sure, Cooking Rice at Home", "Cooking Rice at Home", ENGLISH),
        ("Certainly — Cooking Rice at Home", "Cooking Rice at Home", ENGLISH),
        ("Title - Cooking Rice at Home", "Cooking Rice at Home", ENGLISH),
        ("Cooking Rice: The Complete Beginner Guide", "Cooking Rice: The Complete Beginner...", ENGLISH),
        ("Rice vs. Noodles", "Rice vs. Noodles", ENGLISH),
        ("Understanding the very basics of sailing well", "Understanding the Very Basics...", ENGLISH),
        ("Rice: How to Cook It", "Rice: How to Cook It", ENGLISH),
        ("Meeting at 10:30 in Paris", "Meeting at 10:30 in Paris", ENGLISH),
        ("Bien sûr ! Voici un titre :\nCuisson du Riz", "Cuisson Du Riz", "Comment cuire le riz ?"),
        ("Конечно! Вот заголовок: Как сварить вкусный рис", "Как сварить вкусный рис", RUSSIAN),
        ('{"title": "Cooking Rice at Home"}', "Cooking Rice at Home", ENGLISH),
        ('Sure!\n```json\n{"title": "Rice: How to Cook It."}\n```', "Rice: How to Cook It", ENGLISH),
        ("{'title': 'Cooking Rice at Home'}", "Cooking Rice at Home", ENGLISH),
        ('{"title": null}', None, ENGLISH),
        ("严氏家训孝悌之道", None, ENGLISH),
        ("I’m sorry, but I can't.", None, ENGLISH),
        ("As an AI Language Model", None, ENGLISH),
        ("", None, ENGLISH),
        ("🚀🚀🚀", None, ENGLISH),
        ("Title:", None, ENGLISH),
        ("《严氏家训孝悌之道》", "严氏家训孝悌之道", CHINESE),
        ("标题：“推荐性价比手机”。", "推荐性价比手机", CHINESE),
        ("Python异步编程入门😀", "Python异步编程入门", CHINESE),
        ("春季两周日本旅行的行程安排以及预算", "春季两周日本旅行的行程安...", CHINESE),
        ("配置 Kubernetes 的 NetworkPolicy", "配置 Kubernetes 的 NetworkPolicy", CHINESE),
        ("好的，标题如下：\n推荐性价比手机", "推荐性价比手机", CHINESE),
        ("好的，标题如下：推荐性价比手机", "推荐性价比手机", CHINESE),
        ("好的，米饭的煮法", "米饭的煮法", CHINESE),
        ("我认为这个对话的标题可以叫作米饭的煮法", "米饭的煮法", CHINESE),
        ("好的，标题如下", None, CHINESE),
        ('{"title": "\\u63a8\\u8350性价比手机"}', "推荐性价比手机", CHINESE),
        ("抱歉，我无法为您提供帮助", None, CHINESE),
        ("天气", None, CHINESE),
        ("Planning a Trip to Japan", None, CHINESE),
        ("タイトル：「美味しいご飯の炊き方」", "美味しいご飯の炊き方", JAPANESE),
        ("Cooking Rice at Home", None, JAPANESE),
        ("美味しいご飯の炊き方についてのコツ", None, CHINESE),
        ('제목: "맛있는 밥 짓기"', "맛있는 밥 짓기", KOREAN),
        ("美味米饭的煮法", None, KOREAN),
        ("Как сварить вкусный рис.", "Как сварить вкусный рис", RUSSIAN),
        ("How to Cook Rice", None, RUSSIAN),
        ("วิธีหุงข้าวให้อร่อย", "วิธีหุงข้าวให้อร่อย", THAI),
    ],
)
def test_a_models_title_keeps_the_rules_or_is_refused(completion: str, title: str | None, question: str) -> None:
    """The script of the question, Title Case, 3 to 5 words or 5 to 15 characters, nothing around them."""
    assert clean_title(completion, question) == title


WORDS = ["plan", "Trip", "to", "JAPAN", "家训", "孝悌", "的", "Title:", "标题：", "iPhone", "3", " ", "\n", "\u200d"]
SIGNS = ["“", "”", '"', "`", "**", "🚀", "。", "!", "?", ":", "-", "'", "《", "》", "…"]


@given(
    st.lists(st.sampled_from([*WORDS, *SIGNS]), max_size=14),
    st.sampled_from(["", " "]),
    st.sampled_from([ENGLISH, CHINESE]),
)
def test_whatever_a_model_says_the_title_keeps_the_rules(parts: list[str], glue: str, question: str) -> None:
    title = clean_title(glue.join(parts), question)

    if title is None:
        return
    assert check_title(title) == title.strip()
    assert len(graphemes(title)) <= 60
    assert not set(title) & set('"“”`*🚀\u200d')
    assert title.removesuffix("...")[-1] not in "。.!?！？,，;；:：…-"
    if question == CHINESE:
        assert len(graphemes("".join(title.split()))) >= 5
    else:
        words = title.removesuffix("...").split()
        assert 3 <= len(words) <= 5
        # A word with a capital inside is a name, and stays as it is written.
        assert all(not word[0].islower() or word in SMALL_WORDS or word != word.lower() for word in words)


@pytest.mark.requirement("A15")
def test_the_model_is_asked_for_the_shape_of_the_questions_script() -> None:
    """No question is asked for a title in another language."""
    assert all("3 to 5 words" in title_request(question, "Hello")[0] for question in (ENGLISH, RUSSIAN))
    counted = (CHINESE, JAPANESE, KOREAN, THAI)
    assert all("5 to 15 characters" in title_request(question, "Hello")[0] for question in counted)
    assert len(title_request("x" * 10**6, "y" * 10**6)[1]) < 2000


@pytest.mark.parametrize(
    ("completion", "fault"),
    [
        ("Cooking Rice at Home", None),
        ("Cooking a Pot of Rice at Home", TitleFault.LONG),
        ("Donaudampfschifffahrt " * 4, TitleFault.LONG),
        ("A good title would be Cooking Rice at Home", TitleFault.UNCLEAR),
        ("Here you are:", TitleFault.UNCLEAR),
        ("Sure! Here is a title for you", TitleFault.UNCLEAR),
        ('{"name": 3}', TitleFault.UNCLEAR),
        ("Rice", None),
        ("I cannot do that", None),
    ],
)
def test_the_model_is_asked_once_more_for_a_long_title_or_none(completion: str, fault: TitleFault | None) -> None:
    """A refusal and one word are no better a moment later: they are tried again after a minute."""
    assert read_title(completion, ENGLISH, "", 60).fault is fault


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("words", ["的", "好", "1. ", "(", "title: ", "!", "<a", "<think>"])
def test_cleaning_takes_linear_time(words: str) -> None:
    """At this length, trying every start with every end takes half a minute."""
    text = (words * 2000)[:1999] + "x"

    for question in (ENGLISH, CHINESE):
        for _ in range(10):
            assert len(clean_title(text, question) or "") <= 60


# Who may change which title

HEAD = replace(SAMPLE, created_at=START, updated_at=START, version=3)


def session(title: str, by: str | None = None, tried_at: timedelta | None = None, text: str | None = None) -> Session:
    metadata = {}
    if by is not None:
        metadata["title"] = {"by": by, "text": title if text is None else text}
        if tried_at is not None:
            metadata["title"]["tried_at"] = (START + tried_at).isoformat()
    return replace(HEAD, title=title, metadata=metadata)


@pytest.mark.requirement("T13")
def test_the_first_turn_claims_the_title_and_the_next_does_not() -> None:
    """One call, however many requests: those within a minute find it claimed. A claim writes no title."""
    changes = claim_title(HEAD, "How do I cook rice?", EN, START)
    assert changes is not None
    claimed = replace(HEAD, metadata=changes.metadata)

    assert changes.title is UNSET
    assert generated_title(claimed) is not None
    assert claim_title(claimed, "And noodles?", EN, START + timedelta(seconds=59)) is None
    assert claim_title(claimed, "And noodles?", EN, START + timedelta(seconds=60)) is not None


def test_a_session_is_created_with_its_fallback_unless_it_has_a_name() -> None:
    new = with_fallback_title(NewSession(metadata={"assistant": "general"}), "How do I cook rice?", EN, 40)

    assert new.title == "How do I cook rice?"
    assert new.metadata == {"assistant": "general", "title": {"by": "fallback", "text": "How do I cook rice?"}}
    assert with_fallback_title(NewSession(title="Mine"), "How?", EN, 40) == NewSession(title="Mine")


@pytest.mark.requirement("A16", "A29", "U3")
@pytest.mark.parametrize(
    ("head", "without", "with_model"),
    [
        (session(""), True, True),
        (session("Rice", "fallback"), True, True),
        (session("Rice", "fallback", timedelta(minutes=-2)), False, True),
        (session("Rice at Home", "model", timedelta(minutes=-2)), False, False),
        (session("My own name"), False, False),
        (session("My own name", "fallback", text="Rice"), False, False),
        (session("", "model", text="Rice at Home"), True, True),
        (replace(HEAD, metadata={"title": "theirs"}), False, False),
    ],
    ids=["none", "new", "fallback", "model", "user", "renamed", "cleared", "foreign"],
)
def test_a_title_is_claimed_while_a_fallback_never_after_a_rename(
    head: Session, without: bool, with_model: bool
) -> None:
    """Without a model there is nothing to try again."""
    claims = [claim_title(head, "How?", EN, START, model=model) is not None for model in (False, True)]

    assert claims == [without, with_model]


def test_a_better_title_is_given_to_that_very_version() -> None:
    head = session("Rice", "fallback", timedelta(0))

    changes = title_changes(head, "Cooking Rice at Home", MODEL)

    assert changes is not None
    assert (changes.title, changes.if_version) == ("Cooking Rice at Home", 3)
    assert changes.metadata["title"]["by"] == "model"
    assert title_changes(head, None, MODEL) is None
    assert title_changes(session("Mine", "fallback", text="Rice"), "Cooking Rice at Home", MODEL) is None
    assert title_changes(replace(HEAD, metadata={"title": "theirs"}), "Cooking Rice at Home", MODEL) is None


@pytest.mark.parametrize("by", ["fallback", "model"])
def test_where_the_first_messages_were_removed_the_title_is_made_again(by: str) -> None:
    had = session("Rice at Home", by, timedelta(0))
    edited, going_on = replace(had, messages=1), replace(had, messages=3)

    claim = claim_title(edited, "", EN, START + timedelta(seconds=1))

    assert claim is not None
    assert claim.metadata["title"]["stale"] is True
    claimed = replace(edited, metadata=claim.metadata)
    better, plain = title_changes(claimed, "Noodles at Home", MODEL), title_changes(claimed, None, MODEL, "Noodles?")
    assert better is not None
    assert plain is not None
    assert (better.title, plain.title) == ("Noodles at Home", "Noodles?")
    assert "stale" not in better.metadata["title"]
    assert plain.metadata["title"]["by"] == "fallback"
    assert claim_title(going_on, "", EN, START + timedelta(seconds=1)) is None
    assert claim_title(replace(edited, title="Mine"), "", EN, START) is None
