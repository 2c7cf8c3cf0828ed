"""The goods assistant: a shop with a catalogue, follow-up questions and the asker's own orders."""

from tenuto.assistants.goods.assistant import goods_assistant
from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.reading import understand
from tenuto.assistants.goods.shop import Catalogue, Item, Order, OrderStatus, replace_catalogue, replace_orders

__all__ = [
    "Catalogue",
    "Item",
    "Order",
    "OrderStatus",
    "QueryIntent",
    "goods_assistant",
    "replace_catalogue",
    "replace_orders",
    "understand",
]
