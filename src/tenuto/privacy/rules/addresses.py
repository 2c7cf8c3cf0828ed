"""Postal addresses, searched only if a policy asks for them.

A street and a house number, in the order of the country, make an address; so do the building and the flat of a
residential compound in Chinese, and the words after a label such as "my address is" or 收货地址.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.word_tables import any_of, load_table

Place = tuple[int, int]

_TABLE: Final = load_table("addresses")

# Western addresses. A name consists of capitalised words and small words between them.

_CAP: Final = "[A-Z\u00c0-\u00de\u0100-\u0178\u0410-\u042f](?:[^\\W\\d_]|['’.-]){0,24}(?!\\w)"
_SMALL: Final = any_of(_TABLE["small_words"])
_JOINT: Final = rf"(?:(?:{_SMALL})[ ]|[dl]['’]){{0,3}}"
_NAME: Final = rf"{_JOINT}(?:[0-9]{{1,2}}[ ])?{_CAP}(?:[ ]{_JOINT}{_CAP}){{0,4}}"
_HOUSE: Final = r"[0-9]{1,5}(?:[ ]?(?:bis|ter|[A-Da-d])\b)?(?:[-/][0-9]{1,4}[a-z]?)?"
# A full stop ends the sentence, except in "St. Gallen".
_TOWN_WORD: Final = rf"(?:St\.[ ])?{_CAP.replace('.-', '-')}"
_CITY: Final = rf"{_TOWN_WORD}(?:[ ](?:(?:{_SMALL})[ ])?{_TOWN_WORD}){{0,3}}"
_UK: Final = r"[A-Z]{1,2}[0-9][A-Z0-9]?[ ]?[0-9][A-Z]{2}\b"
# 75001 Paris, D-10117 Berlin, 1012 PH Amsterdam, 00-590 Warszawa, London NW1 6XE, Springfield, IL 62704
_TOWN: Final = (
    rf"(?:(?:,[ ]?|[ ]|\n)(?:[A-Z]{{1,2}}-)?(?:[0-9]{{4,5}}(?:-[0-9]{{3,4}})?|[0-9]{{2}}-[0-9]{{3}}"
    rf"|[0-9]{{3}}[ ][0-9]{{2}})(?:[ ][A-Z]{{2}}\b)?[ ](?:{_CITY}|(?<=[0-9][ ])[^\W\d_]{{3,24}})(?:[ ]\([A-Z]{{2}}\))?"
    rf"|(?:,[ ]?|\n){_CITY}(?:,?[ ](?:{_UK}|[A-Z]{{2}}\.?[ ][0-9]{{5}}(?:-[0-9]{{4}})?|[0-9]{{4,5}}"
    rf"(?:-[0-9]{{3,4}})?\b))?"
    rf"|,?[ ]{_UK})"
)
_FLAT: Final = (
    rf"(?:,?[ ](?:{any_of(_TABLE['flats'])})\.?[ ]?[A-Za-z0-9-]{{1,6}}"
    r"|,?[ ][0-9]{1,2}[ºª°](?:[ ]?[A-Za-z0-9]{1,6}\b)?)"
)
_TAIL: Final = rf"{_FLAT}{{0,2}}(?:{_TOWN}){{0,2}}"
# 12 Oak Street, Flat 3, 221B Baker Street
_EN: Final = lazy_pattern(
    r"(?<![A-Za-z0-9])(?:Flat[ ][0-9A-Za-z]{1,4},[ ])?[0-9]{1,5}[A-Za-z]?[ ](?:[NSEW]\.?[ ])?"
    rf"(?:(?:[A-Z][A-Za-z'’.-]{{1,20}}|[0-9]{{1,3}}(?:st|nd|rd|th))[ ]){{1,3}}"
    rf"(?:{any_of(_TABLE['english'])})\b\.?"
    rf"(?:[ ][NSEW]{{1,2}}\b)?{_TAIL}"
)
# In lower case only the plain words for a street count, after a name.
_EN_LOWER: Final = lazy_pattern(
    r"(?<![A-Za-z0-9.,])[0-9]{1,5}[a-z]?[ ]"
    rf"(?:(?!(?:{any_of(_TABLE['no_names_in_lower_case'])})[ ])[a-z'’.-]{{2,20}}[ ]){{1,2}}"
    rf"(?:{any_of(_TABLE['english_lower_case'])})\b(?:,[ ][a-z]{{3,20}})?(?:,?[ ](?:[a-z]{{2}}[ ])?[0-9]{{5}})?"
)
# 12 rue de Rivoli, 75001 Paris
_NUMBER_FIRST: Final = lazy_pattern(
    rf"(?<![\w.,-]){_HOUSE},?[ ](?:{any_of(_TABLE['number_first'])})[ ](?!of[ ])(?:{_NAME}{_TAIL}"
    rf"|{_JOINT}[^\W\d_][\w'’-]{{1,24}}(?:,?[ ][0-9]{{5}}[ ][^\W\d_]{{2,24}})?)"
)
# Via Roma 12, Calle de Alcalá, 45, Rua Augusta 1500, ul. Długa 5, Lindenstraße 4, Berliner Straße 12, Kalverstraat 92
_NAME_FIRST: Final = lazy_pattern(
    rf"(?<![^\W\d_])(?:(?:{any_of(_TABLE['name_first'])})[ ]?{_NAME}"
    rf"|[^\W\d_][\w'’-]{{1,24}}?(?:{any_of(_TABLE['endings'])})(?![^\W\d_])"
    rf"|[A-ZÄÖÜ][\w'’-]{{1,24}}?(?:{any_of(_TABLE['endings_of_capitalised'])})(?![^\W\d_])"
    rf"|(?:{_CAP}[ ]){{1,3}}(?:{any_of(_TABLE['last_words'])}))"
    rf",?[ ](?:n[.º°]{{1,2}}[ ]?|[nN][ro][.:]?[ ]?|número[ ])?{_HOUSE}(?![\w%€$]){_TAIL}"
)
# 19 Kingsway, Manchester M19 2LL, 350 Broadway, New York, NY 10013: a number, a name and a town with its postcode
_WITH_POSTCODE: Final = lazy_pattern(
    rf"(?<![\w.,-])[0-9]{{1,5}}[A-Za-z]?[ ]{_CAP}(?:[ ]{_CAP}){{0,3}}{_FLAT}{{0,2}},[ ]{_CITY}"
    rf"(?:,?[ ]{_UK}|,?[ ][A-Z]{{2}}[ ][0-9]{{5}}(?:-[0-9]{{4}})?)"
)
_BOX: Final = lazy_pattern(
    rf"(?<![A-Za-z])(?i:{any_of(_TABLE['post_boxes'])})[ ]#?[0-9]{{1,6}}(?![\w])(?:{_TOWN}){{0,2}}"
)
_UNIT_RU: Final = rf"(?i:{any_of(_TABLE['russian_units'])})\b\.?[ ]?"
_STREET_RU: Final = f"(?i:{any_of(_TABLE['russian_streets'])})"
_NAME_RU: Final = rf"{_CAP}(?:[ ]{_CAP}){{0,2}}"
_RU: Final = lazy_pattern(
    rf"(?<!\w)(?:{_STREET_RU}[ ]?{_NAME_RU}|{_NAME_RU}[ ]{_STREET_RU}),?[ ]"
    rf"(?:{_UNIT_RU})?[0-9]{{1,4}}[А-Яа-я]?(?:[/-][0-9]{{1,4}})?(?!\w)"
    rf"(?:,?[ ]{_UNIT_RU}[0-9]{{1,4}}[А-Яа-я]?(?!\w)){{0,4}}(?:,[ ](?:(?:г\.|город)[ ]?)?{_CITY}){{0,2}}"
)
# Any name and number before a postcode and a town: Unter den Linden 77, 10117 Berlin
_BEFORE_TOWN: Final = lazy_pattern(
    rf"(?<![^\W\d_]){_NAME}[ ]{_HOUSE},?[ \n](?:[A-Z]{{1,2}}-)?(?:[0-9]{{4,5}}(?:-[0-9]{{3,4}})?"
    rf"|[0-9]{{2}}-[0-9]{{3}})(?:[ ][A-Z]{{2}}\b)?[ ]{_CITY}"
)
# The words after a label, as long as they are names and numbers.
_LABEL: Final = lazy_pattern(
    rf"(?<![\w-])(?:{any_of(_TABLE['labels'])})(?:[ ](?:{any_of(_TABLE['verbs_of_labels'])}))*[ ]?[:=]?\s{{1,2}}"
    rf"|(?<![\w-])(?:{any_of(_TABLE['at_a_place'])})[ ](?:at|to)[ ]"
    rf"|(?<![\w-])(?:{any_of(_TABLE['at_a_place_elsewhere'])})[ ]",
    re.IGNORECASE,
)
_TOKEN: Final = (
    rf"(?:[0-9]{{1,2}}[ºª°]|[0-9]{{1,6}}[A-Za-z]?(?:[-/][0-9A-Za-z]{{1,5}})?|{_CAP}"
    rf"|[A-Z]{{1,2}}[0-9][A-Z0-9]?\b|[dl]['’]{_CAP}"
    rf"|(?:{_SMALL}|rue|avenue|calle|via|rua|bis|ter|flat|apt)\b)"
)
_WORDS: Final = lazy_pattern(rf"{_TOKEN}(?:(?:,[ ]?|[ ]|\n(?=[A-Z0-9])){_TOKEN}){{1,13}}")
_HOUSE_NUMBER: Final = lazy_pattern(r"(?<![\w.:])[0-9]{1,5}[A-Za-z]?(?![\w.:@]|\.[0-9])")
_WORD: Final = lazy_pattern(r"[^\W\d_]{3}")
# my address is 600 w 9th st, los angeles: small letters up to the end of the sentence, where it says whose it is
_SAID: Final = lazy_pattern(
    r"(?<![\w-])(?:(?:(?:my|our|his|her|their|postal|home|street|delivery|shipping|billing|mailing)[ ]){1,2}address"
    r"(?:[ ]is(?:[ ]now)?)?[ ]?:?[ ]|i[ ](?:now[ ])?live[ ]at[ ])(?P<value>[0-9]{1,5}[a-z]?[ ](?:[nsew][ ])?"
    r"(?:[a-z][a-z'’-]{1,20}|[0-9]{1,3}(?:st|nd|rd|th))(?:,?[ ](?:[a-z][a-z'’-]{1,20}|[0-9]{1,5})){1,6})",
    re.IGNORECASE,
)
_LONGEST: Final = 120

# Chinese addresses: found by a street with a number or a building with a flat, then extended to both sides.

_CHINESE: Final = _TABLE["chinese"]
_HAN: Final = "\u4e00-\u9fff"
_SIMPLIFIED: Final = str.maketrans(_CHINESE["traditional"], _CHINESE["simplified"])
_DIGITS: Final = "[0-9一二三四五六七八九十百零〇]"
_STREET: Final = f"(?:{any_of(_CHINESE['streets'])})"
_BUILDING: Final = f"(?:{any_of(_CHINESE['buildings'])})"
_HOME: Final = f"(?:{any_of(_CHINESE['homes'])})"
_UNIT: Final = f"(?:{any_of(_CHINESE['units'])})"
_COMPOUND: Final = any_of(_CHINESE["compounds"])
_ZH: Final = lazy_pattern(
    rf"{_STREET}(?:[东南西北中]|延长线|辅路|支路)?{_DIGITS}{{0,3}}(?:段|期|区)?[ ]?"
    rf"(?:{_DIGITS}{{1,6}}|[甲乙丙][0-9]{{1,4}})"
    rf"(?:-[0-9]{{1,4}})?[ ]?(?:号|弄|巷|栋|幢|室)"
    rf"|(?:[A-Za-z]|{_DIGITS}{{1,4}})[ ]?{_BUILDING}|[A-Za-z][0-9]{{0,3}}座"
    rf"|(?:{_COMPOUND}|城|府|庭|湾)[ ]?[A-Za-z0-9]{{1,4}}(?:座|-[0-9]{{1,4}}|室|号)"
)
_ZH_TAIL: Final = lazy_pattern(
    rf"(?:[ ]?[{_HAN}]{{2,12}}?{_HOME}){{0,2}}(?:(?:[ ]?|[,，][ ]?(?=[{_HAN}]{{0,6}}?[0-9A-Za-z]{{1,5}}(?:号楼"
    rf"|栋|幢|单元|室|座)))(?:[{_HAN}]{{0,8}}?(?:[A-Za-z]|{_DIGITS}{{1,5}}|[0-9A-Za-z]{{1,5}}"
    rf"(?:-[0-9A-Za-z]{{1,5}}){{0,3}})[ ]?{_UNIT}(?![{_HAN}]{{0,2}}[点天日])))*"
    rf"(?:[ ]?(?:[{_HAN}]{{2,10}}{_HOME})?[ ]?[0-9A-Za-z]{{2,5}}"
    rf"(?:-[0-9]{{1,4}})?(?![0-9A-Za-z年月日元块点分个件])(?!(?<=[0-9])[年月日元块点分个件岁]))?"
)
_ZH_HEAD: Final = lazy_pattern(f"[{_HAN}A-Za-z0-9()·, ，、-]{{0,40}}\\Z")
_CUE: Final = any_of(_CHINESE["cues"])
_CUES: Final = lazy_pattern(
    f"(?:{_CUE})(?:改[成为到]|换成|变成|就?是|为|在|:|：)?[ ]?|[在到往去]了?|(?<=[我你他她们家])住"
    f"|住(?=[{_HAN}]{{2,}}[省市区县])"
)
_REGION: Final = lazy_pattern(rf"(?:{any_of(_CHINESE['regions'])})[ ]?\Z")
_SEPARATOR: Final = lazy_pattern("[,，、 ]+")
# After a label or a verb of delivery a street or a compound needs no number.
_AFTER_CUE: Final = lazy_pattern(
    rf"(?:{_CUE})(?:改[成为到]|换成|变成|就?是|为|在|:)?[ ]?"
    rf"(?P<value>[{_HAN}A-Za-z0-9·-]{{2,30}}?(?:{any_of(_CHINESE['ends_behind_cues'])})"
    rf"(?:[{_HAN}]{{0,10}}(?:{_COMPOUND}))?(?:[0-9A-Za-z-]{{1,8}}{_UNIT}?){{0,4}})"
)
_JA_NAME: Final = "[\u3040-\u30ff\u4e00-\u9fff]"
_JA: Final = lazy_pattern(
    "(?<![\u4e00-\u9fff])(?:[0-9]{3}-[0-9]{4}[ ]?)?"
    f"(?:[{_HAN}]{{2,3}}[都道府県])?{_JA_NAME}{{1,8}}[区市町村郡]{_JA_NAME}{{1,12}}"
    "(?:[0-9]{1,4}(?:丁目|番地?|号|-[0-9]{1,4}){1,4}){1,3}"
    f"(?:[ ]?(?:{_JA_NAME}|[A-Za-z]){{1,12}}(?:ビル|マンション|ハイツ|アパート|コーポ|タワー|荘|館)"
    "(?:[ ]?[0-9]{1,4}(?:号室?|階|F)?)?)?"
)
_KO: Final = lazy_pattern(
    "(?<![\uac00-\ud7af])(?:[\uac00-\ud7af]{1,9}[시도군구동읍면][ ]){1,4}[\uac00-\ud7af0-9]{1,12}(?:로|길)"
    "[ ]?[0-9]{1,4}(?:-[0-9]{1,4})?(?:번지)?(?:,?[ ]?[0-9]{1,4}(?:층|호|동)){0,3}"
)
_CYRILLIC: Final = lazy_pattern("[\u0410-\u044f]")
_BEYOND: Final = lazy_pattern("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")


def find_addresses(view: FoldedText) -> Iterator[Place]:
    """Every address; those with a street and a number first, since a label may only find a part of them."""
    text = view.text
    if _HOUSE_NUMBER.search(text):
        for pattern in (_EN, _NUMBER_FIRST, _NAME_FIRST, _BEFORE_TOWN, _WITH_POSTCODE, _BOX, _EN_LOWER):
            yield from (match.span() for match in pattern.finditer(text))
        yield from _after_labels(text)
        if text is not view.ascii and _CYRILLIC.search(text):
            yield from (match.span() for match in _RU.finditer(text))
    if text is not view.ascii and _BEYOND.search(text):
        yield from _chinese(text)
        yield from (match.span() for pattern in (_JA, _KO) for match in pattern.finditer(text))


def _after_labels(text: str) -> Iterator[Place]:
    yield from (match.span("value") for match in _SAID.finditer(text))
    for label in _LABEL.finditer(text):
        words = _WORDS.match(text, label.end(), label.end() + _LONGEST)
        if words is None or not _HOUSE_NUMBER.search(words[0]) or not _WORD.search(words[0]):
            continue
        yield words.start(), words.start() + len(words[0].rstrip(" ,\n."))


def _chinese(text: str) -> Iterator[Place]:
    text = text.translate(_SIMPLIFIED)
    reached = 0
    for core in _ZH.finditer(text):
        if core.start() < reached:
            continue
        start = _chinese_start(text, max(reached, core.start() - 40), core.start())
        tail = _ZH_TAIL.match(text, core.end(), core.end() + 60)
        end = core.end() if tail is None else tail.end()
        # A building alone, such as 3号楼, names no place.
        if start < core.start() or end > core.end() + 1:
            yield start, end
            reached = end
    for match in _AFTER_CUE.finditer(text):
        yield match.span("value")


def _chinese_start(text: str, first: int, at: int) -> int:
    """Where the address begins whose street or building is at `at`: after a verb or a label, or with its clause."""
    head = _ZH_HEAD.search(text, first, at)
    start = at if head is None else head.start()
    for cue in _CUES.finditer(text, start, at):
        start = cue.end()
    # Of clauses before the last one only regions belong to it: 广东省，广州市，体育西路103号.
    parts = [match.end() for match in _SEPARATOR.finditer(text, start, at)]
    for place in reversed(parts):
        if not _REGION.search(text, start, len(text[:place].rstrip(",，、 "))):
            return place
    return start
