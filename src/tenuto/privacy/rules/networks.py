"""IP addresses of both versions, told apart from versions, section numbers, slices and times."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

from tenuto.privacy.rules.folding import Folded
from tenuto.privacy.rules.labels import Context, Label, before, words

# In the view where every digit is a zero: the engine searches one character fast. What stands before is looked at
# afterwards.
_V4: Final = re.compile(rb"0{1,3}\.0{1,3}\.0{1,3}\.0{1,5}(?![0A-Za-z_]|\.0)")
_NOT_BEFORE_V4: Final = re.compile(r"(?:[0-9]\.|(?<![A-Za-z0-9])[A-Z]\.|[0-9_])\Z")
# Words that people write an address behind without a space: ping10.0.0.8, ip10.0.0.8.
_GLUED: Final = re.compile(r"[A-Za-z]+\Z")
_GLUED_WORDS: Final = frozenset(
    words(
        """ip ips vip eip clientip serverip hostip srcip dstip myip ping ssh telnet host server addr dns curl wget
        gateway nmap traceroute tracert mtr scp rdp vnc ftp sftp nc"""
    )
)
_V6: Final = re.compile(
    r"(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]{0,4})(?![0-9A-Za-z_:])"
)
_NOT_BEFORE_V6: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.:-")
_THREE_DOTS: Final = re.compile(rb"\.0{1,3}\.0{1,3}\.")
_COLONS: Final = re.compile(":(?::|(?:[0-9A-Fa-f]{1,4}:){6})")
_HEX_OR_COLON: Final = frozenset("0123456789abcdefABCDEF:") | {""}
_HEXTET: Final = re.compile("[0-9A-Fa-f]{2,4}")
_NOT_PERSONAL: Final = re.compile(r"127\.|0\.0\.0\.0$|255\.")
_ENDS_VERSION: Final = re.compile(
    r"""\s?(?:(?:及?以上|以后|之后)的?版本|版|小节|小節|节|節|章|条|條|款|项
        |(?:升级|升到|更新到|降级)(?!一下|到?了?(?:版本|固件|系统|内核|驱动))|两个小节|这两节|버전|バージョン)
    |\s(?:(?:the|an)[ ])?(?:LTS|release(?![ ]v?[0-9])|supersedes|obsoletes)\b
    |[ ](?:is|was)[ ](?:the[ ])?(?:latest|newest|LTS|stable|newer|older)\b
    |\s(?:newer|older)[ ]than\b""",
    re.VERBOSE,
)
_SUFFIX: Final = re.compile(
    r"-(?:(?i:rc|alpha|beta|snapshot|release|preview|hotfix|final|nightly|canary|pre|ga|sp)|[mM](?=[0-9]))[.-]?[0-9]{0,4}(?![A-Za-z])"
)
# "from 10.15.7 to ...": what follows a version of three parts in this way is one as well.
_STEP_FROM: Final = re.compile(
    r"(?<![0-9A-Za-z_.])v?[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,4}(?:-[a-z]{1,10}[0-9]{0,3})?"
    r"(?:[ ](?:to|into)[ ]|[ ]?(?:->|=>|→)[ ]?|[ ]?(?:升级?|更新|降级?|回退|回滚)?到[ ]?)\Z"
)
# Words right before a version or a section. They are no labels of other numbers: a driver may have a phone.
_BEGINS_VERSION: Final = re.compile(
    r"""(?:(?<![a-z])(?:(?:sub)?sections|(?:sub)?clauses|chapters|articles|paragraphs|tables|figures|lts|requirements?
        |supersedes|obsoletes|bump|bumped|nuget|watchos|ipados|tvos|harmonyos|miui|emui|coloros|regel|ziffer|absatz)
        |(?<![a-z])(?:ver|vers|sec|rev|ch|chap|fig|para|art)\.
        |(?:release[ ]?notes?|changelogs?)(?:[ ](?:for|of))?|发布说明|更新日志|(?:升级|固件|软件|安装|更新|补丁)包
        |安卓|鸿蒙|鸿蒙系统|基础库|补丁号?|小节|小節|需求|用例|[§¶]
        |(?:(?<![\u3400-\u9fff])|[见在如与和及])[图圖表])
    [\s:]{0,2}(?:(?:is|was)\s)?\Z""",
    re.VERBOSE,
)
# Behind these stands a host as often as a version, so the number itself has to look like one.
_PERHAPS_VERSION: Final = re.compile(
    r"(?<![a-z])(?:rules?|drivers?|fw|patch|hotfix|qt|oracle|httpd|nginx|mysql|mariadb|nodejs|golang|dotnet|since"
    r"|(?:landed|fixed|introduced|deprecated|removed|shipped|added) in)\s\Z"
)
_VERSION_LIKE: Final = re.compile(r"(?!10\.)(?:1?[0-9]|2[0-5])(?:\.[0-9]{1,2}){3}")
_VERSION_NEXT: Final = re.compile(
    r"(?:-[A-Za-z]{1,10}[0-9]{0,3})?\s{0,2}(?:and|to|or|from|von|vs\.?|,|/|->|=>|和|到|或|、|与|und|bis|~|-|から|에서|升级到|升到|更新到|supersedes|replaces|ersetzt)"
    r"\s{0,2}(?:[a-z]+ )?(?:附录)?"
)
_THREE_PARTS: Final = re.compile(
    r"(?<![0-9A-Za-z_.])v?([0-9]{1,3}\.[0-9]{1,3})\.[0-9]{1,4}(?![0-9A-Za-z_*/]|\.[0-9*x])"
)
_AT_HOME: Final = re.compile(r"192\.168\.|172\.(?:1[6-9]|2[0-9]|3[01])\.")
_PRIVATE: Final = re.compile(rf"10\.|{_AT_HOME.pattern}")
_KIN_WITHIN: Final = 64
"""How far a version may stand from another number that begins like it."""
_NO_STEP: Final = 7
"""Further than this the first number of a version does not move: what follows is an address."""


class _Quad(NamedTuple):
    """A dotted quad, and whether the words around it say that it is a version, or an address."""

    start: int
    end: int
    value: str
    version: bool
    address: bool

    @property
    def beginning(self) -> str:
        """Its first two numbers, which versions of one thing share."""
        return self.value[: self.value.index(".", self.value.index(".") + 1)]


def has_v4(view: Folded) -> bool:
    """Whether three dots stand with nothing but a few digits between them."""
    return view.digits.find(b"0.0") >= 0 and _THREE_DOTS.search(view.digits) is not None


def has_v6(view: Folded) -> bool:
    """Whether two colons stand side by side, or seven with nothing but hexadecimal digits between them."""
    return ":" in view.ascii and _COLONS.search(view.ascii) is not None


def find_v4(view: Folded) -> Iterator[tuple[int, int]]:
    """Dotted quads that are addresses. Loopback, netmasks and 0.0.0.0 belong to nobody and are left."""
    places = [match.span() for match in _V4.finditer(view.digits)]
    quads = [_told(view, start, end) for start, end in places if _may_begin(view, start)]
    if not quads:
        return
    kin = _beginnings_of_versions(quads)
    version: _Quad | None = None
    for quad in quads:
        if quad.version or _is_kin(view, quad, kin) or (version is not None and _goes_on(view, version, quad)):
            version = quad
        elif not _NOT_PERSONAL.match(quad.value):
            yield quad.start, quad.end


def _may_begin(view: Folded, start: int) -> bool:
    """Whether no longer number and no name goes on at `start`; a word such as `ping` may stand there."""
    before = view.ascii[start - 1 : start]
    if not before.isalpha():
        return _NOT_BEFORE_V4.search(view.ascii, max(0, start - 2), start) is None
    word = _GLUED.search(view.ascii, max(0, start - 12), start)
    return word is not None and word[0].lower() in _GLUED_WORDS and view.ascii[word.start() - 1 : word.start()] != "_"


def _told(view: Folded, start: int, end: int) -> _Quad:
    value, context = view.ascii[start:end], before(view.text, start)
    version = max(map(int, value.split("."))) > 255 or _is_version(view, context, start, end)
    return _Quad(start, end, value, version, not version and context.label is Label.IP and context.close)


def _beginnings_of_versions(quads: list[_Quad]) -> dict[str, list[int]]:
    """How versions begin, with their places: 2.4 of a version 2.4.41.1."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for quad in quads:
        if quad.version:
            found[quad.beginning].append(quad.start)
    return found


def _is_kin(view: Folded, quad: _Quad, kin: dict[str, list[int]]) -> bool:
    """Whether a version that begins alike stands near: another quad, or one of three parts such as 2.4.58."""
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


def _goes_on(view: Folded, version: _Quad, quad: _Quad) -> bool:
    """`from 2.3.4.5 to 2.3.4.6`: the second is what the first was, unless it is of another kind."""
    if _VERSION_NEXT.fullmatch(view.text, version.end, quad.start) is None or quad.address:
        return False
    step = int(version.value.partition(".")[0]) - int(quad.value.partition(".")[0])
    return abs(step) <= _NO_STEP


def _is_version(view: Folded, context: Context, start: int, end: int) -> bool:
    """Whether the words around a dotted quad say that it is a version, a section or a product's number."""
    if view.ascii[start - 1 : start].isalpha():
        return _ENDS_VERSION.match(view.text, end) is not None
    slash = view.ascii[start - 1 : start] == "/"
    if context.label is Label.VERSION and (context.close or slash):
        return True
    if context.label is Label.OTHER and context.close and slash:
        return True
    called = context.label is Label.IP and context.close
    if not called and _SUFFIX.match(view.ascii, end) and not _AT_HOME.match(view.ascii, start):
        return True
    if _ENDS_VERSION.match(view.text, end) or _follows_product(view, start):
        return True
    window = view.text[max(0, start - 24) : start].lower()
    if _BEGINS_VERSION.search(window):
        return True
    if "." in window and _STEP_FROM.search(window) and not _AT_HOME.match(view.ascii, start):
        return True
    return _PERHAPS_VERSION.search(window) is not None and _VERSION_LIKE.fullmatch(view.ascii, start, end) is not None


_PRODUCT: Final = re.compile(r"[A-Za-z]{3,}/\Z")


def _follows_product(view: Folded, start: int) -> bool:
    """`Chrome/10.0.0.1`: a product with its version, and no path of an address."""
    return (
        _PRODUCT.search(view.ascii, max(0, start - 24), start) is not None
        and "://" not in view.ascii[max(0, start - 40) : start]
    )


def find_v6(view: Folded) -> Iterator[tuple[int, int]]:
    """Addresses with colons."""
    for match in _V6.finditer(view.ascii):
        start, end = _without_label(view.ascii, match.start(), match.end()), match.end()
        if start is None:
            continue
        if view.ascii[end - 1] == ":" and view.ascii[end - 2] != ":":
            end -= 1
        if _is_v6(view.ascii[start:end]) and not _is_slice(view.ascii, start):
            yield start, end


def _without_label(text: str, start: int, end: int) -> int | None:
    """Where the address begins when the word before it and its colon are not its own: `node:2001:db8::1`."""
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
    if value.count(":") < 2 or not any(map(str.isdigit, value)):
        return False
    try:
        address = IPv6Address(value)
    except (AddressValueError, ValueError):
        return False
    # Of short forms only those that begin like an address: 1::2 is more often a slice.
    return not address.is_loopback and (
        value.count(":") == 7 or _HEXTET.match(value) is not None or value.startswith("::ffff:") or len(value) > 8
    )


def _is_slice(text: str, start: int) -> bool:
    """`items[10::20]` reads like an address."""
    before = text[max(0, start - 2) : start]
    return len(before) == 2 and before[1] == "[" and (before[0].isalnum() or before[0] in "])_")
