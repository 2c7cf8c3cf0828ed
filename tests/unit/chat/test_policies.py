"""What an assistant's policies change about a turn: staleness, unknown sessions, what is loaded, who is kept apart."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tenuto.chat.views import ContextView
from tenuto.errors import ModelFailed, SessionNotFound
from tenuto.llm import Call, Fail
from tenuto.model import NewSession, Page, Scope, Session
from tenuto.model.generation import Persona
from tenuto.model.policy import OnMissing
from tenuto.model.prompt import Disposition, Kind, Language, PromptPolicy
from tenuto.model.session import ASSISTANT
from tests.chats import SMALL, Adder, ask, helper, patient, talk
from tests.clock import FakeClock
from tests.samples import ANN
from tests.unit.stored_talks import stored_messages, write_summary


@pytest.mark.requirement("D9")
async def test_stale_talk_is_no_context_any_more_but_stays_stored() -> None:
    """Staleness and retention are two things."""
    clock = FakeClock()
    policies = patient(stale_after=timedelta(hours=48))
    t = talk("A.", clock=clock, assistants=[helper(policies=policies)])
    await t.chat.take_turn(ANN, ask("Old", "s"))
    clock.advance(timedelta(hours=49))

    await t.chat.take_turn(ANN, ask("New", "s"))
    await t.chat.take_turn(ANN, ask("Newer", "s"))

    assert [message.text for message in t.model.requests[1].messages] == ["You help.", "New"]
    assert [message.text for message in t.model.requests[2].messages] == ["You help.", "New", "A.", "Newer"]
    assert len(await stored_messages(t, "s")) == 6


async def test_staleness_is_remembered_when_the_first_answer_after_the_pause_fails() -> None:
    clock = FakeClock()
    policies = patient(stale_after=timedelta(hours=48))
    t = talk("A.", [Fail()], "B.", clock=clock, assistants=[helper(policies=policies)])
    await t.chat.take_turn(ANN, ask("Old", "s"))
    clock.advance(timedelta(hours=49))
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask("New", "s"))

    await t.chat.take_turn(ANN, ask("Newer", "s"))

    assert not any("Old" in message.text for message in t.model.requests[-1].messages)


@pytest.mark.requirement("X4")
async def test_an_unknown_session_is_refused_made_or_adopted_as_the_policy_says() -> None:
    names = {policy: helper(name=policy.value, policies=patient(on_missing=policy)) for policy in OnMissing}
    t = talk("Hi.", assistants=list(names.values()))

    with pytest.raises(SessionNotFound):
        await t.chat.take_turn(ANN, ask("Hi", "gone", assistant="error"))
    new = await t.chat.take_turn(ANN, ask("Hi", "gone", assistant="new_id"))
    adopted = await t.chat.take_turn(ANN, ask("Hi", "gone", assistant="adopt"))

    assert new.session_id != "gone"
    assert adopted.session_id == "gone"


@pytest.mark.parametrize("policy", [OnMissing.ADOPT, OnMissing.NEW_ID])
async def test_a_session_that_goes_while_its_turn_begins_is_made_anew(
    policy: OnMissing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that a new one starts with: its title, and who answers in it."""
    t = talk("Hi.", assistants=[helper(policies=patient(on_missing=policy))])
    session_id = (await t.chat.take_turn(ANN, ask("Which lamp did I order?"))).session_id
    read = t.sessions.get

    async def read_and_lose(scope: Scope, session_id: str) -> Session:
        session = await read(scope, session_id)
        await t.sessions.delete(scope, session_id)
        return session

    with monkeypatch.context() as losing:
        losing.setattr(t.sessions, "get", read_and_lose)
        reply = await t.chat.take_turn(ANN, ask("And which chair?", session_id))

    session = await t.sessions.get(ANN, reply.session_id)
    assert (reply.created, reply.session_id == session_id) == (True, policy is OnMissing.ADOPT)
    assert (session.title, session.metadata[ASSISTANT]) == ("And which chair?", "helper")


async def test_a_long_session_brings_no_more_than_it_needs() -> None:
    """10,000 messages cost what 100 do: the window that is loaded does not grow."""
    t = talk("Short answer.", assistants=[helper(prompt=SMALL, policies=patient())])
    asked: list[Page] = []
    messages = t.sessions.messages

    async def noted(scope: Scope, session_id: str, query: Page | None = None) -> Any:
        asked.append(query or Page())
        return await messages(scope, session_id, query)

    t.sessions.messages = noted  # type: ignore[method-assign]  # to see it happen
    for n in range(40):
        await t.chat.take_turn(
            ANN,
            ask(
                f"Question number {n}, with some words to fill the budget, and then some more of them"
                + " and more" * 10,
                "s",
            ),
        )

    assert asked == []


async def test_a_head_that_others_filled_costs_the_tools_state_and_not_the_answer() -> None:
    policies = patient(max_head_bytes=1024)
    assistant = helper(tools=(Adder(),), policies=policies)
    t = talk([Call("add", {"a": 1, "b": 2})], "3.", assistants=[assistant], policy=policies.sessions)
    await t.sessions.create(ANN, NewSession(attributes={"full": "x" * 950}), "s")

    reply = await t.chat.take_turn(ANN, ask("1+2?", "s"))

    assert reply.text == "3."
    assert (await stored_messages(t, "s"))[-1] == ("assistant", "3.")
    assert "helper" not in (await t.sessions.get(ANN, "s")).context


@pytest.mark.requirement("C13", "C14")
async def test_characters_that_are_kept_apart_are_not_told_of_each_other_by_a_summary() -> None:
    """Each has its own, and is shown neither another's nor one that a client wrote into the log."""
    personas = {name: Persona(id=name, names={Language.ENGLISH: name}) for name in ("ada", "bea")}
    t = talk("Hi.", assistants=[helper(personas=personas, isolated=True)])
    await t.chat.take_turn(ANN, ask("A secret", "s", persona="ada"))
    await write_summary(t, "ada knows a secret", persona="ada")
    await write_summary(t, "ada knows a secret", through=2)

    reply = await t.chat.take_turn(ANN, ask("What do you know?", "s", persona="bea"))
    await t.chat.take_turn(ANN, ask("What do you know?", "s", persona="ada"))

    bea, ada = ([message.text for message in request.messages] for request in t.model.requests[-2:])
    assert not any("secret" in text for text in bea)
    assert any("ada knows a secret" in text for text in ada)
    assert reply.manifest is not None
    assert not any(entry.disposition is Disposition.SUMMARISED for entry in reply.manifest.entries)
    assert [ended.persona for ended in t.ended] == ["ada", "bea", "ada"]


async def test_a_long_conversation_is_loaded_with_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """More messages than a turn loads at first are read once, and with the begin of the turn from then on."""
    t = talk("Yes.", assistants=[helper(policies=patient(), prompt=PromptPolicy())])
    pages = AsyncMock(wraps=t.sessions.messages)
    monkeypatch.setattr(t.sessions, "messages", pages)

    for number in range(39):
        await t.chat.take_turn(ANN, ask(f"Question {number}", "s"))
    reply = await t.chat.take_turn(ANN, ask("And now?", "s"))

    assert pages.await_count == 1
    assert reply.manifest is not None
    assert sum(entry.count for entry in reply.manifest.entries if entry.kind is Kind.MESSAGE) == 78


@pytest.mark.requirement("B16")
async def test_the_manifest_tells_all_that_a_summary_speaks_for_loaded_or_not() -> None:
    """The turn loads forty messages, and the summary covers sixty."""
    t = talk("Yes.", assistants=[helper(policies=patient())])
    for number in range(45):
        await t.chat.take_turn(ANN, ask(f"Question {number}", "s"))
    await write_summary(t, "They asked and were told.", through=60, messages=60)
    await t.chat.take_turn(ANN, ask("Well?", "s"))

    reply = await t.chat.take_turn(ANN, ask("And now?", "s"))

    assert reply.manifest is not None
    [told] = [entry for entry in reply.manifest.entries if entry.kind is Kind.SUMMARY]
    loaded = [entry for entry in reply.manifest.entries if entry.disposition is Disposition.SUMMARISED]
    assert (told.first, told.last, told.count) == (1, 60, 60)
    assert sum(entry.count for entry in loaded) < 60
    assert ContextView.of(reply.manifest).entries[1].count == 60


async def test_what_a_summary_of_unknown_making_speaks_for_is_told_by_its_numbers() -> None:
    t = talk("Yes.", assistants=[helper(policies=patient())])
    await t.chat.take_turn(ANN, ask("One", "s"))
    await write_summary(t, "They asked and were told.")

    reply = await t.chat.take_turn(ANN, ask("And now?", "s"))

    assert reply.manifest is not None
    [told] = [entry for entry in reply.manifest.entries if entry.kind is Kind.SUMMARY]
    assert (told.first, told.last, told.count) == (1, 3, 3)
