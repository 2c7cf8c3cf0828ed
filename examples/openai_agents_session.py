"""OpenAI Agents SDK: one import instead of SQLiteSession, and the conversation is a session of tenuto.

Runs without a key: a scripted model answers. With a key, leave `model` out.
"""

import asyncio
from tempfile import TemporaryDirectory

from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message

import tenuto
from tenuto.integrations.openai_agents import TenutoSession


async def main(file: str) -> None:
    set_tracing_disabled(True)
    model = ScriptedModel()
    agent = Agent(name="Guide", instructions="Answer in one sentence.", model=model)

    # Like SQLiteSession(id, path); `user` keeps conversations of equal ids apart.
    session = TenutoSession("trip-1", file, user="ann", compact_over=20)
    for question, answer in (("Where is the Golden Gate?", "In San Francisco."), ("Which state?", "California.")):
        model.enqueue([assistant_message(answer)])
        result = await Runner.run(agent, question, session=session)
        print(f"> {question}\n{result.final_output}")

    print(len(await session.get_items()), "items;", "the last two:", await session.get_items(2))
    await session.run_compaction({"force": True})
    print("after a compaction:", len(await session.get_items()), "items")
    session.close()

    # The same conversation, as everything else in tenuto sees it.
    async with tenuto.open(f"sqlite:///{file}") as app:
        kept = await app.sessions.messages(app.scope(user="ann"), "trip-1")
        print([message.text for message in kept.messages if message.text])
        assert kept.session.title.startswith("Where is the Golden Gate")


with TemporaryDirectory() as folder:
    asyncio.run(main(f"{folder}/chat.db"))
