"""What content is by its first bytes, and whether it is what a sender says it is. Nothing is decoded or drawn."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final

from tenuto.errors import Invalid
from tenuto.model.attachment import check_media_type

SVG: Final = "image/svg+xml"
PDF: Final = "application/pdf"
TEXT: Final = "text/plain"
UNKNOWN: Final = "application/octet-stream"

_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-ms-bmp": "image/bmp",
    "image/heif": "image/heic",
    "audio/mp3": "audio/mpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
    "application/x-pdf": PDF,
}
# Containers that say nothing of whether they hold pictures beside the sound.
_SAME_CONTAINER: Final = {"audio/mp4": "video/mp4", "audio/ogg": "video/ogg", "audio/webm": "video/webm"}
# The first bytes of each type; the first that fits counts.
_BEGINNINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (rb"\x89PNG\r\n\x1a\n", "image/png"),
    (rb"\xff\xd8\xff", "image/jpeg"),
    (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF.{4}WEBP", "image/webp"),
    (rb"BM.{4}\0{4}", "image/bmp"),
    (rb"II\*\0|MM\0\*", "image/tiff"),
    (rb"\0.{3}ftypavi[fs]", "image/avif"),
    (rb"\0.{3}ftyp(?:hei[cmsx]|hev[cmx]|mif1|msf1)", "image/heic"),
    (rb"RIFF.{4}WAVE", "audio/wav"),
    (rb"ID3[\x02-\x04]\0|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]", "audio/mpeg"),
    (rb"\xff[\xf0\xf1\xf8\xf9]", "audio/aac"),
    (rb"fLaC\0", "audio/flac"),
    (rb"OggS\0", "video/ogg"),
    (rb"\0.{3}ftyp", "video/mp4"),
    (rb"\x1aE\xdf\xa3", "video/webm"),
    (rb"%PDF-", PDF),
    (rb"PK\x03\x04", "application/zip"),
    (rb"\x1f\x8b", "application/gzip"),
)
_TYPE: Final = re.compile(b"|".join(b"(%b)" % beginning for beginning, _ in _BEGINNINGS), re.DOTALL)
_KNOWN: Final = frozenset({found for _, found in _BEGINNINGS} | _SAME_CONTAINER.keys())
_ENDINGS: Final = {
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "htm": "text/html",
    "html": "text/html",
    "json": "application/json",
    "log": TEXT,
    "md": "text/markdown",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "svg": SVG,
    "txt": TEXT,
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
}
_TEXTS: Final = re.compile(r"text/.*|application/(json|yaml|xml|.*\+(json|xml))|image/svg\+xml")
# What makes a picture of lines a program: scripts, handlers of events, other documents, and entities, which may hide
# any of them.
_ACTIVE_SVG: Final = re.compile(
    rb"<(?:[\w-]{1,40}:)?(?:script|foreignobject|iframe|embed|object|handler|set|animate)\b"
    rb"|[\s\"'/]on[a-z]+\s{0,20}=\s{0,20}[\"']|javascript\s{0,20}:|data\s{0,20}:\s{0,20}text/html"
    rb"|<!entity|<!doctype[^>\[]{0,500}\[|&#",
    re.IGNORECASE,
)
# Looking through a megabyte takes a tenth of a second.
_SVG_MOST: Final = 1024 * 1024
_PDF_STREAM: Final = re.compile(rb"stream\r?\n(?=[\x48\x58\x68\x78])")
# Bytes that the compressed streams of a PDF may have together.
_PDF_MOST: Final = 256 * 1024 * 1024
_PIECE: Final = 1024 * 1024
_FIRST_PIECE: Final = 128
# How often all bytes of a PDF may be read: streams that do not overlap are read twice at most.
_PDF_READ_TIMES: Final = 4


def media_type_of(data: bytes, name: str = "") -> str:
    """The media type of content whose sender names none: by its first bytes, then by the ending of its name."""
    found = _sniff(data)
    ending = _ENDINGS.get(name.rpartition(".")[2].lower())
    if found is not None:
        # Office documents are archives.
        return ending if found == "application/zip" and ending is not None else found
    if ending is not None:
        return ending
    return TEXT if _is_text(data) else UNKNOWN


def check_content_type(data: bytes, media_type: str) -> str:
    """The media type that content is stored under, where it may be what its sender says.

    Raises:
        Invalid: its bytes are of another type, it is an SVG that can do something, or a PDF that is a bomb.
    """
    said = check_media_type(media_type.strip().lower())
    kind, parameter = essence(said), said.partition(";")[2]
    found = _sniff(data)
    if kind in _KNOWN and found != _SAME_CONTAINER.get(kind, kind):
        raise Invalid(f"the content is not {kind}")
    if kind.startswith(("image/", "audio/")) and kind not in _KNOWN and kind != SVG and _is_text(data):
        raise Invalid(f"the content is a text, and not {kind}")
    if _TEXTS.fullmatch(kind) and (found is not None or b"\0" in data):
        raise Invalid(f"the content is not a text such as {kind}")
    if kind == SVG and len(data) > _SVG_MOST:
        raise Invalid("the SVG is larger than 1 MiB")
    if kind == SVG and _ACTIVE_SVG.search(data):
        raise Invalid("the SVG has scripts, handlers, entities or other documents in it")
    if kind == PDF:
        _check_pdf(data)
    return f"{kind};{parameter}" if parameter else kind


def essence(media_type: str) -> str:
    """A media type without its parameters, under its usual name."""
    family = media_type.partition(";")[0].strip().lower()
    return _ALIASES.get(family, family)


def is_picture(media_type: str) -> bool:
    """Whether models take content of this type as a picture; an SVG is a file."""
    return media_type in _KNOWN and media_type.startswith("image/")


def _sniff(data: bytes) -> str | None:
    found = _TYPE.match(data[:64])
    return _BEGINNINGS[found.lastindex - 1][1] if found is not None and found.lastindex else None


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_pdf(data: bytes) -> None:
    """Refuse a PDF whose compressed streams are a bomb for the program that reads it, or for this check: its streams
    may overlap, and so are read only so often. Unpacked bytes are counted, and never held."""
    reading = _Unpacking(data)
    total = 0
    for begins in _PDF_STREAM.finditer(data):
        try:
            for size in reading.sizes(begins.end()):
                total += size
                if total > _PDF_MOST:
                    raise Invalid("the PDF's streams unpack to more than 256 MiB")
        except zlib.error:
            continue  # Its bytes only look like a compressed stream; who reads the file says so.


class _Unpacking:
    """Unpacks the compressed streams of a file, and counts how much of it was read for that."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._left = _PDF_READ_TIMES * len(data) + _PIECE

    def sizes(self, at: int) -> Iterator[int]:
        """The sizes of the pieces of the stream that begins there, none of which is kept.

        Raises:
            Invalid: the streams overlap so much that they would be read again and again.
        """
        unpacking, length = zlib.decompressobj(), _FIRST_PIECE
        packed: bytes | memoryview = b""
        while not unpacking.eof:
            if not packed:
                packed = self._data[at : at + length]
                # Most marks stand before a short stream, or before none.
                at, length = at + length, min(2 * length, _PIECE)
                self._left -= len(packed)
                if self._left < 0:
                    raise Invalid("the PDF's streams overlap")
            piece = unpacking.decompress(packed, _PIECE)
            if not piece and not unpacking.unconsumed_tail and at >= len(self._data):
                return
            yield len(piece)
            packed = unpacking.unconsumed_tail
