"""IP addresses of both versions, as opposed to version numbers, section numbers, slices and times."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.labels import BORDER, NOTHING, Label, LabelContext, before, has_letters
from tenuto.privacy.rules.span import Find, PiiRule
from tenuto.privacy.rules.word_tables import any_of, load_table

_VERSIONS: Final = load_table("versions")
# Searched in the view where every digit is a zero: one fixed character is fast. The text before is checked later.
_V4: Final = lazy_pattern(rb"0{1,3}\.0{1,3}\.0{1,3}\.0{1,5}(?![0A-Za-z_]|\.0)")
_NOT_BEFORE_V4: Final = lazy_pattern(r"(?:[0-9]\.|(?<![A-Za-z0-9])[A-Z]\.|[0-9_])\Z")
# Words that may be joined to an address: ping10.0.0.8, ip10.0.0.8.
_GLUED: Final = lazy_pattern(r"[A-Za-z]+\Z")
_GLUED_WORDS: Final = frozenset(_VERSIONS["joined_to_addresses"].split())
_V6: Final = lazy_pattern(
    r"(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]{0,4})(?![0-9A-Za-z_:])"
)
_NOT_BEFORE_V6: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.:-")
_HEX_OR_COLON: Final = frozenset("0123456789abcdefABCDEF:") | {""}
_HEXTET: Final = lazy_pattern("[0-9A-Fa-f]{2,4}")
# A device's long address or a disk's port: IP addresses are not written in eight pairs.
_PAIRS: Final = lazy_pattern("[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){7}")
_NOT_PERSONAL: Final = lazy_pattern(r"127\.|0\.0\.0\.0$|255\.")
_ENDS_VERSION: Final = lazy_pattern(
    rf"""\s?(?:{any_of(_VERSIONS["behind"])})
    |\s(?:(?:the|an)[ ])?(?:LTS|release(?![ ]v?[0-9])|supersedes|obsoletes)\b
    |[ ](?:is|was)[ ](?:the[ ])?(?:latest|newest|LTS|stable|newer|older)\b
    |\s(?:newer|older)[ ]than\b""",
    re.VERBOSE,
)
_SUFFIX: Final = lazy_pattern(
    r"-(?:(?i:rc|alpha|beta|snapshot|release|preview|hotfix|final|nightly|canary|pre|ga|sp)|[mM](?=[0-9]))[.-]?[0-9]{0,4}(?![A-Za-z])"
)
# "from 10.15.7 to ...": after a version of three parts follows another version.
_STEP_FROM: Final = lazy_pattern(
    r"(?<![0-9A-Za-z_.])v?[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,4}(?:-[a-z]{1,10}[0-9]{0,3})?"
    r"(?:[ ](?:to|into)[ ]|[ ]?(?:->|=>|→)[ ]?|[ ]?(?:升级?|更新|降级?|回退|回滚)?到[ ]?)\Z"
)
# Words right before a version or a section. They do not label other numbers: a driver may have a phone.
_BEGINS_VERSION: Final = lazy_pattern(
    rf"""(?:(?<![a-z])(?:{any_of(_VERSIONS["before"])})|(?<![a-z])(?:{any_of(_VERSIONS["abbreviations_before"])})\.
        |(?:release[ ]?notes?|changelogs?)(?:[ ](?:for|of))?|(?:upgrade|update|downgrade|migration)[ ]path
        |{any_of(_VERSIONS["chinese_before"])})
    [\s:]{{0,2}}(?:(?:is|was)\s|是|为)?\Z""",
    re.VERBOSE,
)
# A host follows these as often as a version, so the number itself must look like a version.
_PERHAPS_VERSION: Final = lazy_pattern(
    rf"(?<![a-z])(?:{any_of(_VERSIONS['perhaps_before'])})\s\Z"
    rf"|(?:{any_of(_VERSIONS['chinese_perhaps_before'])})了?\s?\Z"
)
_VERSION_LIKE: Final = lazy_pattern(r"(?!10\.)(?:1?[0-9]|2[0-5])(?:\.[0-9]{1,2}){3}")
_VERSION_NEXT: Final = lazy_pattern(
    rf"(?:-[A-Za-z]{{1,10}}[0-9]{{0,3}})?\s{{0,2}}(?:{any_of(_VERSIONS['between'])})\s{{0,2}}(?:[a-z]+ )?(?:附录)?"
)
_THREE_PARTS: Final = lazy_pattern(
    r"(?<![0-9A-Za-z_.])v?([0-9]{1,3}\.[0-9]{1,3})\.[0-9]{1,4}(?![0-9A-Za-z_*/]|\.[0-9*x])"
)
_AT_HOME: Final = lazy_pattern(r"192\.168\.|172\.(?:1[6-9]|2[0-9]|3[01])\.")
_PRIVATE: Final = lazy_pattern(rf"10\.|{_AT_HOME.pattern}")
_KIN_WITHIN: Final = 64
"""How far a version may be from another number with the same beginning."""
_NO_STEP: Final = 7
"""Largest difference of the first numbers of two versions; beyond it the second is an address."""
_NO_LEAP: Final = 2
"""The same for two versions that only share a sentence."""
_COMPARED: Final = lazy_pattern(r"(?!10\.)[0-9]{1,2}(?:\.[0-9]{1,2}){2}\.[0-9]{1,3}")
# The target of a connection is an address, whatever the words before.
_ADDRESSES: Final = lazy_pattern(
    rf"(?<![a-z])(?:{any_of(_VERSIONS['connections'])})(?![a-z])|{any_of(_VERSIONS['chinese_connections'])}"
)


class _Quad(NamedTuple):
    """A dotted quad, and whether the context calls it a version or an address."""

    start: int
    end: int
    value: str
    version: bool
    address: bool

    @property
    def beginning(self) -> str:
        """Its first two numbers, which versions of one product share."""
        return self.value[: self.value.index(".", self.value.index(".") + 1)]


def find_ipv4(view: FoldedText) -> Iterator[Find]:
    """Dotted quads that are addresses. Loopback, netmasks and 0.0.0.0 are not private and are left."""
    places = [match.span() for match in _V4.finditer(view.digits)]
    quads = [_read_quad(view, start, end) for start, end in places if _can_start(view, start)]
    if not quads:
        return
    kin = _version_prefixes(quads)
    version: _Quad | None = None
    for quad in quads:
        if (
            quad.version
            or _has_version_nearby(view, quad, kin)
            or (version is not None and _continues_version(view, version, quad))
        ):
            version = quad
        elif not _NOT_PERSONAL.match(quad.value):
            yield quad.start, quad.end, PiiRule.IPV4


def _can_start(view: FoldedText, start: int) -> bool:
    """Whether no longer number or name continues at `start`; a word such as `ping` may precede it."""
    before = view.ascii[start - 1 : start]
    if not before.isalpha():
        return _NOT_BEFORE_V4.search(view.ascii, max(0, start - 2), start) is None
    word = _GLUED.search(view.ascii, max(0, start - 12), start)
    return word is not None and word[0].lower() in _GLUED_WORDS and view.ascii[word.start() - 1 : word.start()] != "_"


def _read_quad(view: FoldedText, start: int, end: int) -> _Quad:
    view.work.judged += 1
    value, context = view.ascii[start:end], before(view.text, start)
    version = max(map(int, value.split("."))) > 255 or _is_version(view, context, start, end)
    return _Quad(start, end, value, version, not version and context.label is Label.IP and context.close)


def _version_prefixes(quads: list[_Quad]) -> dict[str, list[int]]:
    """The first two numbers of versions, with their offsets: 2.4 of a version 2.4.41.1."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for quad in quads:
        if quad.version:
            found[quad.beginning].append(quad.start)
    return found


def _has_version_nearby(view: FoldedText, quad: _Quad, kin: dict[str, list[int]]) -> bool:
    """Whether a version with the same beginning is near: another quad, or one of three parts such as 2.4.58."""
    if quad.address:
        return False
    first, last = max(0, quad.start - _KIN_WITHIN), quad.end + _KIN_WITHIN
    if kin:
        places = kin.get(quad.beginning, [])
        at = bisect_left(places, first)
        if at < len(places) and places[at] <= last:
            return True
    if view.bytes.count(b".", first, last) < 5 or _PRIVATE.match(quad.value):
        return False
    return any(match[1] == quad.beginning for match in _THREE_PARTS.finditer(view.ascii, first, last))


def _continues_version(view: FoldedText, version: _Quad, quad: _Quad) -> bool:
    return not quad.address and (_is_next_version(view, version, quad) or _is_compared_version(view, version, quad))


def _is_compared_version(view: FoldedText, version: _Quad, quad: _Quad) -> bool:
    """Whether the sentence compares a version with another one: 固件 3.1.4.28 有问题，3.0.9.12 正常."""
    if quad.start - version.end > _KIN_WITHIN or _PORT.match(view.ascii, quad.end):
        return False
    step = int(version.value.partition(".")[0]) - int(quad.value.partition(".")[0])
    if abs(step) > _NO_LEAP or not _COMPARED.fullmatch(quad.value):
        return False
    between = view.text[version.end : quad.start]
    return BORDER.search(between) is None and _ADDRESSES.search(between.lower()) is None


def _is_next_version(view: FoldedText, version: _Quad, quad: _Quad) -> bool:
    """`from 2.3.4.5 to 2.3.4.6`: the second is a version like the first, unless it differs too much."""
    if _VERSION_NEXT.fullmatch(view.text, version.end, quad.start) is None:
        return False
    step = int(version.value.partition(".")[0]) - int(quad.value.partition(".")[0])
    return abs(step) <= _NO_STEP


def _is_version(view: FoldedText, context: LabelContext, start: int, end: int) -> bool:
    """Whether the context calls a dotted quad a version, a section or a product number."""
    if view.ascii[start - 1 : start].isalpha():
        return _ENDS_VERSION.match(view.text, end) is not None
    if context.label is Label.VERSION and context.close:
        return True
    called = context.label is Label.IP and context.close
    if not called and _SUFFIX.match(view.ascii, end) and not _AT_HOME.match(view.ascii, start):
        return True
    if _ENDS_VERSION.match(view.text, end) or _follows_product(view, start, end):
        return True
    window = view.text[max(0, start - 24) : start].lower()
    worded = has_letters(window, 0, len(window))
    if worded and _BEGINS_VERSION.search(window):
        return True
    if "." in window and _STEP_FROM.search(window) and not _AT_HOME.match(view.ascii, start):
        return True
    if not worded or not _PERHAPS_VERSION.search(window):
        return False
    return _VERSION_LIKE.fullmatch(view.ascii, start, end) is not None


_PRODUCT: Final = lazy_pattern(r"(?P<path>[/.\\]?)(?<![A-Za-z])(?P<name>[A-Za-z]{3,})/\Z")
_UNLIKE_PRODUCTS: Final = lazy_pattern(r"10\.|[0-9]{3}\.")
_PORT: Final = lazy_pattern(":[0-9]{2,5}(?![0-9.])")
# Directories with one subdirectory for each version.
_SHELVES: Final = frozenset(_VERSIONS["directories"].split())


def _follows_product(view: FoldedText, start: int, end: int) -> bool:
    """`Chrome/10.0.0.1`: a product with its version, and neither a host with its address nor a part of a path."""
    text = view.ascii
    if text[start - 1 : start] != "/" or _PORT.match(text, end):
        return False
    named = before(view.text, start - 1) if text[start - 2 : start - 1].isalnum() else NOTHING
    if named.close and named.label in (Label.VERSION, Label.IP):
        return named.label is Label.VERSION
    product = _PRODUCT.search(text, max(0, start - 24), start)
    if product is None:
        return False
    if product["path"] or text[end : end + 1] == "/" or "://" in text[max(0, start - 40) : start]:
        # The number decides: /opt/jvm/11.0.2.9/bin and /var/log/10.2.3.4/auth.log look alike.
        return product["name"].lower() in _SHELVES or _VERSION_LIKE.fullmatch(text, start, end) is not None
    # Hosts are mostly lower case, and few versions have numbers as high as addresses.
    return not (_UNLIKE_PRODUCTS if product["name"].islower() else _AT_HOME).match(text, start)


def find_ipv6(view: FoldedText) -> Iterator[Find]:
    """Addresses with colons."""
    for match in _V6.finditer(view.ascii):
        start, end = _address_start(view.ascii, match.start(), match.end()), match.end()
        if start is None:
            continue
        if view.ascii[end - 1] == ":" and view.ascii[end - 2] != ":":
            end -= 1
        if _is_v6(view.ascii[start:end]) and not _is_slice(view.ascii, start):
            yield start, end, PiiRule.IPV6


def _address_start(text: str, start: int, end: int) -> int | None:
    """Where the address begins if a word and a colon before it do not belong to it: `node:2001:db8::1`."""
    before, head = text[start - 1 : start], text.find(":", start, end)
    if head == start and text[start + 1] != ":":
        return start + 1
    if before.isalpha() and (text[start:head].isalpha() or text[head - 1] == "6"):
        return head + 1
    if before == ":":
        return None if text[start - 2 : start - 1] in _HEX_OR_COLON and not _is_v6_word(text, start - 1) else start
    return None if before in _NOT_BEFORE_V6 else start


def _is_v6_word(text: str, end: int) -> bool:
    """`ipv6`, `gateway6`: the name of such an address, and no part of it."""
    return text[end - 1 : end] == "6" and text[end - 2 : end - 1].isalpha()


def _is_v6(value: str) -> bool:
    if value.count(":") < 2 or not any(map(str.isdigit, value)) or _PAIRS.fullmatch(value):
        return False
    try:
        address = IPv6Address(value)
    except (AddressValueError, ValueError):
        return False
    # Short forms only if they begin like an address: 1::2 is more often a slice.
    return not address.is_loopback and (
        value.count(":") == 7 or _HEXTET.match(value) is not None or value.startswith("::ffff:") or len(value) > 8
    )


def _is_slice(text: str, start: int) -> bool:
    """`items[10::20]` reads like an address."""
    before = text[max(0, start - 2) : start]
    return len(before) == 2 and before[1] == "[" and (before[0].isalnum() or before[0] in "])_")
