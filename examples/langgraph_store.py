"""What a LangGraph graph knows of its users beyond their threads: found by meaning, kept for a while, erased."""

import asyncio
from tempfile import TemporaryDirectory

from langchain_core.embeddings import Embeddings

import tenuto
from tenuto.integrations.langgraph import TenutoStore


class Letters(Embeddings):
    """Stands for a model: how often each letter occurs."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


async def main(file: str) -> None:
    async with tenuto.open(f"sqlite:///{file}") as app:
        # With a graph: builder.compile(checkpointer=..., store=store)
        store = TenutoStore(app, user="ann", index={"dims": 26, "embed": Letters(), "fields": ["text"]})
        await store.aput(("facts", "food"), "tea", {"text": "likes green tea", "sure": 0.9})
        await store.aput(("facts", "food"), "nuts", {"text": "is allergic to nuts", "sure": 1.0})
        await store.aput(("facts",), "mail", {"text": "write to ann.lee@example.com"}, ttl=60 * 24)

        [found] = await store.asearch(("facts",), query="green tea?", limit=1)
        print(found.key, round(found.score or 0, 2))
        assert [item.key for item in await store.asearch(("facts",), filter={"sure": {"$gte": 1}})] == ["nuts"]
        mail = await store.aget(("facts",), "mail")
        print(mail.value if mail else None)  # The privacy policy applies, as to every memory.

        assert await TenutoStore(app, user="bob").asearch(()) == []
        await app.privacy.erase(store.scope, by="example")
        assert await store.asearch(()) == []


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/chat.db"))
