"""Titles: the fallback, the rules, phrases of the talk, and whose title it is (A15-A18, A24, A29, T13, U3)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tenuto.model import Keeping, NewSession, Session
from tenuto.model.graphemes import graphemes
from tenuto.model.prompt import Language
from tenuto.model.session import checked_title
from tenuto.sessions.title_phrases import stem
from tenuto.sessions.title_rules import SMALL, length
from tenuto.sessions.titles import (
    By,
    clipped,
    fallback,
    from_talk,
    made,
    named,
    opening_changes,
    tidy,
    title_request,
    titled,
    wanted,
)
from tests.clock import START
from tests.samples import ANN

EN, ZH = Language.ENGLISH, Language.CHINESE
FAMILY = "👨‍👩‍👧"


# The fallback


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
    ],
)
def test_the_fallback_is_the_first_line_cut_at_forty_characters(question: str, title: str) -> None:
    """A17; a character is what a reader sees as one, so that no family is torn apart."""
    assert fallback(question) == title


def test_a_question_without_words_has_a_name_too() -> None:
    assert fallback(" \n\t ") == "New conversation"
    assert fallback("", ZH) == "新对话"


def test_a_title_of_more_than_sixty_characters_keeps_fifty_seven() -> None:
    """A18, and A24 with another limit."""
    assert clipped("x" * 60) == "x" * 60
    assert clipped("x" * 61) == "x" * 57 + "..."
    assert clipped("家" * 61) == "家" * 57 + "..."
    assert clipped(FAMILY * 51, 50) == FAMILY * 47 + "..."


odd = st.lists(st.sampled_from([FAMILY, "e\u0301", "x", " ", "\n", "家", "\u0301" * 300])).map("".join)


@given(st.one_of(st.text(), odd))
def test_any_question_gives_a_title_that_every_store_keeps(question: str) -> None:
    if "\0" in question or any("\ud800" <= character <= "\udfff" for character in question):
        return

    title = fallback(question)

    assert checked_title(title)
    assert len(graphemes(title)) <= 43


# The rules


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ('"Planning a Trip to Japan."', "Planning a Trip to Japan"),
        ("Title: **python async basics** 🚀", "Python Async Basics"),
        ("'Cooking Rice at Home!'", "Cooking Rice at Home"),
        ("<think>Let me see.</think>\n\nDebugging SQLite WAL Mode", "Debugging SQLite WAL Mode"),
        ('Here is a title: "iPhone vs Android Phones"', "iPhone vs Android Phones"),
        ("# John's New API Key\n\nHope you like it!", "John's New API Key"),
        ("HOW TO COOK RICE", "How to Cook Rice"),
        ("planning a two week trip to japan in spring", "Planning Two Week Trip Japan"),
        ("[REDACTED_EMAIL] Writes to [PHONE_1].", "[REDACTED_EMAIL] Writes to [PHONE_1]"),
        ("(Mail from [REDACTED_EMAIL], Unread)", "Mail from [REDACTED_EMAIL] Unread"),
        ("Weather", None),
        ("Trip Planning", None),
        ("I think a good title for this would be something about cats", None),
        ("严氏家训孝悌之道", None),
        ("I'm sorry, I cannot help", None),
        ("I’m sorry, but I can't.", None),
        ("Sorry, I cannot do that", None),
        ("As an AI Language Model", None),
        ("Unfortunately I cannot help", None),
        ("Sorry Seems Hardest Word", "Sorry Seems Hardest Word"),
        ("<b>Cooking Rice at Home</b>", "Cooking Rice at Home"),
        ("<script>alert('x')</script>Cooking Rice at Home", "Cooking Rice at Home"),
        ("Cooking <i>Rice</i> at<br/> Home", "Cooking Rice at Home"),
        ("<script>alert(1)</script>", None),
        ("", None),
        ("🚀🚀🚀", None),
        ("Title:", None),
    ],
)
def test_an_english_title_has_three_to_five_words_in_title_case(said: str, title: str | None) -> None:
    """A15."""
    assert tidy(said, EN) == title


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("《严氏家训孝悌之道》", "严氏家训孝悌之道"),
        ("标题：“推荐性价比手机”。", "推荐性价比手机"),
        ("Python异步编程入门😀", "Python异步编程入门"),
        ("关于严氏家规中孝悌之道的历史渊源与现代意义探讨", "关于严氏家规中孝悌之道"),
        ("手机推荐，适合学生使用的高性价比手机对比分析", None),
        ("抱歉，我无法为您提供帮助", None),
        ("对不起，这个问题我不能回答", None),
        ("无法连接数据库的原因", "无法连接数据库的原因"),
        ("<p>推荐性价比手机</p>", "推荐性价比手机"),
        ("春季两周日本旅行的行程安排以及预算和住宿建议", "春季两周日本旅行的行程安排"),
        ("高性能服务器并发编程模型与异步框架性能对比研究", "高性能服务器并发编程模型"),
        ("可以在线学习的平台推荐以及它们各自的优点与缺点", "可以在线学习的平台推荐"),
        ("天气", None),
        ("Planning a Trip to Japan", None),
    ],
)
def test_a_chinese_title_has_five_to_fifteen_characters(said: str, title: str | None) -> None:
    """A15."""
    assert tidy(said, ZH) == title


NOISE = [
    "plan",
    "Trip",
    "to",
    "JAPAN",
    "“",
    "”",
    '"',
    "`",
    "**",
    "🚀",
    "家训",
    "孝悌",
    "的",
    "。",
    "!",
    "?",
    ":",
    "Title:",
    " ",
    "\n",
    "-",
    "标题：",
    "'",
    "《",
    "》",
    "…",
    "iPhone",
    "3",
    "\u200d",
]
noise = st.lists(st.sampled_from(NOISE), max_size=14)


@given(noise, st.sampled_from(["", " "]), st.sampled_from(Language))
def test_whatever_a_model_says_the_title_keeps_the_rules_or_there_is_none(
    parts: list[str], glue: str, language: Language
) -> None:
    title = tidy(glue.join(parts), language)

    if title is None:
        return
    assert checked_title(title) == title.strip()
    assert not set(title) & set('"“”`*🚀\u200d')
    assert title[-1] not in "。.!?！？,，;；:：…-"
    if language is ZH:
        assert 5 <= length(title) <= 15
    else:
        words = title.split()
        assert 3 <= len(words) <= 5
        # A word with a capital inside is a name, and stays as it is written.
        assert all(not word[0].islower() or word in SMALL or word != word.lower() for word in words)


def test_the_model_is_asked_in_the_language_of_the_talk() -> None:
    assert "3 to 5 words" in title_request("Hi", "Hello", EN)[0]
    assert "5到15个汉字" in title_request("你好", "您好", ZH)[0]
    assert len(title_request("x" * 10**6, "y" * 10**6, EN)[1]) < 2000


# Without a model


@pytest.mark.parametrize(
    ("question", "answer", "title"),
    [
        (
            "Can you help me plan a two-week trip to Japan in spring?",
            "A two-week trip to Japan in spring could start in Tokyo.",
            "Plan Two-Week Trip to Japan",
        ),
        ("How do I configure SQLite WAL mode for writers?", "Use PRAGMA journal_mode.", "Configure SQLite WAL Mode"),
        ("How tall is the Ancestral Hall?", "The Ancestral Hall is twelve metres tall.", "Ancestral Hall Height"),
        ("How expensive are the red phones?", "They cost 99.", "Red Phones Price"),
        ("How long does it take to fly to Japan?", "Twelve hours.", "Fly to Japan"),
        ("How sweet is the Green Mountain Tea?", "Not very.", "Green Mountain Tea"),
        ("What's the weather in Paris tomorrow?", "I cannot know that.", "Weather in Paris Tomorrow"),
        ("Do you have phones under 3000?", "We have three.", "Phones Under 3000"),
        ("hello", "Hi! How can I help?", None),
        ("ok", "ok", None),
        ("The train leaves at 7:40", "Noted.", "Train Leaves at 7:40"),
        ("My train leaves at 7:40 from platform 3", "Noted.", "Train Leaves at 7:40"),
        ("The phone costs $1,299.99 at the store", "Yes.", "Phone Costs $1,299.99 at Store"),
        ("How do I upgrade to Python 3.12.4?", "With pip.", "Upgrade to Python 3.12.4"),
        ("What's the price of v2.0.1-rc1 release", "Free.", "Price of v2.0.1-rc1 Release"),
        ("don't forget mother-in-law's birthday", "Ok.", "Don't Forget Mother-in-Law's Birthday"),
        ("AT&T's network is down 50% today", "Oh.", "AT&T's Network is Down 50%"),
        ("2-for-1 pizza deals near me", "Three.", "2-for-1 Pizza Deals Near"),
        ("ratio 16:9 monitors for work", "Many.", "Ratio 16:9 Monitors for Work"),
        ("Please open https://example.com/a/b.html?x=1 and summarise it", "No.", "Open example.com and Summarise"),
        ("fix `foo_bar(x)` in main.py", "Done.", "Fix foo_bar in main.py"),
        ("see /etc/nginx/nginx.conf for the proxy settings", "Yes.", "See nginx.conf for Proxy Settings"),
        ("def add(a, b): return a + b", "Nice.", None),
        ("What's 1/2 + 3/4?", "5/4", None),
        ("my email is ann@example.com please remember", "Noted.", None),
        ("Book the garden tour for [REDACTED_PERSON] on Monday", "Noted.", "Book Garden Tour"),
        ("My mail is [REDACTED_EMAIL], my card is [REDACTED_CC].", "Noted.", None),
        ("cheap phones", "I found 5 phones. The cheapest phone costs 299.", None),
        ("phones", "Found phones: the phone rated best is this one.", None),
        ("most expensive laptop", "The most expensive of our laptops is this one.", None),
        ("order status", "Your orders: order 1 is on its way.", None),
        ("compare phone to phones of last year", "Well.", "Phones of Last Year"),
    ],
)
def test_an_english_phrase_of_the_question_makes_a_title(question: str, answer: str, title: str | None) -> None:
    assert from_talk(question, answer, EN) == title


@pytest.mark.parametrize(
    ("question", "answer", "title"),
    [
        ("你好，请问严氏家训里关于孝悌的内容有哪些？", "严氏家训强调孝悌为本", "严氏家训里关于孝悌的内容"),
        ("推荐性价比高的手机", "为您推荐三款性价比高的手机", "性价比高的手机"),
        ("怎么用Python读取Excel文件", "可以用pandas", "Python读取Excel文件"),
        (
            "我想了解一下明代族谱的历史背景和现代意义以及它对今天家庭教育的影响",
            "明代族谱",
            "明代族谱的历史背景和现代意义",
        ),
        ("孝悌是什么意思？", "孝悌是指孝顺父母、敬爱兄长。", "孝悌是什么意思"),
        ("手机", "找到 32 款手机：", None),
        ("便宜的手机", "找到 5 款手机", "便宜的手机"),
        ("你好", "您好", None),
        ("火车7:40出发", "记下了", "火车7:40出发"),
        ("明天7：40的火车还有票吗", "有", "明天7：40的火车还有票"),
        ("屏幕比例16:9的显示器", "有三款", "屏幕比例16:9的显示器"),
        ("怎么升级到Python 3.12.4", "用pip", "升级到Python 3.12.4"),
        ("请打开https://example.com/docs/index.html看看", "不行", "打开example.com看看"),
        ("这部手机价格是1,299.99元", "对", None),
    ],
)
def test_a_chinese_phrase_of_the_question_makes_a_title(question: str, answer: str, title: str | None) -> None:
    assert from_talk(question, answer, ZH) == title


TOPICS = ["phone", "Phones", "cheap", "order", "orders", "laptop's", "laptops", "rated", "the", "of", "?", "."]


@given(st.lists(st.sampled_from(TOPICS), max_size=10), st.lists(st.sampled_from(TOPICS), max_size=10))
def test_a_phrase_says_no_word_twice_and_none_that_was_not_asked(asked: list[str], answered: list[str]) -> None:
    title = from_talk(" ".join(asked), " ".join(answered), EN)

    words = [word.lower() for word in (title or "").split() if word.lower() not in SMALL]
    assert len({stem(word) for word in words}) == len(words)
    assert set(words) <= {word.lower() for word in asked}


@given(st.text(max_size=200), st.text(max_size=200), st.sampled_from(Language))
def test_a_phrase_keeps_the_rules_too(question: str, answer: str, language: Language) -> None:
    title = from_talk(question, answer, language)

    assert title is None or tidy(title, language) == title


# Whose title it is

HEAD = Session(
    id="s",
    scope=ANN,
    incarnation="i",
    created_at=START,
    updated_at=START,
    expires_at=None,
    keeping=Keeping(),
    version=3,
)


def session(title: str, by: By | None = None, tried_at: timedelta | None = None, text: str | None = None) -> Session:
    metadata = {}
    if by is not None:
        metadata["title"] = {"by": by, "text": title if text is None else text}
        if tried_at is not None:
            metadata["title"]["tried_at"] = (START + tried_at).isoformat()
    return replace(HEAD, title=title, metadata=metadata)


def test_the_first_turn_claims_the_title_and_the_next_does_not() -> None:
    """T13: one call, however many requests: whoever comes within the minute finds it claimed."""
    changes = opening_changes(HEAD, "How do I cook rice?", EN, START)
    assert changes is not None
    claimed = replace(HEAD, metadata=changes.metadata)

    assert made(claimed) is not None
    assert opening_changes(claimed, "And noodles?", EN, START + timedelta(seconds=59)) is None
    assert opening_changes(claimed, "And noodles?", EN, START + timedelta(seconds=60)) is not None


def test_a_claim_does_not_write_the_title() -> None:
    """A name given while the first answer is made must not be overwritten when it is stored."""
    changes = opening_changes(HEAD, "How do I cook rice?", EN, START)

    assert changes is not None
    assert changes.title is UNSET


def test_a_session_is_born_with_its_fallback_unless_it_has_a_name() -> None:
    born = named(NewSession(metadata={"assistant": "general"}), "How do I cook rice?", EN)

    assert born.title == "How do I cook rice?"
    assert born.metadata == {"assistant": "general", "title": {"by": "fallback", "text": "How do I cook rice?"}}
    assert named(NewSession(title="Mine"), "How?", EN) == NewSession(title="Mine")
    newborn = replace(HEAD, title=born.title, metadata=born.metadata)
    assert opening_changes(newborn, "How do I cook rice?", EN, START) is not None


@pytest.mark.parametrize(
    ("head", "without", "with_model"),
    [
        (session(""), True, True),
        (session("Rice", By.FALLBACK), True, True),
        (session("Rice at Home", By.EXTRACT), False, True),
        (session("Rice at Home", By.MODEL), False, False),
        (session("My own name"), False, False),
        (session("My own name", By.FALLBACK, text="Rice"), False, False),
        (session("", By.MODEL, text="Rice at Home"), True, True),
    ],
    ids=["none", "fallback", "extract", "model", "user", "renamed", "cleared"],
)
def test_a_title_is_wanted_while_it_is_a_fallback_and_never_after_a_rename(
    head: Session, without: bool, with_model: bool
) -> None:
    """A16, A29, U3."""
    assert (wanted(head), wanted(head, model=True)) == (without, with_model)


def test_a_better_title_is_given_to_that_very_version() -> None:
    head = session("Rice", By.FALLBACK, timedelta(0))

    changes = titled(head, "Cooking Rice at Home", By.MODEL)

    assert changes is not None
    assert (changes.title, changes.if_version) == ("Cooking Rice at Home", 3)
    assert changes.metadata["title"]["by"] == "model"
    assert titled(head, None, By.MODEL) is None
    assert titled(session("Mine", By.FALLBACK, text="Rice"), "Cooking Rice at Home", By.MODEL) is None


@pytest.mark.parametrize("by", By)
def test_where_the_first_words_were_taken_back_the_title_is_made_anew(by: By) -> None:
    had = session("Rice at Home", by, timedelta(0))
    edited, going_on = replace(had, messages=1), replace(had, messages=3)

    claim = opening_changes(edited, "", EN, START + timedelta(seconds=1))

    assert claim is not None
    assert claim.metadata["title"]["stale"] is True
    claimed = replace(edited, metadata=claim.metadata)
    better, plain = titled(claimed, "Noodles at Home", by), titled(claimed, None, by, "Noodles?")
    assert better is not None
    assert plain is not None
    assert (better.title, plain.title) == ("Noodles at Home", "Noodles?")
    assert "stale" not in better.metadata["title"]
    assert plain.metadata["title"]["by"] == "fallback"
    assert opening_changes(going_on, "", EN, START + timedelta(seconds=1)) is None
    assert opening_changes(replace(edited, title="Mine"), "", EN, START) is None


def test_what_others_keep_under_our_name_is_left_alone() -> None:
    foreign = replace(HEAD, metadata={"title": "theirs"})

    assert opening_changes(foreign, "How?", EN, START) is None
    assert titled(foreign, "Cooking Rice at Home", By.MODEL) is None


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("words", ["的", "和的", "好", "1. ", "(", "title: ", "!", "怎么样"])
def test_a_title_of_any_text_is_found_at_once(words: str) -> None:
    """So often that trying every beginning with every end takes half a minute."""
    text = (words * 2000)[:1999] + "x"

    for language in Language:
        for _ in range(10):
            assert len(tidy(text, language) or "") <= 60
            assert len(from_talk(text, text, language) or "") <= 60
