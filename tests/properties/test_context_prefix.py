"""Laws of a prompt's beginning: it stays as it was from turn to turn, until the window is trimmed."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.context import TokenCounter, assemble
from tenuto.context.tokens import MESSAGE_TOKENS
from tenuto.model import Message
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import Piece, Prompt, PromptInputs, PromptPolicy, RecallPosition
from tests.samples import stored

pytestmark = pytest.mark.requirement()


COUNTER = TokenCounter()
WORDS = ("history ", "家训", "phone ", "👨‍👩‍👧", "孝悌为本，", "value\n")


def message(seq: int, dice: Random) -> Message:
    """Somebody's words of 5 to 60 tokens."""
    text = "".join(dice.choice(WORDS) for _ in range(dice.randint(5, 12)))
    return COUNTER.with_count(stored(seq, text))


def conversation(number: int, turns: int, policy: PromptPolicy, recalls: bool = False) -> list[Prompt]:
    """The prompts of a conversation, one for each turn; with recall, each with evidence of its own."""
    dice = Random(number)
    log: list[Message] = []
    prompts: list[Prompt] = []
    for turn in range(1, turns + 1):
        question = message(2 * turn - 1, dice)
        found = tuple(Piece(id=f"e{turn}-{n}", text="fact " * dice.randint(1, 60)) for n in range(dice.randint(0, 3)))
        materials = PromptInputs(
            question=question.text, system="Be kind.", history=tuple(log), evidence=found if recalls else None
        )
        prompts.append(assemble(materials, policy, ContextPolicy(), COUNTER))
        log += [question, message(2 * turn, dice)]
    return prompts


def begins(prompt: Prompt) -> str | None:
    """The oldest message the prompt shows."""
    return next((one.message_id for one in prompt.messages if one.message_id), None)


def moves(prompts: list[Prompt]) -> int:
    """How often the window's beginning was another one than the turn before."""
    starts = [begins(prompt) for prompt in prompts[1:]]
    return sum(1 for before, after in pairwise(starts) if before != after)


seeds = st.integers(0, 10_000)
law = settings(max_examples=10, deadline=None)


@law
@given(seeds, st.booleans())
def test_each_prompt_extends_the_one_before_until_the_window_moves(seed: int, recalls: bool) -> None:
    prompts = conversation(seed, 40, PromptPolicy(budget=2600, reply_tokens=300), recalls)

    for before, after in pairwise(prompts[1:]):
        if begins(before) == begins(after):
            assert after.messages[: before.cacheable_messages] == before.messages[: before.cacheable_messages]
            assert after.cacheable_messages == before.cacheable_messages + 2
            assert after.manifest.cacheable_tokens > before.manifest.cacheable_tokens
    for prompt in prompts:
        beginning = prompt.messages[: prompt.cacheable_messages]
        assert prompt.manifest.cacheable_tokens == sum(COUNTER.count(one.text) + MESSAGE_TOKENS for one in beginning)


@law
@given(seeds)
def test_without_recall_the_next_prompt_repeats_all_of_this_one(seed: int) -> None:
    prompts = conversation(seed, 20, PromptPolicy(budget=100_000))

    for before, after in pairwise(prompts):
        said = [(one.role, one.text) for one in before.messages]
        assert [(one.role, one.text) for one in after.messages][: len(said)] == said


@law
@given(seeds, st.booleans())
def test_the_window_only_moves_forward_and_rests_in_between(seed: int, recalls: bool) -> None:
    """A turn is a 32nd of the window or less, so that a quarter of it is 8 turns: one move in four turns at most."""
    policy = PromptPolicy(budget=6200, reply_tokens=300)
    prompts = conversation(seed, 130, policy, recalls)
    starts = [int(start[1:]) for start in map(begins, prompts) if start]

    assert starts == sorted(starts)
    assert starts[-1] > 1
    assert moves(prompts) <= len(prompts) / 4 + 1


@law
@given(seeds)
def test_without_slack_the_window_moves_more_often(seed: int) -> None:
    resting = conversation(seed, 60, PromptPolicy(budget=2600, reply_tokens=300))
    restless = conversation(seed, 60, PromptPolicy(budget=2600, reply_tokens=300, trim_share=0))

    assert moves(restless) > 2 * moves(resting)


@law
@given(seeds)
def test_what_is_recalled_leaves_the_beginning_alone_only_next_to_the_question(seed: int) -> None:
    late = conversation(seed, 12, PromptPolicy(budget=9000), recalls=True)
    early = conversation(
        seed, 12, PromptPolicy(budget=9000, recall_position=RecallPosition.BEFORE_WINDOW), recalls=True
    )

    assert [prompt.cacheable_messages for prompt in late] == [1 + 2 * turn for turn in range(12)]
    assert {prompt.cacheable_messages for prompt in early} == {1}
