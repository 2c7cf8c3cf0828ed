"""The conversation store of Pydantic AI: forks, branches, conflicts, and what a deletion leaves."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import tenuto
from tests.samples import ANN, BOB

if TYPE_CHECKING:
    from pydantic_ai.conversation import Conversation


def turn(question: str, answer: str) -> list[Any]:
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

    return [ModelRequest(parts=[UserPromptPart(question)]), ModelResponse(parts=[TextPart(answer)])]


def texts(conversation: Conversation | None) -> list[str]:
    assert conversation is not None
    return [part.content for message in conversation.messages for part in message.parts]  # type: ignore[union-attr,misc]


async def test_branches_and_forks_share_what_they_began_with_and_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.conversation_store import ConversationConflict

    from tenuto.integrations.pydantic_ai import TenutoConversationStore

    async with tenuto.open("memory://") as app:
        store = TenutoConversationStore(app, ANN)
        talk = Conversation(conversation_id="s", messages=[*turn("a", "1"), *turn("b", "2")])
        entries = await store.save(talk, scope="shop")
        stale = await store.load("s")
        branched = await store.branch("s", at=2, expected_revision=talk.revision)
        branched.messages += turn("c", "3")
        await store.save(branched)
        fork = await store.fork("s", from_entry=entries[-1].id, new_conversation_id="fork", scope="lab")
        fork.messages += turn("d", "4")
        await store.save(fork)

        # Another process, which has met none of the entries.
        fresh = TenutoConversationStore(app, ANN)
        pages, messages = count(), app.sessions.messages
        with monkeypatch.context() as patch:
            patch.setattr(app.sessions, "messages", lambda *asked: (next(pages), messages(*asked))[1])
            assert (await fresh.read_entry(entries[1].id)).message == talk.messages[1]
        assert next(pages) == 1
        assert texts(await fresh.load("s")) == ["a", "1", "c", "3"]
        assert texts(await fresh.load("s", limit=1)) == ["3"]
        assert texts(await fresh.load("fork")) == ["a", "1", "b", "2", "d", "4"]
        assert [record.conversation_id for record in await fresh.list_conversations()] == ["fork", "s"]
        assert [record.conversation_id for record in await fresh.list_conversations(scope="shop")] == ["s"]
        assert await fresh.load("s", scope="lab") is None
        record = await fresh.read_record("s")
        assert record is not None
        assert record.branches == [entries[-1].id]
        assert stale is not None
        stale.messages += turn("late", "5")
        for conflicting in (stale, Conversation(conversation_id="s", messages=turn("new", "6"))):
            with pytest.raises(ConversationConflict):
                await store.save(conflicting)
        await store.delete("s")
        assert (await fresh.load("s"), texts(await fresh.load("fork"))[:2]) == (None, ["a", "1"])
        with pytest.raises(KeyError):
            await TenutoConversationStore(app, BOB).read_entry(entries[1].id)
        assert await TenutoConversationStore(app, tenant=ANN.tenant).list_conversations() == []
        assert [session.id for session in (await app.sessions.list(ANN)).sessions] == ["fork"]


async def test_a_conversation_without_its_oldest_messages_begins_with_those_it_has() -> None:
    """Its session was made elsewhere, or by a server, and keeps the newest messages only."""
    from pydantic_ai.conversation import Conversation

    from tenuto.integrations.pydantic_ai import TenutoConversationStore

    async with tenuto.open("memory://", max_messages=3) as app:
        await app.sessions.create(ANN, session_id="s")
        store = TenutoConversationStore(app, ANN)
        talk = Conversation(conversation_id="s", messages=turn("a", "1"))
        gone = (await store.save(talk))[0]
        talk.messages += turn("b", "2")
        await store.save(talk)
        loaded = await store.load("s")
        assert texts(loaded) == ["1", "b", "2"]
        assert loaded is not None
        loaded.messages += turn("c", "3")
        await store.save(loaded)
        entries = await store.load_entries("s")
        assert entries is not None
        assert [entry.parent_id for entry in entries] == [None, *(entry.id for entry in entries[:2])]
        assert texts(await store.load("s", limit=2)) == ["c", "3"]
        with pytest.raises(KeyError):
            await store.read_entry(gone.id)


async def test_a_paused_run_goes_on_from_the_store() -> None:
    """Usage and deferred tool requests are kept with the record."""
    from pydantic_ai import Agent, DeferredToolRequests
    from pydantic_ai.models.test import TestModel

    from tenuto.integrations.pydantic_ai import TenutoConversationStore

    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def send(text: str) -> str:
        return text

    async with tenuto.open("memory://") as app:
        store = TenutoConversationStore(app, ANN)
        result = await agent.run("Send it!")
        await store.save(result)
        kept = await store.load(result.conversation.conversation_id)

        assert kept is not None
        assert kept.deferred_tool_requests == result.conversation.deferred_tool_requests
        assert kept.deferred_tool_requests is not None
        assert kept.deferred_tool_requests.approvals
        assert (kept.usage, kept.messages) == (result.conversation.usage, result.conversation.messages)
