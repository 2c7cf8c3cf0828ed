"""Finds private data by policy, in a text or in the texts of one record: built-in types and custom patterns, minus the
allow-list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from string import ascii_uppercase
from threading import Lock
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import InvalidSetting
from tenuto.lru_cache import LruCache
from tenuto.model.privacy import NOT_SEARCHED, CustomPattern, PiiMatch, PrivacyPolicy, replace_matches
from tenuto.privacy.detection.allowlist import Allowlist
from tenuto.privacy.detection.custom_patterns import BUILT_IN, CustomPatterns
from tenuto.privacy.detection.overlaps import merge_matches, shift_match
from tenuto.privacy.json_texts import Slot
from tenuto.privacy.rules.chunked_search import ChunkedSearch, StreamedRedaction
from tenuto.privacy.rules.chunking import LIMIT, Chunker, TextChunk
from tenuto.privacy.rules.detector import find as find_built_in
from tenuto.privacy.rules.folding import Work
from tenuto.privacy.rules.span import ALWAYS, MARK, ON_REQUEST, PiiType, Span

_PORTION: Final = 4 * LIMIT
MOST_JUDGED: Final = 80_000
"""Candidates that are judged in the texts of one record: some two seconds of work. A log of 10,000 IPs has fewer."""
_MOST_KNOWN: Final = 4096
_FEW_MATCHES: Final = 8
_TYPES: Final = frozenset(map(str, PiiType))
# What one text of a record shows by its context is found in the others as well.
_SHARED_TYPES: Final = frozenset({PiiType.ORDER_ID, PiiType.ADDRESS})
_BEGINNING: Final = 4
_LOWER: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
_BORDER: Final = re.compile(r"(?<!\w)(?=\S)", re.ASCII)
_WORD_GOES_ON: Final = re.compile(r"\w", re.ASCII)


class PiiFinder:
    """Finds by one policy. It is expensive to build and cheap to use: keep one for each policy.

    `forms` are patterns of built-in types, by name.

    Raises:
        InvalidSetting: the policy names an unknown type, or has an invalid pattern or allow-list entry.
    """

    def __init__(self, policy: PrivacyPolicy, forms: Sequence[CustomPattern] = ()) -> None:
        self.types = _policy_types(policy)
        forms = [form for form in forms if form.name in self.types]
        self._own = CustomPatterns(policy.patterns, forms) if policy.patterns or forms else None
        self._allowed = Allowlist(policy.allow) if policy.allow else None
        self._never = frozenset(policy.never)
        # Long texts are searched in threads.
        self._known, self._lock = LruCache[bytes, Sequence[PiiMatch]](_MOST_KNOWN), Lock()
        own = self._own.names if self._own else ()
        self.names = frozenset((*self.types, *own))
        """Every type and custom pattern that is searched."""
        self.marks = _placeholder_regex(own)
        """Placeholders in a text, of built-in types and custom patterns; they are left unchanged."""
        for name in policy.unvaulted:
            if name not in _TYPES and name not in own:
                raise InvalidSetting("unvaulted", f"{name[:32]!a} is neither a type nor a pattern of the policy")

    def find(self, text: str, work: Work | None = None) -> Sequence[PiiMatch]:
        """Every match, in order, none overlapping. The cost is linear in the length of the text.

        With `work`, which several texts may share, at most `MOST_JUDGED` candidates are judged: what follows them is
        one match of the type `NOT_SEARCHED`.

        Short results are remembered by a digest of the text: the words of a turn pass several sinks.
        """
        if work is not None and work.judged > MOST_JUDGED:
            return _withhold(text, 0)
        if len(text) > _PORTION:
            return self._search(text, work)
        key = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        with self._lock:
            found = self._known.get(key)
        if found is None:
            found = self._search(text, work)
            if len(found) <= _FEW_MATCHES and (work is None or work.judged <= MOST_JUDGED):
                with self._lock:
                    self._known.put(key, found)
        return found

    def _search(self, text: str, work: Work | None) -> Sequence[PiiMatch]:
        if len(text) <= LIMIT:
            return self._find_short(text, work)
        found = _BoundedSearch(self._find_short, self._new_chunker(), work).whole(text)
        if found and found[-1].type == NOT_SEARCHED:
            found[-1] = replace(found[-1], end=len(text))
        return found

    def redact(self, text: str) -> str:
        """`text` with a placeholder such as `[REDACTED_EMAIL]` for every match. Redacting twice changes nothing."""
        found = self.find(text)
        return replace_matches(text, found) if found else text

    def admits(self, text: str, match: PiiMatch) -> bool:
        """Whether a match of another detector is private by this policy: neither allowed nor of an ignored type."""
        return match.type not in self._never and not (self._allowed and self._allowed(text, match))

    def stream(self) -> PolicyRedactionStream:
        """A stream that redacts a text in chunks, like `redact`."""
        return PolicyRedactionStream(lambda: _BoundedSearch(self._find_short, self._new_chunker(), Work()))

    def _new_chunker(self) -> Chunker:
        asked, own = not ON_REQUEST.isdisjoint(self.types), self._own
        return Chunker(asked=asked, more=own.candidates, reach=own.reach) if own else Chunker(asked=asked)

    def _find_short(self, text: str, work: Work | None) -> list[PiiMatch]:
        """The matches of a short text. The cost grows faster than the length."""
        found: list[PiiMatch] = []
        at = 0
        for known in self.marks.finditer(text) if "[" in text else ():
            found += self._find_until_stable(text, at, known.start(), work)
            at = known.end()
        return found + self._find_until_stable(text, at, len(text), work)

    def _find_until_stable(self, text: str, start: int, end: int, work: Work | None) -> list[PiiMatch]:
        """Search again between matches until nothing new is found, so that redacting twice changes nothing.

        Allowed values stay in the text and do not split it.
        """
        part = text[start:end]
        own = self._own.find(part, behind=start > 0, before=end < len(text)) if self._own else None
        built_in = list(map(_to_match, find_built_in(part, self.types, work)))
        here = merge_matches(part, [*own, *built_in]) if own else built_in
        kept = [match for match in here if not self._allowed(part, match)] if self._allowed else here
        if not own and len(kept) == len(here):
            # `find_built_in` is stable already, and custom patterns match nothing new between matches.
            return [shift_match(match, start) for match in kept]
        found: list[PiiMatch] = []
        at = start
        for match in kept:
            found += self._find_until_stable(text, at, start + match.start, work)
            found.append(shift_match(match, start))
            at = start + match.end
        return found + self._find_until_stable(text, at, end, work) if kept else []


def find_in_slots(finder: PiiFinder, slots: Sequence[Slot], *, bounded: bool) -> list[Sequence[PiiMatch]]:
    """The matches of each text. An order number or address that one text shows is found in the others as well."""
    work = Work() if bounded else None
    found = [_find_in_slot(finder, slot, None if slot.internal else work) for slot in slots]
    known = {
        slot.text[one.start : one.end]: one
        for slot, finds in zip(slots, found, strict=True)
        for one in finds
        if one.type in _SHARED_TYPES
    }
    if not known:
        return found
    likes = {text.translate(_LOWER): one for text, one in known.items()}
    lengths: dict[str, set[int]] = {}
    for value in likes:
        lengths.setdefault(value[:_BEGINNING], set()).add(len(value))
    longest_first = {beginning: sorted(some, reverse=True) for beginning, some in lengths.items()}
    again = [list(_find_again(slot.text, likes, longest_first)) for slot in slots]
    return [
        merge_matches(slot.text, finds, more) if more else finds
        for slot, finds, more in zip(slots, found, again, strict=True)
    ]


def _find_again(text: str, likes: Mapping[str, PiiMatch], lengths: Mapping[str, list[int]]) -> Iterator[PiiMatch]:
    """Every place of a value in a text, whatever the case. One pattern of all values would be tried value by value."""
    lower, reached = text.translate(_LOWER), 0
    for place in _BORDER.finditer(text):
        start = place.start()
        for length in lengths.get(lower[start : start + _BEGINNING], ()) if start >= reached else ():
            end = start + length
            one = likes.get(lower[start:end])
            if one is not None and not _WORD_GOES_ON.match(text, end):
                reached = end
                yield replace(one, start=start, end=end)
                break


def _find_in_slot(finder: PiiFinder, slot: Slot, work: Work | None) -> Sequence[PiiMatch]:
    """The matches in a text, searched together with its name."""
    if not slot.name:
        return finder.find(slot.text, work)
    start = len(slot.name) + 2
    found = finder.find(f"{slot.name}: {slot.text}", work)
    return [replace(one, start=max(0, one.start - start), end=one.end - start) for one in found if one.end > start]


_Find: TypeAlias = Callable[[str, Work | None], list[PiiMatch]]


class _BoundedSearch(ChunkedSearch[PiiMatch]):
    """The search of a long text that ends with a withheld rest when its work exceeds the bound."""

    def __init__(self, find: _Find, chunker: Chunker, work: Work | None) -> None:
        super().__init__(lambda text: find(text, work), chunker, shift_match)
        self._work = work
        self._withheld = False

    def _search(self, piece: TextChunk) -> tuple[str, list[PiiMatch]]:
        part = piece.text[piece.start : piece.end]
        if self._work is None or self._work.judged <= MOST_JUDGED or self._overlap >= len(part):
            return super()._search(piece)
        # One placeholder is for all that follows.
        found = [] if self._withheld else _withhold(part, self._overlap)
        self._overlap, self._withheld = 0, True
        return part if found else "", found


class PolicyRedactionStream(StreamedRedaction[PiiMatch]):
    """Redacts a text that comes in chunks. What comes out, joined, is `redact` of what went in, joined.

    Without custom patterns it holds back as much as `RedactionStream`; with them, in prose, some 900 characters. What
    follows after `MOST_JUDGED` candidates is withheld.
    """


def _withhold(text: str, start: int) -> list[PiiMatch]:
    end = len(text)
    return [PiiMatch(start=start, end=end, type=NOT_SEARCHED, rule=NOT_SEARCHED, name=NOT_SEARCHED)] if text else []


def _policy_types(policy: PrivacyPolicy) -> frozenset[PiiType]:
    for setting, names in (("also", policy.also), ("never", policy.never)):
        for name in names:
            if name not in _TYPES:
                raise InvalidSetting(
                    setting, f"{name[:32]!a} is not a type; expected one of {', '.join(sorted(_TYPES))}"
                )
    both = sorted(set(policy.also) & set(policy.never))
    if both:
        raise InvalidSetting("never", f"{both[0]} is listed in also, too")
    return frozenset((ALWAYS | set(map(PiiType, policy.also))) - set(map(PiiType, policy.never)))


def _placeholder_regex(own: Sequence[str]) -> re.Pattern[str]:
    if not own:
        return MARK
    names = "|".join(sorted((*BUILT_IN, *own), key=len, reverse=True))
    return re.compile(rf"\[(?:REDACTED_)?(?:{names})(?:_[0-9]{{1,4}})?\]")


def _to_match(span: Span) -> PiiMatch:
    return PiiMatch(start=span.start, end=span.end, type=span.type.value, rule=span.rule.value, name=span.name)
