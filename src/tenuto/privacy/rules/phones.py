"""Phone numbers: with a country code, in a recognizable national format, or after a label."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.digit_runs import COUNTED, DigitRun, evenly
from tenuto.privacy.rules.labels import BORDER, CLOSE_AFTER, REACH, Label, LabelContext, after, before, has_letters
from tenuto.privacy.rules.prechecks import LEAST
from tenuto.privacy.rules.word_tables import load_table

# `phonenumbers` knows the plans of other countries; it is correct but slow.
_PLANS: Final[dict[str, re.Pattern[str]]] = {
    code: lazy_pattern(plan) for code, plan in load_table("number_plans")["phones"].items()
}
_LONGEST: Final = 15
_LONGEST_DIALLED: Final = _LONGEST + len("00")
_LONGEST_NATIONAL: Final = 13
_MOBILE_CN: Final = lazy_pattern(r"1[3-9]\d{9}")
_MOBILE_WITH_86: Final = lazy_pattern(r"(?:86)?1[3-9]\d{9}")
_MOBILE_LENGTH: Final = 11
_ONE_PIECE: Final = bytes([_MOBILE_LENGTH])
_MOBILE_SHAPES: Final = frozenset(
    {b"\x0b", b"\x03\x04\x04", b"\x03\x08", b"\x03\x03\x05", b"\x04\x04\x03", b"\x07\x04"}
)
_FIRST_GROUPS: Final = frozenset({1, *(shape[0] for shape in _MOBILE_SHAPES)})
"""Possible lengths of the first group of a number that begins with 1."""
_ONES: Final = lazy_pattern(b"\x01+")
_AREA_CN: Final = lazy_pattern(r"0(?:10|2[0-9]|[3-9]\d\d)[2-8]\d{6,7}")
_AREA_SHAPES: Final = frozenset(
    {b"\x03\x08", b"\x04\x07", b"\x04\x08", b"\x03\x04\x04", b"\x04\x04\x04", b"\x04\x03\x04"}
)
_NANP: Final = lazy_pattern(r"1?[2-9]\d\d[2-9]\d{6}")
_NANP_SHAPES: Final = frozenset({b"\x03\x03\x04", b"\x01\x03\x03\x04"})
# A trunk zero: Japan, Korea, Germany, Britain, France and many more.
# Without separators only mobiles of Britain, Korea, Japan and Germany, and landlines of big Chinese cities, are known.
_BARE: Final = lazy_pattern(r"07[1-9]\d{8}|010\d{8}|0[789]0\d{8}|01[5-7]\d{8,9}|0(?:10|2\d)[2-8]\d{7}")
_MOBILE_DE: Final = lazy_pattern(r"01[5-7]\d{8,9}")
_TRUNK: Final = lazy_pattern(r"0[1-9]\d{7,10}")
_LOCAL: Final = b"000-0000"
_EXTENSION: Final = lazy_pattern(r"x[0-9]{1,6}(?![0-9A-Za-z])")
# The number of a ticket, or the result of an equation.
_NO_PHONE_BEFORE: Final = lazy_pattern(r"(?P<hash>#)\s?\Z|〒\s?\Z|[0-9)]\s?=\s?\Z")
_OPEN_ALWAYS: Final = lazy_pattern(r"[ ,;]{1,2}\(?(?:24[ ]?[/x*×][ ]?7|7[ ]?[/x*×][ ]?24)(?![0-9])")
_ENCODED_PLUS: Final = "%2b"
_PLUS_ENDS: Final = frozenset("+(b")
# A mobile in a file name. Picture files have other numbers there, so for them a word must precede it.
_IN_FILE: Final = lazy_pattern(
    r"(?:[_-][\w\u3400-\u9fff-]{0,32})?\."
    r"(?:(?:mp3|m4a|wav|amr|aac|ogg|3gp|vcf|pdf|docx?|xlsx?|pptx?)|(?P<picture>jpe?g|png|mp4|zip|txt))(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_FILE_JOINTS: Final = frozenset("_-")
_FILE_BEFORE: Final = lazy_pattern("(?:[0-9]{8}|(?P<word>[A-Za-z\u3400-\u9fff]{1,16}))[_-]\\Z")
# Between two numbers of a list. The second has the label of the first.
_LIST: Final = lazy_pattern(r"\s?(?:[,;/、，；&|]|or|and|oder|und|和|或|及)?\s{0,2}(?:\+|\()?")
_COMMA: Final = lazy_pattern("[,，]")
NOWHERE: Final = (-1, -1)
"""The position of the previous phone if there is none."""
_LIST_REACH: Final = 10
"""The longest separator between two numbers of a list."""
_CALLING: Final = frozenset({Label.PHONE, Label.CALL, Label.NUMBER})
_LISTED: Final = LabelContext(Label.PHONE, True)
_LONGEST_LISTED: Final = 12
_SUM: Final = lazy_pattern(r"\s?=\s?[-+]?[0-9?x]")
_DESK: Final = lazy_pattern(r"-[0-9]{1,5}(?![0-9A-Za-z-])")
_ROLE: Final = lazy_pattern(r"-(?:office|fax|mobile|home|work|cell|desk)", re.IGNORECASE)
# "my number hasn't changed, it's still ...": the possessive says that it is a phone number.
_WHOSE: Final = lazy_pattern(r"(?<![a-z])(?:my|his|her|their|our|'s)[ ](?:new[ ]|old[ ])?(?:number|no|nr|num)(?![a-z])")
_DATE: Final = lazy_pattern(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d\d){0,3}")
_DAY_FIRST: Final = lazy_pattern(r"(?:0[1-9]|[12]\d|3[01])(?:0[1-9]|1[0-2])(?:19|20)\d\d")
_MONTH_FIRST: Final = lazy_pattern(r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:19|20)\d\d")
_JOINTS: Final = frozenset(
    {"-", ".", " ", "/", "(", ")", ") ", ")-", " (", "-(", " - ", " / ", "  ", "- ", " -", ").", ".(", "/ ", " /", ")/"}
)


def find_phones(run: DigitRun, previous: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Phone numbers in `run` as (start, end) in the view; their groups are claimed. The last one was at `previous`."""
    left, called = run.total, _is_labelled(run)
    for first, digits in enumerate(run.shape):
        if left < LEAST:
            return
        left -= digits
        if digits > _LONGEST_DIALLED or run.taken[first] or _is_in_table(run, first):
            continue
        if not (called or _may_start_unlabelled(run, first) or 0 <= run.starts[first] - previous[1] <= _LIST_REACH):
            continue
        run.view.work.judged += 1
        last = _international_end(run, first)
        if last is None:
            last = _national_end(run, first, previous)
        if last is not None:
            run.claim(first, last)
            previous = _full_range(run, first, last)
            yield previous


def _label_context(run: DigitRun, first: int, last: int, previous: tuple[int, int]) -> LabelContext:
    """The label before group `first`.

    A label with a number in another sentence or field applies to the next one only if that has the same format.
    """
    text, start, end = run.view.text, run.starts[first], previous[1]
    context = run.context(first)
    if end < 0 or start - end > REACH:
        return context
    alike = _is_written_alike(run, first, last, previous)
    if (alike or len(run.digits(first, last)) <= _LONGEST_LISTED) and _LIST.fullmatch(text, end, start):
        return _LISTED
    if alike or context.close or context.label not in _CALLING:
        return context
    apart = BORDER.search(text, end, start) or (len(run.shape) == 1 and _COMMA.search(text, end, start))
    return before(text[end:start], start - end) if apart else context


def _is_written_alike(run: DigitRun, first: int, last: int, previous: tuple[int, int]) -> bool:
    """Whether the groups have the format of the number at `previous`, of 555-0187, or of a number plan."""
    written = run.view.digits[run.starts[first] : run.ends[last]]
    if written in (_LOCAL, run.view.digits[slice(*previous)].lstrip(b"+(")):
        return True
    return _has_plan(run.digits(first, last))


def _has_plan(digits: str) -> bool:
    return any(plan.fullmatch(digits) for plan in (_NANP, _TRUNK, _MOBILE_WITH_86))


def _is_labelled(run: DigitRun) -> bool:
    """Whether a word near the run may label a phone in it. Without a label it has to look like a phone."""
    if run.context(0).label in _CALLING:
        return True
    end = run.ends[-1]
    if not has_letters(run.view.text, end, end + CLOSE_AFTER):
        return False
    return len(run.shape) > 1 or after(run.view.text, end, shared=True).label is Label.PHONE


def _may_start_unlabelled(run: DigitRun, first: int) -> bool:
    """Whether a number that begins with this group may be a phone without a label."""
    text, start = run.view.ascii, run.starts[first]
    digits, alone = run.shape[first], first == len(run.shape) - 1
    match text[start]:
        case "0":
            return True
        case "1":
            known = digits in _FIRST_GROUPS
        case "8":
            known = not alone or digits == _MOBILE_LENGTH + len("86")
        case _:
            known = run.shape[first : first + 3] == b"\x03\x03\x04"
    return known or _plus_length(run, start) > 0


def _is_in_table(run: DigitRun, first: int) -> bool:
    """Whether the group is in a long row of short numbers, where phones are not searched."""
    if run.shape[first - 1 : first + 2] == b"\x01\x01\x01":
        return True
    return len(run.shape) > 32 and run.shape[first] < 7 and run.view.ascii[run.ends[first] : run.ends[first] + 1] == " "


def _full_range(run: DigitRun, first: int, last: int) -> tuple[int, int]:
    """The number with its plus sign, bracket and extension."""
    text, start, end = run.view.text, run.starts[first], run.ends[last]
    while start > 0 and text[start - 1] in "+(":
        start -= 1
    if (
        "(" in text[start:end]
        and text[end : end + 1] == ")"
        and text[start:end].count("(") > text[start:end].count(")")
    ):
        end += 1
    extension = _EXTENSION.match(text, end)
    return start, extension.end() if extension else end


def _candidate_ends(run: DigitRun, first: int, most: int, least: int = 7) -> Iterator[int]:
    """Last groups of numbers that begin with group `first`, longest first."""
    if run.shape[first : first + 2] == b"\x01\x01":
        return _single_digits_end(run, first, most, least)
    total, found = 0, []
    for last in range(first, min(first + 8, len(run.shape))):
        if last > first:
            gap = run.view.ascii[run.ends[last - 1] : run.starts[last]]
            if gap not in _JOINTS and gap.strip(" ") not in ("\n", "-\n"):
                break
            if run.shape[last] <= 2 and _is_followed_by_hours(run, last - 1):
                break
        total += run.shape[last]
        if total > most or run.taken[last]:
            break
        if total >= least:
            found.append(last)
    return reversed(found)


def _single_digits_end(run: DigitRun, first: int, most: int, least: int) -> Iterator[int]:
    """The last group of a row of single digits: 1 3 8 0 0 1 3 8 0 0 0. A part of such a row is no number."""
    row = _ONES.match(run.shape, first)
    assert row is not None  # two of them begin it
    last = row.end() - 1
    around = run.between(max(0, first - 1), first) + run.between(last, min(last + 1, len(run.shape) - 1))
    whole = not set(around) & set(run.between(first, last))
    if whole and least <= row.end() - first <= most and evenly(run.between(first, last)) and run.free(first, last):
        yield last


def _can_end(run: DigitRun, last: int) -> bool:
    """Whether a phone number may end with group `last`: an extension or `-Fax` may follow."""
    end = run.ends[last]
    if end == len(run.view.ascii):
        return True
    if _SUM.match(run.view.ascii, end) or COUNTED.match(run.view.text, end):
        return False
    if run.view.ascii[end : end + 1] == "/" and sum(run.shape[last + 1 :]) >= LEAST:
        return True  # another number follows: 186-1234-5678/135-1234-5678
    return run.can_end(end) or any(after.match(run.view.ascii, end) for after in (_EXTENSION, _ROLE))


def _is_followed_by_hours(run: DigitRun, last: int) -> bool:
    """`… 24/7` after the number, which is not part of it."""
    return _OPEN_ALWAYS.match(run.view.text, run.ends[last]) is not None


def _is_in_file(run: DigitRun, first: int) -> bool:
    """`rec_13800138000_20250301.mp3`: a mobile between separators in a file name, without another label."""
    text, start, end = run.view.text, run.starts[first], run.ends[first]
    joined = text[start - 1 : start] in _FILE_JOINTS
    if not (joined or text[end : end + 1] == "_") or not _MOBILE_CN.fullmatch(text, start, end):
        return False
    file, name = _IN_FILE.match(text, end), _FILE_BEFORE.search(text, max(0, start - 18), start)
    if file is None or not (run.can_start(start) if name is None else joined):
        return False
    if file["picture"] and (name is None or (name["word"] or "").isascii()):
        return False
    context = before(text, start - joined)
    return not (context.close and context.label in (Label.OTHER, Label.VERSION))


def _has_extension(run: DigitRun, first: int, last: int) -> bool:
    """`0512-66667777-802`: a landline with an extension."""
    return (
        _DESK.match(run.view.ascii, run.ends[last]) is not None
        and _AREA_CN.fullmatch(run.digits(first, last)) is not None
    )


def _international_end(run: DigitRun, first: int) -> int | None:
    """The last group of a number that begins with + or 00 and a country code."""
    skipped = _country_code_offset(run, first)
    if skipped is None:
        return None
    for last in _candidate_ends(run, first, _LONGEST + skipped, 8 + skipped):
        if _can_end(run, last) and (not skipped or not _is_other_labelled_row(run, first, last)):
            number = run.digits(first, last)[skipped:]
            if number[0] != "0" and _is_international(number, sure=not skipped or last > first):
                return last
    return None


def _country_code_offset(run: DigitRun, first: int) -> int | None:
    """How many digits precede the country code: 0 after a plus sign, 2 for `00`, or None without one."""
    text, start = run.view.ascii, run.starts[first]
    sign = _plus_length(run, start)
    if sign:
        begin = start - sign
        joined = text[begin - 1 : begin].isalnum() and before(run.view.text, begin).label is not Label.PHONE
        return None if joined else 0
    if not text.startswith("00", start) or not run.can_start(start):
        return None
    return None if first > 0 and _continues_number(run, first) else 2


def _plus_length(run: DigitRun, start: int) -> int:
    """The length of the plus sign before a number: `+`, `+(`, or `%2B` in links."""
    if run.view.lower[start - 1 : start] not in _PLUS_ENDS:
        return 0
    head = run.view.lower[max(0, start - 3) : start]
    if head == _ENCODED_PLUS:
        return 3
    return 2 if head.endswith("+(") else int(head.endswith("+"))


def _continues_number(run: DigitRun, first: int) -> bool:
    """Whether `00` does not begin a number: it stands alone, or after many unclaimed digits."""
    return run.shape[first] == 2 or (run.shape[first - 1] >= 6 and not run.taken[first - 1])


def _is_other_labelled_row(run: DigitRun, first: int, last: int) -> bool:
    """Whether the groups belong to a row whose label is not a phone: 运单号 3297 5907 8902."""
    whole = run.context(0)
    if whole.label is not Label.OTHER or not whole.close or any(run.taken[:first]):
        return False
    even = len(set(run.shape[:last])) == 1 and run.shape[last] <= run.shape[0]
    return even and last > first and len(set(run.between(0, last))) == 1


def _is_international(number: str, *, sure: bool) -> bool:
    for length in (1, 2, 3):
        plan = _PLANS.get(number[:length])
        if plan is not None:
            return plan.fullmatch(number, length) is not None
    return _is_valid_by_library(number, sure=sure)


def _is_valid_by_library(number: str, *, sure: bool) -> bool:
    # Imported late: it takes 50 ms and 40 MB, and most texts hold no foreign number.
    import phonenumbers

    try:
        parsed = phonenumbers.parse("+" + number)
    except phonenumbers.NumberParseException:
        return False
    return phonenumbers.is_possible_number(parsed) if sure else phonenumbers.is_valid_number(parsed)


def _national_end(run: DigitRun, first: int, previous: tuple[int, int]) -> int | None:
    """The last group of a number without country code, or None."""
    ends = [
        last
        for last in _candidate_ends(run, first, _LONGEST_NATIONAL)
        if _can_end(run, last) or _has_extension(run, first, last)
    ]
    if run.shape[first] == _MOBILE_LENGTH and _is_in_file(run, first):
        return first
    if not ends:
        return None
    start = run.starts[first]
    follows = first > 0 and run.taken[first - 1] and run.view.ascii[start - 1] == "/"
    free = (follows or run.can_start(start)) and not _is_another_number(run, first, ends[0])
    if not free and not _is_glued_to_label(run, start):
        return None
    for last in ends:
        digits, shape = run.digits(first, last), run.shape[first : last + 1]
        looks = _phone_likelihood(digits, shape, run.between(first, last))
        if looks == _CLEARLY and last > first and _is_in_number_row(run, first, last):
            looks = _PERHAPS
        if looks == _NEVER or _is_other_labelled_row(run, first, last):
            continue
        if _is_phone(looks, _label_context(run, first, last, previous), run, (first, last), digits):
            return last
    return None


def _is_another_number(run: DigitRun, first: int, last: int) -> bool:
    """`#4155550163`: the number of a ticket, unless a phone label precedes the sign: "cell # 4155550163"."""
    text, start = run.view.text, run.starts[first]
    sign = _NO_PHONE_BEFORE.search(text, max(0, start - 6), start)
    if sign is None or sign["hash"] is None:
        return sign is not None
    context = before(text, sign.start())
    dialled = context.label is Label.CALL and _has_plan(run.digits(first, last))
    return not (context.close and (context.label is Label.PHONE or dialled))


def _is_in_number_row(run: DigitRun, first: int, last: int) -> bool:
    """Whether it is part of a row of numbers: 7554 131 8166 9197 6729."""
    if set(run.between(first, last)) != {" "}:
        return False
    left = first > 0 and run.between(first - 1, first)[0] == " " and run.can_start(run.starts[first - 1])
    right = last + 1 < len(run.shape) and run.between(last, last + 1)[0] == " " and run.shape[last + 1] > 2
    return left or right


def _is_glued_to_label(run: DigitRun, start: int) -> bool:
    """`tel13800138000`: the letters right before it are a label."""
    if not run.view.ascii[start - 1 : start].isalpha():
        return False
    context = before(run.view.text, start)
    return context.label in (Label.PHONE, Label.JOIN) and context.close


# How much a number looks like a phone, from "needs no label" to "never".
_CLEARLY, _PROBABLY, _PERHAPS, _NEVER = range(4)


def _phone_likelihood(digits: str, shape: bytes, between: list[str]) -> int:
    if shape == _ONE_PIECE and _MOBILE_CN.fullmatch(digits):
        return _CLEARLY
    if any("\n" in gap for gap in between) or len(set(digits)) == 1:
        known = len(digits) in (10, 11) or _AREA_CN.fullmatch(digits)
        return _PERHAPS if known and len(set(digits)) > 1 else _NEVER
    if 1 in shape[1:] and "." in between and set(between) <= {".", " "}:
        return _NEVER  # 8.0.49.2600 is a version, and 3.14 2.71 a row of decimals
    if between == ["."] and shape[0] <= 3 and shape[1] > 4 and digits[0] != "0" and not _has_plan(digits):
        return _NEVER  # a decimal, of a coordinate mostly
    if _DATE.fullmatch(digits) and (len(shape) == 1 or shape[0] in (4, 8)):
        return _NEVER
    if shape[:3] == b"\x02\x02\x04" and (_DAY_FIRST.match(digits) or _MONTH_FIRST.match(digits)):
        return _NEVER
    if digits.startswith("86") and len(digits) == 13 and _MOBILE_CN.fullmatch(digits, 2):
        return _CLEARLY if len(shape) > 1 else _PROBABLY
    if _MOBILE_CN.fullmatch(digits) and shape in _MOBILE_SHAPES:
        return _CLEARLY
    if _counts_up(digits, shape):
        return _NEVER
    if len(shape) == 1:
        return _PROBABLY if _BARE.fullmatch(digits) else _PERHAPS
    return _grouped_likelihood(digits, shape, between)


def _grouped_likelihood(digits: str, shape: bytes, between: list[str]) -> int:
    if _AREA_CN.fullmatch(digits) and shape in _AREA_SHAPES:
        return _CLEARLY
    if shape in _NANP_SHAPES and _NANP.fullmatch(digits):
        bracketed = any(")" in gap for gap in between)
        return _CLEARLY if bracketed or {"-"} == set(between) or {"."} == set(between) else _PROBABLY
    if shape == b"\x03\x03\x04" and between[0][:1] == ")":
        return _CLEARLY  # (123) 456-7890: a common example
    if shape == b"\x03\x03\x04" and between == ["-", "-"]:
        return _PROBABLY
    if shape == b"\x02\x03\x04" and digits.startswith("02"):  # Seoul
        return _CLEARLY
    if _TRUNK.fullmatch(digits) and 2 <= shape[0] <= 5 and min(shape[1:]) >= 2 and len(shape) <= 5:
        if len(digits) in (10, 11) or _MOBILE_DE.fullmatch(digits):
            return _CLEARLY
        return _PROBABLY if len(digits) == 12 else _PERHAPS
    return _PERHAPS


def _counts_up(digits: str, shape: bytes) -> bool:
    """01 02 03 04 05 is a list; five pairs from 06 or 07 on, a French mobile."""
    if shape[0] != 2 or set(shape) != {2}:
        return False
    pairs = [digits[i : i + 2] for i in range(0, len(digits), 2)]
    return pairs == sorted(pairs) and not (len(pairs) == 5 and pairs[0] in ("06", "07"))


def _is_phone(looks: int, context: LabelContext, run: DigitRun, window: tuple[int, int], digits: str) -> bool:
    first, last = window
    against = context.label in (Label.OTHER, Label.VERSION, Label.SSN, Label.CN_ID, Label.PASSPORT)
    if looks == _CLEARLY:
        return not (against and context.close)
    alone = first == 0 and (last == len(run.shape) - 1 or _is_followed_by_hours(run, last))
    if looks == _PROBABLY and alone and not (against and context.close):
        return True
    if context.label is Label.PHONE and (context.close or len(digits) in (10, 11) or last > first):
        return True
    if len(digits) > 12:
        return False
    if context.label is Label.NUMBER and run.total > _LONGEST and set(run.between(0, len(run.shape) - 1)) == {" "}:
        return False  # one grouped number, too long for a phone
    if context.label in (Label.CALL, Label.NUMBER) and context.close:
        # A weak label before few digits in one group may refer to anything.
        return last > first or len(digits) >= 10 or not run.has_label_near(first, last, Label.OTHER)
    if context.label in _CALLING and _is_announced(run, first, last, digits):
        return True
    if context.label is Label.CALL and run.shape[first : last + 1] == b"\x03\x04":
        return True  # "dial 9, then 555-0132"
    follows = after(run.view.text, run.ends[last], shared=not against)
    return follows.label is Label.PHONE and follows.close and not (against and context.close)


def _is_announced(run: DigitRun, first: int, last: int, digits: str) -> bool:
    """Whether words further away suffice: digits one by one, or a possessive such as "my number"."""
    if not _has_plan(digits):
        return False
    if run.shape[first] == 1 and last - first == len(digits) - 1:
        return True
    start = run.starts[first]
    return last == first and _WHOSE.search(run.view.lower, max(0, start - REACH), start) is not None
