"""What the container of a picture tells without decoding it: its width and height, and the metadata it can do without.

Cameras write beside its pixels where and by whom a picture was taken. What is needed to show it stays: colour profiles,
animation, and the orientation, alone in an EXIF block of its own. Libraries for pictures decode and compress again,
which changes pixels; here the pixels are copied as they are. A file that is not well formed stays as it came.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from tenuto.errors import Invalid

_PNG: Final = b"\x89PNG\r\n\x1a\n"
# Chunks that say how to show a picture; those whose name begins with a capital are needed to read it.
_PNG_SHOWN: Final = frozenset(
    {b"tRNS", b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB", b"cICP", b"mDCV", b"cLLI", b"bKGD", b"hIST", b"pHYs"}
    | {b"sPLT", b"acTL", b"fcTL", b"fdAT"}
)
_WEBP_SHOWN: Final = frozenset({b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"ICCP"})
_WEBP_EXIF: Final = 0x08
_WEBP_XMP: Final = 0x04
_PNG_PIXELS: Final = b"IDAT"
# A progressive JPEG with a large colour profile has some hundreds.
_MOST_SEGMENTS: Final = 20_000
_EXIF: Final = b"Exif\0\0"
_ORIENTATION: Final = 0x0112
_TURNED: Final = range(2, 9)
# Markers of JPEG.
_SOI, _EOI, _SOS, _COMMENT, _APP0, _APP1, _APP2, _APP14, _APP15 = 0xD8, 0xD9, 0xDA, 0xFE, 0xE0, 0xE1, 0xE2, 0xEE, 0xEF
_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
# Within pixels, a marker that is neither a zero of stuffing nor a restart.
_AFTER_PIXELS: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_PDF_PAGE: Final = re.compile(rb"/Type\s{0,4}/Page(?![a-zA-Z])")


class _Malformed(Exception):
    """The file is not what its first bytes say."""


class _Segment(NamedTuple):
    """A piece of a JPEG file: its marker, its bytes with the marker, and what is inside."""

    marker: int
    whole: bytes
    inside: bytes


def picture_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, a JPEG, a GIF or a WebP; `None` of anything else."""
    try:
        size = _read_size(data)
    except (_Malformed, struct.error, IndexError):
        return None
    return size if size is not None and min(size) > 0 else None


def _read_size(data: bytes) -> tuple[int, int] | None:
    if data.startswith(_PNG):
        return _pair(">II", data, 16)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _pair("<HH", data, 6)
    if data.startswith(b"\xff\xd8\xff"):
        for segment in _jpeg_segments(data):
            if segment.marker in _FRAMES:
                height, width = _pair(">HH", segment.inside, 1)
                return width, height
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp_size(data)
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = _pair("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _pair(form: str, data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(form, data, at)
    return int(first), int(second)


def pdf_pages(data: bytes) -> int | None:
    """The pages of a PDF whose objects are not compressed; `None` where none can be counted."""
    return sum(1 for _ in _PDF_PAGE.finditer(data)) or None if data.startswith(b"%PDF-") else None


def without_metadata(data: bytes) -> bytes:
    """A JPEG, a PNG or a WebP without what it does not need to be shown; the same bytes if there is nothing of it."""
    try:
        if data.startswith(b"\xff\xd8\xff"):
            clean = b"".join(_clean_jpeg(data))
        elif data.startswith(_PNG):
            clean = b"".join(_clean_png(data))
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            clean = _clean_webp(data)
        else:
            return data
    except (_Malformed, struct.error, IndexError):
        return data
    return data if clean == data else clean


def _clean_jpeg(data: bytes) -> Iterator[bytes]:
    segments = list(_jpeg_segments(data))
    exif = next((one.inside[len(_EXIF) :] for one in segments if _is_exif(one)), b"")
    turned = _orientation(exif)
    yield data[:2]
    for segment in segments:
        if turned and segment.marker != _APP0:
            block = _EXIF + _orientation_block(turned)
            yield struct.pack(">BBH", 0xFF, _APP1, len(block) + 2) + block
            turned = 0
        if _is_shown(segment):
            yield segment.whole


def _is_exif(segment: _Segment) -> bool:
    return segment.marker == _APP1 and segment.inside.startswith(_EXIF)


def _is_shown(segment: _Segment) -> bool:
    if segment.marker == _APP2:
        return segment.inside.startswith(b"ICC_PROFILE\0")
    if segment.marker in (_APP0, _APP14):
        return True
    return segment.marker != _COMMENT and not _APP1 <= segment.marker <= _APP15


def _jpeg_segments(data: bytes) -> Iterator[_Segment]:
    """All segments behind the first marker, up to the end of the picture; pixels go with the segment before them.

    Raises:
        Invalid: there are far more than in any picture, so that they take long to look at.
    """
    at, count = 2, 0
    while True:
        start = at
        if data[at] != 0xFF:
            raise _Malformed
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker == _EOI:
            yield _Segment(marker, data[start:at], b"")
            return
        if marker in (0, 1, _SOI) or 0xD0 <= marker <= 0xD7:
            raise _Malformed
        length = int(struct.unpack_from(">H", data, at)[0])
        end = at + length
        if length < 2 or end > len(data):
            raise _Malformed
        inside = data[at + 2 : end]
        if marker == _SOS:
            found = _AFTER_PIXELS.search(data, end)
            # An upload that was cut: viewers show what is there, so it is cleaned as well.
            end = found.start() if found is not None else len(data)
        yield _Segment(marker, data[start:end], inside)
        if end == len(data) and marker == _SOS:
            return
        count += 1
        if count > _MOST_SEGMENTS:
            raise Invalid(f"the content is a JPEG of more than {_MOST_SEGMENTS:,} segments")
        at = end


def _clean_png(data: bytes) -> Iterator[bytes]:
    yield data[:8]
    at, first = 8, True
    chunks: list[tuple[bytes, bytes]] = []
    while at < len(data):
        name = data[at + 4 : at + 8]
        length = int.from_bytes(data[at : at + 4], "big")
        end = at + 12 + length
        if end > len(data) and not any(earlier == _PNG_PIXELS for earlier, _ in chunks) and name != _PNG_PIXELS:
            raise _Malformed
        # A picture whose end was cut is shown as far as it goes: what is no chunk there stays.
        chunks.append((name if end <= len(data) or name.isalpha() else _PNG_PIXELS, data[at:end]))
        at = end
        if name == b"IEND":
            break
    if not any(name in (_PNG_PIXELS, b"IEND") for name, _ in chunks):
        raise _Malformed
    turned = _orientation(next((whole[8:-4] for name, whole in chunks if name == b"eXIf"), b""))
    for name, whole in chunks:
        if name[:1].isupper() or name in _PNG_SHOWN:
            yield whole
        if first and turned:
            block = b"eXIf" + _orientation_block(turned)
            yield struct.pack(">I", len(block) - 4) + block + struct.pack(">I", crc32(block))
        first = False


def _clean_webp(data: bytes) -> bytes:
    chunks: list[tuple[bytes, bytes]] = []
    at, end = 12, 8 + int(struct.unpack_from("<I", data, 4)[0])
    if end > len(data):
        raise _Malformed
    while at < end:
        (length,) = struct.unpack_from("<I", data, at + 4)
        inside = data[at + 8 : at + 8 + length]
        if len(inside) < length:
            raise _Malformed
        chunks.append((data[at : at + 4], inside))
        at += 8 + length + length % 2
    exif = next((inside.removeprefix(_EXIF) for name, inside in chunks if name == b"EXIF"), b"")
    turned = _orientation(exif)
    kept = [(name, inside) for name, inside in chunks if name in _WEBP_SHOWN]
    if kept and kept[0][0] == b"VP8X":
        flags = kept[0][1][0] & ~(_WEBP_EXIF | _WEBP_XMP) | (_WEBP_EXIF if turned else 0)
        kept[0] = (b"VP8X", bytes([flags]) + kept[0][1][1:])
        if turned:
            kept.append((b"EXIF", _orientation_block(turned)))
    body = b"".join(
        [name + struct.pack("<I", len(inside)) + inside + b"\0" * (len(inside) % 2) for name, inside in kept]
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def _orientation(exif: bytes) -> int:
    """How the picture is to be turned, by its EXIF block; 0 if it stands as it is, or the block cannot be read."""
    try:
        return _read_orientation(exif)
    except struct.error:
        return 0


def _read_orientation(exif: bytes) -> int:
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return 0
    (at,) = struct.unpack_from(f"{order}I", exif, 4)
    (count,) = struct.unpack_from(f"{order}H", exif, at)
    for place in range(count):
        tag, kind = struct.unpack_from(f"{order}HH", exif, at + 2 + place * 12)
        if tag == _ORIENTATION and kind == 3:
            value = int(struct.unpack_from(f"{order}H", exif, at + 2 + place * 12 + 8)[0])
            return value if value in _TURNED else 0
    return 0


def _orientation_block(value: int) -> bytes:
    """An EXIF block that says the orientation and nothing else."""
    return struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, _ORIENTATION, 3, 1, value, 0, 0)
