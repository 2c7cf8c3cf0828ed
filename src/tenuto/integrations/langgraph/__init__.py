"""LangGraph: a checkpointer over tenuto's sessions."""

from tenuto.integrations.langgraph.saver import TenutoSaver

__all__ = ["TenutoSaver"]
