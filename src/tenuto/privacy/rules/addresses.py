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

Place = tuple[int, int]

# Western addresses. A name consists of capitalised words and small words between them.

_CAP: Final = "[A-Z\u00c0-\u00de\u0100-\u0178\u0410-\u042f](?:[^\\W\\d_]|['’.-]){0,24}(?!\\w)"
_SMALL: Final = (
    "de|du|des|del|della|delle|dei|degli|di|da|do|dos|das|la|le|les|lo|los|las|el|et|e|y|sur|sous|en|aux|au|den"
    "|der|dem"
    "|van|von|the|of|am|an|im|zu|zum|zur|und|op|het|i|na"
)
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
    r"(?:,?[ ](?:[Aa]pt|[Aa]partment|[Ss]uite|[Ss]te|[Uu]nit|[Ff]loor|[Ff]lat|#|esc\.|piso|puerta|interno"
    r"|int\.)\.?[ ]?[A-Za-z0-9-]{1,6}"
    r"|,?[ ][0-9]{1,2}[ºª°](?:[ ]?[A-Za-z0-9]{1,6}\b)?)"
)
_TAIL: Final = rf"{_FLAT}{{0,2}}(?:{_TOWN}){{0,2}}"
# 12 Oak Street, Flat 3, 221B Baker Street
_EN: Final = lazy_pattern(
    r"(?<![A-Za-z0-9])(?:Flat[ ][0-9A-Za-z]{1,4},[ ])?[0-9]{1,5}[A-Za-z]?[ ](?:[NSEW]\.?[ ])?"
    rf"(?:(?:[A-Z][A-Za-z'’.-]{{1,20}}|[0-9]{{1,3}}(?:st|nd|rd|th))[ ]){{1,3}}"
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Way|Court|Ct|Place|Pl|Square|Sq|Terrace"
    r"|Parkway|Pkwy"
    r"|Close|Crescent|Gardens|Grove|Hill|Mews|Row|Walk|View|Circle|Trail|Highway|Hwy|Green|Rise|Quay|Wharf)\b\.?"
    rf"(?:[ ][NSEW]{{1,2}}\b)?{_TAIL}"
)
# In lower case only the plain words for a street count, after a name.
_EN_LOWER: Final = lazy_pattern(
    r"(?<![A-Za-z0-9.,])[0-9]{1,5}[a-z]?[ ]"
    r"(?:(?!(?:on|the|of|in|per|an?|each|to|at|and|by|from|down|along|across|off|over|is|are|more|other)"
    r"[ ])[a-z'’.-]{2,20}[ ]){1,2}"
    r"(?:street|avenue|road|boulevard|lane|terrace|crescent|drive)\b(?:,[ ][a-z]{3,20})?(?:,?[ ](?:[a-z]{2}"
    r"[ ])?[0-9]{5})?"
)
# 12 rue de Rivoli, 75001 Paris
_NUMBER_FIRST: Final = lazy_pattern(
    rf"(?<![\w.,-]){_HOUSE},?[ ](?:[Rr]ue|[Aa]v(?:enue|\.)?|[Bb](?:oulevard|d|ld)\.?|[Pp]l(?:ace|\.)|[Cc]hemin"
    rf"|[Aa]ll[ée]e|[Ii]mpasse"
    rf"|[Qq]uai|[Rr]oute|[Cc]ours|[Pp]assage|[Ff]aubourg|[Ss]entier|[Ss]quare|[Cc]it[ée])[ ](?!of[ ])(?:{_NAME}{_TAIL}"
    rf"|{_JOINT}[^\W\d_][\w'’-]{{1,24}}(?:,?[ ][0-9]{{5}}[ ][^\W\d_]{{2,24}})?)"
)
# Via Roma 12, Calle de Alcalá, 45, Rua Augusta 1500, ul. Długa 5, Lindenstraße 4, Berliner Straße 12, Kalverstraat 92
_NAME_FIRST: Final = lazy_pattern(
    r"(?<![^\W\d_])(?:(?:Via(?![ ][A-Z]{2})|[Vv]iale|[Cc]orso|[Pp]iazz(?:a|ale)|[Ll]argo|[Vv]icolo|[Ss]trada"
    r"|[Ll]ung(?:otevere|arno)|[Cc]alle|C/|[Aa]venida"
    r"|[Aa]vda\.?|[Aa]v\.|[Pp]laza|[Pp]aseo|[Rr]onda|[Cc]amino|[Cc]arretera|[Cc]arrer|[Rr]ambla|[Pp]asseig"
    r"|[Rr]ua|[Tt]ravessa"
    rf"|[Pp]raça|[Aa]lameda|[Uu]l\.|[Aa]leja|[Uu]lica)[ ]?{_NAME}"
    r"|[^\W\d_][\w'’-]{1,24}?(?:stra(?:ß|ss)e|str\.|straat|gracht|vägen|gatan)(?![^\W\d_])"
    r"|[A-ZÄÖÜ][\w'’-]{1,24}?(?:weg|platz|allee|gasse|ring|damm|ufer|chaussee|steig|graben|laan|plein"
    r"|kade|gata|veien|vegen|vej|gade|katu)(?![^\W\d_])"
    rf"|(?:{_CAP}[ ]){{1,3}}(?:Stra(?:ß|ss)e|Str\.|Weg|Platz|Allee|Gasse|Ring|Damm|Ufer|Chaussee|Markt"
    r"|gat[ae]|vei|veg|vej|väg|vägen|allé|plass|plads|torg|katu|tie|Caddesi|Cad\.|Soka(?:k|ğı)|Sok\.|Bulvarı))"
    rf",?[ ](?:n[.º°]{{1,2}}[ ]?|[nN][ro][.:]?[ ]?|número[ ])?{_HOUSE}(?![\w%€$]){_TAIL}"
)
# 19 Kingsway, Manchester M19 2LL, 350 Broadway, New York, NY 10013: a number, a name and a town with its postcode
_WITH_POSTCODE: Final = lazy_pattern(
    rf"(?<![\w.,-])[0-9]{{1,5}}[A-Za-z]?[ ]{_CAP}(?:[ ]{_CAP}){{0,3}}{_FLAT}{{0,2}},[ ]{_CITY}"
    rf"(?:,?[ ]{_UK}|,?[ ][A-Z]{{2}}[ ][0-9]{{5}}(?:-[0-9]{{4}})?)"
)
_BOX: Final = lazy_pattern(
    r"(?<![A-Za-z])(?i:P\.?[ ]?O\.?[ ]?Box|Postfach|Postbus|Postboks|Bo[îi]te postale|Apartado(?: de correos)?"
    rf"|Casella postale)[ ]#?[0-9]{{1,6}}(?![\w])(?:{_TOWN}){{0,2}}"
)
_UNIT_RU: Final = r"(?i:д|дом|к|корп|корпус|стр|строение|кв|квартира|оф|офис|подъезд|этаж)\b\.?[ ]?"
_STREET_RU: Final = (
    r"(?i:ул\.|улиц[аеы]|проспекте?|пр-т|пр\.|переул(?:ок|ке)|пер\.|шоссе|бульваре?|б-р|площад[ьи]|пл\."
    r"|набережн(?:ая|ой)|наб\.|проезде?)"
)
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
    r"(?<![\w-])(?:(?:(?:postal|home|street|delivery|shipping|billing|mailing|my|our|his|her|new|the)"
    r"[ ])?address|adresse|anschrift"
    r"|direcci[óo]n|indirizzo|endere[çc]o|morada|adres|adress|адрес)(?:[ ](?:is|ist|est|es|è|é|er|är|on|jest|to"
    r"|lautet|now|jetzt))*[ ]?[:=]?\s{1,2}"
    r"|(?<![\w-])(?:i[ ](?:now[ ])?live|we[ ]live|living|deliver(?:[ ]it|ed)?|ship(?:[ ]it|ped)?|send[ ]it)[ ]"
    r"(?:at|to)[ ]"
    r"|(?<![\w-])(?:wohne(?:[ ]in)?(?:[ ]der|[ ]dem|[ ]am)?|habite(?:[ ]au)?|vivo[ ]en(?:[ ]la)?|abito[ ]in"
    r"|moro[ ]na)[ ]",
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

_HAN: Final = "\u4e00-\u9fff"
# Addresses in traditional characters are read as simplified ones.
_SIMPLIFIED: Final = str.maketrans(
    "區號樓棟鄉鎮縣莊單層門鋪廣場園廈發貨給運遞聯戶學國際銀醫東業連線",
    "区号楼栋乡镇县庄单层门铺广场园厦发货给运递联户学国际银医东业连线",
)
_DIGITS: Final = "[0-9一二三四五六七八九十百零〇]"
_STREET: Final = "(?:路|街|大道|(?<![知难报味频])道|巷|胡同|弄|(?<![这那哪家心夜屋店])里|村|屯|庄|组|坊|社)"
_BUILDING: Final = "(?:号楼|号院|栋|幢|单元)"
_HOME: Final = (
    "(?:大厦|广场|中心|公寓|花园|小区|新村|家园|苑|大学|学院|学校|中学|小学|医院|国际|大楼|酒店|宾馆|商场|商城"
    "|市场|科技园|园区|工业园|宿舍"
    "|舍|银行|超市|院)"
)
_UNIT: Final = "(?:号楼|号院|号|弄|栋|幢|单元|室|楼|层|房|户|座|门|铺)"
_ZH: Final = lazy_pattern(
    rf"{_STREET}(?:[东南西北中]|延长线|辅路|支路)?{_DIGITS}{{0,3}}(?:段|期|区)?[ ]?"
    rf"(?:{_DIGITS}{{1,6}}|[甲乙丙][0-9]{{1,4}})"
    rf"(?:-[0-9]{{1,4}})?[ ]?(?:号|弄|巷|栋|幢|室)"
    rf"|(?:[A-Za-z]|{_DIGITS}{{1,4}})[ ]?{_BUILDING}|[A-Za-z][0-9]{{0,3}}座"
    rf"|(?:小区|新村|花园|公寓|家园|大厦|广场|苑|城|府|庭|湾)[ ]?[A-Za-z0-9]{{1,4}}(?:座|-[0-9]{{1,4}}|室|号)"
)
_ZH_TAIL: Final = lazy_pattern(
    rf"(?:[ ]?[{_HAN}]{{2,12}}?{_HOME}){{0,2}}(?:(?:[ ]?|[,，][ ]?(?=[{_HAN}]{{0,6}}?[0-9A-Za-z]{{1,5}}(?:号楼"
    rf"|栋|幢|单元|室|座)))(?:[{_HAN}]{{0,8}}?(?:[A-Za-z]|{_DIGITS}{{1,5}}|[0-9A-Za-z]{{1,5}}"
    rf"(?:-[0-9A-Za-z]{{1,5}}){{0,3}})[ ]?{_UNIT}(?![{_HAN}]{{0,2}}[点天日])))*"
    rf"(?:[ ]?(?:[{_HAN}]{{2,10}}{_HOME})?[ ]?[0-9A-Za-z]{{2,5}}"
    rf"(?:-[0-9]{{1,4}})?(?![0-9A-Za-z年月日元块点分个件])(?!(?<=[0-9])[年月日元块点分个件岁]))?"
)
_ZH_HEAD: Final = lazy_pattern(f"[{_HAN}A-Za-z0-9()·, ，、-]{{0,40}}\\Z")
_CUE: Final = (
    "寄到|寄往|寄至|寄给我?|寄回|送到|送往|送至|送货到|发到|发往|发至|发货到|配送到|配送至|派送到|快递到|邮寄到"
    "|邮到|投递到|运到|搬到|搬至|搬去"
    "|收货地址|收件地址|寄送地址|配送地址|邮寄地址|送货地址|家庭住址|家庭地址|通讯地址|联系地址|公司地址"
    "|居住地址|户籍地址|住址|地址|家住|住在|住于|居住在|租住在|租在"
    "|位于|坐落于|家在|公司在|人在"
)
_CUES: Final = lazy_pattern(
    f"(?:{_CUE})(?:改[成为到]|换成|变成|就?是|为|在|:|：)?[ ]?|[在到往去]了?|(?<=[我你他她们家])住"
    f"|住(?=[{_HAN}]{{2,}}[省市区县])"
)
_REGION: Final = lazy_pattern(r"(?:省|自治区|市|自治州|州|区|县|旗|镇|乡|街道)[ ]?\Z")
_SEPARATOR: Final = lazy_pattern("[,，、 ]+")
# After a label or a verb of delivery a street or a compound needs no number.
_AFTER_CUE: Final = lazy_pattern(
    rf"(?:{_CUE})(?:改[成为到]|换成|变成|就?是|为|在|:)?[ ]?"
    rf"(?P<value>[{_HAN}A-Za-z0-9·-]{{2,30}}?(?:路|街|大道|巷|胡同|弄|小区|新村|花园|公寓|家园|大厦|广场|苑|村"
    rf"|镇|街道|栋|幢|号楼|单元|室|号)"
    rf"(?:[{_HAN}]{{0,10}}(?:小区|新村|花园|公寓|家园|大厦|广场|苑))?(?:[0-9A-Za-z-]{{1,8}}{_UNIT}?){{0,4}})"
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
