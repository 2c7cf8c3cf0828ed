"""Finds private data by policy: built-in types and custom patterns, minus the allow-list."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import NOT_SEARCHED, CustomPattern, PiiMatch, PrivacyPolicy, replace_matches
from tenuto.privacy.detection.custom_patterns import BUILT_IN, CustomPatterns
from tenuto.privacy.rules.chunking import LIMIT, Chunker, Piece
from tenuto.privacy.rules.detector import KNOWN_CHUNKS
from tenuto.privacy.rules.detector import find as find_built_in
from tenuto.privacy.rules.folding import INVISIBLE, Work, fold
from tenuto.privacy.rules.span import ALWAYS, MARK, ON_REQUEST, PiiType, Span
from tenuto.privacy.spellings import normalize_spelling

_PORTION: Final = 4 * LIMIT
MOST_JUDGED: Final = 80_000
"""Candidates that are judged in the texts of one record: some two seconds of work. A log of 10,000 IPs has fewer."""
_MOST_KNOWN: Final = 4096
_FEW_MATCHES: Final = 8
_TYPES: Final = frozenset(map(str, PiiType))


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
        self._known: dict[bytes, Sequence[PiiMatch]] = {}
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
        found = self._known.get(key)
        if found is None:
            found = self._search(text, work)
            if len(found) <= _FEW_MATCHES and (work is None or work.judged <= MOST_JUDGED):
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = found
        return found

    def _search(self, text: str, work: Work | None) -> Sequence[PiiMatch]:
        if len(text) <= LIMIT:
            return self._look(text, work)
        return _collect_matches(_ChunkedFinder(self._look, self._pieces(), work).whole(text), len(text))

    def redact(self, text: str) -> str:
        """`text` with a placeholder such as `[REDACTED_EMAIL]` for every match. Redacting twice changes nothing."""
        found = self.find(text)
        return replace_matches(text, found) if found else text

    def admits(self, text: str, find: PiiMatch) -> bool:
        """Whether a match of another detector is private by this policy: neither allowed nor of an ignored type."""
        return find.type not in self._never and not (self._allowed and self._allowed(text, find))

    def stream(self) -> PolicyRedactionStream:
        """A stream that redacts a text in chunks, like `redact`."""
        return PolicyRedactionStream(self._look, self._pieces)

    def _pieces(self) -> Chunker:
        asked, own = not ON_REQUEST.isdisjoint(self.types), self._own
        return Chunker(asked=asked, more=own.candidates, reach=own.reach) if own else Chunker(asked=asked)

    def _look(self, text: str, work: Work | None) -> list[PiiMatch]:
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
        kept = [find for find in here if not self._allowed(part, find)] if self._allowed else here
        if not own and len(kept) == len(here):
            # `find_built_in` is stable already, and custom patterns match nothing new between matches.
            return [shift_match(find, start) for find in kept]
        found: list[PiiMatch] = []
        at = start
        for find in kept:
            found += self._find_until_stable(text, at, start + find.start, work)
            found.append(shift_match(find, start))
            at = start + find.end
        return found + self._find_until_stable(text, at, end, work) if kept else []


Look: TypeAlias = Callable[[str, Work | None], list[PiiMatch]]
Piecewise: TypeAlias = Iterator[tuple[str, list[PiiMatch]]]
"""Parts of a text, each with the matches that begin in it, relative to its start."""


class PolicyRedactionStream:
    """Redacts a text that comes in chunks. What comes out, joined, is `redact` of what went in, joined.

    Without custom patterns it holds back as much as `RedactionStream`; with them, in prose, some 900 characters. What
    follows after `MOST_JUDGED` candidates is withheld.
    """

    def __init__(self, look: Look, pieces: Callable[[], Chunker]) -> None:
        self._look, self._pieces = look, pieces
        self._looker = _ChunkedFinder(look, pieces(), Work())
        self._over = 0
        self.redacted: Counter[str] = Counter()
        """Redacted matches so far, by name."""

    def feed(self, chunk: str) -> str:
        """Take a chunk; return the text that is decided by now, which may be empty."""
        return "".join([self._redact_part(*part) for part in self._looker.add(chunk)])

    def flush(self) -> str:
        """Return the held text, at the end. The stream can then take another text."""
        rest = "".join([self._redact_part(*part) for part in self._looker.rest()])
        self._looker, self._over = _ChunkedFinder(self._look, self._pieces(), Work()), 0
        return rest

    def _redact_part(self, own: str, found: list[PiiMatch]) -> str:
        text = replace_matches(own, found, self._over)
        self.redacted.update(one.name for one in found)
        self._over = max(0, (found[-1].end if found else self._over) - len(own))
        return text


class _ChunkedFinder:
    """Finds matches in a text chunk by chunk."""

    def __init__(self, look: Look, pieces: Chunker, work: Work | None) -> None:
        self._look, self._pieces, self._work = lru_cache(KNOWN_CHUNKS)(lambda text: look(text, work)), pieces, work
        self._over = 0
        """How far the last match of a chunk reaches into the next one."""
        self._withheld = False

    def add(self, text: str) -> Piecewise:
        """Take more text; yield the parts that are decided."""
        return map(self._find_in_chunk, self._pieces.add(text))

    def rest(self) -> Piecewise:
        """Yield everything that is left."""
        return map(self._find_in_chunk, self._pieces.rest())

    def whole(self, text: str) -> Piecewise:
        """All of a long text, a portion at a time."""
        for start in range(0, len(text), _PORTION):
            yield from self.add(text[start : start + _PORTION])
        yield from self.rest()

    def _find_in_chunk(self, piece: Piece) -> tuple[str, list[PiiMatch]]:
        own = piece.text[piece.start : piece.end]
        if self._work is not None and self._work.judged > MOST_JUDGED and self._over < len(own):
            # One placeholder is for all that follows.
            found = [] if self._withheld else _withhold(own, self._over)
            self._over, self._withheld = 0, True
            return own if found else "", found
        found = [
            shift_match(find, -piece.start)
            for find in self._look(piece.text)
            if piece.start + self._over <= find.start < piece.end
        ]
        self._over = max(0, (found[-1].end if found else self._over) - len(own))
        return own, found


def _collect_matches(parts: Piecewise, length: int) -> list[PiiMatch]:
    found: list[PiiMatch] = []
    place = 0
    for own, here in parts:
        found += [shift_match(find, place) for find in here]
        if found and found[-1].type == NOT_SEARCHED:
            found[-1] = replace(found[-1], end=length)
            return found
        place += len(own)
    return found


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


def shift_match(find: PiiMatch, by: int) -> PiiMatch:
    """The match `by` characters further on."""
    return replace(find, start=find.start + by, end=find.end + by) if by else find


SETTING: Final = "allow"
_LONGEST: Final = 256
_HOST: Final = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W_][\w-]{0,61}")
_GAPS: Final = re.compile(r"[\s-]+")
# Numbers compare by digits, whatever the separators; short ones compare as text, so that `1-1` does not allow 11.
_NUMBER: Final = re.compile(r"\+?\(?[0-9](?:[\s()./-]{0,3}[0-9]){4,}")
_BETWEEN: Final = re.compile(r"[\s()./-]+")
# An allowed domain does not allow a key or a password next to it.
_NEVER_BY_DOMAIN: Final = frozenset({PiiType.SECRET, PiiType.API_KEY})


class Allowlist:
    """The allow-list of a policy. A match is compared as a whole, never in part."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._values: set[str] = set()
        self._phones: set[str] = set()
        self._mail_hosts: set[str] = set()
        self._domains: set[str] = set()
        for place, entry in enumerate(entries, 1):
            self._add_entry(_normalize(entry).strip(), f"entry {place}")

    def __call__(self, text: str, find: PiiMatch) -> bool:
        """Whether the match is on the list."""
        if find.end - find.start > 2 * _LONGEST:
            return False
        value = _normalize(text[find.start : find.end]).strip()
        if _comparison_key(value) in self._values or (
            find.type == PiiType.PHONE and normalize_spelling(PiiType.PHONE, value) in self._phones
        ):
            return True
        if find.type in _NEVER_BY_DOMAIN:
            return False
        _, at, host = value.rpartition("@")
        return (bool(at) and host in self._mail_hosts) or self._is_in_domain(host)

    def _is_in_domain(self, host: str) -> bool:
        if not self._domains or not _HOST.fullmatch(host):
            return False
        parts = host.split(".")
        return any(".".join(parts[first:]) in self._domains for first in range(len(parts) - 1))

    def _add_entry(self, entry: str, what: str) -> None:
        if len(entry) > _LONGEST:
            raise InvalidSetting(SETTING, f"{what} is longer than {_LONGEST} characters")
        kind, hosts = entry[:1], self._mail_hosts
        if entry.startswith("*."):
            kind, hosts = "*.", self._domains
        if kind in ("@", "*."):
            host = entry.removeprefix(kind)
            if not _HOST.fullmatch(host):
                raise InvalidSetting(SETTING, f"{what} names no domain behind its {kind}")
            hosts.add(host)
            return
        if "*" in entry or not any(map(str.isalnum, entry)):
            raise InvalidSetting(SETTING, f"{what} is not a value; only *.example.com may represent several")
        self._values.add(_comparison_key(entry))
        if _NUMBER.fullmatch(entry):
            self._phones.add(normalize_spelling(PiiType.PHONE, entry))


def _normalize(text: str) -> str:
    return fold(INVISIBLE.sub("", text)).casefold()


def _comparison_key(plain: str) -> str:
    """The same key for all spellings of a value: without spaces and dashes; of a number only the digits."""
    if _NUMBER.fullmatch(plain):
        return _BETWEEN.sub("", plain)
    return _GAPS.sub("", plain)


# The rest of a match that another one overlaps: punctuation and spaces alone do not count.
_SOMETHING: Final = re.compile(r"\w(?:.*\w)?", re.DOTALL)


def merge_matches(text: str, *layers: Sequence[PiiMatch]) -> list[PiiMatch]:
    """All matches of all layers, in order and not overlapping.

    Earlier layers have precedence over later ones, and inside a layer longer matches over shorter ones, earlier over
    later ones. Of a match that overlaps one of higher precedence, the rest stays a match, so that no part of it is
    shown.
    """
    starts: list[int] = []
    taken: list[PiiMatch] = []
    for layer in layers:
        for find in sorted(layer, key=lambda one: one.start - one.end):
            for start, end in list(_free_ranges(find, taken, starts)):
                part = find
                if (start, end) != (find.start, find.end):
                    core = _SOMETHING.search(text, start, end)
                    if core is None:
                        continue
                    part = replace(find, start=core.start(), end=core.end())
                place = bisect_left(starts, part.start)
                starts.insert(place, part.start)
                taken.insert(place, part)
    return taken


def _free_ranges(find: PiiMatch, taken: Sequence[PiiMatch], starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ranges of a match that are not `taken`, which is sorted and without overlaps."""
    at = find.start
    place = bisect_left(starts, at)
    if place and taken[place - 1].end > at:
        place -= 1
    while place < len(taken) and taken[place].start < find.end:
        if at < taken[place].start:
            yield at, taken[place].start
        at = max(at, taken[place].end)
        place += 1
    if at < find.end:
        yield at, find.end
