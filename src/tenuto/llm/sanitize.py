"""Text from models, made storable."""

from __future__ import annotations

from typing import Final

# The only argument of such a call; its value is what the model wrote. Pydantic AI uses the same name.
UNREADABLE: Final = "INVALID_JSON"


def sound(text: str) -> str:
    """The text without NUL characters and with a question mark for each lone surrogate."""
    return (text if text.isascii() else text.encode(errors="replace").decode()).replace("\0", "")
