"""A LangChain chat history that other programs, assistants and frameworks can go on with."""

import asyncio
from tempfile import TemporaryDirectory

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

import tenuto
from tenuto.integrations.langchain import TenutoChatMessageHistory


async def main(file: str) -> None:
    async with tenuto.open(f"sqlite:///{file}") as app:
        history = TenutoChatMessageHistory("trip", app, user="ann")
        call = {"name": "trains", "args": {"to": "Ulm"}, "id": "c1", "type": "tool_call"}
        said = [
            HumanMessage("When does the train leave?"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("17:04", tool_call_id="c1"),
            AIMessage("At four minutes past five."),
        ]
        await history.aadd_messages(said)
        assert await history.aget_messages() == said

        # The same session in tenuto: an assistant goes on, and LangChain sees its answer.
        reply = await app.ask(history.scope, "Thank you!", session_id="trip")
        assert [message.text for message in await history.aget_messages()][-2:] == ["Thank you!", reply.text]

    # Blocking, in a program without an event loop of its own.
    await asyncio.to_thread(blocking, file)


def blocking(file: str) -> None:
    history = TenutoChatMessageHistory("trip", file, user="ann", window=2)
    print([message.text for message in history.messages])
    history.close()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/chat.db"))
