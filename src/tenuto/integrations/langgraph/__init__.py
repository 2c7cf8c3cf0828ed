"""LangGraph: a checkpointer over tenuto's sessions, and a store over its state."""

from tenuto.integrations.langgraph.saver import TenutoSaver
from tenuto.integrations.langgraph.store import TenutoStore

__all__ = ["TenutoSaver", "TenutoStore"]
