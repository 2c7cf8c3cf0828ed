"""Opaque text: encoded data such as a picture, a checkpoint or a vector, which is not searched for private data.

Its form says so: nothing but base64, of a length that no account, key or sentence has. Shorter data of our own is
padded to that length, since rules that took it for words would break it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final

from tenuto.model.patterns import lazy_pattern

LEAST_OPAQUE: Final = 512
"""The characters of the shortest opaque text."""
_OPAQUE: Final = lazy_pattern(
    rf"(?:data:[\w.+-]{{1,60}}/[\w.+-]{{1,60}};base64,)?[A-Za-z0-9+/_=-]{{{LEAST_OPAQUE},}}", re.ASCII
)


def is_opaque(text: str) -> bool:
    """Whether the whole of a text is encoded data, perhaps a data URL; a long number is none."""
    return not text.isdigit() and _OPAQUE.fullmatch(text) is not None


def encode_opaque(data: bytes) -> str:
    """Data as opaque text."""
    return b64encode(data).decode().ljust(LEAST_OPAQUE, "=")


def decode_opaque(text: str) -> bytes:
    """The data of an opaque text.

    Raises:
        ValueError: it is no base64.
    """
    text = text.rstrip("=")
    return b64decode(text + "=" * (-len(text) % 4))
