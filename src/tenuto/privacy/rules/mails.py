"""E-mail addresses, beside any script, found from their @ outwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.privacy.rules.folding import Folded
from tenuto.privacy.rules.labels import words

# Latin letters belong to an address; characters of any other script beside it are the sentence around it.
_LETTER: Final = "A-Za-z0-9\u00c0-\u024f"
_PLAIN: Final = re.compile(rf"[{_LETTER}._%+'-]+")
_DOMAIN: Final = re.compile(
    rf"(?:[{_LETTER}](?:[{_LETTER}-]{{0,61}}[{_LETTER}])?\.){{1,8}}"
    rf"(?:xn--[a-z0-9-]{{2,50}}|[A-Za-z\u00c0-\u024f]{{2,24}})(?![{_LETTER}]|-[{_LETTER}])"
)
# z***3@example.com shows no address; **ann@example.com** shows one in bold.
_MASK: Final = re.compile(r"[A-Za-z0-9][*•●]+\Z")
# What stands before the @ of an address on the web is a user, and a password behind a colon.
_USER: Final = re.compile(r"://(?:[^\s/@:]{1,64}:)?\Z")
# What follows the @ in file names, decorators and packages.
_NOT_DOMAINS: Final = frozenset(
    words(
        """png jpg jpeg gif svg webp ico bmp js mjs cjs ts tsx jsx css scss html htm json yaml yml xml txt md pdf zip gz
        tar whl jar exe dll conf cfg ini log csv sql lock toml"""
    )
)


def find_mails(view: Folded) -> Iterator[tuple[int, int]]:
    """Every address: a local part, an @, and a domain with a dot."""
    at = view.ascii.find("@")
    while at >= 0:
        domain = _DOMAIN.match(view.text, at + 1)
        if domain is not None and domain[0].rpartition(".")[2].lower() not in _NOT_DOMAINS:
            start = _local_start(view.text, at)
            if start is not None and not _is_repository(view.text, start, domain.end()):
                yield start, domain.end()
        at = view.ascii.find("@", at + 1)


def _local_start(text: str, at: int) -> int | None:
    """Where the local part begins. It is read backwards, so that its cost is its length."""
    if text[at - 1 : at] == '"':
        quote = text.rfind('"', max(0, at - 60), at - 1)
        return quote if quote >= 0 and "\n" not in text[quote:at] and at - quote > 2 else None
    match = _PLAIN.match(text[max(0, at - 64) : at][::-1])
    if match is None:
        return None
    start = at - match.end()
    while start < at and text[start] in ".'-%":
        start += 1
    if _MASK.search(text, max(0, start - 16), start):
        return None
    if start == at or text[at - 1] == "." or _USER.search(text, max(0, start - 68), start):
        return None
    return start


def _is_repository(text: str, start: int, end: int) -> bool:
    """`git@github.com:org/repo` names a server's account, the same one for everybody."""
    return text[start : start + 4] == "git@" and text[end : end + 1] in (":", "/")
