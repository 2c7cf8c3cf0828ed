"""A turn that must follow another, and one that says when its conversation is compressed."""

from __future__ import annotations

import pytest

from tenuto.errors import VersionConflict
from tests.chats import ask, talk
from tests.samples import ANN
from tests.unit.stored_talks import stored_messages


async def test_a_turn_that_came_too_late_stores_nothing() -> None:
    t = talk("One.", "Two.", "Three.")
    first = await t.chat.take_turn(ANN, ask("1", "s"))
    second = await t.chat.take_turn(ANN, ask("2", "s", after_turn=first.turn))
    before = await stored_messages(t, "s")

    with pytest.raises(VersionConflict):
        await t.chat.take_turn(ANN, ask("late", "s", after_turn=first.turn))

    assert await stored_messages(t, "s") == before
    third = await t.chat.take_turn(ANN, ask("3", "s", after_turn=second.turn))
    assert third.text == "Three."


async def test_a_request_sets_the_tokens_from_which_on_its_conversation_is_compressed() -> None:
    t = talk("One.")
    budget = (await t.chat.prompt_of(t.chat.assistants.find(None))).budget_tokens
    for tokens in (budget // 4, budget * 4):
        await t.chat.take_turn(ANN, ask("1", "s", compress_above=tokens))

    assert [ended.policies.context.compress_at for ended in t.ended] == [pytest.approx(0.25, abs=0.01), 0.95]
