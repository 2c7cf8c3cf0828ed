"""From spans to marks: at once, or as a text comes in."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from tenuto.privacy.rules.chunking import LIMIT, Chunker, Piece
from tenuto.privacy.rules.detector import find
from tenuto.privacy.rules.span import ALWAYS, ON_REQUEST, PiiType, Span

_PORTION: Final = 4 * LIMIT


def detect(text: str, *, types: Collection[PiiType] = ALWAYS) -> list[Span]:
    """Every span of private data in `text`, in order, none overlapping. Offsets count code points.

    Marks that already stand in the text are left alone. The cost is linear in the length of the text.
    """
    if len(check_str(text)) <= LIMIT:
        return find(text, types)
    spans: list[Span] = []
    place = 0
    for own, found in _ChunkedDetector(types).whole(text):
        spans += [Span(place + span.start, place + span.end, span.type, span.rule) for span in found]
        place += len(own)
    return spans


def check_str(text: str) -> str:
    """Return a text, and refuse what programs without types hand in for one; it may be private, and is not quoted.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(text, str):
        raise TypeError(f"private data is looked for in a str, and this is of the type {type(text).__name__}")
    return text


def redact(text: str, *, types: Collection[PiiType] = ALWAYS) -> str:
    """`text` with a mark such as `[REDACTED_EMAIL]` in place of every span. Redacting twice changes nothing."""
    spans = detect(text, types=types)
    return _replace_spans(text, spans, 0) if spans else text


class RedactionStream:
    """Redacts a text that comes in chunks. What comes out, joined, is `redact` of what went in, joined.

    In prose a character is held back until about 300 more have come; where numbers and keys stand close, or a private
    key has begun, until a few thousand have.
    """

    def __init__(self, *, types: Collection[PiiType] = ALWAYS) -> None:
        self._types = types
        self._looker = _ChunkedDetector(types)
        self._over = 0

    def feed(self, chunk: str) -> str:
        """Take a chunk; give back what is decided by now, which may be nothing."""
        return "".join([self._redact_part(own, spans) for own, spans in self._looker.add(check_str(chunk))])

    def flush(self) -> str:
        """Give back everything that was held, at the end of the text. The stream can then take another one."""
        rest = "".join([self._redact_part(own, spans) for own, spans in self._looker.rest()])
        self._looker, self._over = _ChunkedDetector(self._types), 0
        return rest

    def _redact_part(self, own: str, spans: list[Span]) -> str:
        text = _replace_spans(own, spans, self._over)
        self._over = max(0, (spans[-1].end if spans else self._over) - len(own))
        return text


def _replace_spans(text: str, spans: list[Span], start: int) -> str:
    """`text` from `start` with marks in place of `spans`."""
    parts: list[str] = []
    for span in spans:
        parts += (text[start : span.start], span.mark)
        start = span.end
    parts.append(text[start:])
    return "".join(parts)


class _ChunkedDetector:
    """Finds the spans of a text piece by piece."""

    def __init__(self, types: Collection[PiiType]) -> None:
        self._types = types
        self._pieces = Chunker(asked=not ON_REQUEST.isdisjoint(types))
        self._over = 0
        """How far the last span of a piece reaches into the next one."""

    def add(self, text: str) -> Iterator[tuple[str, list[Span]]]:
        """Take more text; give parts of it that are decided, each with the spans that begin in it."""
        return map(self._detect_chunk, self._pieces.add(text))

    def rest(self) -> Iterator[tuple[str, list[Span]]]:
        """Decide everything that is left."""
        return map(self._detect_chunk, self._pieces.rest())

    def whole(self, text: str) -> Iterator[tuple[str, list[Span]]]:
        """Everything of a long text, a portion at a time, so that no step handles all of it."""
        for start in range(0, len(text), _PORTION):
            yield from self.add(text[start : start + _PORTION])
        yield from self.rest()

    def _detect_chunk(self, piece: Piece) -> tuple[str, list[Span]]:
        own = piece.text[piece.start : piece.end]
        spans = [
            Span(span.start - piece.start, span.end - piece.start, span.type, span.rule)
            for span in find(piece.text, self._types)
            if piece.start + self._over <= span.start < piece.end
        ]
        self._over = max(0, (spans[-1].end if spans else self._over) - len(own))
        return own, spans
