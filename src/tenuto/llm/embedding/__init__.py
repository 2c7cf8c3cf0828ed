"""Embedders: one that runs here without a network, and any provider's. Both are loaded only where they are used."""

from tenuto.llm.embedding.factory import AUTO, LOCAL, NONE, open_embedder

__all__ = ["AUTO", "LOCAL", "NONE", "open_embedder"]
