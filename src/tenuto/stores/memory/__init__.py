"""Sessions in this process's memory."""

from tenuto.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
