"""A question put to a shelf: goods looked up by name or place, or an intent settled, sieved, ranked and made looser."""

from tenuto.assistants.goods.searching.claims import claimed
from tenuto.assistants.goods.searching.lookup import looked_up
from tenuto.assistants.goods.searching.looser import let_go
from tenuto.assistants.goods.searching.query import Found, search

__all__ = [
    "Found",
    "claimed",
    "let_go",
    "looked_up",
    "search",
]
