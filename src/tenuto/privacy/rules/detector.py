"""One look at a text: every rule in the order of its certainty, and the surest one has the word."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from tenuto.privacy.rules.asked import find_asked
from tenuto.privacy.rules.cards import SHORTEST_CARD, find_cards
from tenuto.privacy.rules.digits import Run, has_digits, has_numbers, runs
from tenuto.privacy.rules.folding import Folded
from tenuto.privacy.rules.forms import find_by_form, find_url_credentials, find_url_tokens, has_forms, has_urls
from tenuto.privacy.rules.identity import (
    SHORTEST_ID,
    SOCIAL_SECURITY,
    find_ibans,
    find_passports,
    find_resident_ids,
    find_social_security,
    has_passport_word,
)
from tenuto.privacy.rules.keys import BLOCK, find_blocks, find_keys, has_long_words
from tenuto.privacy.rules.logins import find_logins, has_logins
from tenuto.privacy.rules.mails import find_mails, has_mails
from tenuto.privacy.rules.names import find_names
from tenuto.privacy.rules.networks import find_v4, find_v6, has_v4, has_v6
from tenuto.privacy.rules.passwords import find_named, find_named_in_han
from tenuto.privacy.rules.phones import NOWHERE, find_phones
from tenuto.privacy.rules.span import ALWAYS, MARK, MAY_BE_MARK, ON_REQUEST, TYPE_OF, Rule, Span, Type
from tenuto.privacy.rules.spelled import find_spelled, has_spelled

_SHORTEST: Final = 6
"""No rule finds anything in fewer characters: a@b.co."""
_SHORTEST_ASKED: Final = 4
"""But for names, where they are looked for: 我叫王伟."""

Find = tuple[int, int, Rule]
Finds = Iterable[Find]

# --- families of rules --------------------------------------------------------------------------------------------
# Half of all messages hold nothing, so each family stands behind a gate: a plain search that costs next to nothing.
# None says that the gate is shut; it is then shut for every part of the text, too.


def _blocks(view: Folded, _: list[Find]) -> Finds | None:
    if BLOCK not in view.ascii:
        return None
    return ((start, end, Rule.PRIVATE_KEY) for start, end in find_blocks(view))


def _urls(view: Folded, _: list[Find]) -> Finds | None:
    return find_url_credentials(view) if has_urls(view) else None


def _url_tokens(view: Folded, _: list[Find]) -> Finds | None:
    return find_url_tokens(view) if has_urls(view) else None


def _keys(view: Folded, _: list[Find]) -> Finds | None:
    return find_keys(view) if has_long_words(view) else None


def _forms(view: Folded, _: list[Find]) -> Finds | None:
    return find_by_form(view) if has_forms(view) else None


def _logins(view: Folded, _: list[Find]) -> Finds | None:
    if not has_logins(view):
        return None
    return ((start, end, Rule.PASSWORD) for start, end in find_logins(view))


def _named(view: Folded, _: list[Find]) -> Finds | None:
    names = find_names(view)
    if names is None:
        return None
    return find_named(view, names) if names else ()


def _named_in_han(view: Folded, _: list[Find]) -> Finds | None:
    return find_named_in_han(view) if view.signed else None


def _mails(view: Folded, _: list[Find]) -> Finds | None:
    if not has_mails(view.ascii):
        return None
    return ((start, end, Rule.EMAIL) for start, end in find_mails(view))


def _v6(view: Folded, _: list[Find]) -> Finds | None:
    return ((start, end, Rule.IPV6) for start, end in find_v6(view)) if has_v6(view) else None


def _v4(view: Folded, _: list[Find]) -> Finds | None:
    return ((start, end, Rule.IPV4) for start, end in find_v4(view)) if has_v4(view) else None


def _numbers(view: Folded, found: list[Find]) -> Finds | None:
    if not has_digits(view):
        return None
    # Not None: in a part of the text that begins inside a date there may be more to see.
    return _find_numbers(view, found) if has_numbers(view) else ()


def _passports(view: Folded, _: list[Find]) -> Finds | None:
    if not has_passport_word(view):
        return None
    return ((start, end, Rule.PASSPORT) for start, end in find_passports(view))


def _spelled(view: Folded, _: list[Find]) -> Finds | None:
    return find_spelled(view) if has_spelled(view) else None


def _asked(view: Folded, _: list[Find]) -> Finds | None:
    return find_asked(view)


Family = Callable[[Folded, list[Find]], Finds | None]
# The surest first: of finds that overlap, the first one stands.
FAMILIES: Final[tuple[Family, ...]] = (
    *(_blocks, _urls, _keys, _url_tokens, _forms, _logins, _named, _named_in_han),
    *(_mails, _v6, _v4, _passports, _numbers, _spelled),
)


# What is left to ask of a text in which nothing stands that the others need.
CALM_FAMILIES: Final[tuple[Family, ...]] = (_keys, _logins, _named, _named_in_han, _passports, _spelled)
# And of one in which no word occurs that the rest look for either.
SILENT_FAMILIES: Final[tuple[Family, ...]] = (_keys, _spelled)
_DASHES: Final = re.compile("-(?:u|----|(?<= -))")
_LOUD: Final = frozenset({"basic", "bearer", "identified by", "auth", "pass"})


def is_calm(view: Folded) -> bool:
    """Whether the gates of all but `CALM_FAMILIES` are shut: most prose is so, and one look tells."""
    text = view.ascii
    if has_mails(text) or "|" in text or view.digits.find(b"0.0") >= 0 or has_digits(view):
        return False
    if "-" in text and _DASHES.search(text):
        return False
    if "/" in text and " /u" in text:
        return False
    return view.stems.isdisjoint(_LOUD) and not has_v6(view)


def worth_asking(view: Folded) -> tuple[Family, ...]:
    """The families whose gates may be open."""
    if not is_calm(view):
        return FAMILIES
    return CALM_FAMILIES if view.stems or has_logins(view) else SILENT_FAMILIES


def look(view: Folded, families: Iterable[Family]) -> tuple[list[Span], list[Family]]:
    """Spans of a text which holds no marks, in order, and the families whose gates were open."""
    if families is FAMILIES:
        families = worth_asking(view)
    finds: list[Find] = []
    open_ones: list[Family] = []
    for family in families:
        candidates = family(view, finds)
        if candidates is None:
            continue
        open_ones.append(family)
        for start, end, rule in candidates:
            at = bisect_left(finds, (start, end, rule))
            if (at == 0 or finds[at - 1][1] <= start) and (at == len(finds) or end <= finds[at][0]):
                finds.insert(at, (start, end, rule))
    if not finds:
        return [], open_ones
    return [Span(*view.back(start, end), TYPE_OF[rule], rule) for start, end, rule in finds], open_ones


def _find_numbers(view: Folded, found: list[Find]) -> Finds:
    yield from ((start, end, Rule.IBAN) for start, end in find_ibans(view))
    previous = NOWHERE
    # No find of this family holds a later run, so those that come from here on need not be asked.
    surer = found.copy()
    for run in runs(view):
        if surer and any(start <= run.starts[0] and run.ends[-1] <= end for start, end, _ in surer):
            continue
        yield from _papers(run)
        for place in find_phones(run, previous):
            previous = place
            yield *place, Rule.PHONE


def _papers(run: Run) -> Iterator[Find]:
    for first, last, tail in find_resident_ids(run) if run.total >= SHORTEST_ID else ():
        yield run.starts[first], run.ends[last] + tail, Rule.CN_ID
    for first, last, rule in find_cards(run) if run.total >= SHORTEST_CARD else ():
        run.take(first, last)
        yield run.starts[first], run.ends[last], rule
    for first, last in find_social_security(run) if run.total >= SOCIAL_SECURITY else ():
        yield run.starts[first], run.ends[last], Rule.SSN


def find(text: str, types: Collection[Type]) -> list[Span]:
    """Every span of one of `types` in `text`, in order, none overlapping. The cost grows faster than the length."""
    families = FAMILIES if types is ALWAYS or ON_REQUEST.isdisjoint(types) else (*FAMILIES, _asked)
    least = _least(families)
    if "[" not in text or not MAY_BE_MARK.search(text):
        return _settle(Folded(text), 0, types, families) if len(text) >= least else []
    found: list[Span] = []
    at = 0
    for mark in MARK.finditer(text):
        if mark.start() - at >= least:
            found += _settle(Folded(text[at : mark.start()]), at, types, families)
        at = mark.end()
    return found + _settle(Folded(text[at:]), at, types, families) if len(text) - at >= least else found


def _least(families: Collection[Family]) -> int:
    return _SHORTEST_ASKED if _asked in families else _SHORTEST


def _settle(view: Folded, place: int, types: Collection[Type], families: Collection[Family]) -> list[Span]:
    """Look again between what was found, until nothing new comes up. The view's text stands at `place`.

    Redacted text is read in the parts between its marks. What those parts would show then is found now: so
    redacting twice changes nothing. A span of a type nobody asked for stays in the text, and parts nothing.
    """
    spans, open_ones = look(view, families)
    if not spans:
        return []
    found: list[Span] = []
    at, least = 0, _least(open_ones)
    for span in spans:
        if span.type in types:
            if span.start - at >= least:
                found += _settle(view.part(at, span.start), place + at, types, open_ones)
            found.append(Span(place + span.start, place + span.end, span.type, span.rule))
            at = span.end
    if found and len(view.source) - at >= least:
        found += _settle(view.part(at, len(view.source)), place + at, types, open_ones)
    return found
