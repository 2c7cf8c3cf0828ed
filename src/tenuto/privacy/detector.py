"""One look at a text: every rule in the order of its certainty, and the surest one has the word."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from tenuto.privacy.asked import find_asked
from tenuto.privacy.cards import find_cards
from tenuto.privacy.digits import Run, has_digits, has_numbers, runs
from tenuto.privacy.folding import Folded
from tenuto.privacy.forms import find_by_form, find_url_credentials, has_forms
from tenuto.privacy.identity import (
    find_ibans,
    find_passports,
    find_resident_ids,
    find_social_security,
    has_passport_word,
)
from tenuto.privacy.keys import BLOCK, find_blocks, find_keys, has_long_words
from tenuto.privacy.mails import find_mails
from tenuto.privacy.networks import find_v4, find_v6, has_v4, has_v6
from tenuto.privacy.passwords import find_named, find_named_in_han, find_names, has_signs
from tenuto.privacy.phones import find_phones
from tenuto.privacy.span import MARK, ON_REQUEST, Rule, Span, Type
from tenuto.privacy.spelled import find_spelled, has_spelled

_TYPES: Final = {rule: Type(rule) for rule in Rule if rule in Type.__members__} | {
    Rule.CC: Type.CARD,
    Rule.BANK_CARD: Type.CARD,
    Rule.IPV4: Type.IP,
    Rule.IPV6: Type.IP,
    Rule.JWT: Type.API_KEY,
    Rule.WEBHOOK: Type.API_KEY,
    Rule.PASSWORD: Type.SECRET,
    Rule.PRIVATE_KEY: Type.SECRET,
    Rule.URL_CREDENTIALS: Type.SECRET,
    Rule.EMAIL_SPELLED: Type.EMAIL,
    Rule.PHONE_SPELLED: Type.PHONE,
}

_SHORTEST: Final = 6
"""No rule finds anything in fewer characters: a@b.co."""

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
    return find_url_credentials(view) if b"@" in view.bytes and "://" in view.ascii else None


def _keys(view: Folded, _: list[Find]) -> Finds | None:
    return find_keys(view) if has_long_words(view) else None


def _forms(view: Folded, _: list[Find]) -> Finds | None:
    return find_by_form(view) if has_forms(view) else None


def _named(view: Folded, _: list[Find]) -> Finds | None:
    names = find_names(view) if b"aa" in view.words else None
    return None if names is None else find_named(view, names)


def _named_in_han(view: Folded, _: list[Find]) -> Finds | None:
    return find_named_in_han(view) if has_signs(view) else None


def _mails(view: Folded, _: list[Find]) -> Finds | None:
    if b"@" not in view.bytes:
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
    *(_blocks, _urls, _keys, _forms, _named, _named_in_han),
    *(_mails, _v6, _v4, _numbers, _passports, _spelled),
)


def look(text: str, families: Iterable[Family]) -> tuple[list[Span], list[Family]]:
    """Spans of `text`, which holds no marks, in order; and the families whose gates were open."""
    view = Folded(text)
    finds: list[Find] = []
    open_ones: list[Family] = []
    for family in families:
        candidates = family(view, finds)
        if candidates is None:
            continue
        open_ones.append(family)
        for start, end, rule in candidates:
            if not any(start < other_end and other_start < end for other_start, other_end, _ in finds):
                finds.append((start, end, rule))
    if not finds:
        return [], open_ones
    spans = [Span(*view.back(start, end), _TYPES[rule], rule) for start, end, rule in finds]
    spans.sort()
    return spans, open_ones


def _find_numbers(view: Folded, found: list[Find]) -> Finds:
    yield from ((start, end, Rule.IBAN) for start, end in find_ibans(view))
    previous = -1
    for run in runs(view):
        if any(start <= run.starts[0] and run.ends[-1] <= end for start, end, _ in found):
            continue
        yield from _papers(run)
        for start, end in find_phones(run, previous):
            previous = end
            yield start, end, Rule.PHONE


def _papers(run: Run) -> Iterator[Find]:
    for first, last, tail in find_resident_ids(run):
        yield run.starts[first], run.ends[last] + tail, Rule.CN_ID
    for first, last, rule in find_cards(run):
        run.take(first, last)
        yield run.starts[first], run.ends[last], rule
    for first, last in find_social_security(run):
        yield run.starts[first], run.ends[last], Rule.SSN


def find(text: str, types: Collection[Type]) -> list[Span]:
    """Every span of one of `types` in `text`, in order, none overlapping. The cost grows faster than the length."""
    families = FAMILIES if ON_REQUEST.isdisjoint(types) else (*FAMILIES, _asked)
    if "[" not in text:
        return _settle(text, 0, len(text), types, families)
    found: list[Span] = []
    at = 0
    for mark in MARK.finditer(text):
        found += _settle(text, at, mark.start(), types, families)
        at = mark.end()
    return found + _settle(text, at, len(text), types, families)


def _settle(text: str, start: int, end: int, types: Collection[Type], families: Iterable[Family]) -> list[Span]:
    """Look again between what was found, until nothing new comes up.

    Redacted text is read in the parts between its marks. What those parts would show then is found now: so
    redacting twice changes nothing. A span of a type nobody asked for stays in the text, and parts nothing.
    """
    if end - start < _SHORTEST:
        return []
    spans, open_ones = look(text[start:end], families)
    found: list[Span] = []
    at = start
    for span in spans:
        if span.type in types:
            here = Span(start + span.start, start + span.end, span.type, span.rule)
            found += _settle(text, at, here.start, types, open_ones)
            found.append(here)
            at = here.end
    return found + _settle(text, at, end, types, open_ones) if found else []
