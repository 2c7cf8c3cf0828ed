"""LangChain's chat history over a session: every kind of message comes back equal, and belongs to its user."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

import tenuto
from tenuto.errors import SessionNotFound
from tenuto.integrations.background import open_blocking
from tenuto.integrations.langchain import TenutoChatMessageHistory

CALL = {"name": "find", "args": {"what": "tea", "deep": {"a": [1]}}, "id": "c1", "type": "tool_call"}
USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
EVERY_KIND: list[BaseMessage] = [
    SystemMessage(content="be brief"),
    HumanMessage(content="find tea", id="h1", name="ann", additional_kwargs={"lang": "en"}),
    AIMessage(content="", tool_calls=[CALL], usage_metadata=USAGE, response_metadata={"model": "m"}),
    ToolMessage(content="green tea", tool_call_id="c1", artifact={"rows": [1, 2]}, status="success"),
    ToolMessage(content=[{"type": "text", "text": "black tea"}], tool_call_id="c2", status="error"),
    AIMessage(content=[{"type": "text", "text": "here"}, {"type": "image_url", "image_url": {"url": "http://x"}}]),
    HumanMessage(content=["a plain text", {"type": "text", "text": "and a part"}, {"untyped": True}]),
    ChatMessage(content="as a judge", role="judge"),
    FunctionMessage(content="old style", name="find"),
    AIMessageChunk(content="piece"),
]


async def test_every_kind_of_message_comes_back_equal(tmp_path: Path) -> None:
    async with tenuto.open(f"sqlite:///{tmp_path}/lc.db") as app:
        history = TenutoChatMessageHistory(app, "s", user="ann")
        assert await history.aget_messages() == []
        await history.aadd_messages(EVERY_KIND[:3])
        await history.aadd_messages(EVERY_KIND[3:])

        assert await history.aget_messages() == EVERY_KIND
        assert await TenutoChatMessageHistory(app, "s", user="ann", window=2).aget_messages() == EVERY_KIND[-2:]
        await history.aclear()
        assert await history.aget_messages() == []


async def test_histories_are_sessions_of_their_user(tmp_path: Path) -> None:
    """A5, A8: another user's session is not there, and cannot be written; a chat of tenuto can be read."""
    async with tenuto.open(f"sqlite:///{tmp_path}/lc.db") as app:
        turn = await app.begin(app.scope(user="ann"), "hello")
        await app.finish(turn, "hi")
        mine, his = [TenutoChatMessageHistory(app, turn.session.id, user=name) for name in ("ann", "bob")]

        assert [(type(one), one.text) for one in await mine.aget_messages()] == [
            (HumanMessage, "hello"),
            (AIMessage, "hi"),
        ]
        assert await his.aget_messages() == []
        with pytest.raises(SessionNotFound):
            await his.aadd_messages([HumanMessage(content="mine now")])
        assert (await app.sessions.list(his.scope)).sessions == ()


def test_a_program_without_an_event_loop_has_the_blocking_methods(tmp_path: Path) -> None:
    with open_blocking(f"sqlite:///{tmp_path}/lc.db") as app:
        history = TenutoChatMessageHistory(app, "s", user="ann")
        history.add_user_message("one")
        history.add_ai_message("two")

        assert [one.text for one in history.messages] == ["one", "two"]
        history.clear()
        assert history.messages == []
