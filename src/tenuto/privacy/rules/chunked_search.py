"""The search of a long text or a stream, chunk by chunk, and its redaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Generic, TypeVar

from tenuto.model.privacy import Replaceable, replace_matches
from tenuto.privacy.rules.chunking import LIMIT, Chunker, TextChunk

_PORTION: Final = 4 * LIMIT
KNOWN_CHUNKS: Final = 64
"""Chunks of a text whose matches are remembered while it is searched."""


_M = TypeVar("_M", bound=Replaceable)


class ChunkedSearch(Generic[_M]):
    """Finds matches in a text that comes in parts.

    `find` searches a chunk and `shift` moves a match. A chunk that occurs again is not searched again.
    """

    def __init__(self, find: Callable[[str], Sequence[_M]], chunker: Chunker, shift: Callable[[_M, int], _M]) -> None:
        self._find = lru_cache(KNOWN_CHUNKS)(find)
        self._chunker = chunker
        self._shift = shift
        self._overlap = 0
        """How far the last match of a chunk reaches into the next one."""

    def add(self, text: str) -> Iterator[tuple[str, list[_M]]]:
        """Take more text; yield the parts that are decided, each with the matches that begin in it."""
        return map(self._search, self._chunker.add(text))

    def rest(self) -> Iterator[tuple[str, list[_M]]]:
        """Yield everything that is left."""
        return map(self._search, self._chunker.rest())

    def whole(self, text: str) -> list[_M]:
        """The matches in all of a long text, which is taken a portion at a time."""
        found: list[_M] = []
        place = 0
        for part, matches in self._portions(text):
            if not part:
                break  # The rest is not searched.
            found += [self._shift(match, place) for match in matches]
            place += len(part)
        return found

    def _portions(self, text: str) -> Iterator[tuple[str, list[_M]]]:
        for start in range(0, len(text), _PORTION):
            yield from self.add(text[start : start + _PORTION])
        yield from self.rest()

    def _search(self, piece: TextChunk) -> tuple[str, list[_M]]:
        part = piece.text[piece.start : piece.end]
        first = piece.start + self._overlap
        found = [
            self._shift(match, -piece.start) for match in self._find(piece.text) if first <= match.start < piece.end
        ]
        self._overlap = max(0, (found[-1].end if found else self._overlap) - len(part))
        return part, found


class StreamedRedaction(Generic[_M]):
    """Redacts a text that comes in chunks."""

    def __init__(self, new_search: Callable[[], ChunkedSearch[_M]]) -> None:
        self._new_search = new_search
        self._search = new_search()
        self._overlap = 0
        self.redacted: Counter[str] = Counter()
        """Redacted matches so far, by name."""

    def feed(self, chunk: str) -> str:
        """Take a chunk; return the text that is decided by now, which may be empty."""
        return "".join([self._redact_part(*part) for part in self._search.add(chunk)])

    def flush(self) -> str:
        """Return the held text, at the end. The stream can then take another text."""
        rest = "".join([self._redact_part(*part) for part in self._search.rest()])
        self._search, self._overlap = self._new_search(), 0
        return rest

    def _redact_part(self, part: str, found: list[_M]) -> str:
        text = replace_matches(part, found, self._overlap)
        self.redacted.update(match.name for match in found)
        self._overlap = max(0, (found[-1].end if found else self._overlap) - len(part))
        return text
