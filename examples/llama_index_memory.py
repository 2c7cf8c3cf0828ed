"""LlamaIndex: the chat store of Memory, and that of ChatMemoryBuffer, over tenuto. Runs without a key."""

import asyncio
from tempfile import TemporaryDirectory

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer, Memory

import tenuto
from tenuto.integrations.llama_index import TenutoBaseChatStore, TenutoChatStore


async def main(file: str) -> None:
    async with tenuto.open(f"sqlite:///{file}") as app:
        store = TenutoChatStore(app, app.scope(user="ann"))
        memory = Memory.from_defaults(session_id="trip-1", chat_store=store, token_limit=4000)
        engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
        for question in ("Where is the Golden Gate?", "Which state?"):
            print(f"> {question}\n{await engine.achat(question)}")
        print(await store.count_messages("trip-1"), "messages under", await store.get_keys())


def blocking(file: str) -> None:
    """The older interface blocks; with a file instead of an open installation it can be used anywhere."""
    store = TenutoBaseChatStore(file, user="ann")
    buffer = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="trip-1", llm=MockLLM())
    assert len(buffer.get_all()) == 4
    print("the last answer:", store.delete_last_message("trip-1"))
    store.close()


with TemporaryDirectory() as folder:
    asyncio.run(main(f"{folder}/chat.db"))
    blocking(f"{folder}/chat.db")
