"""A prompt within its budget: who gets room first, what is cut, what a bad budget is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.context import TokenCounter, assemble, check_budget, inputs_from_turn
from tenuto.errors import InvalidSetting
from tenuto.model import Message, OpenTurn, Role, Scope, TurnState
from tenuto.model.message import tool_call, tool_result
from tenuto.model.policy import PRESETS, ContextPolicy
from tenuto.model.prompt import (
    Disposition,
    Kind,
    Language,
    LayoutName,
    ManifestEntry,
    Piece,
    PromptInputs,
    PromptPolicy,
    Reason,
)
from tests.samples import HEAD, SENT_AT, stored

COUNTER = TokenCounter()
FREE = ContextPolicy()


def said(seq: int, text: str, **fields: Any) -> Message:
    """A message whose place tells who spoke."""
    return COUNTER.with_count(stored(seq, text, **fields))


def talk(count: int, text: str = "some words about the family rules") -> tuple[Message, ...]:
    """So many messages."""
    return tuple(said(seq, f"{text} {seq}") for seq in range(1, count + 1))


def entries(materials: PromptInputs, policy: PromptPolicy, context: ContextPolicy = FREE) -> list[ManifestEntry]:
    """The manifest's entries."""
    return list(assemble(materials, policy, context, COUNTER).manifest.entries)


def of(kind: Kind, found: list[ManifestEntry]) -> list[ManifestEntry]:
    """The entries of a kind."""
    return [entry for entry in found if entry.kind is kind]


@pytest.mark.requirement("S4")
def test_a_message_above_the_budget_is_cut_visibly_and_not_dropped() -> None:
    """The newest message alone exceeds the budget."""
    materials = PromptInputs(question="and now?", history=(said(1, "家训 " * 20_000),), language=Language.CHINESE)

    prompt = assemble(materials, PromptPolicy(budget=1200, reply_tokens=200), FREE, COUNTER)

    shown = prompt.messages[0].text
    assert shown.startswith("家训 家训")
    assert shown.endswith("家训 ")
    assert "有删节" in shown
    assert prompt.manifest.total <= 1000
    assert of(Kind.MESSAGE, list(prompt.manifest.entries))[0].reason is Reason.MESSAGE_CAP


@pytest.mark.requirement("E20")
def test_every_message_is_capped_and_the_same_way_each_turn() -> None:
    """A cap of its own for each message, whatever else is in the prompt."""
    policy = PromptPolicy(budget=4000, reply_tokens=0, message_tokens=50)
    history = (said(1, "word " * 900), said(2, "short"))

    first = assemble(PromptInputs(question="a", history=history), policy, FREE, COUNTER)
    second = assemble(PromptInputs(question="b", history=(*history, said(3, "a"), said(4, "x"))), policy, FREE, COUNTER)

    assert COUNTER.count(first.messages[0].text) <= 50
    assert first.messages[0] == second.messages[0]


def test_a_question_above_the_budget_is_cut_visibly() -> None:
    """A question of a megabyte is answered as far as it can be read."""
    prompt = assemble(
        PromptInputs(question="why " * 260_000), PromptPolicy(budget=2000, reply_tokens=500), FREE, COUNTER
    )

    assert "left out" in prompt.messages[-1].text
    assert prompt.manifest.total <= 1500
    assert of(Kind.QUESTION, list(prompt.manifest.entries))[0].disposition is Disposition.CUT


def test_a_budget_below_the_system_prompt_is_refused_at_start() -> None:
    with pytest.raises(InvalidSetting, match="budget: 500 tokens") as excinfo:
        check_budget(PromptPolicy(budget=500, reply_tokens=100), "be kind " * 400, COUNTER)

    assert excinfo.value.setting == "budget"
    assert "be kind" not in str(excinfo.value)
    check_budget(PromptPolicy(budget=1500, reply_tokens=100), "be kind " * 400, COUNTER)


def test_a_margin_narrows_the_budget() -> None:
    """A tokenizer we do not have gets room for its worse counts."""
    check_budget(PromptPolicy(budget=1100, reply_tokens=100), "be kind " * 400, COUNTER)
    with pytest.raises(InvalidSetting):
        check_budget(PromptPolicy(budget=1100, reply_tokens=100), "be kind " * 400, TokenCounter(margin=1.5))


def test_a_system_prompt_that_grew_too_large_is_refused_in_the_turn() -> None:
    with pytest.raises(InvalidSetting, match="leave no room"):
        assemble(
            PromptInputs(question="?", system="x y " * 900), PromptPolicy(budget=900, reply_tokens=0), FREE, COUNTER
        )


@pytest.mark.requirement("T20")
@pytest.mark.parametrize(
    "settings",
    [
        {"budget": 100, "reply_tokens": 100},
        {"reply_tokens": -1},
        {"message_tokens": 3},
        {"trim_share": 1.0},
        {"recall_share": -0.1},
    ],
)
def test_contradictory_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        PromptPolicy(**settings)


def test_the_newest_turn_outranks_summary_recall_and_older_turns() -> None:
    materials = PromptInputs(
        question="and?",
        summary="earlier they talked about tea " * 40,
        evidence=tuple(Piece(id=f"e{n}", text="a fact " * 60) for n in range(5)),
        memories=(Piece(id="m", text="likes tea " * 60),),
        history=(*talk(10), said(11, "which one? " * 60), said(12, "the first " * 60)),
    )

    found = entries(materials, PromptPolicy(budget=560, reply_tokens=0))

    newest = [entry for entry in of(Kind.MESSAGE, found) if entry.first in (11, 12)]
    assert all(entry.disposition in (Disposition.KEPT, Disposition.CUT) for entry in newest)
    assert [entry.disposition for entry in of(Kind.EVIDENCE, found)] == [Disposition.DROPPED] * 5
    oldest = of(Kind.MESSAGE, found)[0]
    assert (oldest.first, oldest.last, oldest.reason) == (1, 10, Reason.OVER_BUDGET)


def test_older_turns_leave_recall_its_share_and_evidence_goes_before_memories() -> None:
    materials = PromptInputs(
        question="and?",
        history=talk(400),
        evidence=tuple(Piece(id=f"e{n}", text="a fact " * 100) for n in range(3)),
        memories=tuple(Piece(id=f"m{n}", text="likes tea " * 100) for n in range(3)),
    )

    found = entries(materials, PromptPolicy(budget=2000, reply_tokens=0, recall_share=0.4))

    assert sum(entry.tokens for entry in found if entry.kind in (Kind.EVIDENCE, Kind.MEMORY)) >= 700
    assert all(entry.disposition is Disposition.KEPT for entry in of(Kind.EVIDENCE, found))
    assert any(entry.disposition is Disposition.DROPPED for entry in of(Kind.MEMORY, found))


def test_recall_may_use_what_the_talk_does_not_need() -> None:
    evidence = tuple(Piece(id=f"e{n}", text="a fact " * 100) for n in range(6))

    found = entries(
        PromptInputs(question="?", history=talk(2), evidence=evidence), PromptPolicy(budget=2000, reply_tokens=0)
    )

    assert [entry.disposition for entry in of(Kind.EVIDENCE, found)] == [Disposition.KEPT] * 6


def test_what_the_summary_covers_is_summarised_and_not_shown() -> None:
    found = entries(
        PromptInputs(question="?", summary="They met.", summarized_through=6, history=talk(10)), PromptPolicy()
    )

    messages = of(Kind.MESSAGE, found)
    assert (messages[0].disposition, messages[0].first, messages[0].last, messages[0].count) == (
        Disposition.SUMMARISED,
        1,
        6,
        6,
    )
    assert [entry.first for entry in messages[1:]] == [7, 8, 9, 10]


def test_without_its_summary_nothing_counts_as_covered() -> None:
    """A message is raw or told by a summary."""
    found = entries(PromptInputs(question="?", summarized_through=6, history=talk(10)), PromptPolicy())

    assert [entry.disposition for entry in of(Kind.MESSAGE, found)] == [Disposition.KEPT] * 10


@pytest.mark.requirement("B10")
def test_an_irrelevant_history_is_left_out_with_its_summary() -> None:
    found = entries(
        PromptInputs(question="?", summary="They met.", summarized_through=2, history=talk(6), history_relevant=False),
        PromptPolicy(),
    )

    assert {entry.reason for entry in found if entry.kind in (Kind.SUMMARY, Kind.MESSAGE)} == {Reason.IRRELEVANT}


@pytest.mark.requirement("C3", "C4")
def test_the_npc_preset_shows_ten_messages_and_four_thousand_characters() -> None:
    """The last ten messages; fewer where they are long; dropped from the oldest."""
    policy, context = PromptPolicy(layout=LayoutName.MARKED), PRESETS["npc"].context

    short = of(Kind.MESSAGE, entries(PromptInputs(question="?", history=talk(30)), policy, context))
    long = of(Kind.MESSAGE, entries(PromptInputs(question="?", history=talk(30, "长" * 700)), policy, context))

    assert [entry.first for entry in short if entry.disposition is Disposition.KEPT] == list(range(21, 31))
    assert short[0].reason is Reason.WINDOW_MESSAGES
    assert [entry.first for entry in long if entry.disposition is Disposition.KEPT] == list(range(27, 31))
    assert long[0].reason is Reason.WINDOW_CHARACTERS


@pytest.mark.requirement("C3")
def test_a_window_of_messages_does_not_count_tool_calls() -> None:
    """Four stored messages a turn, two of them spoken."""
    history: list[Message] = []
    for turn in range(1, 5):
        call, result = tool_call("c", "look", {}), tool_result("c", "found")
        seq = len(history) + 1
        history += [
            said(seq, "question", turn=turn, role=Role.USER),
            said(seq + 1, "", turn=turn, role=Role.ASSISTANT, parts=(call,)),
            said(seq + 2, "", turn=turn, role=Role.TOOL, parts=(result,)),
            said(seq + 3, "answer", turn=turn, role=Role.ASSISTANT),
        ]

    context = ContextPolicy(window_messages=4)
    found = of(Kind.MESSAGE, entries(PromptInputs(question="?", history=tuple(history)), PromptPolicy(), context))

    assert [entry.first for entry in found if entry.disposition is Disposition.KEPT] == list(range(9, 17))


@pytest.mark.requirement("C4", "S4")
def test_one_npc_message_above_four_thousand_characters_is_cut() -> None:
    prompt = assemble(
        PromptInputs(question="?", history=(said(1, "长" * 6000),), language=Language.CHINESE),
        PromptPolicy(budget=20_000),
        PRESETS["npc"].context,
        COUNTER,
    )

    assert len(prompt.messages[0].text) <= 4000
    assert "6000 字，有删节" in prompt.messages[0].text


@pytest.mark.requirement("B9")
def test_the_goods_preset_shows_ten_turns() -> None:
    found = entries(PromptInputs(question="?", history=talk(60)), PromptPolicy(), PRESETS["goods_qa"].context)

    assert [entry.first for entry in of(Kind.MESSAGE, found) if entry.disposition is Disposition.KEPT] == list(
        range(41, 61)
    )


@pytest.mark.requirement("C13")
def test_an_isolated_persona_sees_its_own_turns_only() -> None:
    """Another persona's talk does not mix in."""
    history = tuple(replace(message, persona="a" if message.turn % 2 else "b") for message in talk(8))

    found = entries(PromptInputs(question="?", history=history, persona="a", isolated=True), PromptPolicy())

    shown = [entry.first for entry in of(Kind.MESSAGE, found) if entry.disposition is Disposition.KEPT]
    assert shown == [1, 2, 5, 6]
    assert {entry.reason for entry in of(Kind.MESSAGE, found) if entry.disposition is Disposition.DROPPED} == {
        Reason.OTHER_PERSONA
    }


@pytest.mark.requirement("C13", "T12")
def test_turns_of_others_between_trimmed_ones_are_told_once() -> None:
    """Every message has one entry, whatever lies between those that had to go."""
    history = tuple(replace(message, persona="a" if message.turn % 2 else "b") for message in talk(40))
    policy = PromptPolicy(budget=220, reply_tokens=0, trim_share=0.6)

    found = of(Kind.MESSAGE, entries(PromptInputs(question="?", history=history, persona="b", isolated=True), policy))

    told = [seq for entry in found for seq in range(entry.first or 0, (entry.last or 0) + 1)]
    assert told == [message.seq for message in history]
    assert Reason.TRIMMED in {entry.reason for entry in found}


def test_a_question_that_was_counted_is_not_counted_again() -> None:
    """A count that cannot be true is not believed."""
    counted = PromptInputs(question="why?", question_tokens=7)
    absurd = replace(counted, question_tokens=900)

    found = [of(Kind.QUESTION, entries(given, PromptPolicy()))[0].tokens for given in (counted, absurd)]

    assert found == [7, COUNTER.count("why?")]


def test_half_a_turn_at_the_loaded_edge_is_left_out() -> None:
    """The oldest loaded message answers words that were not loaded."""
    found = entries(PromptInputs(question="?", history=talk(20)[9:]), PromptPolicy(trim_share=0))

    assert (found[0].first, found[0].reason) == (10, Reason.PARTIAL)


def test_a_greeting_that_opens_the_session_is_no_half_turn() -> None:
    history = (said(1, "welcome", role=Role.ASSISTANT), said(2, "hi", role=Role.USER))

    assert [
        entry.disposition
        for entry in of(Kind.MESSAGE, entries(PromptInputs(question="?", history=history), PromptPolicy()))
    ] == [Disposition.KEPT, Disposition.KEPT]


@pytest.mark.requirement("C13")
def test_a_talk_that_fits_reads_the_same_whichever_way_the_window_is_filled() -> None:
    """A limit that nothing reaches changes neither the prompt nor its account."""
    materials = PromptInputs(question="and now?", system="Be kind.", history=talk(9))
    unreached = ContextPolicy(window_characters=100_000)

    at_once = assemble(materials, PromptPolicy(), FREE, COUNTER)
    turn_by_turn = assemble(materials, PromptPolicy(), unreached, COUNTER)

    assert at_once == turn_by_turn
    assert [entry.id for entry in of(Kind.MESSAGE, list(at_once.manifest.entries))] == [one.id for one in talk(9)]


def begun(words: tuple[Message, ...], window: tuple[Message, ...]) -> OpenTurn:
    """A turn as a store opens it."""
    scope = Scope(tenant="acme", user="ann", persona="elder")
    session = replace(HEAD, scope=scope, expires_at=SENT_AT + timedelta(days=1))
    return OpenTurn(
        id="t", number=2, scope=scope, session=session, state=TurnState.OPENED, user_messages=words, window=window
    )


def test_a_turn_brings_its_question_and_the_talk_before_it() -> None:
    words = (said(3, "redacted", speaker="ann"),)

    materials = inputs_from_turn(begun(words, (*talk(2), *words)), "Be kind.", question="the live words")

    assert materials.question == "the live words"
    assert [message.seq for message in materials.history] == [1, 2]
    assert (materials.system, materials.persona, materials.speaker) == ("Be kind.", "elder", "ann")


def test_words_that_others_have_written_behind_are_no_history_of_themselves() -> None:
    words = (said(3, "the question", speaker="ann"),)

    materials = inputs_from_turn(begun(words, (*talk(2), *words, said(4, "from another hand"))), "Be kind.")

    assert materials.question == "the question"
    assert [message.seq for message in materials.history] == [1, 2, 4]


def test_an_answer_made_anew_asks_what_the_user_said_last() -> None:
    materials = inputs_from_turn(begun((), talk(3)), "Be kind.")

    assert materials.question.endswith("rules 3")
    assert [message.seq for message in materials.history] == [1, 2]


def test_the_manifest_names_budget_and_counting() -> None:
    manifest = assemble(
        PromptInputs(question="?"), PromptPolicy(budget=1000, reply_tokens=250), FREE, TokenCounter(margin=1.25)
    ).manifest

    assert (manifest.budget, manifest.reply_tokens, manifest.prompt_limit) == (1000, 250, 600)
    assert (manifest.encoding, manifest.exact, manifest.margin) == ("o200k_base", True, 1.25)
