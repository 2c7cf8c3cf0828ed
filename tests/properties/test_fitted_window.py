"""Laws of the window of a begun turn, for a program that calls its own model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.context import TokenCounter, conversation
from tenuto.context.conversation import fit_window
from tenuto.context.tokens import MESSAGE_TOKENS
from tenuto.model import Message, OpenTurn, Role, Scope, text_part, tool_call, tool_result
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import PromptPolicy

COUNTER = TokenCounter()
SENT = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
OPEN = OpenTurn.named(Scope(tenant="t"), "s", "one", "turn")
CONTEXT = ContextPolicy()
MOST = 100


def turn_of(words: list[int], number: int, seq: int) -> list[Message]:
    """A turn with a question, an answer, and a tool's work or an image for some numbers."""
    said: list[tuple[Role, tuple[dict[str, Any], ...]]]
    said = [(Role.USER, (text_part("word " * words[0]),)), (Role.ASSISTANT, (text_part("字" * words[1]),))]
    if words[0] % 29 == 0:
        said[1:1] = [
            (Role.ASSISTANT, (tool_call("c", "search", {}),)),
            (Role.TOOL, (tool_result("c", "found " * words[1]),)),
        ]
    if words[1] % 31 == 0:
        said[-1] = (Role.ASSISTANT, (*said[-1][1], {"type": "image", "url": "https://example.com/"}))
    messages = [
        Message(id=f"m{seq + place}", role=role, sent_at=SENT, parts=parts, seq=seq + place, turn=number)
        for place, (role, parts) in enumerate(said)
    ]
    return [COUNTER.with_count(one) if (one.seq + words[0]) % 5 else one for one in messages]


@st.composite
def turns(draw: st.DrawFn) -> OpenTurn:
    """An open turn behind a few or many others, whose question may be as long as the whole budget."""
    log: list[Message] = []
    first = draw(st.sampled_from([1, 30]))
    words_of_turn = st.lists(st.integers(1, draw(st.sampled_from([12, 60]))), min_size=2, max_size=2)
    for number, words in enumerate(draw(st.lists(words_of_turn, min_size=draw(st.sampled_from([0, 20])), max_size=30))):
        log += turn_of(words, first + number, len(log) + 1)
    asked = turn_of([draw(st.integers(1, 20) | st.integers(1, 400)), 1], first + MOST, len(log) + 1)[:1]
    return replace(OPEN, user_messages=tuple(asked), window=(*log, *asked))


@settings(max_examples=400)
@given(turns(), st.integers(150, 900), st.sampled_from([0.0, 0.25, 0.5]), st.sampled_from([None, 40]))
def test_a_window_that_needs_no_cut_is_the_same_the_short_way_and_turn_by_turn(
    turn: OpenTurn, budget: int, trim_share: float, cap: int | None
) -> None:
    policy = PromptPolicy(budget=budget, reply_tokens=10, trim_share=trim_share, message_tokens=cap)

    fitted = fit_window(turn, policy, CONTEXT, COUNTER, MOST)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conversation, "_plain_start", lambda *_: None)
        turn_by_turn = fit_window(turn, policy, CONTEXT, COUNTER, MOST)

    assert fitted == turn_by_turn
    if fitted.window != fitted.user_messages:
        assert sum(COUNTER.count_message(one) + MESSAGE_TOKENS for one in fitted.window) <= budget
