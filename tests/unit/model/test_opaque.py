"""Encoded data is opaque whatever its length; what a person writes is not."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tenuto.model.opaque import decode_opaque, encode_opaque, is_opaque


@given(st.binary(max_size=2000))
@example(b"")
def test_data_of_any_length_is_opaque_and_comes_back(data: bytes) -> None:
    text = encode_opaque(data)

    assert is_opaque(text)
    assert decode_opaque(text) == data


def test_sentences_numbers_and_short_words_are_not_opaque() -> None:
    picture = "iVBORw0KGgo" * 60

    assert is_opaque(picture)
    assert is_opaque(f"data:image/png;base64,{picture}")
    assert not any(map(is_opaque, ["", "4242" * 200, "ann " * 200, f"see {picture}", picture[:500]]))
