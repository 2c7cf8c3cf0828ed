"""LangGraph: a checkpointer over tenuto's sessions, and a store over its state.

graph = builder.compile(checkpointer=TenutoSaver("chat.db", user="ann"), store=TenutoStore("chat.db", user="ann"))
"""

from tenuto.integrations import missing_extra

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    raise missing_extra("langgraph") from error

from tenuto.integrations.langgraph.saver import TenutoSaver
from tenuto.integrations.langgraph.store import TenutoStore

__all__ = ["TenutoSaver", "TenutoStore"]
