"""The goods assistant: a shop with a catalogue, follow-up questions, and the user's own orders and complaint cases."""

from tenuto.assistants.goods.assistant import goods_assistant
from tenuto.assistants.goods.catalogue import Catalogue, replace_cases, replace_catalogue, replace_orders
from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.item import Case, CaseStatus, Item, Order, OrderStatus

__all__ = [
    "Case",
    "CaseStatus",
    "Catalogue",
    "Item",
    "Order",
    "OrderStatus",
    "QueryIntent",
    "goods_assistant",
    "replace_cases",
    "replace_catalogue",
    "replace_orders",
]
