"""Words from outside that every store can keep."""

from __future__ import annotations


def sound(text: str) -> str:
    """A text without NUL characters, and with a mark in place of each lone surrogate."""
    if text.isascii():
        return text.replace("\0", "") if "\0" in text else text
    return text.encode(errors="replace").decode().replace("\0", "") if not _is_encodable(text) or "\0" in text else text


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
