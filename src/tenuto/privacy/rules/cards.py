"""Payment cards: issuer's prefix, length, and the Luhn digit."""

from __future__ import annotations

from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.digit_runs import DigitRun, evenly, loosely
from tenuto.privacy.rules.labels import REACH, Label
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import load_table

_CARDS: Final = load_table("number_plans")["cards"]
_ISSUERS: Final = lazy_pattern("|".join(_CARDS["issuers"]))
_BANK: Final = lazy_pattern(r"(?:62|81|9[045]|8[78]|10|20|5[0678]|6[0-9])")
_SIXTEEN: Final = lazy_pattern("4|5[1-5]|2[2-7]")
_CREDIT: Final = lazy_pattern(r"6011|64[4-9]|65")
# How people group them: 4-4-4-4(-3), 4-6-5, 4-6-4, 6-13, 6-10, one piece, digit by digit, two halves.
_SHAPES: Final = lazy_pattern(
    rb"\x04{4}[\x01-\x03]?|\x04\x06[\x04\x05]|\x06[\x0a\x0d]|\x04{3}[\x01-\x03]|[\x0c-\x13]|(?<!\x01)\x01{12,19}(?!\x01)|\x08\x08"
    rb"|\x04[\x0c\x0f]|\x0c\x04|\x04\x04\x08|\x08\x04\x04|\x04\x08\x04|\x05\x05\x05|\x04\x04\x05\x02"
    rb"|(?<!\x02)\x02{8}(?!\x02)"
)
_WORDLESS: Final = lazy_pattern(rb"\x04{4}\x03?|\x04\x06[\x04\x05]|\x06[\x0a\x0d]|\x08\x08")
_NETWORKS: Final = lazy_pattern("|".join(_CARDS["major_networks"]))
SHORTEST_CARD: Final = 12
_FOURS: Final = b"\x04\x04\x04\x04"
_DOUBLED: Final = bytes.maketrans(b"0123456789", b"0246813579")


_CARD_WORDS: Final = ("card", "cardno", "visa", "mastercard", "amex", "unionpay", "jcb")


def passes_luhn(digits: str) -> bool:
    """Whether the last digit is the Luhn check digit."""
    codes = digits.encode("ascii")
    return (sum(codes[-1::-2]) + sum(codes[-2::-2].translate(_DOUBLED)) - len(codes) * ord("0")) % 10 == 0


def find_cards(run: DigitRun) -> list[Find]:
    """Cards in `run` as (first group, last group, rule)."""
    found = []
    at = 0
    while match := _SHAPES.search(run.shape, at):
        first, last = match.start(), match.end() - 1
        at = first + 1
        if _is_deep_in_row(run, first, last):
            continue
        for end in (last, last - 1) if last - first == 4 else (last,):
            # After four groups of four may follow the rest of a longer number, or the expiry month.
            rule = (
                _card_rule(run, first, end)
                if run.free(first, end)
                and (run.stands_alone(first, end, *_CARD_WORDS) or _is_on_stripe(run, first, end))
                and not _is_part_of_longer(run, first, end)
                else None
            )
            if rule is not None:
                found.append((first, end, rule))
                at = end + 1
                break
    return found


def _is_deep_in_row(run: DigitRun, first: int, last: int) -> bool:
    """Whether the groups are in a table row that is too long for a label at either end to apply to them."""
    if first == last or run.starts[first] - run.starts[0] < REACH or run.ends[-1] - run.ends[last] < REACH:
        return False
    return _is_table_row(run, first, last)


def _is_on_stripe(run: DigitRun, first: int, last: int) -> bool:
    """`%B4111111111111111^DOE/JANE^...`: the data of a magnetic stripe."""
    text, start = run.view.ascii, run.starts[first]
    return text[max(0, start - 2) : start].upper() == "%B" and text[run.ends[last] : run.ends[last] + 1] == "^"


def _is_part_of_longer(run: DigitRun, first: int, last: int) -> bool:
    """Whether groups of sixteen digits continue to nineteen: then the longer number needs a valid check digit.

    For a network with sixteen digits the last three are the security code.
    """
    if first == last or len(run.shape) == last - first + 1 or sum(run.shape[first : last + 1]) != 16:
        return False
    gap = run.between(first, first + 1)
    if first > 0 and run.shape[first - 1] == 3 and run.between(first - 1, first) == gap:
        return True
    goes_on = last + 1 < len(run.shape) and run.shape[last + 1] == 3 and run.between(last, last + 1) == gap
    return goes_on and not (_SIXTEEN.match(run.digits(first, first)) and _is_labelled_card(run, first, last))


def _card_rule(run: DigitRun, first: int, last: int) -> PiiRule | None:
    digits = run.digits(first, last)
    if _ISSUERS.fullmatch(digits) is None or len(set(digits)) < 2:
        return None
    sound, even = passes_luhn(digits), evenly(run.between(first, last))
    if not sound and run.shape[first : last + 1] != _FOURS:
        return None
    if not even and not (sound and loosely(run.between(first, last))):
        return None
    named = _is_labelled_card(run, first, last)
    if sound:
        context = run.context(first)
        # Written apart or over several lines, it must be all of the run: tables look so, too.
        whole = even or last - first + 1 == len(run.shape)
        known = named or (whole and _is_card_like(run, first, last, digits))
        if not known or (first == last and context.close and context.label is Label.OTHER):
            return None
    elif not named and not _has_no_words_around(run.view.text, run.starts[first], run.ends[last]):
        return None
    return PiiRule.BANK_CARD if _BANK.match(digits) and not _CREDIT.match(digits) else PiiRule.CC


def _is_labelled_card(run: DigitRun, first: int, last: int) -> bool:
    """Whether the text says that it is a card."""
    label = run.context(first).label
    return label is Label.CARD or (
        label in (Label.NUMBER, Label.CALL, None) and run.has_label_near(first, last, Label.CARD)
    )


def _is_card_like(run: DigitRun, first: int, last: int, digits: str) -> bool:
    """Without a label: the number of a major network with the right length, and not in a table row."""
    if first == last or run.shape[first] == 1:
        return _NETWORKS.fullmatch(digits) is not None
    return (
        _WORDLESS.fullmatch(run.shape, first, last + 1) is not None
        and not _is_table_row(run, first, last)
        and (_NETWORKS.fullmatch(digits) is not None)
    )


def _is_table_row(run: DigitRun, first: int, last: int) -> bool:
    """Whether the groups continue to either side with the same separator."""
    gap = run.between(first, first + 1)[0]
    left = first > 0 and run.between(first - 1, first)[0] == gap
    right = last + 1 < len(run.shape) and run.between(last, last + 1)[0] == gap and run.shape[last + 1] == 4
    return left or right


def _has_no_words_around(text: str, start: int, end: int) -> bool:
    """Whether the number stands alone, as in a form field."""
    around = text[max(0, start - 48) : start] + text[end : end + 48]
    return not any(char.isalnum() for char in around)
