"""Going back while others write: a message between the read and the cut is never lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenuto.chat import ChatRequest
from tenuto.errors import ModelFailed, Superseded, VersionConflict
from tenuto.llm import Fail
from tenuto.model import Changes, MessagePage
from tenuto.sessions import AppendRequest
from tests.chats import Talk, ask, talk
from tests.doubles import FlatMemoryStore
from tests.samples import ANN, answers, says
from tests.unit.stored_talks import stored_messages

EDIT, ANEW = (
    ask("Q edited", "s", edit=1, idempotency_key="edited"),
    ChatRequest(session_id="s", regenerate=True, idempotency_key="anew"),
)
BOTH = pytest.mark.parametrize("request_", [EDIT, ANEW], ids=["edit", "regenerate"])


class Crowded(FlatMemoryStore):
    """A store where something happens right before certain steps, as often as it is told to."""

    before: str = ""
    times: int = 0
    happens: Callable[[], Awaitable[object]]

    async def messages(self, *args: Any) -> MessagePage:
        await self._crowd("messages")
        return await super().messages(*args)

    async def patch(self, *args: Any) -> Any:
        await self._crowd("patch")
        return await super().patch(*args)

    async def truncate(self, *args: Any, **rest: Any) -> Any:
        await self._crowd("truncate")
        return await super().truncate(*args, **rest)

    async def _crowd(self, step: str) -> None:
        if step == self.before and self.times:
            self.times -= 1
            before, self.before = self.before, ""
            await self.happens()
            self.before = before


def crowded(*scripts: Any) -> tuple[Talk, Crowded]:
    store = Crowded()
    return talk(*scripts, store=store), store


@pytest.mark.parametrize("who", [says, answers], ids=["user", "assistant"])
@pytest.mark.parametrize(
    ("request_", "step", "asked"),
    [(EDIT, "messages", 1), (EDIT, "patch", 1), (EDIT, "truncate", 1), (ANEW, "messages", 1), (ANEW, "truncate", 2)],
    ids=lambda value: value.idempotency_key if isinstance(value, ChatRequest) else str(value),
)
async def test_words_said_during_a_revision_stay(request_: ChatRequest, step: str, asked: int, who: Any) -> None:
    """Who asks to go back has not seen them: 409, and the talk is as it was, with the new words."""
    t, store = crowded("A.", "B.")
    await t.chat.take_turn(ANN, ask("Q", "s", idempotency_key="said"))
    store.happens = lambda: t.sessions.append(ANN, "s", AppendRequest(messages=(who("From elsewhere"),)))
    store.before, store.times = step, 1

    with pytest.raises(VersionConflict):
        await t.chat.take_turn(ANN, request_)

    assert [text for _, text in await stored_messages(t, "s")] == ["Q", "A.", "From elsewhere"]
    assert "taken_back" not in (await t.sessions.get(ANN, "s")).metadata
    assert len(t.model.requests) == asked
    assert (await t.chat.take_turn(ANN, ask("Q", "s", idempotency_key="said"))).replayed


async def test_going_back_that_lost_a_race_goes_through_when_it_is_sent_again() -> None:
    """By then its sender can have seen what was said."""
    t, store = crowded("A.", "B.")
    await t.chat.take_turn(ANN, ask("Q", "s"))
    store.happens = lambda: t.sessions.append(ANN, "s", AppendRequest(messages=(says("From elsewhere"),)))
    store.before, store.times = "truncate", 1
    with pytest.raises(VersionConflict):
        await t.chat.take_turn(ANN, EDIT)

    reply = await t.chat.take_turn(ANN, EDIT)

    assert (reply.text, reply.replayed) == ("B.", False)
    assert await stored_messages(t, "s") == [("user", "Q edited"), ("assistant", "B.")]


@pytest.mark.parametrize(
    ("request_", "step"),
    [(EDIT, "patch"), (EDIT, "truncate"), (ANEW, "truncate")],
    ids=lambda value: value.idempotency_key if isinstance(value, ChatRequest) else str(value),
)
async def test_a_title_that_comes_meanwhile_is_no_reason_to_refuse(request_: ChatRequest, step: str) -> None:
    """It changes the session's version and no message: the log is read anew."""
    t, store = crowded("A.", "B.")
    await t.chat.take_turn(ANN, ask("Q", "s", idempotency_key="said"))
    store.happens = lambda: t.sessions.patch(ANN, "s", Changes(title="Better"))
    store.before, store.times = step, 2

    assert (await t.chat.take_turn(ANN, request_)).text == "B."

    assert store.times == 0
    assert await stored_messages(t, "s") == [("user", request_.text or "Q"), ("assistant", "B.")]
    with pytest.raises(Superseded):
        await t.chat.take_turn(ANN, ask("Q", "s", idempotency_key="said"))


@BOTH
async def test_a_session_that_never_rests_is_given_up_and_not_waited_for(request_: ChatRequest) -> None:
    t, store = crowded("A.", "B.")
    await t.chat.take_turn(ANN, ask("Q", "s", idempotency_key="said"))
    store.happens = lambda: t.sessions.patch(ANN, "s", Changes(title="Better"))
    store.before, store.times = "truncate", 99

    with pytest.raises(VersionConflict):
        await t.chat.take_turn(ANN, request_)

    store.times = 0
    assert await stored_messages(t, "s") == [("user", "Q"), ("assistant", "A.")]
    assert "taken_back" not in (await t.sessions.get(ANN, "s")).metadata
    assert (await t.chat.take_turn(ANN, request_)).text == "B."


async def test_words_that_were_not_answered_keep_their_key_when_an_edit_of_them_loses() -> None:
    t, store = crowded([Fail()], "A.")
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask("Q", "s", idempotency_key="said"))
    store.happens = lambda: t.sessions.append(ANN, "s", AppendRequest(messages=(says("From elsewhere"),)))
    store.before, store.times = "truncate", 1
    with pytest.raises(VersionConflict):
        await t.chat.take_turn(ANN, EDIT)

    assert (await t.chat.take_turn(ANN, ask("Q", "s", idempotency_key="said"))).text == "A."
