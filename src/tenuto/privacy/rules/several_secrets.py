"""Further values beside the first one: an old and a new password, "X or Y", several in a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.secret_names import Name
from tenuto.privacy.rules.secret_values import (
    SecretValue,
    has_special_character,
    is_blank,
    is_other_data,
    is_varied,
    parse_value,
)
from tenuto.privacy.rules.span import Find, PiiRule

# "changed my password from ... to ...": two values, and both must be unambiguous.
_FROM: Final = lazy_pattern(
    r"""["'`]?(?:[ ](?:has[ ]been|was|is|wurde))?(?:[ ](?:changed|updated|reset|rotated|switched|ge.ndert))?"""
    r"""[ ](?:from|von)[ ]"""
    r"""|[ ]?(?:已经?|刚)?[从由][ ]?"""
)
_INTO: Final = lazy_pattern(
    r"""["'`”」]?(?:[ ](?:to|into|auf|zu|became|becomes|is[ ]now)[ ]|[ ]?(?:->|=>|→)[ ]?
    |[ ]?(?:改|换|變|变|变更|变成|更新|更改|修改|重置|調整|调整)(?:成|为|為|到)了?[ ]?)""",
    re.VERBOSE,
)
# "X or Y", X、Y: a similar value. After "and" something else may follow, so there more evidence is needed.
_ALSO: Final = lazy_pattern(
    r"""["'`”」]?(?:[ ](?:or|oder|(?P<and>and|und))[ ]|[ ]?(?:或者?|、|(?P<han>和|及|以及|与|还有|跟))[ ]?)"""
)
_SAYS_MORE: Final = lazy_pattern(r"""["'`”」]?[ ]?(?:(?:is|was|are|ist)\b|[:=是为])""")
_SEVERAL: Final = lazy_pattern(r"s\b[^\n]{0,16}\Z|分别|各自|两个")
_MOST_MORE: Final = 3
_SIGHT: Final = 100
"""How far after a name further values are searched."""


def old_and_new_values(view: FoldedText, name: Name) -> list[Find] | None:
    """The old value and the new one, where the sentence names both."""
    link = _FROM.match(view.text, name.end)
    if link is None or name.kind != "password":
        return None
    old = _certain_value(view, link.end())
    then = None if old is None else _INTO.match(view.text, old.end)
    new = None if then is None else _certain_value(view, then.end())
    if old is None or new is None:
        return None
    return [(old.start, old.end, PiiRule.PASSWORD), (new.start, new.end, PiiRule.PASSWORD)]


def further_values(view: FoldedText, name: Name, value: SecretValue) -> Iterator[Find]:
    """`pw: old -> new`, "the passwords are X and Y": the new value, and further values next to it."""
    if name.kind != "password" or value.end == len(view.text):
        return
    then = _INTO.match(view.text, value.end)
    new = None if then is None else _certain_value(view, then.end())
    if new is not None:
        yield new.start, new.end, PiiRule.PASSWORD
        return
    for _ in range(_MOST_MORE):
        another = _value_beside(view, name, value)
        if another is None or another.end - name.end > _SIGHT:
            return
        yield another.start, another.end, PiiRule.PASSWORD
        value = another


def _value_beside(view: FoldedText, name: Name, value: SecretValue) -> SecretValue | None:
    """A similar value next to another one."""
    joint = _ALSO.match(view.text, value.end)
    another = None if joint is None else _certain_value(view, joint.end())
    if joint is None or another is None or _SAYS_MORE.match(view.text, another.end):
        return None
    text = view.text[another.start : another.end]
    alike = text[:3] == view.text[value.start : value.start + 3] or has_special_character(text)
    if alike or not (joint["and"] or joint["han"]):
        return another
    return another if _SEVERAL.search(view.text, max(0, name.start - 6), value.start) else None


def _certain_value(view: FoldedText, at: int) -> SecretValue | None:
    value = parse_value(view, at)
    if value is None:
        return None
    text = view.text[value.start : value.end]
    sound = len(text) >= 6 and is_varied(text) and any(map(str.isalpha, text))
    return value if sound and not is_blank(text) and not is_other_data(text) else None
