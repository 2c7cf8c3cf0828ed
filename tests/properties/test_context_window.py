"""Laws of a prompt: it fits, shows whole turns, splits no tool pair, and its manifest adds up."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.context import TokenCounter, assemble
from tenuto.context.layout import join_unanswered
from tenuto.context.tokens import MESSAGE_TOKENS, REPLY_TOKENS
from tenuto.context.window import WindowFiller
from tenuto.model import Message, Role, text_part, tool_call, tool_result
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import (
    Disposition,
    Kind,
    Language,
    LayoutName,
    Manifest,
    Piece,
    Prompt,
    PromptInputs,
    PromptPolicy,
    RecallPosition,
)
from tests.samples import odd_texts

pytestmark = pytest.mark.requirement("A10", "E20", "S4", "T12")


COUNTER = TokenCounter()
SENT = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
FOREIGN: dict[str, Any] = {"type": "image", "url": "https://example.com/" + "x" * 500}
SEEDS = odd_texts("texts of several scripts")

Said = tuple[Role, tuple[dict[str, Any], ...], str | None]


def text_of(dice: Random) -> str:
    """Words of some script, mostly short, sometimes far beyond any budget."""
    return dice.choice(SEEDS) * dice.choice([1] * 20 + [3] * 8 + [40, 400])


def turn_of(number: int) -> list[Said]:
    """A turn: words, tool steps that may be broken, an answer that may be missing; the same for the same number."""
    dice = Random(number)
    persona = dice.choice([None, None, "elder", "guide"])
    said: list[Said] = [(Role.USER, (text_part(text_of(dice)),), persona) for _ in range(dice.choice([1, 1, 1, 2]))]
    for step in range(dice.choice([0, 0, 1, 3])):
        call = tool_call(f"call-{step}", "search", {"query": text_of(dice)})
        said.append((Role.ASSISTANT, (text_part("wait"), call) if dice.random() < 0.5 else (call,), persona))
        answered = dice.choice([f"call-{step}"] * 4 + ["call-0", "nobody"])
        if dice.random() < 0.9:
            output = dice.choice([text_of(dice), {"hits": [1, 2]}])
            said.append((Role.TOOL, (tool_result(answered, output),), persona))
    if dice.random() < 0.2:
        said.append((Role.ITEM, (FOREIGN,), None))
    if dice.random() < 0.9:
        words = text_part(text_of(dice))
        said.append((Role.ASSISTANT, (words, FOREIGN) if dice.random() < 0.1 else (words,), persona))
    return said


def history_of(numbers: list[int], first_seq: int, first_turn: int) -> tuple[Message, ...]:
    """Talk made of such turns, with counts stored for most messages."""
    messages: list[Message] = []
    for turn, number in enumerate(numbers, start=first_turn):
        for role, parts, persona in turn_of(number):
            seq = first_seq + len(messages)
            message = Message(id=f"m{seq}", role=role, sent_at=SENT, parts=parts, persona=persona, seq=seq, turn=turn)
            messages.append(COUNTER.with_count(message) if (number + seq) % 4 else message)
    return tuple(messages)


texts = st.builds(lambda seed, times: seed * times, st.sampled_from(SEEDS), st.sampled_from([1, 1, 2, 5, 40, 400]))
plain = st.one_of(texts, st.text(max_size=20))
numbers = st.integers(0, 5000)
histories = st.builds(
    history_of,
    st.one_of(st.lists(numbers, max_size=5), st.lists(numbers, min_size=8, max_size=25)),
    st.sampled_from([1, 1, 7]),
    st.sampled_from([1, 30]),
)
pieces = st.none() | st.lists(
    st.builds(Piece, id=st.uuids().map(str), text=plain), max_size=4, unique_by=lambda piece: piece.id
).map(tuple)

materials = st.builds(
    PromptInputs,
    question=plain,
    system=st.sampled_from(["", "You are a guide.", "你是严氏先祖。"]),
    preferences=texts,
    summary=texts,
    summarized_through=st.sampled_from([0, 0, 0, 1, 6]),
    history=histories,
    memories=pieces,
    evidence=pieces,
    persona=st.sampled_from([None, "elder"]),
    isolated=st.booleans(),
    speaker=st.sampled_from([None, "bob"]),
    display_names=st.sampled_from([{}, {"elder": "严氏先祖"}]),
    speaker_names=st.sampled_from([{}, {"ann": "Ann", "bob": "Bob"}]),
    history_relevant=st.sampled_from([True] * 9 + [False]),
    language=st.sampled_from(Language),
)
limits = st.builds(
    ContextPolicy,
    window_messages=st.sampled_from([None] * 6 + [1, 4, 10]),
    window_turns=st.sampled_from([None] * 6 + [1, 3]),
    window_characters=st.sampled_from([None] * 6 + [50, 4000]),
)
policies = st.builds(
    PromptPolicy,
    budget=st.sampled_from([420, 900, 1500, 3000, 8000]),
    reply_tokens=st.sampled_from([0, 100]),
    message_tokens=st.sampled_from([None, 16, 300]),
    trim_share=st.sampled_from([0.0, 0.25, 0.6]),
    layout=st.sampled_from(LayoutName),
    recall_position=st.sampled_from(RecallPosition),
)
prompts = st.builds(lambda m, p, c: (m, p, c, assemble(m, p, c, COUNTER)), materials, policies, limits)
Case = tuple[PromptInputs, PromptPolicy, ContextPolicy, Prompt]
law = settings(max_examples=100, deadline=None)


def recount(prompt: Prompt) -> int:
    """The prompt's tokens, counted from what it says and nothing else."""
    words = sum(COUNTER.count_part(part) for message in prompt.messages for part in message.parts)
    return words + MESSAGE_TOKENS * len(prompt.messages) + REPLY_TOKENS


def in_prompt(manifest: Manifest) -> list[int]:
    """The sequence numbers shown, in the manifest's order."""
    return [
        entry.first
        for entry in manifest.entries
        if entry.kind is Kind.MESSAGE
        and entry.disposition in (Disposition.KEPT, Disposition.CUT)
        and entry.first is not None
    ]


@pytest.mark.requirement("A10")
@law
@given(prompts)
def test_a_prompt_never_exceeds_its_budget(case: Case) -> None:
    """Also with texts joined as a provider would see them."""
    _, policy, _, prompt = case
    joined = sum(COUNTER.count(message.text) + MESSAGE_TOKENS for message in prompt.messages) + REPLY_TOKENS

    assert prompt.manifest.total + policy.reply_tokens <= policy.budget_tokens
    assert joined <= prompt.manifest.prompt_limit


@law
@given(prompts)
def test_a_manifest_adds_up_to_the_words_of_its_prompt(case: Case) -> None:
    *_, prompt = case
    manifest = prompt.manifest

    assert manifest.total == sum(entry.tokens for entry in manifest.entries) == recount(prompt)
    assert all(
        entry.tokens == 0
        for entry in manifest.entries
        if entry.disposition in (Disposition.DROPPED, Disposition.SUMMARISED)
    )


@law
@given(prompts)
def test_every_candidate_is_in_the_manifest_once(case: Case) -> None:
    given_, _, _, prompt = case
    entries = prompt.manifest.entries
    told = [
        seq
        for entry in entries
        if entry.kind is Kind.MESSAGE and entry.first is not None and entry.last is not None
        for seq in range(entry.first, entry.last + 1)
    ]
    recalled = [entry.id for entry in entries if entry.kind in (Kind.MEMORY, Kind.EVIDENCE)]
    singles = [entry.kind for entry in entries if entry.kind in (Kind.SYSTEM, Kind.PREFERENCES, Kind.SUMMARY)]

    assert told == [message.seq for message in given_.history]
    assert sorted(filter(None, recalled)) == sorted(
        piece.id for piece in (*(given_.memories or ()), *(given_.evidence or ()))
    )
    assert len(singles) == sum(bool(text) for text in (given_.system, given_.preferences, given_.summary))
    assert [entry.kind for entry in entries].count(Kind.QUESTION) == 1


@law
@given(prompts)
def test_the_window_is_a_suffix_in_whole_turns_and_in_order(case: Case) -> None:
    given_, _, _, prompt = case
    shown = in_prompt(prompt.manifest)
    turns = {message.seq: message.turn for message in given_.history}
    sources = [message.message_id for message in prompt.messages if message.message_id]
    out = [
        (turns[seq], entry.reason)
        for entry in prompt.manifest.entries
        if entry.kind is Kind.MESSAGE and entry.disposition is Disposition.DROPPED
        if entry.first is not None and entry.last is not None
        for seq in range(entry.first, entry.last + 1)
    ]
    never_shown = {"orphan", "not_shown", "empty", "other_persona"}

    assert shown == sorted(shown)
    assert not sources or sources == [f"m{seq}" for seq in shown]
    if shown:
        oldest, newest = turns[shown[0]], turns[shown[-1]]
        # Only the newest turn may be shown in part, where it is too large by itself.
        assert all(turn == newest or reason in never_shown for turn, reason in out if turn >= oldest)


@pytest.mark.requirement("S4", "U4")
@law
@given(prompts)
def test_tool_calls_and_results_come_in_pairs(case: Case) -> None:
    """Each call is answered before anything else is said, and nobody answers what was not asked."""
    *_, prompt = case
    waiting: list[str] = []

    for message in join_unanswered(prompt)[0]:
        kinds = {part["type"] for part in message.parts}
        if "tool_result" in kinds:
            for part in message.parts:
                if part["type"] == "tool_result":
                    waiting.remove(part["call_id"])
        if kinds & {"text", "tool_call"}:
            assert waiting == []
        waiting += [part["id"] for part in message.parts if part["type"] == "tool_call"]
    assert waiting == []


@pytest.mark.requirement("B9", "C3", "C4")
@law
@given(prompts)
def test_limits_in_messages_turns_and_characters_hold(case: Case) -> None:
    given_, _, limit, prompt = case
    shown = in_prompt(prompt.manifest)
    spoken = [one for one in given_.history if one.seq in shown and one.text]
    turns_shown = {message.turn for message in given_.history if message.seq in shown}

    assert limit.window_messages is None or len(spoken) <= limit.window_messages
    assert limit.window_turns is None or len(turns_shown) <= limit.window_turns
    if prompt.manifest.layout is LayoutName.CHAT and limit.window_characters is not None:
        assert sum(len(message.text) for message in prompt.messages if message.message_id) <= limit.window_characters


@law
@given(prompts)
def test_the_same_materials_make_the_same_prompt(case: Case) -> None:
    given_, policy, limit, prompt = case

    assert assemble(given_, policy, limit, COUNTER) == prompt


@law
@given(prompts)
def test_no_message_of_a_prompt_is_empty(case: Case) -> None:
    """Providers refuse messages without content; only the question may be what the user made it."""
    *_, prompt = case

    assert all(message.parts for message in prompt.messages[:-1])
    assert all(part["text"] for message in prompt.messages for part in message.parts if part["type"] == "text")


@law
@given(prompts)
def test_a_history_that_fits_gives_the_same_prompt_the_short_way_and_turn_by_turn(case: Case) -> None:
    """`Filling.whole` only saves time: turn by turn the same messages are kept, for the same reasons."""
    given_, policy, context, prompt = case

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WindowFiller, "take_all", lambda filling, room: None)
        turn_by_turn = assemble(given_, policy, context, COUNTER)

    assert prompt == turn_by_turn
