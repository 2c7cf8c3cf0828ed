"""What currencies are called beside an amount."""

from __future__ import annotations

from typing import Final

from tenuto.model.expression import expression

# What a currency is called before or behind an amount; a bare sign may mean several of them.
_CURRENCIES: Final = (
    ("HKD", r"hk\$|hkd\b|港[币元]"),
    ("USD", r"us\$|usd\b|us dollars?\b|美[元金刀]"),
    ("EUR", r"€|eur\b|euros?\b|欧元"),
    ("GBP", r"£|gbp\b|pounds?\b|英镑"),
    ("JPY", r"jpy\b|yen\b|日[元币]"),
    ("$", r"\$|dollars?\b|bucks\b"),
    ("CNY", r"rmb\b|cny\b|yuan\b|人民币|元|块钱?"),
    ("¥", r"¥"),
)
_MEANT: Final = {"$": frozenset({"USD", "CAD", "AUD", "NZD", "SGD", "HKD"}), "¥": frozenset({"CNY", "JPY"})}
CURRENCY: Final = "|".join(pattern for _, pattern in _CURRENCIES)
_CODES: Final = tuple((code, expression(pattern)) for code, pattern in _CURRENCIES)


def currency_in(text: str) -> str | None:
    """The currency that an amount is named in: its code, or the sign where that may mean several."""
    return next((code for code, pattern in _CODES if pattern.search(text)), None)


def means(named: str, currency: str) -> bool:
    """Whether a currency as people name it is that one: "$" is any dollar."""
    code = named.strip().upper()
    return code == currency.upper() or currency.upper() in _MEANT.get(code, ())
