"""Identity numbers: Chinese resident ids, US social security numbers, passports, and bank accounts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from itertools import accumulate
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.digit_runs import COUNTED, CURRENCY, DigitRun, evenly, loosely
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.labels import REACH, Label, LabelContext, after, before, labels_left, labels_right
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import load_table

_PROVINCES: Final = frozenset(load_table("number_plans")["chinese_ids"]["provinces"].split())
_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECKS: Final = "10X98765432"
# Birth dates must not be in the future. The rules read no clock, so this year has to be raised now and then.
_LAST_YEAR: Final = "2030"


def is_resident_id(digits: str) -> bool:
    """Whether 18 characters are a Chinese resident id: province, real birth date, check character.

    County codes are not compared with a list: they change, and ids keep the code of the day they were issued.
    """
    if digits[:2] not in _PROVINCES or not _is_date(digits[6:10], digits[10:12], digits[12:14]):
        return False
    total = sum(weight * int(digit) for weight, digit in zip(_WEIGHTS, digits, strict=False))
    return _CHECKS[total % 11] == digits[17].upper()


def _is_date(year: str, month: str, day: str) -> bool:
    if not "1900" <= year <= _LAST_YEAR:
        return False
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return False
    return True


SHORTEST_ID: Final = 15
_ID_LENGTHS: Final = (SHORTEST_ID, 17, 18)
_ID_WORDS: Final = ("id", "idcard", "idno", "cid", "sfz", "sfzh")
# One group, 6-8-4, 4-4-4-4-2, 6-4-4-4, 6-4-2-2-4, digit by digit, or split once anywhere; the last may be an X.
_ID_SHAPE: Final = lazy_pattern(
    rb"""[\x0f\x11\x12]|\x06\x08[\x03\x04]|\x04{4}[\x01\x02]|\x06\x04\x04[\x03\x04]|\x06\x04\x02\x02[\x03\x04]
    |\x03\x03\x04\x04[\x03\x04]|(?<!\x01)\x01{17,18}(?!\x01)|[\x06-\x0e][\x03-\x0c]""",
    re.VERBOSE,
)


def find_resident_ids(run: DigitRun) -> Iterator[tuple[int, int, int]]:
    """Resident ids in `run` as (first group, last group, characters after it: 1 when it ends in X)."""
    at = 0
    while match := _ID_SHAPE.search(run.shape, at):
        first, last = match.start(), match.end() - 1
        at = first + 1
        tail = _id_suffix_length(run, first, last)
        if tail is not None:
            run.claim(first, last)
            yield first, last, tail
            at = last + 1
    if len(run.shape) > 1:
        yield from _ids_in_any_groups(run)


def _ids_in_any_groups(run: DigitRun) -> Iterator[tuple[int, int, int]]:
    """Ids in groups of any lengths, `33 0106 1987 0316 2142`: province, birth date and check character must fit."""
    digits, offset = run.digits(0, len(run.shape) - 1), 0
    ends = {end: group for group, end in enumerate(accumulate(run.shape))}
    for first, length in enumerate(run.shape):
        start, offset = offset, offset + length
        if digits[start : start + 2] not in _PROVINCES or digits[start + 6 : start + 8] not in ("19", "20"):
            continue
        last = ends.get(start + 18, ends.get(start + 17))
        if last is None or last == first or not run.free(first, last) or not loosely(run.between(first, last)):
            continue
        number = digits[start : start + sum(run.shape[first : last + 1])]
        tail = _x_suffix_length(run.view, run.ends[last]) if len(number) == 17 else 0
        number += "X" if tail else ""
        if len(number) == 18 and is_resident_id(number) and _stands_alone(run, first, last, tail):
            run.claim(first, last)
            yield first, last, tail


def _stands_alone(run: DigitRun, first: int, last: int, tail: int) -> bool:
    return run.can_start(run.starts[first], *_ID_WORDS) and run.can_end(run.ends[last] + tail)


def _id_suffix_length(run: DigitRun, first: int, last: int) -> int | None:
    """How many characters after the digits belong to the id, or None if it is no id."""
    if sum(run.shape[first : last + 1]) not in _ID_LENGTHS:
        return None
    digits, end, tail = run.digits(first, last), run.ends[last], 0
    if len(digits) == 17:
        tail = _x_suffix_length(run.view, end)
        digits += "X" if tail else ""
    if len(digits) == 18:
        sound = is_resident_id(digits) or _is_labelled_id(run, first)
    else:
        sound = (
            len(digits) == 15
            and _is_labelled_id(run, first)
            and _is_date("19" + digits[6:8], digits[8:10], digits[10:12])
        )
    if not sound or not evenly(run.between(first, last)):
        return None
    return tail if _stands_alone(run, first, last, tail) else None


def _is_labelled_id(run: DigitRun, first: int) -> bool:
    """A wrong check character, or the old form of fifteen digits, counts where the text calls it an id."""
    context = run.context(first)
    return context.label is Label.CN_ID and context.close


def _x_suffix_length(view: FoldedText, end: int) -> int:
    match = _X.match(view.ascii, end)
    return match.end() - end if match else 0


_X: Final = lazy_pattern("[ -]?[xX](?![A-Za-z0-9])")


SOCIAL_SECURITY: Final = 9
"""Digits of a social security number."""
_SSN_SHAPE: Final = lazy_pattern(rb"\x03\x02\x04|\x09|(?<!\x01)\x01{9}(?!\x01)")
_READ_OUT: Final = lazy_pattern(r"[ .-]|[ ]-[ ]")


# A person's tax number is the social security number.
_TAX_ID: Final = lazy_pattern(r"tax(?:payer)?[ -]?id(?:entification)?(?:[ ](?:no\.?|number))?[\s:=#]{0,3}(?:is[ ])?\Z")


def is_ssn(digits: str) -> bool:
    """Whether nine digits have an area, a group and a serial that are ever issued."""
    return digits[:3] not in ("000", "666") and digits[0] != "9" and digits[3:5] != "00" and digits[5:] != "0000"


def find_ssns(run: DigitRun) -> Iterator[tuple[int, int]]:
    """Social security numbers in `run` as (first group, last group)."""
    for match in _SSN_SHAPE.finditer(run.shape):
        first, last = match.start(), match.end() - 1
        if not run.free(first, last) or not run.stands_alone(first, last, "ssn", "ssns"):
            continue
        if is_ssn(run.digits(first, last)) and _is_labelled_ssn(run, first, last):
            run.claim(first, last)
            yield first, last


def _is_labelled_ssn(run: DigitRun, first: int, last: int) -> bool:
    context = run.context(first)
    if first == last:
        if COUNTED.match(run.view.text, run.ends[last]):
            return context == LabelContext(Label.SSN, True)
        if context.label is Label.NUMBER:
            return run.has_label_near(first, last, Label.SSN)
        follows = after(run.view.text, run.ends[last])
        if context.close and context.label is Label.OTHER:
            return follows == LabelContext(Label.SSN, True)
        return Label.SSN in (context.label, follows.label)
    between = run.between(first, last)
    if run.shape[first] == 1:
        return context.label is Label.SSN and all(map(_READ_OUT.fullmatch, between))
    if "\n" in "".join(between):
        return False
    if context.label is Label.SSN and loosely(between):
        return True
    if not evenly(between):
        return False
    if context.label is Label.OTHER and _is_tax_id(run, first):
        return True
    if context.close and context.label in (Label.OTHER, Label.VERSION, Label.PHONE):
        return False
    return between[0] == "-" or (between[0] == " " and len(run.shape) == 3)


def _is_tax_id(run: DigitRun, first: int) -> bool:
    start = run.starts[first]
    return _TAX_ID.search(run.view.lower, max(0, start - REACH), start) is not None


_PASSPORT: Final = lazy_pattern(
    r"""(?:(?<![A-Za-z0-9])|(?<=[Pp]assport))(?:
        (?![Nn][OoRr][ ])[A-Za-z]{1,2}[ -]?[0-9]{7,8}          # China, Japan, Korea, newer US
        |[A-Za-z]{1,2}[ ]?[0-9]{4}[ ][0-9]{4}(?![ ][0-9])
        |(?P<bare>[0-9]{9})                   # US, UK
        |[A-Za-z][0-9]{3}[A-Za-z][0-9]{4}     # Korea, newer
        |[A-Z][0-9]{7}[A-Z]                   # Singapore
        |[CFGHJKLMNPRTVWXYZcfghjk][0-9CFGHJKLMNPRTVWXYZ]{8}[0-9]?   # Germany, with or without its check digit
        |(?P<other>[A-Z]{2,3}[0-9]{6}|[0-9]{2}[A-Z]{2}[0-9]{5}|[A-Z]{2}[A-Z0-9]{6}[0-9]    # elsewhere
            |[0-9]{3}[ -][0-9]{3}[ -][0-9]{3}|[0-9]{2}[ ][0-9]{7}|[0-9]{8})
    )(?![A-Za-z0-9])""",
    re.VERBOSE,
)
# Error codes and model names. They do not label other numbers: 报错13800138000 is a phone all the same.
_NO_PAPER: Final = lazy_pattern(
    r"(?:报错|错误|故障|异常|返回|机型|设备|行李牌|登机牌)(?:代?码|编?号)?(?:是|为)?[\s:#]{0,2}\Z"
)
# Letters before a number that is something else.
_NO_SERIES: Final = frozenset({"qq", "sn", "po", "mc", "cc", "id"})
# The word may follow, in the same sentence and the same field.
_THEN_PASSPORT: Final = lazy_pattern(
    r"(?:[^|\n。；;.]|\.(?! )){0,40}?"
    r"(?:pass(?:port|eport|aporto|nummer|nr)|pasaporte|reisepass|护照|護照|パスポート|旅券|여권)",
    re.IGNORECASE,
)
_NOT_PASSPORT: Final = frozenset({Label.PHONE, Label.OTHER, Label.SSN, Label.CARD, Label.VERSION})


def find_passports(view: FoldedText) -> Iterator[Find]:
    """Passport numbers near a word for passport."""
    if view.digits.find(b"0") < 0:
        return
    for match in _PASSPORT.finditer(view.ascii):
        start, end = match.span()
        if not any(map(str.isdigit, match[0])):
            continue
        if _may_be_passport(view.text, match) and not _NO_PAPER.search(view.text, max(0, start - 12), start):
            yield start, end, PiiRule.PASSPORT


def _may_be_passport(text: str, match: re.Match[str]) -> bool:
    start, end = match.span()
    context = before(text, start)
    if context != LabelContext(Label.PASSPORT, True) and _is_amount_or_code(text, match):
        return False
    if context.label is Label.PASSPORT or Label.PASSPORT in labels_left(text, start):
        return _is_passport(context, match.lastgroup)
    if (context.close and context.label in _NOT_PASSPORT) or Label.PASSPORT not in labels_right(text, end):
        return False
    follows = after(text, end)
    if match.lastgroup == "other" or not (follows.label is Label.PASSPORT or _THEN_PASSPORT.match(text, end)):
        return False
    return match.lastgroup is None or follows == LabelContext(Label.PASSPORT, True)


def _is_amount_or_code(text: str, match: re.Match[str]) -> bool:
    """Whether it is a price, an amount, or a code that is something else."""
    start, end = match.span()
    if match[0][:2].lower() in _NO_SERIES or text[start - 1 : start] in CURRENCY:
        return True
    return match[0].isdigit() and COUNTED.match(text, end) is not None


def _is_passport(context: LabelContext, form: str | None) -> bool:
    """Values in the form of a passport number are one unless a label says otherwise; others need a label."""
    if form is None:
        return not (context.close and context.label in _NOT_PASSPORT)
    if form == "other":
        return context.label is Label.PASSPORT and context.close
    return context.label in (Label.PASSPORT, Label.NUMBER) or not (context.close or context.label in _NOT_PASSPORT)


_CAPITALS: Final = bytes(ord("A") if 0x41 <= byte <= 0x5A else byte for byte in range(256))
_IBAN: Final = lazy_pattern(r"[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")


def find_ibans(view: FoldedText) -> Iterator[Find]:
    """Bank accounts whose country, length and check digits agree."""
    if view.digits.translate(_CAPITALS).find(b"AA00") < 0:
        return
    for match in _IBAN.finditer(view.ascii):
        start, end = match.span()
        if view.ascii[start - 1 : start].isalnum() and view.lower[max(0, start - 4) : start] != "iban":
            continue
        while end > start and not _is_iban(view.ascii[start:end]):
            # A word in capitals may follow the account: leave it out.
            cut = max(view.ascii.rfind(" ", start, end), view.ascii.rfind("-", start, end))
            end = cut if cut > start + 14 else start
        if end > start:
            yield start, end, PiiRule.IBAN


def _is_iban(value: str) -> bool:
    # Imported late: few texts hold an account, and the country tables take time to load.
    from stdnum import iban
    from stdnum.exceptions import ValidationError

    try:
        # Without the banks' own check digits: the tables lack some banks of Belgium and Spain.
        iban.validate(value, check_country=False)
    except ValidationError:
        return False
    return True
