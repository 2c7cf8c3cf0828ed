"""The detector: runs every family of rules, the most certain first; of overlapping spans the first one stays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

from tenuto.model.privacy import replace_matches
from tenuto.privacy.rules.chunked_search import ChunkedSearch, StreamedRedaction
from tenuto.privacy.rules.chunking import LIMIT, Chunker
from tenuto.privacy.rules.families import FAMILIES, ON_REQUEST_FAMILY, Family, select_families
from tenuto.privacy.rules.folding import FoldedText, Work
from tenuto.privacy.rules.own_ids import drop_own_ids
from tenuto.privacy.rules.span import ALWAYS, MARK, MAY_BE_MARK, ON_REQUEST, TYPE_OF, Find, PiiType, Span

_SHORTEST: Final = 6
"""No rule finds anything in fewer characters: a@b.co."""
_SHORTEST_ASKED: Final = 4
"""Except for names, if they are searched: 我叫王伟."""

_ROUNDS: Final = 32
"""How often the text between spans is searched again. Only text made for it needs more than a few rounds."""


def find_once(view: FoldedText, families: Iterable[Family]) -> tuple[list[Span], list[Family]]:
    """Spans of a text without placeholders, in order, and the families whose prechecks passed."""
    if families is FAMILIES:
        families = select_families(view)
    finds: list[Find] = []
    passed: list[Family] = []
    work = view.work
    work.judged += 1
    for family in families:
        if not family.may_find(view):
            continue
        passed.append(family)
        for start, end, rule in family.find(view, finds):
            work.judged += 1
            at = bisect_left(finds, (start, end, rule))
            if (at == 0 or finds[at - 1][1] <= start) and (at == len(finds) or end <= finds[at][0]):
                finds.insert(at, (start, end, rule))
    if not finds:
        return [], passed
    spans = [Span(*view.back(start, end), TYPE_OF[rule], rule) for start, end, rule in finds]
    return drop_own_ids(view.source, spans), passed


def find(text: str, types: Collection[PiiType], work: Work | None = None) -> list[Span]:
    """Every span of one of `types` in `text`, in order, none overlapping. The cost grows faster than the length.

    It is counted in `work`.
    """
    families = FAMILIES if types is ALWAYS or ON_REQUEST.isdisjoint(types) else (*FAMILIES, ON_REQUEST_FAMILY)
    least = _SHORTEST if families is FAMILIES else _SHORTEST_ASKED
    if "[" not in text or not MAY_BE_MARK.search(text):
        return _find_until_stable(FoldedText(text, None, work), 0, types, families) if len(text) >= least else []
    found: list[Span] = []
    at = 0
    for mark in MARK.finditer(text):
        if mark.start() - at >= least:
            found += _find_until_stable(FoldedText(text[at : mark.start()], None, work), at, types, families)
        at = mark.end()
    if len(text) - at >= least:
        found += _find_until_stable(FoldedText(text[at:], None, work), at, types, families)
    return found


def _find_until_stable(
    view: FoldedText, place: int, types: Collection[PiiType], families: Collection[Family], rounds: int = _ROUNDS
) -> list[Span]:
    """Search again between spans until nothing new is found. The view's text is at offset `place`.

    Redacted text is searched in the parts between its placeholders. Spans that those parts would show are found now,
    so that redacting twice changes nothing. A span of a type not in `types` stays and does not split the text.
    """
    spans, passed = find_once(view, families) if rounds else ([], [])
    if not spans:
        return []
    found: list[Span] = []
    at, least = 0, _SHORTEST_ASKED if passed[-1] is ON_REQUEST_FAMILY else _SHORTEST
    for span in spans:
        if span.type in types:
            if span.start - at >= least:
                found += _find_until_stable(view.part(at, span.start), place + at, types, passed, rounds - 1)
            found.append(Span(place + span.start, place + span.end, span.type, span.rule))
            at = span.end
    if found and len(view.source) - at >= least:
        found += _find_until_stable(view.part(at, len(view.source)), place + at, types, passed, rounds - 1)
    return found


def detect(text: str, *, types: Collection[PiiType] = ALWAYS) -> list[Span]:
    """Every span of private data in `text`, in order, none overlapping. Offsets count code points.

    Placeholders in the text are left alone. The cost is linear in the length of the text.
    """
    if len(check_str(text)) <= LIMIT:
        return find(text, types)
    return _search(types).whole(text)


def _search(types: Collection[PiiType]) -> ChunkedSearch[Span]:
    chunker = Chunker(asked=not ON_REQUEST.isdisjoint(types))
    return ChunkedSearch(lambda text: find(text, types), chunker, Span.shifted)


def check_str(text: str) -> str:
    """Return the text; for callers without type checks. The error does not quote the value, which may be private.

    Raises:
        TypeError: it is no `str`.
    """
    if not isinstance(text, str):
        raise TypeError(f"private data is looked for in a str, and this is of the type {type(text).__name__}")
    return text


def redact(text: str, *, types: Collection[PiiType] = ALWAYS) -> str:
    """`text` with a placeholder such as `[REDACTED_EMAIL]` for every span. Redacting twice changes nothing."""
    spans = detect(text, types=types)
    return replace_matches(text, spans) if spans else text


class RedactionStream(StreamedRedaction[Span]):
    """Redacts a text that comes in chunks. What comes out, joined, is `redact` of what went in, joined.

    In prose it holds back about 300 characters; where numbers and keys are dense, or in a private key, a few thousand.
    """

    def __init__(self, *, types: Collection[PiiType] = ALWAYS) -> None:
        super().__init__(partial(_search, types))

    def feed(self, chunk: str) -> str:
        """Take a chunk; return the text that is decided by now, which may be empty."""
        return super().feed(check_str(chunk))
