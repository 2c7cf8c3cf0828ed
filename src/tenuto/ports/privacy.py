"""The ports of encryption, and of detectors of private data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from tenuto.model import Scope
from tenuto.model.privacy import PiiMatch

Place: TypeAlias = tuple[str, ...]
"""Where a sealed text stands: what it is, of which record, under which name."""


class Cipher(Protocol):
    """Encrypts the stored data of one tenant's site. It holds the keys it needs: no method waits.

    A sealed text opens only for its tenant and site, and only at its place.
    """

    @property
    def fresh(self) -> bool:
        """Whether the keys were just loaded: a text that names none of them names no key at all."""
        ...

    @property
    def whole(self) -> bool:
        """Whether every data key that the tenant ever had is loaded."""
        ...

    @property
    def read_at(self) -> datetime:
        """When its keys were read: another process may have added or destroyed some since."""
        ...

    def seal(self, plain: bytes, place: Place) -> str:
        """The bytes as text that reveals only their length; equal bytes become different texts.

        Raises:
            DecryptionFailed: this cipher has no key to write with.
        """
        ...

    def open(self, sealed: str, place: Place) -> bytes:
        """Decrypt.

        Raises:
            MasterKeyMissing: the master key of its data key is missing.
            DecryptionFailed: its key is gone or unknown, or the text was changed or moved.
        """
        ...

    def digest(self, value: bytes, place: Place) -> str:
        """A digest to find the value without storing it: equal for equal values at one place.

        Raises:
            DecryptionFailed: this cipher has no key to look up with.
        """
        ...

    @property
    def can_seal(self) -> bool:
        """Whether it has a key to write with."""
        ...

    def seal_bytes(self, plain: bytes, place: Place) -> bytes:
        """As `seal`, in bytes: for whole records, a third shorter."""
        ...

    def open_bytes(self, sealed: bytes, place: Place) -> bytes:
        """As `open`, of what `seal_bytes` returned."""
        ...

    def is_current(self, sealed: bytes) -> bool:
        """Whether `seal_bytes` returned this under the data key that is in use now."""
        ...


class Ciphers(Protocol):
    """The cipher of each tenant. A tenant has its own data keys, encrypted by a master key outside the store."""

    async def cipher_for_sealing(self, scope: Scope) -> Cipher:
        """The cipher to write and to look up with; creates the tenant's first data key.

        Raises:
            DecryptionFailed: the tenant has data keys, but not the master key that opens them.
        """
        ...

    async def cipher_for_opening(self, scope: Scope, *, refresh: bool = False) -> Cipher:
        """The cipher to read with; creates no key. `refresh` reloads the keys: another process may have created one."""
        ...


class Detector(Protocol):
    """Finds private data in addition to the rules: a service, or a model that knows names and places."""

    async def find(self, scope: Scope, text: str, language: str) -> Sequence[PiiMatch]:
        """Matches in any order, overlapping or not; positions count code points and lie inside the text.

        `language` is a code of two letters. The text is neither stored nor logged.

        Raises:
            Unavailable: it does not answer, or not usably.
        """
        ...
