"""The allow-list of a policy: values that are not private, and domains whose addresses and hosts are not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import PiiMatch
from tenuto.privacy.rules.folding import INVISIBLE, fold
from tenuto.privacy.rules.span import PiiType
from tenuto.privacy.spellings import normalize_spelling

SETTING: Final = "allow"
_LONGEST: Final = 256
_HOST: Final = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W_][\w-]{0,61}")
_GAPS: Final = re.compile(r"[\s-]+")
# Numbers compare by digits, whatever the separators; short ones compare as text, so that `1-1` does not allow 11.
_NUMBER: Final = re.compile(r"\+?\(?[0-9](?:[\s()./-]{0,3}[0-9]){4,}")
_BETWEEN: Final = re.compile(r"[\s()./-]+")
# An allowed domain does not allow a key or a password next to it.
_NEVER_BY_DOMAIN: Final = frozenset({PiiType.SECRET, PiiType.API_KEY})


class Allowlist:
    """The allow-list of a policy. A match is compared as a whole, never in part."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._values: set[str] = set()
        self._phones: set[str] = set()
        self._mail_hosts: set[str] = set()
        self._domains: set[str] = set()
        for place, entry in enumerate(entries, 1):
            self._add_entry(_normalize(entry).strip(), f"entry {place}")

    def __call__(self, text: str, find: PiiMatch) -> bool:
        """Whether the match is on the list."""
        if find.end - find.start > 2 * _LONGEST:
            return False
        value = _normalize(text[find.start : find.end]).strip()
        if _comparison_key(value) in self._values or (
            find.type == PiiType.PHONE and normalize_spelling(PiiType.PHONE, value) in self._phones
        ):
            return True
        if find.type in _NEVER_BY_DOMAIN:
            return False
        _, at, host = value.rpartition("@")
        return (bool(at) and host in self._mail_hosts) or self._is_in_domain(host)

    def _is_in_domain(self, host: str) -> bool:
        if not self._domains or not _HOST.fullmatch(host):
            return False
        parts = host.split(".")
        return any(".".join(parts[first:]) in self._domains for first in range(len(parts) - 1))

    def _add_entry(self, entry: str, what: str) -> None:
        if len(entry) > _LONGEST:
            raise InvalidSetting(SETTING, f"{what} is longer than {_LONGEST} characters")
        kind, hosts = entry[:1], self._mail_hosts
        if entry.startswith("*."):
            kind, hosts = "*.", self._domains
        if kind in ("@", "*."):
            host = entry.removeprefix(kind)
            if not _HOST.fullmatch(host):
                raise InvalidSetting(SETTING, f"{what} names no domain behind its {kind}")
            hosts.add(host)
            return
        if "*" in entry or not any(map(str.isalnum, entry)):
            raise InvalidSetting(SETTING, f"{what} is not a value; only *.example.com may represent several")
        self._values.add(_comparison_key(entry))
        if _NUMBER.fullmatch(entry):
            self._phones.add(normalize_spelling(PiiType.PHONE, entry))


def _normalize(text: str) -> str:
    return fold(INVISIBLE.sub("", text)).casefold()


def _comparison_key(plain: str) -> str:
    """The same key for all spellings of a value: without spaces and dashes; of a number only the digits."""
    if _NUMBER.fullmatch(plain):
        return _BETWEEN.sub("", plain)
    return _GAPS.sub("", plain)
