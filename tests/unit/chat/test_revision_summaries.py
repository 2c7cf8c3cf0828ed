"""Going back and summaries: those of what stays outlive it, those of what is taken back do not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import tenuto
from tenuto.chat import ChatRequest
from tenuto.context.compression import conversation_in, find_summary, outliving
from tenuto.errors import MessageNotFound
from tenuto.llm import ScriptedModel
from tenuto.model import Page, Role, Truncation
from tenuto.model.prompt import Disposition, Kind
from tenuto.stores.engine.engine import EngineSessions
from tests.chats import Talk, ask, talk
from tests.samples import ANN
from tests.unit.stored_talks import stored_messages, write_summary

EDIT, ANEW = ask("Q edited", "s", edit=1), ChatRequest(session_id="s", regenerate=True)
BOTH = pytest.mark.parametrize("request_", [EDIT, ANEW], ids=["edit", "regenerate"])


async def told(t: Talk) -> str | None:
    page = await t.sessions.messages(ANN, "s", Page(limit=100))
    summary = find_summary(page.messages)
    return None if summary is None else summary.text


@BOTH
async def test_a_summary_that_comes_meanwhile_is_no_reason_to_refuse_and_stays(
    request_: ChatRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    t, truncate = talk("A.", "B.", "C."), EngineSessions.truncate
    for text in ("Q1", "Q2"):
        await t.chat.take_turn(ANN, ask(text, "s"))

    async def overtaken(*args: Any, **rest: Any) -> Any:
        monkeypatch.setattr(EngineSessions, "truncate", truncate)
        await write_summary(t, "What was said up to 2.", through=2, messages=2)
        return await truncate(*args, **rest)

    monkeypatch.setattr(EngineSessions, "truncate", overtaken)
    await t.chat.take_turn(ANN, replace(request_, edit=3) if request_.edit else request_)

    assert await told(t) == "What was said up to 2."
    talked = [text for role, text in await stored_messages(t, "s") if role != Role.ITEM]
    assert talked == ["Q1", "A.", request_.text or "Q2", "C."]


async def test_a_summary_of_an_answer_goes_with_the_answer() -> None:
    """What was taken back must not come back in short; the summary before it speaks again."""
    t = talk("A.", "B.", "C.")
    for text in ("Q1", "Q2"):
        await t.chat.take_turn(ANN, ask(text, "s"))
    await write_summary(t, "What was said up to 2.", through=2, messages=2)
    await write_summary(t, "What was said up to 4.", through=4, messages=4)

    await t.chat.take_turn(ANN, ANEW)

    assert await told(t) == "What was said up to 2."
    assert [text for role, text in await stored_messages(t, "s") if role != Role.ITEM] == ["Q1", "A.", "Q2", "C."]


async def test_an_edit_that_went_no_further_can_be_sent_again_though_a_summary_was_spared() -> None:
    t = talk("A.", "B.", "C.")
    for text in ("Q1", "Q2"):
        await t.chat.take_turn(ANN, ask(text, "s"))
    await write_summary(t, "What was said up to 2.", through=2, messages=2)
    spared = (await t.sessions.messages(ANN, "s")).messages[-1].seq
    await t.sessions.truncate(ANN, "s", Truncation(after=2, keep_seqs=(spared,)))

    await t.chat.take_turn(ANN, ask("Q2 edited", "s", edit=3, idempotency_key="e"))

    assert [text for role, text in await stored_messages(t, "s") if role != Role.ITEM] == [
        "Q1",
        "A.",
        "Q2 edited",
        "C.",
    ]
    with pytest.raises(MessageNotFound):
        await t.chat.take_turn(ANN, ask("Q2 edited again", "s", edit=3))


@pytest.mark.requirement("T12")
@BOTH
@pytest.mark.parametrize("cap", [4, 6, 8, 10, 14, 20])
async def test_older_talk_that_only_a_summary_remembers_outlives_going_back(request_: ChatRequest, cap: int) -> None:
    """A small stored cap lets the older talk go, and the summary of it stands between the last words and their answer.

    Every message is raw in the log or covered by the stored summary, and the model is shown that one.
    """
    model = ScriptedModel("Noted, the trip to Japan goes on.")
    async with tenuto.open("memory://", model="mine", models={"mine": model}, max_messages=cap) as t:
        ann, chat = t.scope(user="ann"), await t.chat()
        session = (await chat.take_turn(ann, ask("We plan the trip to Japan, first stop Kyoto."))).session_id
        for number in range(2, 13):
            await chat.take_turn(ann, ask(f"The trip to Japan, day {number}: which train do we take?", session))
        last = [m.seq for m in (await t.sessions.messages(ann, session)).messages if m.role is Role.USER][-1]

        going = replace(request_, session_id=session, edit=last if request_.edit else None)
        reply = await chat.take_turn(ann, going)

        page = await t.sessions.messages(ann, session, Page(limit=1000))
        summary = find_summary(page.messages, page.session.window_start)
        assert summary is not None
        assert summary.through >= conversation_in(page.messages)[0].seq - 1
        assert reply.manifest is not None
        assert [entry.disposition for entry in reply.manifest.entries if entry.kind is Kind.SUMMARY] == [
            Disposition.KEPT
        ]


def test_a_summary_that_nothing_vouches_for_is_not_spared() -> None:
    """Where no message from before the cut is left, it cannot be told from one of removed words."""
    assert outliving((), 0) == ()
