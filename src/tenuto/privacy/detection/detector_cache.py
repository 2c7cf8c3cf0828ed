"""What an outside detector has just said: within a turn the same words become a title, a message and a trace.

No words are kept: where something was found in them, under a digest of them, for a few minutes. What is older than that
goes with the next question.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from tenuto.model.privacy import PiiMatch
from tenuto.model.scope import Scope

_LIFE_SECONDS: Final = 180.0
"""Longer than most turns take, with what follows them."""
_MOST: Final = 512


class DetectorCache:
    """Answers by who asked, for which text."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(16)
        self._given: OrderedDict[bytes, _CacheEntry] = OrderedDict()

    def key(self, scope: Scope, text: str, language: str) -> bytes:
        """What the answer to a question is found by; as which character somebody is answered makes no difference."""
        asked = "\0".join([scope.tenant, scope.site, scope.user or "", *scope.owner, language, text])
        return blake2b(asked.encode(errors="surrogatepass"), digest_size=16, key=self._secret).digest()

    def get(self, key: bytes) -> Sequence[PiiMatch] | None:
        """The answer, if it was given lately."""
        before = self._clock() - _LIFE_SECONDS
        while self._given and next(iter(self._given.values())).at <= before:
            self._given.popitem(last=False)
        given = self._given.get(key)
        return given.found if given is not None else None

    def put(self, key: bytes, found: Sequence[PiiMatch]) -> None:
        """Remember an answer; the oldest go first."""
        self._given[key] = _CacheEntry(found, self._clock())
        self._given.move_to_end(key)
        if len(self._given) > _MOST:
            self._given.popitem(last=False)


class _CacheEntry(NamedTuple):
    """An answer, and when it was given."""

    found: Sequence[PiiMatch]
    at: float
