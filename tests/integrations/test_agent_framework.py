"""History and recall for Agent Framework: a real agent, whose client answers with what it was given."""

from __future__ import annotations

from typing import Any

import tenuto
from tests.samples import ANN


async def test_an_agent_goes_on_in_another_process_and_is_told_what_is_remembered() -> None:
    from agent_framework import Agent, BaseChatClient, ChatResponse, Message

    from tenuto.integrations.agent_framework import TenutoHistoryProvider, TenutoMemoryProvider

    seen: list[tuple[list[str], str]] = []

    class Client(BaseChatClient):
        async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **rest: Any) -> ChatResponse:
            seen.append(([message.text for message in messages], options.get("instructions") or ""))
            return ChatResponse(messages=[Message("assistant", [f"answer {len(seen)}"])])

    async with tenuto.open("memory://") as app:
        await (await app.memories()).add(ANN, "Ann travels by train only.")
        for question in ("How do I travel?", "And back?"):
            providers = [TenutoHistoryProvider(app, ANN), TenutoMemoryProvider(app, ANN)]
            agent = Agent(client=Client(), context_providers=providers)
            await agent.run(question, session=agent.create_session(session_id="s"))
        history = TenutoHistoryProvider(app, ANN)
        kept = await history.get_messages("s")
        # A caller that sends the whole transcript again adds what is new.
        await history.save_messages("s", [*kept, Message("user", ["third"])])

        assert [messages for messages, _ in seen] == [
            ["How do I travel?"],
            ["How do I travel?", "answer 1", "And back?"],
        ]
        assert "by train only" in seen[0][1]
        assert [message.text for message in await history.get_messages("s")] == [
            "How do I travel?", "answer 1", "And back?", "answer 2", "third",
        ]  # fmt: skip
