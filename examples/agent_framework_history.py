"""Microsoft Agent Framework: history and recall from tenuto. Runs without a key: a client of our own answers."""

import asyncio
from tempfile import TemporaryDirectory
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Message

import tenuto
from tenuto.integrations.agent_framework import TenutoHistoryProvider, TenutoMemoryProvider


class Counting(BaseChatClient):
    """Answers with the number of messages that it was given."""

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> ChatResponse:
        said = [message.text for message in messages]
        answer = f"I see {len(said)} messages; instructions: {options.get('instructions')}"
        return ChatResponse(messages=[Message("assistant", [answer])])


async def main(file: str) -> None:
    async with tenuto.open(f"sqlite:///{file}") as app:
        ann = app.scope(user="ann")
        await (await app.memories()).add(ann, "Ann travels by train only.")
        providers = [TenutoHistoryProvider(app, ann), TenutoMemoryProvider(app, ann)]
        agent = Agent(client=Counting(), context_providers=providers)

        session = agent.create_session(session_id="trip-1")
        for question in ("How do I get to the Golden Gate by train?", "And back?"):
            print(f"> {question}\n{(await agent.run(question, session=session)).text}")

        # Another process that names the session goes on with it.
        kept = await TenutoHistoryProvider(app, ann).get_messages("trip-1")
        print(len(kept), "messages are kept")
        assert [message.role for message in kept] == ["user", "assistant"] * 2
        assert "train only" in kept[1].text


with TemporaryDirectory() as folder:
    asyncio.run(main(f"{folder}/chat.db"))
