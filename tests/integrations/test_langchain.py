"""LangChain's chat history beside what all adapters promise: windows, and sessions that were made elsewhere."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from langchain_core.messages import AIMessage, HumanMessage

import tenuto
from tenuto.integrations.langchain import TenutoChatMessageHistory


async def test_a_conversation_of_tenuto_can_be_read_and_continued(tmp_path: Path) -> None:
    async with tenuto.open(f"sqlite:///{tmp_path}/lc.db") as app:
        ann = app.scope(user="ann")
        turn = await app.begin(ann, "hello")
        await app.finish(turn, "hi")
        history = TenutoChatMessageHistory(turn.session.id, app, ann)
        await history.aadd_messages([HumanMessage(content="and now?")])

        read = [(type(message), message.text) for message in await history.aget_messages()]
        assert read == [(HumanMessage, "hello"), (AIMessage, "hi"), (HumanMessage, "and now?")]
        newest = TenutoChatMessageHistory(turn.session.id, app, ann, window=1)
        assert [message.text for message in await newest.aget_messages()] == ["and now?"]
        assert [message.text for message in (await app.begin(ann, "so?", session_id=turn.session.id)).window] == [
            "hello", "hi", "and now?", "so?"
        ]  # fmt: skip


def test_a_program_without_an_event_loop_has_the_blocking_methods(tmp_path: Path) -> None:
    with closing(TenutoChatMessageHistory("s", tmp_path / "lc.db", user="ann")) as history:
        history.add_user_message("one")
        history.add_ai_message("two")

        assert [one.text for one in history.messages] == ["one", "two"]
        history.clear()
        assert history.messages == []
