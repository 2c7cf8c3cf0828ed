"""IP addresses of both versions, told apart from versions, section numbers, slices and times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from tenuto.privacy.folding import Folded
from tenuto.privacy.labels import Label, before

# Patterns begin with a plain class, which the engine searches fast; what stands before is looked at afterwards.
_V4: Final = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(?![0-9A-Za-z_]|\.[0-9])")
_NOT_BEFORE_V4: Final = re.compile(r"(?:[0-9]\.|(?<![Ii])[A-Za-z0-9_]|(?<=[Ii])[A-OQ-Za-oq-z0-9_])$")
_V6: Final = re.compile(
    r"(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]{0,4})(?![0-9A-Za-z_:])"
)
_NOT_BEFORE_V6: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.:-")
_HEX: Final = b"0123456789abcdefABCDEF"
_HEXTET: Final = re.compile("[0-9A-Fa-f]{2,4}")
_NOT_PERSONAL: Final = re.compile(r"127\.|0\.0\.0\.0$|255\.")
_ENDS_VERSION: Final = re.compile(r"\s?(?:版|节|節|章|条款)")


def has_v4(view: Folded) -> bool:
    """Whether three dots stand with nothing but digits between them."""
    return b"0.0" in view.digits and b"..." in view.bytes.translate(None, b"0123456789")


def has_v6(view: Folded) -> bool:
    """Whether two colons stand side by side, or seven with nothing but hexadecimal digits between them."""
    if b":" not in view.bytes:
        return False
    if b"::" in view.bytes:
        return True
    return view.bytes.count(b":") > 6 and b":::::::" in view.bytes.translate(None, _HEX)


def find_v4(view: Folded) -> Iterator[tuple[int, int]]:
    """Dotted quads that are addresses. Loopback, netmasks and 0.0.0.0 belong to nobody and are left."""
    for match in _V4.finditer(view.ascii):
        start, end = match.span()
        if _NOT_BEFORE_V4.search(view.ascii, max(0, start - 2), start):
            continue
        if any(int(octet) > 255 for octet in match[0].split(".")) or _NOT_PERSONAL.match(match[0]):
            continue
        context = before(view.text, start)
        if context.label is Label.VERSION and (context.close or view.ascii[start - 1 : start] == "/"):
            continue
        if context.label is Label.OTHER and context.close and view.ascii[start - 1 : start] == "/":
            continue
        if _ENDS_VERSION.match(view.text, end) or _follows_product(view, start):
            continue
        yield start, end


_PRODUCT: Final = re.compile(r"[A-Za-z]{3,}/$")


def _follows_product(view: Folded, start: int) -> bool:
    """`Chrome/10.0.0.1`: a product with its version, and no path of an address."""
    return (
        _PRODUCT.search(view.ascii, max(0, start - 24), start) is not None
        and "://" not in view.ascii[max(0, start - 40) : start]
    )


def find_v6(view: Folded) -> Iterator[tuple[int, int]]:
    """Addresses with colons."""
    for match in _V6.finditer(view.ascii):
        start, end = match.span()
        if view.ascii[start - 1 : start] in _NOT_BEFORE_V6:
            continue
        value = match[0]
        if value.endswith(":") and not value.endswith("::"):
            value, end = value[:-1], end - 1
        if _is_v6(value) and not _is_slice(view.ascii, start):
            yield start, end


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
    return text[start - 1 : start] == "[" and (
        text[start - 2 : start - 1].isalnum() or text[start - 2 : start - 1] in "])_"
    )
