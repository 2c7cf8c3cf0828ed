"""Labels: words around a number that say what it is, in English, Chinese, Japanese, Korean and German.

The nearest label decides. Labels are looked up word by word in a table; a run of Chinese, Japanese or Korean characters
has no spaces, so there every ending of it is looked up, longest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.word_tables import load_table

REACH: Final = 48
"""How far to the left a label is searched."""
REACH_AFTER: Final = 24
CLOSE_AFTER: Final = 4
"""A close label to the right begins within this many characters."""


class Label(Enum):
    """What a word says about the number next to it."""

    PHONE = auto()
    CALL = auto()
    """A verb: a number may follow, but it does not name one."""
    CARD = auto()
    SSN = auto()
    CN_ID = auto()
    PASSPORT = auto()
    JOIN = auto()
    """For a group or a person: only the form of the number decides which."""
    IP = auto()
    VERSION = auto()
    NUMBER = auto()
    """Only says that a number follows: the label before it says which."""
    OTHER = auto()
    """Some other number: an order, a ticket, a date, an amount."""


class LabelContext(NamedTuple):
    """The nearest label, and whether only a connector is between it and the number."""

    label: Label | None
    close: bool


NOTHING: Final = LabelContext(None, False)
_TABLE: Final[dict[str, Label]] = {
    word: Label[label] for label, words in load_table("labels").items() for word in words.split()
}
_LONGEST: Final = 8
_FIRST: Final = frozenset(word[0] for word in _TABLE)
_LAST: Final = frozenset(word[-1] for word in _TABLE)
_TOKEN: Final = lazy_pattern("[a-zäöüß]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_WORDY: Final = lazy_pattern(r"[^\x00-@\[-`{-\x7f]")
# Between a label and its value: a colon, "is", 是, a bracket, "number", 号码 ...
_CONNECTOR: Final = lazy_pattern(
    r"""[\s:=#"'`|*<>(\[{,“”‘「『【《-]*(?:(?:is|are|was|at|on|from|no|nr|num|number|numbers|to|me|us|him|her|via|under|lautet|ist|unter|
    die|now|here|new|my|the|please|and|or|home|work|office|registered|code|id|line)\b[\s:.=#"'`*<(\[“‘「『【《]*){0,3}\+?"""
    r"""|[\s:="'`*<(\[“‘「『【《]*(?:[号號]?[码碼]?[是为為:はがの는은이가]|番号は?|です|또는|或|和|请打|一下|我|他|她|给我|[号號][码碼]?|번호는?)?[\s:=#"'`*<(\[“‘「『【《]*\+?""",
    re.VERBOSE,
)


# The most common ones, checked before the regex.
_PLAINLY: Final = frozenset(
    {"", " ", ":", ": ", " is ", " is: ", " is +", " +", ": +", "是", "：", "为", "=", "#", " #"}
)
# A label followed by its own number: "…187 fax: 555-0188", 传真555-0188.
_HEADS_ANOTHER: Final = lazy_pattern(
    r"(?:[a-z_\"' \t]{0,18}(?:[:=]|\bis\b)"
    r"|(?<=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])(?:[号號][码碼]?)?[是为為:]?)[ \"']{0,2}[+(]?[0-9]"
    r"|[a-z_\"' \t号號码碼]{0,18}[:=是为為][ \"']{0,2}\Z",
    re.IGNORECASE,
)
# The end of a sentence or a field.
BORDER: Final = lazy_pattern(r"[。|\n;；!！?？]|[.](?=\s)")
_APART: Final = lazy_pattern(f"{BORDER.pattern}|，")
_NUMBER: Final = lazy_pattern(r"[0-9](?:[ .()/-]{0,2}[0-9])*")
_DIGIT: Final = lazy_pattern("[0-9]")
# Where a label does not apply to the following text: "…187; phone", …6666，电话。
_ENDS_SENTENCE: Final = lazy_pattern(
    r"(?:[ ]?(?:numbers?|no\.?)|[号號][码碼]?)?[ )）\"']{0,2}(?:[.;!?。；！？]|\n(?!\s{0,2}[+(]?[0-9])|\s?\Z)",
    re.IGNORECASE,
)
# The label of the value before it follows: "… is my", 。这是我的.
_SAYS_SO: Final = lazy_pattern(
    r"[\s,;.，；。)\"'–—-]{0,3}(?:(?:(?:is|was|that's|that[ ]is|this[ ]is)[ ])?(?:my|our|his|her|their)[ ]"
    r"|[这那這]?就?是(?:[我你他她]们?|家里|公司)?的?)",
    re.IGNORECASE,
)
_PICTURES: Final = frozenset("\u260e\u260f\u2706\U0001f4de\U0001f4f1\U0001f4e0")
# Two words that are one label, while the second alone is another: "soc sec", "Soc. Security".
_SECURITY: Final = frozenset({"sec", "security"})
_SOCIAL: Final = lazy_pattern(r"(?<![a-z])soc(?:ial)?[. ]{1,2}\Z")
# A label followed by a person is a verb that asks for a call: "tag me at ...".
_PRONOUN: Final = lazy_pattern(r"[ ](?:me|us|him|her|them)(?![a-z])")
# "Ring" is a label as a verb, but not as a noun: O-ring, wedding ring.
_RINGS: Final = lazy_pattern(
    r"(?:\A|[^a-z -][ ]{0,2}|(?<![a-z])(?:to|please|pls|can|could|you|just|will|i|we|then|or|and|must|should|may|also"
    r"|back|either|simply|always|never|don't|can't|[a-z]{1,4}'(?:ll|d))[ ])\Z"
)
# Camel case: socialSecurityNumber, TaxpayerSSN. But not iPhone.
_CAMEL: Final = lazy_pattern("[a-z]{2}[A-Z]")
_HUMPED: Final = lazy_pattern("[A-Za-z]*[a-z]{2}[A-Z][A-Za-z]*")
_HUMP: Final = lazy_pattern("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# 加V, +v: a WeChat account, which often is a phone number.
_JOINS: Final = frozenset("加我+")
_POSSESSIVE: Final = frozenset("的个我你他她新旧老该此本这那打の")


def has_letters(text: str, start: int, end: int) -> bool:
    """Whether `[start, end)` has a letter or an emoji: a table of numbers has none, and so no label."""
    return _WORDY.search(text, start, end) is not None


def before(text: str, start: int) -> LabelContext:
    """The nearest label to the left of `start`. "Number" yields to the word it belongs to."""
    if not has_letters(text, max(0, start - REACH), start):
        return NOTHING
    cased = text[max(0, start - REACH) : start]
    window = cased.lower()
    if window[-4:].rstrip(" :+")[-1:] in _PICTURES:
        return LabelContext(Label.PHONE, True)
    number = NOTHING
    # A few letters become longer in lower case; then capitals cannot be compared by offset.
    humped = cased if cased != window and len(cased) == len(window) and _CAMEL.search(cased) else None
    for label, end in _labels_from_right(window, humped):
        between = window[end:]
        close = between in _PLAINLY or (len(between) <= 24 and _CONNECTOR.fullmatch(between) is not None)
        if label is not Label.NUMBER:
            return LabelContext(label, close) if close or number is NOTHING else number
        if number is NOTHING:
            number = LabelContext(label, close)
    return number


def _labels_from_right(window: str, humped: str | None) -> Iterator[tuple[Label, int]]:
    """Labels in `window` with their ends, nearest first: it is read backwards, and mostly not to its start.

    `humped` is the window in its original case, if it has camel-case words.
    """
    for token in _TOKEN.finditer(window[::-1]):
        begin, word = len(window) - token.end(), token[0][::-1]
        if word[0] < "\u3040":
            label = _TABLE.get(word)
            if word in _SECURITY and _SOCIAL.search(window, 0, begin):
                label = Label.SSN
            elif label is None and humped is not None:
                label = _camel_case_label(humped[begin : begin + len(word)])
            label = _label_in_context(label, window, begin, begin + len(word))
            if label is not None:
                yield label, begin + len(word)
            continue
        end = len(word)
        while end > 0:
            label, start, end = _last_label(word[:end])
            if label is None:
                break
            if label is Label.NUMBER and start > 0 and word[start - 1] not in _POSSESSIVE:
                label = Label.OTHER  # the number of something unknown
            yield label, begin + end
            end = start


def _camel_case_label(word: str) -> Label | None:
    """The label of a camel-case word: that of its last labelling part; "number" only after another one."""
    humps = [hump.lower() for hump in _HUMP.findall(word)]
    while humps and _TABLE.get(humps[-1]) is Label.NUMBER:
        humps.pop()
    return next((label for i in range(len(humps)) if (label := _TABLE.get("".join(humps[i:])))), None)


def _label_in_context(label: Label | None, window: str, begin: int, end: int) -> Label | None:
    """The label of an English word in its context: some words are labels only without certain neighbours."""
    if label is Label.OTHER and _PRONOUN.match(window, end):
        return Label.CALL
    if label is Label.OTHER and window[begin:end] == "time" and window.endswith("any ", 0, begin):
        return None
    if label is Label.CALL and window[begin:end] == "ring":
        return label if _RINGS.search(window, max(0, begin - 12), begin) else None
    if label is not Label.VERSION:
        return label
    before = window[max(0, begin - 4) : begin]
    if window[begin:end] == "v" and before[-1:] in _JOINS:
        return Label.JOIN
    return None if before[-1:] == "." and before[-2:-1].isalnum() and before != "asp." else label


def after(text: str, end: int, *, shared: bool = False) -> LabelContext:
    """The first label to the right of `end`; close when it follows at once, as in `555-0187 (fax)`.

    It is also close in "… is my fax". A label in another sentence or with its own number mostly does not apply to this
    one, unless it may be `shared`.
    """
    if not has_letters(text, end, end + REACH_AFTER):
        return NOTHING
    window = text[end : end + REACH_AFTER].lower()
    for token in _TOKEN.finditer(window):
        label, length = _first_label(token[0])
        if label is not None:
            at = end + token.start()
            said = _is_confirmed_after(text, end, at, at + length)
            if not shared and _labels_another_number(text, end, at, at + length, said=said):
                return NOTHING
            return LabelContext(label, said or token.start() < CLOSE_AFTER)
    return NOTHING


def _is_confirmed_after(text: str, end: int, at: int, stop: int) -> bool:
    said = _SAYS_SO.match(text, end)
    return said is not None and at <= said.end() < stop


def _labels_another_number(text: str, end: int, at: int, stop: int, *, said: bool) -> bool:
    """Whether the label at `[at, stop)` does not apply to the value that ends at `end`.

    It precedes a number of another format, or it is in another sentence or field that continues after it.
    """
    heads = _HEADS_ANOTHER.match(text, stop)
    if heads is not None:
        return not _has_same_format(text, end, heads.end() - 1)
    return not said and _APART.search(text, end, at) is not None and not _ENDS_SENTENCE.match(text, stop)


def _has_same_format(text: str, end: int, start: int) -> bool:
    """Whether the number from `start` has the format of the one that ends at `end`: 555-0187 fax: 555-0188."""
    number = _NUMBER.match(text, start)
    if number is None:
        return False
    before = text[max(0, end - len(number[0])) : end]
    return _DIGIT.sub("0", before) == _DIGIT.sub("0", number[0])


def labels_left(text: str, start: int) -> frozenset[Label]:
    """Every label within reach to the left of `start`."""
    return _all_labels(text[max(0, start - REACH) : start])


def labels_right(text: str, end: int) -> frozenset[Label]:
    """Every label within reach to the right of `end`."""
    return _all_labels(text[end : end + REACH])


def _all_labels(window: str) -> frozenset[Label]:
    found = {label for token in _TOKEN.finditer(window.lower()) for label in _labels_in_token(token[0])}
    if _CAMEL.search(window):
        found.update(label for word in _HUMPED.findall(window) if (label := _camel_case_label(word)) is not None)
    return frozenset(found)


def _last_label(token: str) -> tuple[Label | None, int, int]:
    """The last label inside `token`, with its start and end."""
    found = _TABLE.get(token)
    if found is not None or token[0] < "\u3040":
        return found, 0, len(token)
    for end in range(len(token), 0, -1):
        if token[end - 1] not in _LAST:
            continue
        for start in range(max(0, end - _LONGEST), end):
            found = _TABLE.get(token[start:end])
            if found is not None:
                return found, start, end
    return None, 0, 0


def _first_label(token: str) -> tuple[Label | None, int]:
    """The first label inside `token`, with its end."""
    found = _TABLE.get(token)
    if found is not None or token[0] < "\u3040":
        return found, len(token)
    for start in range(len(token)):
        if token[start] not in _FIRST:
            continue
        for end in range(min(len(token), start + _LONGEST), start, -1):
            found = _TABLE.get(token[start:end])
            if found is not None:
                return found, end
    return None, 0


def _labels_in_token(token: str) -> set[Label]:
    found = _TABLE.get(token)
    if found is not None:
        return {found}
    if token[0] < "\u3040":
        return set()
    starts = (i for i, char in enumerate(token) if char in _FIRST)
    pieces = (token[i:j] for i in starts for j in range(i + 1, min(len(token), i + _LONGEST) + 1))
    return {_TABLE[piece] for piece in pieces if piece in _TABLE}
