"""The goods assistant: a shop with a catalogue, follow-up questions and the asker's own orders."""

from tenuto.assistants.goods.catalogue import Catalogue, replace_catalogue, replace_orders
from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.item import Item, Order, OrderStatus
from tenuto.assistants.goods.reading import understand
from tenuto.assistants.goods.shop import goods_assistant

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
