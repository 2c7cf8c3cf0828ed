"""Types that are searched only if a policy asks for them: order numbers, postal addresses, and labelled names.

Without a model these are found by their context: an order number by the word before it, an address by street and
number, a person by "my name is" or 收货人. Values without such a context are not found; do not rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.addresses import find_addresses
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import any_of, load_table, one_of

_ORDERS: Final = load_table("orders")
_ORDER: Final = lazy_pattern(
    rf"(?:(?<![A-Za-z])(?:(?:{any_of(_ORDERS['words'])})s?(?:[ _-]?(?:{any_of(_ORDERS['numbers'])}))?|PO(?=[ :#-]))"
    rf"|{any_of(_ORDERS['east_asian'])})"
    rf"[\s:#=,]{{0,3}}(?:(?:{any_of(_ORDERS['links'])})[\s:]{{1,2}}"
    r"|(?<=[a-z])['’]s[ ]|(?<=[호])[는은][ ]?){0,2}(?:是|为|號|号|は)?"
    r"[\s:#=\"'№(]{0,3}(?P<value>[A-Za-z0-9][A-Za-z0-9_-]{4,30})(?![A-Za-z0-9])"
    # Without a label: a hash and at least seven digits, more than a colour or an issue has.
    r"|(?<![\w&#/])[#＃][ ]?(?P<bare>[A-Za-z]{0,4}-?[0-9]{7,20}(?:-[0-9]{1,10}){0,3})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_HAN: Final = "\u4e00-\u9fff"
_NAMES: Final = load_table("names")
_ENGLISH: Final = _NAMES["english"]
_CHINESE: Final = _NAMES["chinese"]
_PERSON_EN: Final = lazy_pattern(
    rf"(?:{any_of(_ENGLISH['introductions'])}|(?P<weak>{any_of(_ENGLISH['weak_introductions'])}))"
    r"[ ](?!(?:Mr|Mrs|Ms|Dr)\b)"
    r"(?P<value>[A-Z][a-zA-Z\u00c0-\u024f'-]{1,20}(?: [A-Z][a-zA-Z\u00c0-\u024f'.-]{0,20}){0,2})"
)
_PERSON_ZH: Final = lazy_pattern(
    rf"(?:{any_of(_CHINESE['introductions'])}|(?P<weak>{any_of(_CHINESE['weak_introductions'])}))"
    rf"[是为:\s]{{0,3}}(?P<value>{one_of(_CHINESE['surnames'])}[{_HAN}]{{1,2}}?)"
    rf"(?=[^{_HAN}]|$|[的是在住和与及男女先电手身证请有说了])"
)
_COMMON_ENGLISH: Final = frozenset(_ENGLISH["common_words"].split())
_GERUND: Final = lazy_pattern("[a-z]{3,}ing")
_ROLE_ENDINGS: Final = frozenset(_CHINESE["role_endings"].strip())
_COMMON_ENDINGS: Final = frozenset(_CHINESE["common_endings"].split())
_COMMON_BEGINNINGS: Final = frozenset(_CHINESE["common_beginnings"].split())


def find_on_request(view: FoldedText) -> Iterator[Find]:
    """Order numbers, addresses and names."""
    text = view.text
    view.work.judged += len(text) // 100
    for match in _ORDER.finditer(text):
        if match["bare"] or sum(map(str.isdigit, match["value"])) >= 4:
            yield *match.span("bare" if match["bare"] else "value"), PiiRule.ORDER_ID
    yield from ((*place, PiiRule.ADDRESS) for place in find_addresses(view))
    for pattern in (_PERSON_EN, _PERSON_ZH):
        for match in pattern.finditer(text):
            if not (match["weak"] and is_common_word(match["value"])):
                yield *match.span("value"), PiiRule.PERSON


def is_common_word(value: str) -> bool:
    """Whether a value in the place of a name is a common word: "I am Late", 我是高中生."""
    first = value.partition(" ")[0]
    if first.isascii():
        plain = first.lower()
        return plain in _COMMON_ENGLISH or _GERUND.fullmatch(plain) is not None
    return value[-1] in _ROLE_ENDINGS or value[-2:] in _COMMON_ENDINGS or value[:2] in _COMMON_BEGINNINGS
