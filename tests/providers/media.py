"""Pictures, sounds and documents in requests: whether their bytes are what the request says."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

_DATA_URL: Final = re.compile(
    r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w=-]+)*?(?P<base64>;base64)?,(?P<data>.*)", re.DOTALL
)
IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


class DataUrl(NamedTuple):
    """A data URL, taken apart; `content` is `None` where the base64 is none."""

    media_type: str
    is_base64: bool
    content: bytes | None


def read_data_url(url: str) -> DataUrl | None:
    """A data URL, or `None` for any other text."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        return None
    return DataUrl(found["type"] or "", found["base64"] is not None, decoded(found["data"]))


def decoded(data: str) -> bytes | None:
    """The bytes of a base64 text, `None` where it is none."""
    try:
        return base64.b64decode(data, validate=True) or None
    except binascii.Error:
        return None


def image_type(content: bytes) -> str | None:
    """What picture it is, by its first bytes."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return None


def is_pdf(content: bytes) -> bool:
    """Whether it is a PDF document."""
    return content.startswith(b"%PDF-")


def audio_format(content: bytes) -> str | None:
    """`wav` or `mp3`, by its first bytes."""
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        return "wav"
    if content.startswith(b"ID3") or (len(content) > 1 and content[0] == 0xFF and content[1] & 0xE0 == 0xE0):
        return "mp3"
    return None
