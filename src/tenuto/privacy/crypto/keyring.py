"""Master keys of the installation and of tenants, from a setting or a key file.

Each is 32 random bytes outside the store. They wrap data keys (`tenant_ciphers`) and nothing else, so that a change of
master keys rewrites no data. Stored records refer to a master key by its fingerprint; names in the file are for people.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tenuto.errors import InvalidSetting
from tenuto.model.values import Value
from tenuto.ports import Clock, utc_now

KEY_BYTES: Final = 32
_SETTING: Final = "privacy_key"
_FILE: Final = "privacy_key_file"
_LARGEST_FILE: Final = 16 * 1024 * 1024
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
# The group may read, as with secrets mounted into containers; others have no access.
_FORBIDDEN: Final = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO


class MasterKey(Value, frozen=True, kw_only=True):
    """One master key. Its repr shows the fingerprint, never the key."""

    name: str
    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise InvalidSetting(_SETTING, f"a master key has {KEY_BYTES} bytes")

    @property
    def fingerprint(self) -> str:
        """The id of the key in stored records."""
        return hmac.digest(self.secret, b"tenuto master key", "sha256").hex()[:16]

    def __repr__(self) -> str:
        return f"MasterKey({self.name!r}, {self.fingerprint})"


class MasterKeys(Value, frozen=True, kw_only=True):
    """The current key, which wraps new data keys, and older ones that may still be needed."""

    current: MasterKey
    others: tuple[MasterKey, ...] = ()

    def find(self, fingerprint: str) -> MasterKey | None:
        """The key of this fingerprint."""
        return next((key for key in (self.current, *self.others) if key.fingerprint == fingerprint), None)


class KeyRing(Value, frozen=True, kw_only=True):
    """The installation's master keys, and those of tenants that have their own."""

    keys: MasterKeys
    tenants: Mapping[str, MasterKeys] = {}

    def current(self, tenant: str) -> MasterKey:
        """The key that wraps the tenant's new data keys."""
        return self.tenants.get(tenant, self.keys).current

    def find(self, tenant: str, fingerprint: str) -> MasterKey | None:
        """The tenant's key of this fingerprint, or the installation's, which the tenant may have used before."""
        own = self.tenants.get(tenant)
        return (own.find(fingerprint) if own is not None else None) or self.keys.find(fingerprint)


class _KeySection(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    current: str
    keys: dict[str, str]


class _KeyFile(_KeySection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenants: dict[str, _KeySection] = {}


def load_key_ring(*, key: str | None = None, file: str | Path | None = None) -> KeyRing | None:
    """The key ring of the settings; `None` if they name no key.

    Raises:
        InvalidSetting: a key or the file cannot be used.
    """
    if file is not None:
        return _read_key_file(Path(file))
    if key is None:
        return None
    return KeyRing(keys=MasterKeys(current=MasterKey(name=_SETTING, secret=_decode_key(key, _SETTING, "it"))))


def create_key_file(path: str | Path, *, clock: Clock = utc_now) -> str:
    """Create a key file with one key, readable by its owner only; returns the key's name, which is the month.

    Raises:
        InvalidSetting: the file exists already, or cannot be created.
    """
    name = clock().strftime("%Y-%m")
    secret = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    text = f'# This file can decrypt all encrypted data; without it the data is lost.\ncurrent = "{name}"\n\n'
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w") as file:
            file.write(f'{text}[keys]\n"{name}" = "{secret}"\n')
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise InvalidSetting(_FILE, "the file already exists; it was left unchanged") from None
    except OSError as error:
        raise InvalidSetting(_FILE, f"cannot be made: {error.strerror}") from None
    return name


def _read_key_file(path: Path) -> KeyRing:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InvalidSetting(_FILE, "is not a file")
        if found.st_mode & _FORBIDDEN:
            raise InvalidSetting(_FILE, f"can be read or changed by others; run chmod 600 {path}")
        if found.st_size > _LARGEST_FILE:
            raise InvalidSetting(_FILE, "is too large to be a key file")
        file = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _KeyFile)
    except FileNotFoundError:
        raise InvalidSetting(_FILE, "there is no such file") from None
    except OSError as error:
        raise InvalidSetting(_FILE, f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Without the parser's message, which may quote the file.
        raise InvalidSetting(_FILE, "is not valid TOML") from None
    except msgspec.ValidationError as error:
        raise InvalidSetting(_FILE, f"is not a key file: {error}") from None
    tenants = {tenant: _to_master_keys(keys, f"[tenants.{tenant}]") for tenant, keys in file.tenants.items()}
    return KeyRing(keys=_to_master_keys(file, "the file"), tenants=tenants)


def _to_master_keys(keys: _KeySection, where: str) -> MasterKeys:
    if keys.current not in keys.keys:
        raise InvalidSetting(_FILE, f"{where} names {keys.current!r} as current, but has no such key")
    ring = {
        name: MasterKey(name=name, secret=_decode_key(text, _FILE, f"the key {name!r} of {where}"))
        for name, text in keys.keys.items()
    }
    return MasterKeys(
        current=ring[keys.current], others=tuple(key for name, key in ring.items() if name != keys.current)
    )


def _decode_key(text: str, setting: str, what: str) -> bytes:
    """32 bytes from hexadecimal or either base64 alphabet; errors do not quote the text."""
    text = text.strip()
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        secret = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSetting(setting, f"{what} is neither base64 nor hexadecimal") from None
    if len(secret) != KEY_BYTES:
        raise InvalidSetting(setting, f"{what} has {len(secret)} bytes; a master key has {KEY_BYTES}")
    return secret
