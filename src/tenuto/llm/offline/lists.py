"""Lists in what was said, and which of their items "the second one" is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tenuto.llm.offline.talk import Line
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL, HAN_NUMBER, ORDINAL, whole

_ITEM: Final = expression(
    r"^[ \t]*(?:\(?\d{1,3}[.)、:：]|（\d{1,3}）|[-*•·][ \t]|[①-⑳]"
    r"|[一二三四五六七八九十]{1,3}[、.]|第[一二三四五六七八九十]{1,3}[，、:：])[ \t]*(\S[^\n]*)",
    re.MULTILINE,
)
_FIGURE: Final = expression(r"(?<![^\s:：,，;；。])(\d{1,2})[.)、](?!\d)[ \t]*")
_SET_OUT: Final = expression(r"[:：]\s*([^\n:：?？]{3,400})$", re.MULTILINE)
_HAN_LIST: Final = expression(r"(?<![^，。！？、\s:：])[^，。！？、\s:：]++(?:、[^，。！？、\s:：]++){1,20}+")
_HAN_LEAD: Final = expression(r"^.*?(?:分别是|包括|例如|比如|需要买|要买|有|是|买|去|：|:)(?=.)")
_HAN_LAST: Final = expression(r"[和与及跟]")
# Words between commas, however many; `_listed` looks which of them are a list.
_COMMAS: Final = expression(r"(?<![\w' -])[\w' -]++(?:, [\w' -]++)++")
_JOINT: Final = expression(r".{1,40} (?:and|or) .{1,40}")
_LAST: Final = expression(r"(?:and|or) .{1,40}")
_HAN_LENGTH: Final = 30
_ITEM_LENGTH: Final = 40
_ITEMS: Final = 20
_LEAD: Final = expression(
    r"^.*\b(?:are|is|were|was|buy|get|need|like|love|want|have|visit|include|includes|including|take|bring|namely|to|of)\s+",
    re.IGNORECASE,
)
_THINGS: Final = (
    r"(?:ones?|points?|items?|things?|options?|suggestions?|steps?|rules?|ideas?|entry|entries|choice|example|bullet|reason"
    r"|product|result|place|answer)"
)
_NTH: Final = expression(
    rf"\b({ORDINAL}|last|final)"
    rf"(?: {_THINGS}\b|\s*[?.!]*$| of (?:them|these|those)\b)"
    rf"|\b(?:{_THINGS}|number|no\.|no(?= \d)|#)\s*(\d{{1,2}}|{CARDINAL})\b|#(\d{{1,2}})\b",
    re.IGNORECASE,
)
_UNITS: Final = "个点条项种款件本位家步句道只台部篇段座张首样"
_HAN_NTH: Final = expression(rf"(倒数)?第({HAN_NUMBER})([{_UNITS}])?|最后(?:的)?(?:一|那)([{_UNITS}])")


_CHANGES: Final = expression(
    r"\W*(?:(?:please|also|and|oh|ok(?:ay)?|can you|could you)\W+)*"
    r"(?:add|remove|delete|drop|take off|cross off|put)\b[^?]{1,80}$"
    r"|\s*(?:请|再|还|帮我|另外|也)*(?:加[上个]?|添加?|去掉|删[掉除]?|划掉|移除)[^?？]{1,40}$"
    r"|\s*把.{1,20}(?:加上|去掉|删掉|划掉).{0,10}$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Which item is meant, from 1; counted from the end if negative. `words` names it, `found` is how it was put."""

    number: int
    words: str
    found: str


def place_in(question: str) -> Place | None:
    """Which item of a list a question points at."""
    if found := _HAN_NTH.search(question):
        if found[2] is None:
            return Place(-1, found[0], found[0])
        number = whole(found[2])
        return Place(-number if found[1] else number, found[0], found[0]) if number else None
    if found := _NTH.search(question):
        word = (found[1] or found[2] or found[3]).lower()
        if word in ("last", "final"):
            return Place(-1, f"the {word} one", found[0])
        number = whole(word)
        words = f"the {word} one" if found[1] else f"number {number}"
        return Place(number, words, found[0]) if number else None
    return None


def newest_list(lines: Iterable[Line]) -> list[str]:
    """The items of the list that was named last: one item a line, or several in a sentence."""
    for line in reversed(list(lines)):
        # What the offline model says of itself has commas too; only what it set out in rows is a list.
        if items := _rows(line.text) if line.chatter else items_in(line.text):
            return items
    return []


def changes_list(text: str) -> bool:
    """Whether a text says what is to be added to a list or taken off it."""
    return _CHANGES.match(text) is not None


def list_changes(lines: Sequence[Line]) -> list[str]:
    """What the user wanted changed in the list that was named last, as it was said."""
    named = [place for place, line in enumerate(lines) if not line.chatter and items_in(line.text)]
    later = lines[named[-1] + 1 :] if named else ()
    return [line.text.strip() for line in later if line.own and changes_list(line.text)]


def items_in(text: str) -> list[str]:
    """The items of the longest list in a text, empty when there is none."""
    return _rows(text) or _counted_off(text) or _after_a_colon(text) or _named_in_chinese(text) or _named(text)


def _rows(text: str) -> list[str]:
    rows = [row.strip() for row in _ITEM.findall(text)]
    return rows if len(rows) > 1 else []


def _counted_off(text: str) -> list[str]:
    """What is numbered within one line: "1. Lisbon 2. Madrid 3. Rome"."""
    figures = list(_FIGURE.finditer(text))
    counted = [figure for place, figure in enumerate(figures, 1) if int(figure[1]) == place]
    ends = [*(figure.start() for figure in counted[1:]), len(text)]
    items = [text[figure.end() : end].strip(" \t,，;；.。") for figure, end in zip(counted, ends, strict=False)]
    fit = len(counted) == len(figures) > 1 and all(0 < len(item) <= 2 * _ITEM_LENGTH for item in items)
    return items if fit else []


def _after_a_colon(text: str) -> list[str]:
    """What is set out behind a colon, or all there is: "I like: apples, pears, plums"."""
    if not (found := _SET_OUT.search(text)):
        return []
    parts = [part.strip(" .。!！") for part in re.split(r"[,，、;；]\s*(?:and |or )?|\s(?:and|or)\s", found[1])]
    fit = 2 < len(parts) <= 2 * _ITEMS and all(0 < len(part) <= _ITEM_LENGTH for part in parts)
    return parts if fit else []


def _named_in_chinese(text: str) -> list[str]:
    if not (found := _HAN_LIST.search(text)):
        return []
    first, *rest = found[0].split("、")
    first, rest = first[-_HAN_LENGTH:], _up_to_a_long_one(rest)
    last = _HAN_LAST.split(rest.pop(), maxsplit=1) if rest else []
    items = [_HAN_LEAD.sub("", first), *rest, *last]
    return [item.strip() for item in items if item.strip()]


def _up_to_a_long_one(parts: Sequence[str]) -> list[str]:
    """What is too long for an item is the last one, with a sentence behind it."""
    for place, part in enumerate(parts):
        if len(part) > _HAN_LENGTH:
            return [*parts[:place], part[:_HAN_LENGTH]]
    return list(parts)


def _named(text: str) -> list[str]:
    named = next(filter(None, (_listed(found[0].split(", ")) for found in _COMMAS.finditer(text))), None)
    if named is None:
        return []
    parts = re.split(r",? (?:and|or) |, ", named)
    parts[0] = _LEAD.sub("", parts[0])
    items = [part.strip() for part in parts if part.strip()]
    return items if len(items) > 2 else []


def _listed(parts: Sequence[str]) -> str | None:
    """The first list among words between commas: some short ones, then the last two with "and" or "or" between them."""
    ends = [_end(parts, place) for place in range(len(parts))]
    if not any(ends):
        return None
    for first in range(len(parts) - 1):
        last, place = None, first + 1
        while place < len(parts) and place <= first + _ITEMS:
            last = place if ends[place] else last
            if len(parts[place]) > _ITEM_LENGTH:
                break
            place += 1
        if last is not None:
            return ", ".join([parts[first][-_ITEM_LENGTH:], *parts[first + 1 : last], ends[last] or ""])
    return None


def _end(parts: Sequence[str], place: int) -> str | None:
    """How a list ends with this part: in itself ("eggs and bread"), or with the one behind it ("eggs, and bread")."""
    behind = _LAST.match(parts[place + 1]) if place + 1 < len(parts) else None
    if behind and len(parts[place]) <= _ITEM_LENGTH:
        return f"{parts[place]}, {behind[0]}"
    found = _JOINT.match(parts[place])
    return found[0] if found else None
