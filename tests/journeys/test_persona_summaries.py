"""Each character has a summary of its own talk, and of no other."""

from __future__ import annotations

import pytest

import tenuto
from tenuto.app import Tenuto
from tenuto.llm import ScriptedModel
from tenuto.model import Message, Page, Scope
from tenuto.model.message import is_summary

pytestmark = pytest.mark.requirement("C13", "C14")


YAN, FU = "ancestor_yan", "craftsman_fu"


async def ask(t: Tenuto, ann: Scope, persona: str, number: int) -> None:
    text = f"我叫小明{number}号。严氏家训第一条是什么？"
    await t.ask(ann, text, session_id="s", assistant="npc", persona=persona, language="zh")
    await t.upkeep.drain()


async def summaries(t: Tenuto, ann: Scope) -> list[Message]:
    page = await t.sessions.messages(ann, "s", Page(limit=200))
    return [message for message in page.messages if is_summary(message)]


def prompt(model: ScriptedModel) -> str:
    return "\n".join(message.text for message in model.requests[-1].messages)


async def test_forty_messages_to_a_character_leave_a_summary_for_it_alone() -> None:
    model = ScriptedModel("后生问得好，家训第一条是诚信。")
    async with tenuto.open("memory://", model=model, summarizer_model="offline") as t:
        ann = t.scope(user="ann")
        for number in range(20):
            await ask(t, ann, YAN, number)
        own = prompt(model)
        await ask(t, ann, FU, 99)
        other = prompt(model)

        told = await summaries(t, ann)
        assert {message.persona for message in told} == {YAN}
        text = told[-1].parts[0]["text"]
        assert "小明" in text
        assert "小明0号" not in other.replace(text, "")
        assert any(message.parts[0]["text"] in own for message in told)
        assert not any(message.parts[0]["text"] in other for message in told)


@pytest.mark.parametrize("turns", [1, 3])
async def test_characters_that_take_turns_are_summarised_apart(turns: int) -> None:
    model = ScriptedModel("家训第一条是诚信。")
    async with tenuto.open("memory://", model=model, summarizer_model="offline") as t:
        ann = t.scope(user="ann")
        for number in range(36):
            await ask(t, ann, FU if number // turns % 2 else YAN, number)

        told = await summaries(t, ann)
        assert {message.persona for message in told} == {YAN, FU}
        for message in told:
            mine = 1 if message.persona == FU else 0
            named = [number for number in range(36) if f"小明{number}号" in message.parts[0]["text"]]
            assert named
            assert all(number // turns % 2 == mine for number in named)
        # A summary is not made with every turn.
        assert len({message.id for message in told}) <= 12
