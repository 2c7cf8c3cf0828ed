"""An intent put to a shelf: settled in the catalogue's words, sieved, ranked, and made looser where nothing fits."""

from tenuto.assistants.goods.searching.query import Found, search

__all__ = [
    "Found",
    "search",
]
