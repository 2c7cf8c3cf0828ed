"""What a policy calls private, found in a text: our own types, the installation's patterns, without what it allows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import Found, PrivacyPolicy, marked
from tenuto.privacy.finding.allowing import Allowed
from tenuto.privacy.finding.merging import merged
from tenuto.privacy.finding.own_patterns import BUILT_IN, OwnPatterns
from tenuto.privacy.rules.detector import find as find_built_in
from tenuto.privacy.rules.pieces import LIMIT, Piece, Pieces
from tenuto.privacy.rules.redaction import detect
from tenuto.privacy.rules.span import ALWAYS, MARK, ON_REQUEST, Span, Type

_PORTION: Final = 4 * LIMIT
_TYPES: Final = frozenset(map(str, Type))


class Finder:
    """Finds by one policy. Building it costs, looking does not: keep one for each policy.

    Raises:
        InvalidSetting: the policy names a type that does not exist, or a pattern or an allowed value is no good.
    """

    def __init__(self, policy: PrivacyPolicy) -> None:
        self.types = _types(policy)
        self._own = OwnPatterns(policy.patterns) if policy.patterns else None
        self._allowed = Allowed(policy.allow)
        self._never = frozenset(policy.never)
        own = self._own.names if self._own else ()
        self.names = frozenset((*self.types, *own))
        """Every type and own pattern that is looked for."""
        self.marks = _marks(own)
        """Marks in a text, ours and those of own patterns; they are left as they are."""
        _check_unvaulted(policy, own)

    def find(self, text: str) -> list[Found]:
        """Every find, in order, none overlapping. The cost is linear in the length of the text."""
        if self._own is None and not self._allowed:
            return list(map(_found, detect(text, types=self.types)))
        if len(text) <= LIMIT:
            return self._look(text)
        return _joined(_Looker(self._look, self._pieces()).whole(text))

    def redact(self, text: str) -> str:
        """`text` with a mark such as `[REDACTED_EMAIL]` in place of every find. Twice is the same as once."""
        found = self.find(text)
        return marked(text, found) if found else text

    def admits(self, text: str, find: Found) -> bool:
        """Whether a find of somebody else is private by this policy: it is neither allowed nor to be left alone."""
        return find.type not in self._never and not self._allowed(text, find)

    def stream(self) -> FinderStream:
        """What redacts a text that comes in chunks, like `redact`."""
        return FinderStream(self._look, self._pieces)

    def _pieces(self) -> Pieces:
        return Pieces(asked=not ON_REQUEST.isdisjoint(self.types), more=self._own)

    def _look(self, text: str) -> list[Found]:
        """One look at a text. Its cost grows faster than the length."""
        found: list[Found] = []
        at = 0
        for known in self.marks.finditer(text) if "[" in text else ():
            found += self._settle(text, at, known.start())
            at = known.end()
        return found + self._settle(text, at, len(text))

    def _settle(self, text: str, start: int, end: int) -> list[Found]:
        """Look again between what was found until nothing new comes up, so that redacting twice changes nothing.

        What is allowed stays in the text, and parts nothing.
        """
        part = text[start:end]
        own = self._own.find(part, behind=start > 0, before=end < len(text)) if self._own else None
        built_in = list(map(_found, find_built_in(part, self.types)))
        here = merged(part, [*own, *built_in]) if own else built_in
        kept = [find for find in here if not self._allowed(part, find)] if self._allowed else here
        if not own and len(kept) == len(here):
            # The detector has settled this itself, and own patterns match nothing new between walls.
            return [_moved(find, start) for find in kept]
        found: list[Found] = []
        at = start
        for find in kept:
            found += self._settle(text, at, start + find.start)
            found.append(_moved(find, start))
            at = start + find.end
        return found + self._settle(text, at, end) if kept else []


Piecewise: TypeAlias = Iterator[tuple[str, list[Found]]]
"""Parts of a text, each with the finds that begin in it, counted from its beginning."""


class FinderStream:
    """Redacts a text that comes in chunks. What comes out, joined, is `redact` of what went in, joined.

    Without own patterns it holds back as much as any stream of ours; with them, in prose, some 900 characters.
    """

    def __init__(self, look: Callable[[str], list[Found]], pieces: Callable[[], Pieces]) -> None:
        self._look, self._pieces = look, pieces
        self._looker = _Looker(look, pieces())
        self._over = 0
        self.taken: Counter[str] = Counter()
        """How many finds of each name were redacted so far."""

    def feed(self, chunk: str) -> str:
        """Take a chunk; give back what is decided by now, which may be nothing."""
        return "".join([self._redacted(*part) for part in self._looker.add(chunk)])

    def flush(self) -> str:
        """Give back everything that was held, at the end of the text. The stream can then take another one."""
        rest = "".join([self._redacted(*part) for part in self._looker.rest()])
        self._looker, self._over = _Looker(self._look, self._pieces()), 0
        return rest

    def _redacted(self, own: str, found: list[Found]) -> str:
        text = marked(own, found, self._over)
        self.taken.update(one.name for one in found)
        self._over = max(0, (found[-1].end if found else self._over) - len(own))
        return text


class _Looker:
    """Finds in a text piece by piece."""

    def __init__(self, look: Callable[[str], list[Found]], pieces: Pieces) -> None:
        self._look, self._pieces = look, pieces
        self._over = 0
        """How far the last find of a piece reaches into the next one."""

    def add(self, text: str) -> Piecewise:
        """Take more text; give parts of it that are decided."""
        return map(self._found, self._pieces.add(text))

    def rest(self) -> Piecewise:
        """Decide everything that is left."""
        return map(self._found, self._pieces.rest())

    def whole(self, text: str) -> Piecewise:
        """Everything of a long text, a portion at a time, so that no step handles all of it."""
        for start in range(0, len(text), _PORTION):
            yield from self.add(text[start : start + _PORTION])
        yield from self.rest()

    def _found(self, piece: Piece) -> tuple[str, list[Found]]:
        own = piece.text[piece.start : piece.end]
        found = [
            _moved(find, -piece.start)
            for find in self._look(piece.text)
            if piece.start + self._over <= find.start < piece.end
        ]
        self._over = max(0, (found[-1].end if found else self._over) - len(own))
        return own, found


def _joined(parts: Piecewise) -> list[Found]:
    found: list[Found] = []
    place = 0
    for own, here in parts:
        found += [_moved(find, place) for find in here]
        place += len(own)
    return found


def _types(policy: PrivacyPolicy) -> frozenset[Type]:
    for setting, names in (("also", policy.also), ("never", policy.never)):
        for name in names:
            if name not in _TYPES:
                raise InvalidSetting(setting, f"{name[:32]!a} is no type; there are {', '.join(sorted(_TYPES))}")
    both = sorted(set(policy.also) & set(policy.never))
    if both:
        raise InvalidSetting("never", f"{both[0]} is in also as well")
    return frozenset((ALWAYS | set(map(Type, policy.also))) - set(map(Type, policy.never)))


def _check_unvaulted(policy: PrivacyPolicy, own: Sequence[str]) -> None:
    for name in policy.unvaulted:
        if name not in _TYPES and name not in own:
            raise InvalidSetting("unvaulted", f"{name[:32]!a} is neither a type nor an own pattern")


def _marks(own: Sequence[str]) -> re.Pattern[str]:
    if not own:
        return MARK
    names = "|".join(sorted((*BUILT_IN, *own), key=len, reverse=True))
    return re.compile(rf"\[(?:REDACTED_)?(?:{names})(?:_[0-9]{{1,4}})?\]")


def _found(span: Span) -> Found:
    return Found(start=span.start, end=span.end, type=span.type.value, rule=span.rule.value, name=span.name)


def _moved(find: Found, by: int) -> Found:
    return replace(find, start=find.start + by, end=find.end + by) if by else find
