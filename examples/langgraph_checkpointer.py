"""A LangGraph graph that asks before it acts. Its checkpoints outlive the process; two runs at once lose nothing."""

import asyncio
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import tenuto
from tenuto.integrations.langgraph import TenutoSaver


def answer(state: MessagesState) -> dict[str, Any]:
    """Stands for a model with a tool that needs consent."""
    said = state["messages"][-1].text
    consent = interrupt(f"Book: {said}?") if said.startswith("a table") else "without asking"
    return {"messages": [AIMessage(content=f"{said}: {consent}")]}


def build(saver: TenutoSaver) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


async def main(file: str) -> None:
    config = {"configurable": {"thread_id": "trip"}}
    async with tenuto.open(f"sqlite:///{file}") as app:
        asked = await build(TenutoSaver(app, user="ann")).ainvoke(
            {"messages": [HumanMessage("a table for two")]}, config
        )
        print(asked["__interrupt__"][0].value)

    # Another process, later.
    async with tenuto.open(f"sqlite:///{file}") as app:
        saver = TenutoSaver(app, user="ann")
        graph = build(saver)
        done = await graph.ainvoke(Command(resume="yes"), config)
        print(done["messages"][-1].text)

        wishes = [{"messages": [HumanMessage(f"wish {number}")]} for number in range(4)]
        await asyncio.gather(*(graph.ainvoke(wish, config) for wish in wishes))
        held = (await graph.aget_state(config)).values["messages"]
        assert len(held) == 10, "four runs at once lose nothing"

        theirs = graph.copy({"checkpointer": saver.for_scope(app.scope(user="bob"))})
        assert not (await theirs.aget_state(config)).values, "another user's thread of that name is another thread"
        [session] = (await app.sessions.list(saver.scope)).sessions
        print(f"thread {session.title!r} is session {session.id}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/chat.db"))
