"""Google ADK: session and memory services over tenuto. Runs without a key: the agent has no model."""

import asyncio
from collections.abc import AsyncGenerator
from tempfile import TemporaryDirectory

from google.adk.agents import BaseAgent, InvocationContext
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.genai import types

from tenuto.integrations.adk import TenutoMemoryService, TenutoSessionService


class Guide(BaseAgent):
    """Counts questions, in state of the session and of the user."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        asked = ctx.session.state.get("asked", 0) + 1
        content = types.Content(role="model", parts=[types.Part(text=f"Question {asked}: it is red.")])
        actions = EventActions(state_delta={"asked": asked, "user:colour": "red", "temp:draft": "gone"})
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content, actions=actions)


async def main(file: str) -> None:
    sessions, memories = TenutoSessionService(file), TenutoMemoryService(file)
    runner = Runner(agent=Guide(name="guide"), app_name="tour", session_service=sessions, memory_service=memories)
    await sessions.create_session(app_name="tour", user_id="ann", session_id="trip-1")
    for question in ("Which colour has the Golden Gate?", "Are you sure?"):
        said = types.Content(role="user", parts=[types.Part(text=question)])
        async for event in runner.run_async(user_id="ann", session_id="trip-1", new_message=said):
            print(f"> {question}\n{event.content.parts[0].text}")

    session = await sessions.get_session(app_name="tour", user_id="ann", session_id="trip-1")
    assert session is not None
    print(len(session.events), "events, state", session.state)
    assert session.state == {"asked": 2, "user:colour": "red"}
    await memories.add_session_to_memory(session)
    found = await memories.search_memory(app_name="tour", user_id="ann", query="colour of the Golden Gate")
    print("remembered:", found.memories[0].content.parts[0].text)
    sessions.close()
    memories.close()


with TemporaryDirectory() as folder:
    asyncio.run(main(f"{folder}/chat.db"))
