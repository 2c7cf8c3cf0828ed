"""Whom a session talks to stands in the session, which a running conversation reads from the cache."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from tenuto.errors import AssistantNotFound, SessionNotFound
from tenuto.model import Changes, FinishTurn, MessagePage, Page, Scope, Session
from tenuto.model.generation import Persona
from tenuto.model.policy import OnMissing
from tenuto.model.prompt import Language
from tenuto.ports import Store
from tenuto.sessions import TurnRequest
from tests.chats import Talk, ask, helper, patient, talk
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.samples import ANN, BOB, says
from tests.unit.stored_talks import stored_messages

PERSONAS = {name: Persona(id=name, names={Language.ENGLISH: name}) for name in ("ada", "bea")}
DIFFERS = {Language.ENGLISH: "You differ."}


async def two(store: Store | None = None) -> Talk:
    """A helper, who is the default, and another, to whom the session talks."""
    t = talk("Hi.", assistants=[helper(), helper(name="other", system=DIFFERS)], store=store)
    await t.chat.take_turn(ANN, ask("Hi", "s", assistant="other"))
    return t


def told(t: Talk) -> str:
    """The system prompt the model was shown last."""
    return t.model.requests[-1].messages[0].text


class Counting(FlatMemoryStore):
    """Counts reads; `meanwhile` happens between the read of a session and what follows."""

    reads = 0
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def get(self, scope: Scope, session_id: str) -> Session:
        self.reads += 1
        found = await super().get(scope, session_id)
        if self.meanwhile is not None:
            await self.meanwhile()
        return found

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        self.reads += 1
        return await super().messages(scope, session_id, query)


async def test_a_running_conversation_reads_its_assistant_from_the_cache() -> None:
    store = MemoryStore()
    t = await two(store)
    store.memory.loads = 0
    for _ in range(3):
        await t.chat.take_turn(ANN, ask("Again", "s"))
        assert told(t) == "You differ."

    assert store.memory.loads == 0


async def test_a_turn_goes_to_the_assistant_that_was_read() -> None:
    """Another process changes it in the same moment; the turn stores its own, and the words stay."""
    store = Counting()
    t = await two(cast(Store, store))
    store.meanwhile = lambda: store.patch(ANN, "s", Changes(metadata={"assistant": "helper"}))

    reply = await t.chat.take_turn(ANN, ask("Again", "s"))

    assert (reply.assistant, told(t)) == ("other", "You differ.")
    assert [text for _, text in await stored_messages(t, "s")] == ["Hi", "Hi.", "Again", "Hi."]


async def test_a_partner_that_another_process_has_changed_gets_the_words_and_gets_them_once() -> None:
    t = await two()
    await t.store.sessions.patch(ANN, "s", Changes(metadata={"assistant": "helper"}))

    reply = await t.chat.take_turn(ANN, ask("Again", "s", idempotency_key="k"))
    repeated = await t.chat.take_turn(ANN, ask("Again", "s", idempotency_key="k"))

    assert (told(t), reply.assistant, repeated.replayed) == ("You help.", "helper", True)
    assert [text for _, text in await stored_messages(t, "s")] == ["Hi", "Hi.", "Again", "Hi."]


async def test_a_turn_taken_up_again_goes_to_the_partner_of_its_session() -> None:
    t = await two()
    turn = await t.sessions.begin(
        ANN, TurnRequest(user_messages=(says("Again"),), session_id="s", idempotency_key="k", fingerprint="f")
    )
    await t.sessions.finish(turn, FinishTurn(abandoned=True, changes=Changes(metadata={"assistant": "helper"})))

    await t.chat.take_turn(ANN, ask("Again", "s", idempotency_key="k", fingerprint="f"))

    assert told(t) == "You help."
    assert [text for _, text in await stored_messages(t, "s")] == ["Hi", "Hi.", "Again", "Hi."]


@pytest.mark.requirement("C13")
async def test_a_character_that_another_process_has_changed_speaks() -> None:
    """The words belong to the one they are said to."""
    t = talk("Hi.", assistants=[helper(personas=PERSONAS)])
    await t.chat.take_turn(ANN, ask("Hi", "s", persona="ada"))
    await t.store.sessions.patch(ANN, "s", Changes(metadata={"persona": "bea"}))

    await t.chat.take_turn(ANN, ask("Again", "s"))

    said = (await t.sessions.messages(ANN, "s")).messages
    assert [message.persona for message in said] == ["ada", "ada", "bea", "bea"]


@pytest.mark.requirement("D20")
async def test_a_session_that_was_reset_goes_on_with_its_assistant() -> None:
    """What was said is forgotten, and not whom it was said to; also where another process looks."""
    t = await two()
    await t.sessions.patch(ANN, "s", Changes(metadata={"note": 1}))

    reset = await t.sessions.reset(ANN, "s")
    elsewhere = talk("Hi.", assistants=[helper(), helper(name="other", system=DIFFERS)], store=t.store)
    for process in (t, elsewhere):
        await process.chat.take_turn(ANN, ask("Again", "s"))

    assert reset.metadata == {"assistant": "other"}
    assert (told(t), told(elsewhere)) == ("You differ.", "You differ.")
    assert [text for _, text in await stored_messages(t, "s")] == ["Again", "Hi."] * 2


async def test_a_session_that_was_reset_goes_on_with_its_character() -> None:
    t = talk("Hi.", assistants=[helper(personas=PERSONAS)])
    await t.chat.take_turn(ANN, ask("Hi", "s", persona="bea"))
    await t.sessions.reset(ANN, "s")

    await t.chat.take_turn(ANN, ask("Again", "s"))

    assert [message.persona for message in (await t.sessions.messages(ANN, "s")).messages] == ["bea", "bea"]


@pytest.mark.requirement("X4")
@pytest.mark.parametrize("asks", [ANN, BOB], ids=["gone", "a stranger's"])
async def test_a_session_that_is_not_there_is_what_the_default_policy_makes_of_it(asks: Scope) -> None:
    """What is remembered of a session does not outlive it, and a stranger learns nothing from it."""
    strict = helper(policies=patient(on_missing=OnMissing.ERROR))
    t = talk("Hi.", assistants=[strict, helper(name="other")])
    await t.chat.take_turn(ANN, ask("Hi", "s", assistant="other"))
    if asks is ANN:
        await t.sessions.delete(ANN, "s")

    with pytest.raises(SessionNotFound):
        await t.chat.take_turn(asks, ask("Again", "s"))


async def test_one_who_remembers_nothing_is_no_session_s_partner() -> None:
    t = talk("Hi.", assistants=[helper(), helper(name="forgetful", remembers=False)])
    await t.chat.take_turn(ANN, ask("Hi", "s"))
    await t.chat.take_turn(ANN, ask("Aside", "s", assistant="forgetful"))

    reply = await t.chat.take_turn(ANN, ask("Again", "s"))

    assert reply.assistant == "helper"
    assert [text for _, text in await stored_messages(t, "s")] == ["Hi", "Hi.", "Again", "Hi."]


async def test_a_character_whom_the_session_has_left_is_not_found_and_nothing_stays() -> None:
    """The words are taken back, and the session is free."""
    t = talk("Hi.", assistants=[helper(), helper(name="other", personas=PERSONAS)])
    await t.chat.take_turn(ANN, ask("Hi", "s", assistant="other", persona="ada"))
    await t.store.sessions.patch(ANN, "s", Changes(metadata={"assistant": "helper", "persona": None}))

    with pytest.raises(AssistantNotFound):
        await t.chat.take_turn(ANN, ask("A secret", "s", persona="ada"))

    assert [text for _, text in await stored_messages(t, "s")] == ["Hi", "Hi."]
    assert (await t.chat.take_turn(ANN, ask("Again", "s"))).assistant == "helper"


@pytest.mark.requirement("C13")
async def test_a_turn_taken_up_again_is_answered_by_the_character_its_words_were_said_to() -> None:
    """Characters that are kept apart do not hear each other's words, however late a key comes back."""
    t = talk("Hi.", assistants=[helper(personas=PERSONAS, isolated=True)])
    await t.chat.take_turn(ANN, ask("Hi", "s", persona="ada"))
    words = (says("A secret", persona="ada"),)
    turn = await t.sessions.begin(
        ANN, TurnRequest(user_messages=words, session_id="s", idempotency_key="k", fingerprint="f")
    )
    await t.sessions.finish(turn, FinishTurn(abandoned=True))
    await t.chat.take_turn(ANN, ask("Hi", "s", persona="bea"))

    await t.chat.take_turn(ANN, ask("A secret", "s", idempotency_key="k", fingerprint="f"))

    answer = (await t.sessions.messages(ANN, "s")).messages[-1]
    assert (answer.persona, answer.speaker) == ("ada", "ada")
    assert (await t.sessions.get(ANN, "s")).metadata["persona"] == "ada"
