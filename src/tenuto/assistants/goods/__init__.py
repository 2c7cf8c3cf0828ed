"""The goods assistant: a shop with a catalogue, follow-up questions, and the user's own orders and complaint cases."""

from tenuto.assistants.goods.assistant import goods_assistant
from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.item import Case, CaseStatus, Item, Order, OrderStatus
from tenuto.assistants.goods.shop import Shop, replace_cases, replace_catalogue, replace_orders

__all__ = [
    "Case",
    "CaseStatus",
    "Item",
    "Order",
    "OrderStatus",
    "QueryIntent",
    "Shop",
    "goods_assistant",
    "replace_cases",
    "replace_catalogue",
    "replace_orders",
]
