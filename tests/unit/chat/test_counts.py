"""The hard budget holds whatever counts others have written into the log."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenuto.chat import ChatRequest
from tenuto.context import TokenCounter
from tenuto.model import Draft, FinishTurn
from tenuto.sessions import AppendRequest, TurnRequest
from tests.chats import SMALL, Talk, ask, helper, talk
from tests.samples import ANN, says
from tests.unit.stored_talks import write_summary

pytestmark = pytest.mark.requirement("B16")


# Two tokens and more to a character, and a count that could still be true of plain words.
RARE = "龘靐齉爩麤鱻灪厵" * 200
LOW = len(RARE) // 7 + 1


def shown(t: Talk) -> int:
    """The tokens of what the model was shown last, counted anew."""
    counter = TokenCounter()
    return sum(counter.count_parts(message.parts) for message in t.model.requests[-1].messages)


def lying(draft: Draft) -> Draft:
    return replace(draft, tokens=LOW)


async def test_a_summary_that_somebody_wrote_takes_no_more_room_than_there_is() -> None:
    t = talk("Yes.", assistants=[helper(prompt=SMALL)])
    await t.chat.take_turn(ANN, ask("Hi", "s"))
    await write_summary(t, RARE, tokens=LOW)

    reply = await t.chat.take_turn(ANN, ask("And now?", "s"))

    assert reply.manifest is not None
    assert shown(t) <= reply.manifest.prompt_limit
    assert any(RARE[:8] in message.text for message in t.model.requests[-1].messages)


@pytest.mark.parametrize("how", ["appended", "begun"])
async def test_words_that_somebody_else_counted_take_no_more_room_than_there_is(how: str) -> None:
    t = talk("Yes.", assistants=[helper(prompt=SMALL)])
    await t.chat.take_turn(ANN, ask("Hi", "s"))
    words = (lying(says(RARE)),)
    if how == "appended":
        await t.sessions.append(ANN, "s", AppendRequest(messages=words))
        request = ChatRequest(session_id="s", regenerate=True)
    else:
        turn = await t.sessions.begin(
            ANN, TurnRequest(user_messages=words, session_id="s", idempotency_key="k", fingerprint="f")
        )
        await t.sessions.finish(turn, FinishTurn(abandoned=True))
        request = ask(RARE, "s", idempotency_key="k", fingerprint="f")

    reply = await t.chat.take_turn(ANN, request)

    assert reply.manifest is not None
    assert shown(t) <= reply.manifest.prompt_limit


async def test_an_answer_without_reported_usage_is_counted_by_us() -> None:
    t = talk("Yes, in Oslo.")

    reply = await t.chat.take_turn(ANN, ask("Is it there?", "s"))

    page = await t.sessions.messages(ANN, "s")
    tokens = TokenCounter().count("Yes, in Oslo.")
    assert reply.manifest is not None
    assert (reply.input_tokens, reply.output_tokens) == (reply.manifest.total, tokens)
    assert page.messages[-1].tokens == tokens
