"""Small contents for requests: pictures, a sound, a document, each the smallest of its kind; and a tool."""

from __future__ import annotations

import base64
from typing import Any, Final

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
GIF: Final = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
# Their first bytes are all that is looked at.
JPEG: Final = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"
WEBP: Final = b"RIFF\x1a\x00\x00\x00WEBPVP8L"
PDF: Final = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
WAV: Final = (
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"
    b"\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00"
)
PICTURE_ADDRESS: Final = "https://pictures.example/cat.png"
OPEN_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {"text": {"type": "string"}}}
STRICT_SCHEMA: Final[dict[str, Any]] = {**OPEN_SCHEMA, "required": ["text"], "additionalProperties": False}


def base64_text(content: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(content).decode()


def data_url(content: bytes, media_type: str = "image/png") -> str:
    """Bytes as a data URL."""
    return f"data:{media_type};base64,{base64_text(content)}"
