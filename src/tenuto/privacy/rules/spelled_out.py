"""Values written so that a machine overlooks them: "ann at example dot com", 一三八零零一三八零零零, 10[.]0[.]0[.]1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.labels import Label, before
from tenuto.privacy.rules.prechecks import NUMERAL, NUMERALS
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import any_of, load_table

_AT: Final = r"(?:[ ]?[\[({<][ ]?(?:at|AT)[ ]?[\])}>][ ]?|[ ](?:at|AT)[ ]|[ ]?艾特[ ]?|[ ]?[\[({][ ]?@[ ]?[\])}][ ]?)"
_DOT: Final = r"(?:[ ]?[\[({<][ ]?(?:dot|DOT|\.)[ ]?[\])}>][ ]?|[ ](?:dot|DOT)[ ]|[ ]?点[ ]?)"
_ENDINGS: Final = any_of(load_table("domains")["spelled_out"])
_MAIL: Final = lazy_pattern(
    rf"(?<![A-Za-z0-9])[A-Za-z0-9][A-Za-z0-9._+-]{{0,40}}(?:{_DOT}[A-Za-z0-9_-]{{1,30}}){{0,2}}{_AT}"
    rf"[A-Za-z0-9-]{{1,30}}(?:(?:{_DOT}|\.)[A-Za-z0-9-]{{1,20}}){{0,2}}(?:{_DOT}|\.)(?:{_ENDINGS})(?![A-Za-z0-9])"
)
_ADDRESS: Final = lazy_pattern(
    r"(?<![0-9])[0-9]{1,3}(?:(?:\[\.\]|\(\.\)|\[dot\]|\(dot\)|[ ]dot[ ])[0-9]{1,3}){3}(?![0-9])"
)
_NUMERALS: Final = lazy_pattern(NUMERALS)
_AS_DIGITS: Final = str.maketrans(NUMERAL, "000" + "123456789" + "1" + "123456789")
_SEPARATORS: Final = lazy_pattern(f"[^{NUMERAL}]+")
_COMMA: Final = lazy_pattern("[,，、]")
_MOBILE: Final = lazy_pattern("1[3-9][0-9]{9}")
_GROUPS: Final = frozenset({(11,), (3, 4, 4), (3, 8), (3, 3, 5), (4, 4, 3), (7, 4)})


def find_spelled_out(view: FoldedText) -> Iterator[Find]:
    """Addresses and numbers that are spelled out."""
    yield from ((*match.span(), PiiRule.EMAIL_SPELLED) for match in _MAIL.finditer(view.text))
    for match in _ADDRESS.finditer(view.lower):
        if all(int(octet) < 256 for octet in re.findall("[0-9]+", match[0])):
            yield *match.span(), PiiRule.IPV4
    if view.text is not view.ascii:
        for match in _NUMERALS.finditer(view.text):
            groups = _SEPARATORS.split(match[0])
            mobile = _MOBILE.fullmatch("".join(groups).translate(_AS_DIGITS)) and tuple(map(len, groups)) in _GROUPS
            # With commas it may be a list: 一、二、三.
            listed = _COMMA.search(match[0]) is not None
            if mobile or (not listed and before(view.text, match.start()).label is Label.PHONE):
                yield *match.span(), PiiRule.PHONE_SPELLED
