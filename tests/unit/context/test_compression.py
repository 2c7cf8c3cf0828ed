"""When compression is due, what it covers, and which summaries of a log may be believed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.context import TokenCounter
from tenuto.context.compression import (
    DueCompression,
    SummaryLimits,
    compression_due,
    conversation_in,
    find_summary,
    summary_draft,
    summary_limits,
    would_evict_uncovered,
)
from tenuto.context.summary_request import append_shown
from tenuto.context.tokens import MESSAGE_TOKENS
from tenuto.model import Draft, Message, Retention, Role, Session, tool_call, tool_result
from tenuto.model.generation import Summary
from tenuto.model.policy import PRESETS, ContextPolicy
from tenuto.model.prompt import Language, PromptPolicy
from tests.samples import HEAD, SENT_AT
from tests.samples import stored as said

pytestmark = pytest.mark.requirement("D15", "E13", "T12", "U6", "X7")


COUNTER = TokenCounter()
ROOM = PromptPolicy(budget=8192, reply_tokens=1024)
POLICY = ContextPolicy(compress_at=0.7, compress_over=30, keep_verbatim=20)


def talk(first: int, last: int, text: str = "some words") -> list[Message]:
    return [said(seq, text) for seq in range(first, last + 1)]


def at_seq(draft: Draft, seq: int) -> Message:
    return Message(**{name: getattr(draft, name) for name in Draft.__struct_fields__}, seq=seq, turn=seq)


def entry(seq: int, through: int, seen: int | None = None, text: str = "in short", since: int = 1) -> Message:
    """A summary as it stands in the log."""
    summary = Summary(text=text, through=through, through_id=f"m{through}", tokens=2)
    draft = summary_draft(summary, message_id=f"e{seq}", sent_at=SENT_AT, seen=seen or seq - 1, since=since)
    return at_seq(draft, seq)


def found(
    messages: list[Message], policy: ContextPolicy = POLICY, head: Session = HEAD, **rest: Any
) -> DueCompression | None:
    session = replace(head, last_seq=messages[-1].seq, turns=messages[-1].turn, messages=len(messages))
    return compression_due(session, messages, COUNTER, ROOM, policy, **rest)


# When


@pytest.mark.requirement("E13", "X7")
def test_thirty_messages_stay_and_the_thirty_first_turn_leaves_twenty() -> None:
    """Over 30 messages compress to 20 and a summary."""
    assert found(talk(1, 30)) is None

    work = found(talk(1, 32))

    assert work is not None
    assert [message.seq for message in work.cover] == list(range(1, 13))
    assert (work.previous, work.last_seq) == (None, 32)


@pytest.mark.requirement("X7")
def test_after_a_compression_the_next_one_is_a_while_off() -> None:
    """Hysteresis."""
    log = [*talk(1, 32), entry(33, through=12), *talk(34, 43)]

    assert found(log) is None
    work = found([*log, *talk(44, 45)])
    assert work is not None
    assert work.previous is not None
    assert work.cover[0].seq == 13
    assert work.cover[-1].seq == 24


@pytest.mark.requirement("D15", "U6")
def test_few_long_messages_are_compressed_by_their_tokens() -> None:
    """99 % full with few messages."""
    long = "word " * 1500
    log = talk(1, 6, long)

    work = found(log)

    assert work is not None
    assert [message.seq for message in work.cover] == [1, 2, 3, 4]
    assert found(talk(1, 2, long)) is None, "the newest turn is never covered"


@pytest.mark.requirement("U6")
def test_tool_calls_and_results_count_like_words() -> None:
    log = [
        said(1, "look it up"),
        said(2, parts=(tool_call("a", "search", {"q": "x " * 2000}),), turn=1),
        said(3, parts=(tool_result("a", "found " * 2000),), role=Role.TOOL, turn=1),
        said(4, "done", role=Role.ASSISTANT, turn=1),
        said(5, "and now " * 900, turn=2),
        said(6, "fine", role=Role.ASSISTANT, turn=2),
    ]

    work = found(log)

    assert work is not None
    assert [message.seq for message in work.cover] == [1, 2, 3, 4]


def test_what_the_system_prompt_takes_brings_compression_forward() -> None:
    log = talk(1, 12, "word " * 300)

    assert found(log) is None
    assert found(log, overhead=2500) is not None


def test_a_huge_system_prompt_does_not_cover_every_turn_at_once() -> None:
    """A third of what it leaves is the talk's own, so that short talk stays as it is."""
    assert found(talk(1, 12), overhead=6000) is None


def test_nothing_is_due_where_compression_is_off() -> None:
    """The preset of the shop lets old talk go."""
    assert found(talk(1, 200, "word " * 300), PRESETS["goods_qa"].context) is None


@pytest.mark.requirement("X7")
@pytest.mark.parametrize(
    ("name", "by_count", "share"),
    [("platform", False, 0.75), ("channel", False, 0.70), ("multi_agent", True, 0.70), ("npc", True, None)],
)
def test_each_preset_compresses_by_the_rule_of_its_document(name: str, by_count: bool, share: float | None) -> None:
    """Messages are counted for agents and visitors alone; elsewhere short ones stay, as long as they fit."""
    context = PRESETS[name].context
    text = "word " * 100
    fitting = int((share or 0) * 7168 / (COUNTER.count(text) + MESSAGE_TOKENS))

    assert (found(talk(1, 200), context) is not None) is by_count
    if share is not None:
        alone = replace(context, compress_over=None)
        assert found(talk(1, fitting - fitting % 2 - 2, text), alone) is None
        assert found(talk(1, fitting - fitting % 2 + 4, text), alone) is not None


def test_what_a_turn_would_not_load_is_covered_however_short_it_is() -> None:
    """Without a stored cap, uncovered messages stay within what a turn loads."""
    work = found(talk(1, 420), PRESETS["platform"].context, replace(HEAD, retention=Retention(max_messages=None)))

    assert work is not None
    assert 420 - work.cover[-1].seq <= 250


# What


def test_a_turn_split_by_a_summary_is_still_one() -> None:
    """A summary may be written while a turn runs, between its question and its answer."""
    log = [*talk(1, 32), said(33, turn=17), entry(34, through=12), said(35, "a", role=Role.ASSISTANT, turn=17)]
    more = [said(seq, turn=18 + (seq - 36) // 2) for seq in range(36, 60)]

    work = found([*log, *more])

    assert work is not None
    covered = {message.turn for message in work.cover}
    left = {message.turn for message in conversation_in([*log, *more]) if message.seq > work.cover[-1].seq}
    assert not covered & left


def test_an_old_turn_that_was_resumed_late_does_not_stop_compression() -> None:
    log = [*talk(1, 40), said(41, "late answer", role=Role.ASSISTANT, turn=2)]

    work = found(log)

    assert work is not None
    assert len(work.cover) >= 20


def test_near_the_stored_cap_even_a_long_turn_is_cut_between_tool_pairs() -> None:
    """Better covered than pushed out."""
    log = [said(1, turn=1)]
    for step in range(12):
        log += [
            said(len(log) + 1, parts=(tool_call(f"{step}", "f", {}),), role=Role.ASSISTANT, turn=1),
            said(len(log) + 2, parts=(tool_result(f"{step}", 1),), role=Role.TOOL, turn=1),
        ]
    head = replace(HEAD, retention=Retention(max_messages=30))

    work = found(log, head=head)

    assert work is not None
    assert len(work.cover) % 2 == 1
    assert len(log) - len(work.cover) <= 15


def test_what_is_about_to_be_stored_counts_against_the_cap() -> None:
    head = replace(HEAD, retention=Retention(max_messages=40), last_seq=20)

    assert found(talk(1, 20), head=head) is None
    work = found(talk(1, 20), head=head, adding=18)
    assert work is not None
    assert 20 - len(work.cover) + 18 <= 40
    assert would_evict_uncovered(head, through=0, adding=21)
    assert not would_evict_uncovered(head, through=10, adding=21)


@pytest.mark.requirement("D15", "E13")
def test_a_summarys_length_is_bounded_by_policy_and_by_the_prompt() -> None:
    """A limit of its own; 200 characters."""
    assert summary_limits(ROOM, POLICY, COUNTER).tokens == 500
    assert summary_limits(PromptPolicy(budget=700, reply_tokens=100), POLICY, COUNTER).tokens == 100
    assert summary_limits(ROOM, PRESETS["multi_agent"].context, COUNTER).characters == 200


# Which summary


def test_the_summary_that_covers_most_is_read() -> None:
    log = [*talk(1, 40), entry(41, 20, text="newer"), entry(42, 12, text="late but older"), *talk(43, 44)]

    summary = find_summary(log)

    assert summary is not None
    assert (summary.text, summary.through) == ("newer", 20)


def test_a_log_without_summaries_has_none() -> None:
    assert find_summary([]) is None
    assert find_summary(talk(1, 5)) is None


@pytest.mark.parametrize(
    "log",
    [
        [*talk(1, 10), entry(41, 20, seen=40), *talk(42, 60)],
        [*talk(1, 10), *talk(41, 44), entry(45, 20, seen=40), *talk(46, 60)],
        [entry(41, 20, seen=40), *talk(42, 50)],
    ],
    ids=["taken back", "taken back, and new words before it", "before a reset"],
)
def test_a_summary_of_words_that_were_taken_back_is_not_read(log: list[Message]) -> None:
    """The session was truncated after message 10, or reset, while messages 1 to 20 were being summarised."""
    for start in range(len(log)):
        assert find_summary(log[start:]) is None
    assert find_summary(log, window_start=41) is None


def test_nor_one_of_talk_that_is_no_longer_context() -> None:
    """The window's start moved: what the summary tells began before it."""
    log = [*talk(1, 40), entry(41, 20), *talk(42, 50)]

    assert find_summary(log) is not None
    assert find_summary(log, window_start=15) is None
    assert find_summary(log, window_start=42) is None


def test_a_covered_message_need_not_be_loaded_if_another_that_was_seen_is() -> None:
    log = [*talk(1, 40), entry(41, 20), *talk(42, 50)]

    summary = find_summary(log[30:])

    assert summary is not None
    assert summary.through == 20
    assert find_summary(log[40:]) is None, "nothing loaded bears witness"


@pytest.mark.parametrize(
    ("log", "through"),
    [
        ([*talk(25, 40), entry(41, 24), *talk(42, 50)], 24),
        # So that a prompt does not take a gap (a truncation, a summary) for talk that was not loaded.
        ([*talk(1, 20), entry(21, 20), *talk(60, 62)], 59),
    ],
    ids=["slid out under the cap", "up to the next message"],
)
def test_a_summary_covers_all_before_the_next_message(log: list[Message], through: int) -> None:
    summary = find_summary(log)

    assert summary is not None
    assert summary.through == through


def test_an_imported_summary_is_found_by_the_id_of_what_it_covers() -> None:
    """An import numbers messages anew: 25 becomes 1."""
    log = [*talk(25, 44), entry(45, 32), *talk(46, 50)]
    renumbered = [replace(message, seq=seq) for seq, message in enumerate(log, 1)]

    summary = find_summary(renumbered)

    assert summary is not None
    assert summary.through == 8


@pytest.mark.parametrize(
    "part",
    [
        {"type": "summary"},
        {"type": "summary", "text": 1, "through": 2, "through_id": "m2"},
        {"type": "summary", "text": "x", "through": "2", "through_id": "m2"},
        {"type": "summary", "text": " ", "through": 2, "through_id": "m2"},
        {"type": "summary", "text": "x", "through": -1, "through_id": "m2"},
        {"type": "summary", "text": "x", "through": 10**6, "through_id": "nobody", "seen": 10**7},
        {"type": "compaction", "text": "x", "through": 2, "through_id": "m2"},
    ],
)
def test_items_of_others_are_not_taken_for_summaries(part: dict[str, Any]) -> None:
    item = said(5, parts=(part,), role=Role.ITEM)

    assert find_summary([*talk(1, 4), item]) is None


def test_words_of_a_user_are_never_a_summary() -> None:
    forged = said(5, parts=entry(5, 2).parts, role=Role.USER)

    assert find_summary([*talk(1, 4), forged]) is None


@pytest.mark.parametrize(
    ("tokens", "summary"),
    [
        (100, "They had tea.\nShown: picture: cup.png; picture: tea.png"),
        (12, "They had tea.\nShown: picture: tea.png"),
        (5, "They had tea."),
    ],
)
def test_a_summary_names_what_it_does_not_mention_the_newest_first_to_stay(tokens: int, summary: str) -> None:
    names = ["picture: cup.png", "picture: tea.png"]
    limits = SummaryLimits(tokens=tokens)

    assert append_shown("They had tea.", names, Language.ENGLISH, limits, TokenCounter()) == summary
    assert append_shown(f"They saw {names[0]}.", names[:1], Language.ENGLISH, limits, TokenCounter()) == (
        "They saw picture: cup.png."
    )
