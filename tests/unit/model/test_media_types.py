"""What content is by its bytes: documents that are meant to keep a server busy."""

from __future__ import annotations

import zlib

import pytest

from tenuto.errors import Invalid
from tenuto.model.media_types import PDF, check_content_type
from tests.attachments import pdf_bomb

HEAD = b"%PDF-1.4\n"
# A mark, and the beginning of a stream that reaches over many such marks.
STORED = b"stream\n\x78\x01\x00\xff\xff\x00\x00"


@pytest.mark.parametrize("unit", [b"stream\n\x78\x9c", STORED], ids=["marks alone", "streams within streams"])
def test_a_pdf_that_would_be_read_again_and_again_is_refused(unit: bytes) -> None:
    # Enough for the limit; ten times as much took minutes.
    data = HEAD + unit * 40_000

    with pytest.raises(Invalid, match="overlap"):
        check_content_type(data, PDF)


def test_a_pdf_that_unpacks_to_far_more_is_refused() -> None:
    with pytest.raises(Invalid, match="256 MiB"):
        check_content_type(pdf_bomb(), PDF)


def test_a_pdf_of_many_small_streams_is_taken() -> None:
    streams = [b"%d 0 obj<</Filter/FlateDecode>>stream\n" % n + zlib.compress(b"%d" % n) for n in range(5000)]

    assert check_content_type(HEAD + b"endstream endobj\n".join(streams), PDF) == PDF
