"""What the shop has: items and orders, the shelf they are searched on, and the catalogue in the store."""

from tenuto.assistants.goods.shop.brands import Brand, brands_of
from tenuto.assistants.goods.shop.catalogue import Catalogue, replace_catalogue, replace_orders
from tenuto.assistants.goods.shop.item import Item, Order, OrderStatus, in_language
from tenuto.assistants.goods.shop.measures import Measure, limit, measure, noted_as, noted_under
from tenuto.assistants.goods.shop.shelf import MOSTLY, Entry, Shelf
from tenuto.assistants.goods.shop.shipped import shipped_items, shipped_orders

__all__ = [
    "MOSTLY",
    "Brand",
    "Catalogue",
    "Entry",
    "Item",
    "Measure",
    "Order",
    "OrderStatus",
    "Shelf",
    "brands_of",
    "in_language",
    "limit",
    "measure",
    "noted_as",
    "noted_under",
    "replace_catalogue",
    "replace_orders",
    "shipped_items",
    "shipped_orders",
]
