"""Pictures, sounds and files that tests send, sound and unsound."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode, b64encode
from typing import Any


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64(data)}"


def png(size: int = 0, *, width: int = 2, height: int = 2) -> bytes:
    """A picture of so many pixels, padded by a palette that viewers skip."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\x40\x80\xc0" * width for _ in range(height)))
    padding = chunk(b"sPLT", bytes(number * 31 % 251 for number in range(size))) if size else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + padding + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


PNG = png(3000)
WAV = b"RIFF\x24\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data\0\0\0\0"
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><circle r="1"/></svg>'
SVG_WITH_SCRIPT = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def pdf_bomb() -> bytes:
    """A small PDF that unpacks to 300 MiB."""
    packing = zlib.compressobj(1)
    packed = b"".join([packing.compress(bytes(1024 * 1024)) for _ in range(300)]) + packing.flush()
    return b"%PDF-1.4\n1 0 obj<</Filter/FlateDecode>>stream\n" + packed + b"endstream"


def contents_of(body: Any) -> list[tuple[str, bytes]]:
    """The media types and bytes of all content in a request, in order."""
    if isinstance(body, str):
        if not body.startswith("data:"):
            return []
        media_type, _, data = body.removeprefix("data:").partition(";base64,")
        return [(media_type, b64decode(data))]
    if isinstance(body, list):
        return [one for item in body for one in contents_of(item)]
    if isinstance(body, dict):
        if body.get("type") == "base64":
            return [(body["media_type"], b64decode(body["data"]))]
        return [one for item in body.values() for one in contents_of(item)]
    return []
