"""Pydantic AI: a ConversationStore whose conversations are sessions of tenuto. Runs without a key."""

import asyncio
from tempfile import TemporaryDirectory

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.test import TestModel

import tenuto
from tenuto.integrations.pydantic_ai import TenutoConversationStore

agent = Agent(TestModel(custom_output_text="In San Francisco."))


async def main(file: str) -> None:
    async with tenuto.open(f"sqlite:///{file}") as app:
        store = TenutoConversationStore(app, app.scope(user="ann"))
        conversation = Conversation(conversation_id="trip-1")
        result = await agent.run("Where is the Golden Gate?", conversation=conversation)
        await store.save(result)

        # Another process goes on; a second one that read the same state would get a ConversationConflict.
        again = await store.load("trip-1")
        assert again is not None
        await store.save(await agent.run("And now?", conversation=again))

        fork = await store.fork("trip-1", at=2)
        print("forked with", len(fork.messages), "messages from", len(again.messages), "and more")
        for record in await store.list_conversations():
            print(record.conversation_id, record.usage.requests, "requests")
        sessions = (await app.sessions.list(app.scope(user="ann"))).sessions
        assert {session.title for session in sessions} == {"Where is the Golden Gate?"}


with TemporaryDirectory() as folder:
    asyncio.run(main(f"{folder}/chat.db"))
