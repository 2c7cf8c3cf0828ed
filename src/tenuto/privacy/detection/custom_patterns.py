r"""Custom patterns of an installation: RE2 expressions, whose time is linear in the text.

RE2 bounds the time, not the length of a match, and a stream can only be cut where a match ends within a known
distance. So repeats must be bounded, and no match may be longer than `LONGEST_MATCH`.

Expressions are matched against folded text: full-width letters, odd digits, spaces and dashes become ASCII, and
zero-width characters are removed. The only condition on the context of a match is `\b`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

# The package has no type information: its results become matches at once.
import re2  # type: ignore[import-untyped]

from tenuto.errors import InvalidSetting
from tenuto.model.patterns import lazy_pattern
from tenuto.model.privacy import CustomPattern, PiiMatch
from tenuto.privacy.rules.folding import FOLDS, INVISIBLE
from tenuto.privacy.rules.span import PiiRule, PiiType

SETTING: Final = "patterns"
LONGEST_MATCH: Final = 256
MOST_PATTERNS: Final = 64
_LONGEST_TEXT: Final = 1000
_MOST_INSTRUCTIONS: Final = 30_000
"""Of RE2's program. Ordinary patterns have some dozens; `\\pL{1,20}` has 24,000."""
_ODD_RANGE: Final = 128
r"""Wider ranges are not folded: `[\x80-\uffff]` means any foreign character, not full-width letters."""

_NAME: Final = lazy_pattern("[A-Z][A-Z0-9_]{0,31}")
# `[STAFF_1]` would be both the placeholder of a pattern of that name and the first pseudonym of STAFF.
_NUMBERED: Final = lazy_pattern(".*_[0-9]+")
BUILT_IN: Final = frozenset({str(name) for name in (*PiiType, *PiiRule)})

_TOKEN: Final = lazy_pattern(
    r"""(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])
    |(?P<escape>\\(?:p\{[^}]*\}|P\{[^}]*\}|[pP].|x\{[^}]*\}|x..|.))
    |(?P<flags>\(\?[a-zA-Z-]+\))
    |(?P<open>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:))?)
    |(?P<close>\))|(?P<bar>\|)
    |(?P<repeat>[*+?]|\{[0-9]+(?:,[0-9]*)?\})
    |(?P<char>.)""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER: Final = lazy_pattern(r"\A\[\^?|\\.|([^\\])-([^\\\]])|(.)", re.DOTALL)
_UNSUITABLE: Final = frozenset((*"^$", r"\A", r"\z", r"\B", r"\C", r"\Q"))
# Lone surrogates have no UTF-8 encoding, which RE2 needs.
_PLAIN: Final = {**FOLDS, **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)}


class CustomPatterns:
    """All custom patterns of a policy, in its order, and further `forms` of built-in types.

    Raises:
        InvalidSetting: a name does not fit a placeholder, or an expression is invalid for RE2 or too large. The
            message has the name and the reason, and leaves the expression out.
    """

    def __init__(self, patterns: Sequence[CustomPattern], forms: Sequence[CustomPattern] = ()) -> None:
        if len(patterns) > MOST_PATTERNS:
            raise InvalidSetting(SETTING, f"there are more than {MOST_PATTERNS}")
        self.names = tuple(pattern.name for pattern in patterns)
        for name in self.names:
            _check_name(name)
            if self.names.count(name) > 1:
                raise _invalid_pattern(name, "appears twice")
        every = (*patterns, *forms)
        self._expressions = [(pattern.name, _compile_pattern(pattern)) for pattern in every]
        self._anywhere = _compile_re2("all of them together", "|".join(map(_source_without_boundaries, every)))
        """Matches wherever one of them does, in any context."""

    @property
    def reach(self) -> int:
        """How many characters from the start of a match can affect it."""
        return LONGEST_MATCH + 1

    def candidates(self, text: str) -> Iterator[tuple[int, int]]:
        """Ranges that cover every place where a match might begin, in any context.

        A range depends only on the end of the one before it and on the `reach` characters from its start on.
        Zero-width characters are not skipped.
        """
        return (match.span() for match in self._anywhere.finditer(_fold_text(text)))

    def find(self, text: str, *, behind: bool = False, before: bool = False) -> list[PiiMatch] | None:
        r"""The matches of each pattern, which may overlap those of another; None if no part of the text has any.

        `behind` and `before` say that the text continues on that side. No `\b` matches there, so that a match is also
        found in the longer text.
        """
        kept: list[int] | None = None
        if not text.isascii() and INVISIBLE.search(text):
            kept = [i for i, char in enumerate(text) if not INVISIBLE.match(char)]
            text = "".join([text[i] for i in kept])
        plain = _fold_text(text)
        if self._anywhere.search(plain) is None:
            return None
        # Repeat the outermost characters outside the searched range: no `\b` matches between equal characters.
        walled, end = plain[:1] * behind + plain + plain[-1:] * before, behind + len(plain)
        found: list[PiiMatch] = []
        for name, expression in self._expressions:
            for match in expression.finditer(walled, int(behind), end):
                first, last = match.start() - behind, match.end() - behind
                if kept is not None:
                    first, last = kept[first], kept[last - 1] + 1
                found.append(PiiMatch(start=first, end=last, type=name, rule=name, name=name))
        return found


def max_match_length(expression: str) -> int | None:
    """An upper bound on the length of a match of a valid expression; None if there is none."""
    # Of each open group: its longest alternative so far, the present alternative, and the last item of that.
    groups = [[0, 0, 0]]
    for token in _TOKEN.finditer(expression):
        group = groups[-1]
        match token.lastgroup:
            case "open":
                groups.append([0, 0, 0])
            case "bar":
                group[:] = [max(group[:2]), 0, 0]
            case "close":
                groups.pop()
                groups[-1][1:] = [groups[-1][1] + max(group[:2]), max(group[:2])]
            case "repeat":
                if token[0] in "*+" or token[0].endswith(",}"):
                    return None
                most = 1 if token[0] == "?" else int(token[0][1:-1].rpartition(",")[2])
                group[1:] = [group[1] + group[2] * (most - 1), group[2] * most]
            case "set" | "escape" | "char":
                group[1:] = [group[1] + 1, 1]
    return max(groups[0][:2])


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _invalid_pattern(
            ascii(name[:32]), "is not a name for a pattern: write capitals, digits and _, 32 at most"
        )
    if name in BUILT_IN or name.startswith("REDACTED"):
        raise _invalid_pattern(name, "is a built-in name; choose another one")
    if _NUMBERED.fullmatch(name):
        raise _invalid_pattern(name, "ends in a number like a pseudonym's mark; choose another name")


def _compile_pattern(pattern: CustomPattern) -> Any:
    name = pattern.name
    if len(pattern.pattern) > _LONGEST_TEXT:
        raise _invalid_pattern(name, f"is longer than {_LONGEST_TEXT} characters")
    _compile_re2(name, pattern.pattern)
    if not _UNSUITABLE.isdisjoint([token[0] for token in _TOKEN.finditer(pattern.pattern)]):
        raise _invalid_pattern(
            name, r"has ^, $, \A, \z, \B, \C or \Q in it; it is searched anywhere in a text: write \b"
        )
    longest = max_match_length(pattern.pattern)
    if longest is None:
        raise _invalid_pattern(name, "has a repeat without an end (*, + or {n,}); say how often at most: {1,64}")
    if longest > LONGEST_MATCH:
        raise _invalid_pattern(name, f"can match more than {LONGEST_MATCH} characters")
    if _compile_re2(name, _source_without_boundaries(pattern)).fullmatch(""):
        raise _invalid_pattern(name, "matches the empty text")
    expression = _compile_re2(name, _folded_source(pattern))
    if expression.programsize > _MOST_INSTRUCTIONS:
        raise _invalid_pattern(name, "needs too large a program; repeat less, or fewer kinds of characters")
    return expression


def _compile_re2(name: str, source: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(source, options)
    except re2.error as exc:
        # The text after the colon quotes the expression.
        reason = exc.args[0].decode(errors="replace").partition(":")[0]
        raise _invalid_pattern(
            name, f"is not an expression of RE2, which has no look-around and no back-references: {reason}"
        ) from None
    except UnicodeEncodeError:
        raise _invalid_pattern(name, "contains half a character (a lone surrogate)") from None


def _folded_source(pattern: CustomPattern) -> str:
    """The expression with its odd characters folded to ASCII, as in the text it is matched against."""
    folded = "".join([_fold_token(token) for token in _TOKEN.finditer(pattern.pattern)])
    return f"(?i:{folded})" if pattern.ignore_case else f"(?:{folded})"


def _source_without_boundaries(pattern: CustomPattern) -> str:
    return "".join(["(?:)" if token[0] == r"\b" else token[0] for token in _TOKEN.finditer(_folded_source(pattern))])


def _fold_token(token: re.Match[str]) -> str:
    if token.lastgroup == "set":
        return _MEMBER.sub(_add_twins, token[0])
    odd = FOLDS.get(ord(token[0])) if token.lastgroup == "char" else None
    return token[0] if odd is None else re.escape(chr(odd))


def _add_twins(member: re.Match[str]) -> str:
    first, last, one = member.groups()
    if not (one or first):
        return member[0]
    points = range(ord(one or first), ord(one or last) + 1)
    twins = {FOLDS[point] for point in points if point in FOLDS} if len(points) <= _ODD_RANGE else ()
    return member[0] + "".join([re.escape(chr(twin)) for twin in sorted(twins)])


def _invalid_pattern(name: str, why: str) -> InvalidSetting:
    return InvalidSetting(SETTING, f"{name} {why}")


def _fold_text(text: str) -> str:
    return text if text.isascii() else text.translate(_PLAIN)
