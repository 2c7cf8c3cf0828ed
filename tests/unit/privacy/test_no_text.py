"""A value that is no text is refused with an error that does not quote it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenuto.privacy import RedactionStream, detect, redact

SECRET = "ann@example.com"


@pytest.mark.parametrize(
    "look", [detect, redact, lambda some: RedactionStream().feed(some)], ids=["detect", "redact", "feed"]
)
@pytest.mark.parametrize("given", [None, SECRET.encode(), 4242424242424242, [SECRET], {"mail": SECRET}], ids=repr)
def test_what_is_no_text_is_refused_and_not_quoted(look: Callable[[object], object], given: object) -> None:
    with pytest.raises(TypeError) as excinfo:
        look(given)

    kind = type(given).__name__
    assert str(excinfo.value) == f"private data is looked for in a str, and this is of the type {kind}"


def test_a_stream_goes_on_after_what_was_no_text() -> None:
    stream = RedactionStream()
    out = stream.feed("write to ann@exam")
    with pytest.raises(TypeError):
        stream.feed(b"ple.com")  # type: ignore[arg-type]

    assert out + stream.feed("ple.com") + stream.flush() == "write to [REDACTED_EMAIL]"


def test_a_text_of_ones_own_kind_is_a_text() -> None:
    class Text(str):
        __slots__ = ()

    assert redact(Text(f"write to {SECRET}")) == "write to [REDACTED_EMAIL]"
