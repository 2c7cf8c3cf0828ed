"""Which character answers: the one asked for, else the one the session last talked to."""

from __future__ import annotations

import pytest

from tenuto.chat import ChatRequest
from tenuto.errors import ModelFailed
from tenuto.llm import Fail
from tenuto.model import Changes
from tenuto.model.generation import Persona
from tests.chats import ADA, PERSONAS, Talk, ask, helper, talk
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ANN
from tests.unit.stored_talks import stored_messages


def shown(t: Talk) -> list[str]:
    """The texts the model saw last."""
    return [message.text for message in t.model.requests[-1].messages]


@pytest.mark.requirement("C13")
@pytest.mark.parametrize(
    "again",
    [
        ask("And you?", "s"),
        ask("And you?", "s", assistant="helper"),
        ask("Who are you?", "s", edit=1),
        ChatRequest(session_id="s", regenerate=True),
    ],
    ids=["words", "words for the assistant", "edit", "regenerate"],
)
async def test_a_session_goes_on_with_its_character(again: ChatRequest) -> None:
    t = talk("I am Ada.", assistants=[helper(personas=PERSONAS, isolated=True)])
    await t.chat.take_turn(ANN, ask("Who is there?", "s", persona="ada"))

    await t.chat.take_turn(ANN, again)

    assert shown(t)[0] == "You help.\n\nYou are ada."
    assert (turn := t.model.requests[-1].tool_context) is not None
    assert turn.persona_name == "ada"
    assert {message.persona for message in (await t.sessions.messages(ANN, "s")).messages} == {"ada"}


async def test_a_character_asked_for_wins_and_is_the_one_remembered() -> None:
    t = talk("Hi.", assistants=[helper(personas=PERSONAS, isolated=True)])
    await t.chat.take_turn(ANN, ask("A secret", "s", persona="ada"))

    await t.chat.take_turn(ANN, ask("Hello Bea", "s", persona="bea"))
    await t.chat.take_turn(ANN, ask("What do you know?", "s"))

    assert shown(t) == ["You help.\n\nYou are bea.", "Hello Bea", "Hi.", "What do you know?"]


async def test_words_without_an_answer_are_answered_by_the_character_they_were_said_to() -> None:
    t = talk("Hi.", [Fail()], "I am Bea.", assistants=[helper(personas=PERSONAS)])
    await t.chat.take_turn(ANN, ask("Hello", "s", persona="ada"))
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask("And Bea?", "s", persona="bea"))

    await t.chat.take_turn(ANN, ChatRequest(session_id="s", regenerate=True))

    assert shown(t)[0] == "You help.\n\nYou are bea."
    assert (await stored_messages(t, "s"))[-1] == ("assistant", "I am Bea.")


async def test_a_character_is_forgotten_with_the_assistant_it_belongs_to() -> None:
    other = helper(name="other", personas={"ada": ADA, "cleo": Persona(id="cleo")})
    t = talk("Hi.", assistants=[helper(personas=PERSONAS), other])
    await t.chat.take_turn(ANN, ask("Hello", "s", persona="ada"))

    await t.chat.take_turn(ANN, ask("Hello", "s", assistant="other"))

    assert shown(t)[0] == "You help."
    assert "persona" not in (await t.sessions.get(ANN, "s")).metadata


@pytest.mark.parametrize(
    ("asked", "key", "odd"),
    [
        *(({"persona": "ada"}, "persona", odd) for odd in ("gone", 7, ["ada"], {"ada": 1})),
        *(({"assistant": "other"}, "personas", odd) for odd in (7, ["ada"], {"helper": 7}, {"helper": "gone"})),
    ],
    ids=str,
)
async def test_metadata_that_names_no_character_is_ignored(asked: dict[str, str], key: str, odd: object) -> None:
    """Characters leave with their files, and any client may write into a session's metadata."""
    t = talk("Hi.", assistants=[helper(personas=PERSONAS), helper(name="other")])
    await t.chat.take_turn(ANN, ask("Hello", "s", **asked))
    await t.sessions.patch(ANN, "s", Changes(metadata={key: odd}))

    await t.chat.take_turn(ANN, ask("Hello", "s", assistant="helper"))

    assert shown(t)[0] == "You help."


@pytest.mark.requirement("C13")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["remembered", "after a restart"])
async def test_a_character_comes_back_after_another_assistant_spoke(elsewhere: bool) -> None:
    """And still knows its own turns alone."""
    store = MemoryStore(clock=FakeClock())
    assistants = [helper(personas=PERSONAS, isolated=True), helper(name="other")]
    t = talk("Hi.", store=store, assistants=assistants)
    await t.chat.take_turn(ANN, ask("For Bea alone", "s", persona="bea"))
    await t.chat.take_turn(ANN, ask("For Ada", "s", persona="ada"))
    await t.chat.take_turn(ANN, ask("For the other", "s", assistant="other"))
    if elsewhere:
        t = talk("Hi.", store=store, assistants=assistants)

    await t.chat.take_turn(ANN, ask("Who are you?", "s", assistant="helper"))
    await t.chat.take_turn(ANN, ask("And now?", "s"))

    assert shown(t)[0] == "You help.\n\nYou are ada."
    assert "For Bea alone" not in shown(t)
    assert (await t.sessions.get(ANN, "s")).metadata["persona"] == "ada"


async def test_who_was_met_outlives_a_reset() -> None:
    t = talk("Hi.", assistants=[helper(personas=PERSONAS), helper(name="other")])
    await t.chat.take_turn(ANN, ask("Hello", "s", persona="ada"))
    await t.chat.take_turn(ANN, ask("Hello", "s", assistant="other"))

    await t.sessions.reset(ANN, "s")
    await t.chat.take_turn(ANN, ask("Hello", "s", assistant="helper"))

    assert shown(t)[0] == "You help.\n\nYou are ada."
