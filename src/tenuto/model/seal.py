"""How sealed text is told from plain text, by whoever has no key: `tnt1.<data key>.<base64url>`."""

from __future__ import annotations

from typing import Final, TypeGuard

from tenuto.model.values import Json

SEAL_MARK: Final = "tnt1."
# State that is never sealed itself: tenants' wrapped data keys, and the list of tenants that have some.
KEYS_NAMESPACE: Final = "privacy.keys"
TENANTS_NAMESPACE: Final = "privacy.tenants"
DATA_KEY_LENGTH: Final = 16
_DOT: Final = len(SEAL_MARK) + DATA_KEY_LENGTH
# Twelve bytes of nonce and sixteen of tag, in base64, when nothing is inside.
_SHORTEST: Final = _DOT + 1 + 38


def is_sealed(value: Json) -> TypeGuard[str]:
    """Whether a stored value has the form of sealed text."""
    return type(value) is str and value.startswith(SEAL_MARK) and len(value) >= _SHORTEST and value[_DOT] == "."


def data_key_id(sealed: str) -> str:
    """Which data key a sealed text names."""
    return sealed[len(SEAL_MARK) : _DOT]


def body_of(sealed: str) -> str:
    """What stands behind the name of the key."""
    return sealed[_DOT + 1 :]
