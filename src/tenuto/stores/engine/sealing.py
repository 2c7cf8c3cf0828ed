"""Encryption at rest: the codecs of tenants' sites over their ciphers.

A record is sealed as a whole: head, profile, messages, traces, idempotency keys and producers, and the values of the
state. Plain are keys of records, the columns to find and count by (without titles), and numbers of entries.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from tenuto.errors import DecryptionFailed, Unavailable
from tenuto.lru_cache import LruCache
from tenuto.model import Scope
from tenuto.ports import Cipher, Ciphers, Clock, utc_now
from tenuto.stores.engine.codec import Codec

# How long keys are used: another process may add or destroy some.
_FRESH: Final = timedelta(minutes=1)
_MOST_SITES: Final = 10_000


class SealedCodecs:
    """The `Codecs` over tenants' ciphers; with `sealing` off they open sealed records and write plain ones.

    While the store does not answer, the last keys of a site serve on: an outage may outlast the trust in a key, and
    what a journal acknowledges is sealed as well.
    """

    def __init__(self, ciphers: Ciphers, *, clock: Clock = utc_now, sealing: bool = True) -> None:
        self._ciphers = ciphers
        self._clock = clock
        self.sealing = sealing
        self._loaded = LruCache[tuple[str, str], tuple[Codec, datetime]](_MOST_SITES)

    def ready(self, scope: Scope) -> Codec | None:
        loaded = self._loaded.peek((scope.tenant, scope.site))
        if loaded is None or not timedelta(0) <= self._clock() - loaded[1] < _FRESH:
            return None
        return loaded[0]

    async def load(self, scope: Scope, *, writing: bool = False, refresh: bool = False) -> Codec:
        site = scope.tenant, scope.site
        ready = None if refresh else self.ready(scope)
        if ready is not None:
            return ready
        try:
            codec, read_at, is_complete = await self._load(scope, writing=writing, refresh=refresh)
        except Unavailable:
            if (loaded := self._loaded.get(site)) is not None:
                return loaded[0]
            raise
        if is_complete:
            self._loaded.put(site, (codec, read_at))
        return codec

    async def _load(self, scope: Scope, *, writing: bool, refresh: bool) -> tuple[Codec, datetime, bool]:
        """A codec, when its keys were read, and whether it can be used for writing, too; reading makes no keys."""
        try:
            cipher = await self._ciphers.cipher_for_opening(scope, refresh=refresh)
        except DecryptionFailed as error:
            return Codec(_Closed(error), sealing=self.sealing), self._clock(), True
        if self.sealing and writing and not cipher.can_seal:
            with suppress(DecryptionFailed):  # Sealing with the other cipher says why it cannot.
                cipher = await self._ciphers.cipher_for_sealing(scope)
        is_complete = cipher.can_seal or not self.sealing
        codec = Codec(_SiteSealer(cipher), sealing=self.sealing, is_current=cipher.is_current)
        return codec, cipher.read_at, is_complete


class _SiteSealer:
    """The `Sealer` over a cipher."""

    __slots__ = ("_cipher", "_word_key", "open", "seal")

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher
        self._word_key = b""
        self.seal = cipher.seal_bytes
        self.open = cipher.open_bytes

    def word_key(self) -> bytes:
        # The key to look up with stays when data keys are renewed.
        self._word_key = self._word_key or bytes.fromhex(self._cipher.digest(b"", ("words",)))
        return self._word_key


class _Closed:
    """The `Sealer` of a tenant whose keys cannot be used: only plain records can be read."""

    def __init__(self, failure: DecryptionFailed) -> None:
        self._failure = failure

    def seal(self, plain: bytes, place: tuple[str, ...]) -> bytes:
        raise self._failure

    def open(self, sealed: bytes, place: tuple[str, ...]) -> bytes:
        raise self._failure

    def word_key(self) -> bytes:
        raise self._failure
