"""What the tools answer, as values for models and clients, and in words of English and Chinese."""

from tenuto.assistants.goods.telling.cards import (
    Card,
    CourtesyAnswer,
    DetailsAnswer,
    OrderCard,
    OrdersAnswer,
    SearchAnswer,
    brand_card,
    card,
    order_card,
)
from tenuto.assistants.goods.telling.cases import tell_courtesy, tell_details, tell_orders, tell_search, told

__all__ = [
    "Card",
    "CourtesyAnswer",
    "DetailsAnswer",
    "OrderCard",
    "OrdersAnswer",
    "SearchAnswer",
    "brand_card",
    "card",
    "order_card",
    "tell_courtesy",
    "tell_details",
    "tell_orders",
    "tell_search",
    "told",
]
