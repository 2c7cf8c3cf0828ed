"""Pictures before they are stored: their size, and what is taken out of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import Invalid
from tenuto.sessions.pictures import pdf_pages, picture_size, without_metadata
from tests.providers.samples import GIF, PDF, PNG

PLACE = b"48.8584 N 2.2945 E, by Ann"


def exif(orientation: int) -> bytes:
    """An EXIF block with an orientation and a place."""
    entries = struct.pack("<HHII", 0x0112, 3, 1, orientation) + struct.pack("<HHII", 0x010E, 2, len(PLACE), 38)
    return struct.pack("<2sHIH", b"II", 42, 8, 2) + entries + struct.pack("<I", 0) + PLACE


def segment(marker: int, inside: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(inside) + 2) + inside


JFIF = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")
COLOURS = segment(0xE2, b"ICC_PROFILE\0\1\1colours")
FRAME = segment(0xC2, struct.pack(">BHHB", 8, 30, 40, 1) + b"\1\x11\0")
# Two scans, with stuffed and restart bytes, and a table between them.
PIXELS = segment(0xDA, b"\1\1\0\0\x3f\0") + b"\x12\xff\x00\xff\xd0\x34" + segment(0xC4, b"\0" * 17)
PIXELS += segment(0xDA, b"\1\1\0\0\x3f\0") + b"\x56\xff\x00" + b"\xff\xd9"


def jpeg(orientation: int) -> bytes:
    notes = segment(0xE1, b"Exif\0\0" + exif(orientation)) + segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + PLACE)
    notes += segment(0xED, b"Photoshop 3.0\0" + PLACE) + segment(0xFE, PLACE)
    return b"\xff\xd8" + JFIF + notes + COLOURS + FRAME + PIXELS + b"trailer " + PLACE


def chunk(name: bytes, inside: bytes) -> bytes:
    return struct.pack(">I", len(inside)) + name + inside + struct.pack(">I", crc32(name + inside))


def png(orientation: int) -> bytes:
    notes = chunk(b"eXIf", exif(orientation)) + chunk(b"tEXt", b"Author\0" + PLACE) + chunk(b"gAMA", b"\0\0\xb1\x8f")
    return PNG[:33] + notes + PNG[33:] + PLACE


def webp(orientation: int) -> bytes:
    def part(name: bytes, inside: bytes) -> bytes:
        return name + struct.pack("<I", len(inside)) + inside + b"\0" * (len(inside) % 2)

    wide = part(b"VP8X", bytes([0x2C, 0, 0, 0, 39, 0, 0, 29, 0, 0]))
    body = wide + part(b"ICCP", b"colours") + part(b"VP8L", b"\x2f\0\0\0\0") + part(b"EXIF", exif(orientation))
    body += part(b"XMP ", PLACE)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


@pytest.mark.parametrize(("make", "end"), [(jpeg, b"\x56\xff\x00"), (png, PNG[-20:-12])], ids=["jpeg", "png"])
def test_a_picture_whose_upload_was_cut_has_no_metadata(make: Callable[[int], bytes], end: bytes) -> None:
    data = make(6)
    cut = data[: data.rindex(end) + len(end)]

    clean = without_metadata(cut)

    assert (PLACE in cut, PLACE in clean, clean.endswith(end)) == (True, False, True)


def test_a_picture_of_countless_segments_is_refused() -> None:
    data = b"\xff\xd8" + segment(0xE1, b"") * 100_000 + b"\xff\xd9"

    with pytest.raises(Invalid, match="segments"):
        without_metadata(data)


@pytest.mark.parametrize(
    ("make", "kept"),
    [(jpeg, [JFIF, COLOURS, FRAME, PIXELS]), (png, [PNG[:33], PNG[33:], b"gAMA"]), (webp, [b"colours", b"VP8L"])],
    ids=["jpeg", "png", "webp"],
)
@pytest.mark.parametrize("orientation", [1, 6])
def test_metadata_goes_and_the_orientation_and_all_that_is_shown_stay(
    make: Callable[[int], bytes], kept: list[bytes], orientation: int
) -> None:
    data = make(orientation)

    clean = without_metadata(data)

    assert PLACE not in clean
    assert (struct.pack(">HHIH", 0x0112, 3, 1, 6) in clean) == (orientation == 6)
    assert picture_size(clean) == picture_size(data) is not None
    assert without_metadata(clean) is clean
    assert all(piece in clean for piece in kept)


@pytest.mark.parametrize(
    "data", [PNG, GIF, PDF, b"", b"text", b"\xff\xd8\xff", jpeg(6)[:-60], png(6)[:60], webp(6)[:70]]
)
def test_what_has_none_or_is_not_well_formed_stays_as_it_came(data: bytes) -> None:
    assert without_metadata(data) is data


@given(st.sampled_from([jpeg(6), png(6), webp(6)]), st.data())
def test_a_damaged_picture_is_no_error(whole: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:place] + data.draw(st.binary(max_size=8)) + whole[place + data.draw(st.integers(0, 8)) :]

    picture_size(damaged)
    without_metadata(damaged)


def test_sizes_and_pages_are_read_from_the_container() -> None:
    two_pages = PDF + b"<</Type /Page/Parent 1 0 R>><</Type/Page>>"

    assert [*map(picture_size, (PNG, GIF, jpeg(1), webp(1)))] == [(1, 1), (1, 1), (40, 30), (40, 30)]
    assert [*map(picture_size, (b"", b"text", PNG[:8], PNG[:18]))] == [None] * 4
    assert [*map(pdf_pages, (PDF, two_pages, PNG))] == [None, 2, None]
