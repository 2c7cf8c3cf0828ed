"""Hot topics: words people can read, raised by several users, of nobody's private data."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenuto.errors import Invalid
from tenuto.model import NewSession, Session
from tenuto.model.scope import Scope
from tenuto.sessions import analytics
from tenuto.sessions.analytics import Analytics
from tenuto.sessions.topics import MIN_USERS, count_topics
from tenuto.sessions.usage import UsageLedger
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ACME, ANN, HEAD, begin

pytestmark = pytest.mark.requirement("C14")


def titled(*titles: str, users: Iterable[str | None] = ("ann", "bob", "cai")) -> list[Session]:
    """A session of each title for each user."""
    return [replace(HEAD, title=title, scope=Scope(tenant="acme", user=user)) for user in users for title in titles]


def names(sessions: Iterable[Session]) -> list[str]:
    return [topic.name for topic in count_topics(sessions, 20)]


def test_words_count_by_their_stem_and_are_shown_as_they_are_mostly_written() -> None:
    sessions = titled("Refund for my Kubernetes course", "How do refunds work?", "The refund, please")

    found = {topic.name: (topic.sessions, topic.users) for topic in count_topics(sessions, 20)}

    assert found == {"refund": (9, 3), "Kubernetes": (3, 3), "course": (3, 3), "work": (3, 3)}


def test_chinese_topics_are_whole_words_and_no_pairs_of_neighbours() -> None:
    sessions = titled("我想了解博物馆", "博物馆的门票", "如何去博物馆", "门票多少钱", "门票的价格")

    assert names(sessions)[:2] == ["博物馆", "门票"]
    assert not {"博物", "物馆", "馆的"} & {*names(sessions)}


def test_a_frequent_part_of_a_rarer_phrase_is_a_topic_beside_it() -> None:
    sessions = [*titled("退款流程"), *titled("退款", "退款进度", "申请退款")]

    assert names(sessions)[0] == "退款"
    assert "退款流程" in names(sessions)
    assert "款流" not in names(sessions)


def test_a_topic_that_too_few_users_raised_is_not_shown() -> None:
    few = titled("divorce lawyer", "离婚律师", users=["ann", "bob"] * 10)

    assert MIN_USERS == 3
    assert names(few) == []
    assert names([*few, *titled("divorce", "离婚", users=["cai"])]) == ["divorce", "离婚"]


@pytest.mark.parametrize(
    ("users", "counts"),
    [
        ([None] * 3, [(3, 0)]),
        ([None] * 2, []),
        (["ann", None, None], [(3, 1)]),
        (["ann", "ann", "ann", None], []),
        (["ann", "bob", "cai", None], [(4, 3)]),
    ],
)
def test_each_session_without_a_user_counts_as_one_who_raised_it(
    users: list[str | None], counts: list[tuple[int, int]]
) -> None:
    """Visitors cannot be told apart, and their sessions name nobody."""
    for title, name in (("Making salt", "salt"), ("晒盐工艺", "晒盐工艺")):
        topics = count_topics(titled(title, users=users), 9)

        assert [(topic.sessions, topic.users) for topic in topics if topic.name == name] == counts


@pytest.mark.parametrize("title", ["[REDACTED_EMAIL]", "[EMAIL_1]", "[WITHHELD]", "[REDACTED_CRED...", "2026 7 ?!", ""])
def test_placeholders_and_numbers_are_no_topics(title: str) -> None:
    assert names(titled(title)) == []


def test_one_session_counts_once_for_a_topic_and_the_limit_holds() -> None:
    sessions = titled("refund refund Refunds refunding", "alpha", "beta")

    assert [(topic.name, topic.sessions) for topic in count_topics(sessions, 2)] == [("alpha", 3), ("beta", 3)]


def test_a_repeated_long_title_is_one_topic_and_takes_no_time() -> None:
    sessions = titled("天地玄黄宇宙洪荒日月盈昃辰宿列张" * 20, users=map(str, range(500)))

    assert len(names(sessions)) == 1


async def _store_with(titles: Iterable[tuple[str, Scope]], clock: FakeClock) -> Analytics:
    store = MemoryStore(clock=clock)
    for number, (title, scope) in enumerate(titles):
        await begin(store, scope, f"s{number}", create=NewSession(title=title))
    return Analytics(ledger=UsageLedger(state=store.state, clock=clock), sessions=store.sessions, clock=clock)


USERS = [Scope(tenant="acme", user=f"user {number}") for number in range(4)]


@pytest.mark.requirement("C14")
def test_a_topic_is_counted_by_the_day_of_each_sessions_last_change() -> None:
    """Topics over time."""
    words = titled("Refund 退款") + [
        replace(session, updated_at=HEAD.updated_at + timedelta(days=2)) for session in titled("refund", "退款")
    ]
    first, last = HEAD.updated_at.date(), (HEAD.updated_at + timedelta(days=2)).date()

    assert [(topic.name, topic.days) for topic in count_topics(words, 9)] == [
        ("refund", {first: 3, last: 3}),
        ("退款", {first: 3, last: 3}),
    ]


async def test_topics_are_those_of_the_period_and_the_site() -> None:
    clock = FakeClock()
    elsewhere = [Scope(tenant="acme", site="museum", user=f"user {number}") for number in range(4)]
    both = [("refund", scope) for scope in USERS] + [("opening hours", scope) for scope in elsewhere]
    read = await _store_with(both, clock)

    here = await read.topics(ACME)
    clock.advance(timedelta(days=1))
    today, two_days = await read.topics(ACME, days=1), await read.topics(ACME, days=2)

    assert [(topic.name, topic.sessions, topic.users) for topic in here.topics] == [("refund", 4, 4)]
    assert (here.sessions, here.truncated, (here.last_day - here.first_day).days) == (4, False, 6)
    assert (today.sessions, today.topics) == (0, ())
    assert two_days.topics == here.topics


async def test_only_the_newest_sessions_are_read_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytics, "MOST_SESSIONS", 3)
    monkeypatch.setattr(analytics, "_PAGE", 2)
    clock = FakeClock()
    cut = await _store_with([("refund", scope) for scope in USERS], clock)
    whole = await _store_with([("refund", scope) for scope in USERS[:3]], clock)

    assert [(report.sessions, report.truncated) for report in (await cut.topics(ACME), await whole.topics(ACME))] == [
        (3, True), (3, False)
    ]  # fmt: skip


@pytest.mark.parametrize("scope", [ANN, Scope(tenant="acme", chat="c"), Scope(tenant="acme", visitor=True)])
async def test_a_user_or_chat_has_no_analytics(scope: Scope) -> None:
    read = await _store_with([], FakeClock())

    for call in (read.usage(scope), read.topics(scope)):
        with pytest.raises(Invalid):
            await call


@pytest.mark.parametrize("wrong", [{"days": 0}, {"days": 401}, {"limit": 0}, {"limit": 101}, {"days": "7"}])
async def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    read = await _store_with([], FakeClock())

    with pytest.raises(Invalid):
        await read.topics(ACME, **wrong)
