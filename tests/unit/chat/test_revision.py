"""Going back: an answer made anew, words said differently, and what is refused on the way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.chat import ChatRequest
from tenuto.errors import (
    BudgetExhausted,
    IdempotencyKeyReused,
    MessageNotFound,
    ModelFailed,
    NothingToAnswer,
    SessionBusy,
    Superseded,
    TooLarge,
)
from tenuto.llm import Fail, Hang, Say
from tenuto.model import Changes, FinishTurn, NewSession, Role, Scope, Session, Truncation
from tenuto.model.session import Budgets
from tenuto.sessions import TurnRequest
from tests.chats import ask, helper, hurried, patient, talk, under_way
from tests.samples import ANN, says
from tests.unit.stored_talks import stored_messages


async def test_an_answer_can_be_made_anew() -> None:
    t = talk("Poor.", "Better.", "Best.")
    first = await t.chat.take_turn(ANN, ask("Why?"))

    again = await t.chat.take_turn(ANN, ChatRequest(session_id=first.session_id, regenerate=True, idempotency_key="r"))
    repeated = await t.chat.take_turn(
        ANN, ChatRequest(session_id=first.session_id, regenerate=True, idempotency_key="r")
    )

    assert again.text == repeated.text == "Better."
    assert await stored_messages(t, first.session_id) == [("user", "Why?"), ("assistant", "Better.")]
    assert [message.text for message in t.model.requests[-1].messages] == ["You help.", "Why?"]


async def test_words_can_be_edited_and_sent_again() -> None:
    t = talk("A1.", "A2.", "A2 anew.")
    session = (await t.chat.take_turn(ANN, ask("Q1"))).session_id
    await t.chat.take_turn(ANN, ask("Q2", session))
    seq = next(m.seq for m in (await t.sessions.messages(ANN, session)).messages if m.text == "Q2")

    await t.chat.take_turn(ANN, ask("Q2 edited", session, edit=seq, idempotency_key="e"))
    repeated = await t.chat.take_turn(ANN, ask("Q2 edited", session, edit=seq, idempotency_key="e"))

    assert repeated.replayed
    expected = [("user", "Q1"), ("assistant", "A1."), ("user", "Q2 edited"), ("assistant", "A2 anew.")]
    assert await stored_messages(t, session) == expected


async def test_what_cannot_be_edited_or_answered_anew_is_said() -> None:
    t = talk("A.")
    session = (await t.chat.take_turn(ANN, ask("Q"))).session_id
    for wrong in (99, 2):
        with pytest.raises(MessageNotFound):
            await t.chat.take_turn(ANN, ask("other", session, edit=wrong))
    await t.sessions.reset(ANN, session)

    with pytest.raises(NothingToAnswer):
        await t.chat.take_turn(ANN, ChatRequest(session_id=session, regenerate=True))
    assert (await t.chat.take_turn(ANN, ask("Still there?", session))).text == "A."


async def test_an_edit_that_is_refused_takes_nothing_back() -> None:
    """Nothing half-done: a message too large to store leaves the talk as it was."""
    t = talk("A1.", "A2.", assistants=[helper(policies=patient(max_message_bytes=1024))])
    await t.chat.take_turn(ANN, ask("Q1", "s"))

    with pytest.raises(TooLarge):
        await t.chat.take_turn(ANN, ask("x" * 2000, "s", edit=1))

    assert await stored_messages(t, "s") == [("user", "Q1"), ("assistant", "A1.")]


async def test_an_edit_beyond_the_budget_takes_nothing_back() -> None:
    t = talk("A1.", "A2.", budgets=Budgets(session_tokens=1))
    await t.chat.take_turn(ANN, ask("Q1", "s", idempotency_key="k"))
    stored = await stored_messages(t, "s")

    for key in (None, "e"):
        with pytest.raises(BudgetExhausted):
            await t.chat.take_turn(ANN, ask("Q1 edited", "s", edit=1, idempotency_key=key))

    assert await stored_messages(t, "s") == stored


async def test_an_edit_under_another_requests_key_takes_nothing_back() -> None:
    t = talk("A1.", "A2.")
    await t.chat.take_turn(ANN, ask("Q1", "s"))
    turn = await t.sessions.begin(
        ANN, TurnRequest(user_messages=(says("Q2"),), session_id="s", idempotency_key="k", fingerprint="other")
    )
    await t.sessions.finish(turn, FinishTurn(reply=(says("A2", role=Role.ASSISTANT),)))
    stored = await stored_messages(t, "s")

    with pytest.raises(IdempotencyKeyReused):
        await t.chat.take_turn(ANN, ask("Q1 edited", "s", edit=1, idempotency_key="k"))

    assert await stored_messages(t, "s") == stored
    assert (await t.chat.take_turn(ANN, ask("Q3", "s"))).text == "A2.", "the session is free"


@pytest.mark.parametrize("how", [{"text": "Me too?"}, {"regenerate": True}, {"text": "Other", "edit": 1}], ids=str)
async def test_whoever_comes_to_a_busy_session_waits_gives_up_and_cuts_nothing_off(how: dict[str, Any]) -> None:
    t = talk([hang := Hang(), Say("Done.")], assistants=[helper(policies=hurried())])
    first = await under_way(t, hang, ask("Long?", "s"))

    with pytest.raises(SessionBusy):
        await t.chat.take_turn(ANN, ChatRequest(session_id="s", **how))

    hang.release.set()
    assert (await first).text == "Done."
    assert await stored_messages(t, "s") == [("user", "Long?"), ("assistant", "Done.")]


async def test_an_edit_that_went_no_further_than_taking_back_can_be_sent_again() -> None:
    t = talk("A1.", "A2.")
    await t.chat.take_turn(ANN, ask("Q1", "s"))
    await t.sessions.truncate(ANN, "s", Truncation(after=0))

    await t.chat.take_turn(ANN, ask("Q1 edited", "s", edit=1, idempotency_key="e"))

    assert await stored_messages(t, "s") == [("user", "Q1 edited"), ("assistant", "A2.")]


async def test_only_one_s_own_words_can_be_edited_in_a_shared_chat() -> None:
    room = Scope(tenant="acme", channel="lark", chat="c1")
    ann, bob = replace(room, user="ann"), replace(room, user="bob")
    t = talk("Hi.")
    await t.chat.take_turn(ann, ask("I am Ann", "s"))

    with pytest.raises(MessageNotFound):
        await t.chat.take_turn(bob, ask("I am not", "s", edit=1))

    assert (await stored_messages(t, "s", room))[0] == ("user", "I am Ann")


SAID, EDITED, ANEW = (
    ask("Q", "s", idempotency_key="said"),
    ask("Q edited", "s", edit=1, idempotency_key="edited"),
    ChatRequest(session_id="s", regenerate=True, idempotency_key="anew"),
)


@pytest.mark.parametrize(
    ("taken", "by"),
    [
        (SAID, EDITED),
        (SAID, ANEW),
        (SAID, ask("Q edited", "s", edit=1)),
        (EDITED, ask("Q again", "s", edit=3, idempotency_key="other")),
        (ANEW, ChatRequest(session_id="s", regenerate=True, idempotency_key="other")),
        (ANEW, ask("Q edited", "s", edit=1, idempotency_key="other")),
    ],
    ids=["words", "an answer", "words, without a key", "an edit", "an answer made anew", "words answered anew"],
)
async def test_what_was_taken_back_is_not_said_again_by_its_key(taken: ChatRequest, by: ChatRequest) -> None:
    """A late repetition, as networks and queues make them: nothing happens twice, and nothing comes back."""
    t = talk("A.", "B.", "C.", "D.")
    for request in (SAID, taken, by) if taken is not SAID else (SAID, by):
        await t.chat.take_turn(ANN, request)
    before, asked = await stored_messages(t, "s"), len(t.model.requests)

    for _ in range(2):
        with pytest.raises(Superseded):
            await t.chat.take_turn(ANN, taken)

    assert await stored_messages(t, "s") == before
    assert len(t.model.requests) == asked
    assert by.idempotency_key is None or (await t.chat.take_turn(ANN, by)).replayed
    assert not (await t.chat.take_turn(ANN, ask("Q", "s", idempotency_key="new"))).replayed


async def test_words_that_were_never_answered_are_not_said_again_either() -> None:
    t = talk([Fail()], "A.")
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, SAID)
    await t.chat.take_turn(ANN, EDITED)

    with pytest.raises(Superseded):
        await t.chat.take_turn(ANN, SAID)

    assert await stored_messages(t, "s") == [("user", "Q edited"), ("assistant", "A.")]


@pytest.mark.parametrize("request_", [EDITED, ANEW], ids=["edit", "regenerate"])
async def test_going_back_that_failed_is_taken_up_again_by_its_key(request_: ChatRequest) -> None:
    t = talk("A.", [Fail()], "B.")
    await t.chat.take_turn(ANN, SAID)
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, request_)

    assert (await t.chat.take_turn(ANN, request_)).text == "B."

    assert await stored_messages(t, "s") == [("user", request_.text or "Q"), ("assistant", "B.")]


async def test_a_session_notes_the_latest_hundred_keys_of_what_was_taken_back() -> None:
    t = talk("A.")
    for number in range(120):
        await t.chat.take_turn(ANN, ask(f"Q{number}", "s", idempotency_key=f"k{number}"))

    await t.chat.take_turn(ANN, ask("Otherwise", "s", edit=1))

    noted = (await t.sessions.get(ANN, "s")).metadata["taken_back"]
    assert len(noted) == 100
    with pytest.raises(Superseded):
        await t.chat.take_turn(ANN, ask("Q119", "s", idempotency_key="k119"))


@pytest.mark.parametrize("odd", [7, "k", [7, ["k"]], {"k": 1}], ids=str)
async def test_what_others_write_where_keys_are_noted_does_no_harm(odd: object) -> None:
    t = talk("A.")
    await t.chat.take_turn(ANN, SAID)
    await t.sessions.patch(ANN, "s", Changes(metadata={"taken_back": odd}))

    await t.chat.take_turn(ANN, EDITED)

    with pytest.raises(Superseded):
        await t.chat.take_turn(ANN, SAID)


async def test_a_full_head_costs_the_note_and_not_the_edit() -> None:
    t = talk("A.", policy=patient(max_head_bytes=1024).sessions)
    await t.sessions.create(ANN, NewSession(attributes={"full": "x" * 930}), "s")
    await t.chat.take_turn(ANN, SAID)

    assert (await t.chat.take_turn(ANN, EDITED)).text == "A."


async def test_words_that_were_answered_anew_are_not_answered_again_by_their_own_key() -> None:
    """One question, one answer: its first request had none, and comes again when another has been made."""
    t = talk([Fail()], "A.", "B.")
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, SAID)
    await t.chat.take_turn(ANN, ANEW)

    for _ in range(2):
        with pytest.raises(Superseded):
            await t.chat.take_turn(ANN, SAID)

    assert await stored_messages(t, "s") == [("user", "Q"), ("assistant", "A.")]
    assert (await t.chat.take_turn(ANN, ANEW)).replayed


async def test_words_that_another_request_failed_to_answer_anew_are_answered_by_their_own_key() -> None:
    t = talk([Fail()], [Fail()], "A.")
    for request in (SAID, ANEW):
        with pytest.raises(ModelFailed):
            await t.chat.take_turn(ANN, request)

    assert (await t.chat.take_turn(ANN, SAID)).text == "A."

    assert await stored_messages(t, "s") == [("user", "Q"), ("assistant", "A.")]


async def test_a_key_is_noted_once_however_often_its_words_are_answered_anew() -> None:
    t = talk("A.")
    await t.chat.take_turn(ANN, SAID)

    for _ in range(3):
        await t.chat.take_turn(ANN, ChatRequest(session_id="s", regenerate=True))

    assert len((await t.sessions.get(ANN, "s")).metadata["taken_back"]) == 1


async def test_nobody_speaks_between_an_old_answer_and_the_new_one() -> None:
    """The old one makes room within the turn: the session is not free for a moment in between."""
    t = talk("A.", "B.", assistants=[helper(policies=hurried())])
    await t.chat.take_turn(ANN, ask("Q", "s"))
    truncate = t.sessions.truncate

    async def slipping_in(scope: Scope, session_id: str, request: Truncation) -> Session:
        session = await truncate(scope, session_id, request)
        with pytest.raises(SessionBusy):
            await t.chat.take_turn(ANN, ask("Another", "s"))
        return session

    t.sessions.truncate = slipping_in  # type: ignore[method-assign]  # to be there in that moment
    reply = await t.chat.take_turn(ANN, ANEW)

    assert (reply.text, reply.turn) == ("B.", 2)
    assert await stored_messages(t, "s") == [("user", "Q"), ("assistant", "B.")]
