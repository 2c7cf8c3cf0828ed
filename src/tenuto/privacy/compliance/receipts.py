"""Signed receipts of erasures, which can be verified with the installation's public key.

The signing key is created with the first receipt and stays in the installation's state.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec.structs import replace

from tenuto.compare_and_set import update_state
from tenuto.errors import Invalid
from tenuto.model import StateEntry
from tenuto.model.scope import SYSTEM, user_digest
from tenuto.model.values import JsonObject, Value
from tenuto.ports import StateStore
from tenuto.privacy.compliance.compaction import CompactionStatus

SIGNING: Final = "privacy.signing"
_KEY: Final = "ed25519"


class Receipt(Value, frozen=True, kw_only=True):
    """What was removed. The user is named by a digest, since receipts are kept and must not keep the name; so are, in
    `identity_digests`, the other users who were the same person.

    `compaction` says whether deleted bytes were cleared: `done`, `later`, `partly` (`remaining_reason` says where some
    are left), or `nothing` to clear. `limits` says what an erasure does not cover.
    """

    id: str
    tenant: str
    sites: tuple[str, ...]
    user_digest: str
    identity_digests: tuple[str, ...] = ()
    erased_at: datetime
    counts: dict[str, int]
    compaction: CompactionStatus = CompactionStatus.LATER
    remaining_reason: str = ""
    limits: str = ""
    public_key: str = ""
    signature: str = ""


class ReceiptSigner:
    """Signs receipts."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    async def ready(self) -> None:
        """Load or create the signing key.

        Raises:
            Unavailable: the store does not answer.
        """
        await self._load_or_create_key()

    async def sign(self, receipt: Receipt) -> Receipt:
        """The receipt with its signature, and the key to check it with."""
        key = await self._load_or_create_key()
        public = _encode_base64(key.public_key().public_bytes_raw())
        receipt = replace(receipt, public_key=public, signature="")
        return replace(receipt, signature=_encode_base64(key.sign(_bytes_to_sign(receipt))))

    async def public_key(self) -> str | None:
        """The installation's public key; `None` while it has signed nothing."""
        key = _decode_private_key(await self._state.read_state(SYSTEM, SIGNING, _KEY))
        return None if key is None else _encode_base64(key.public_key().public_bytes_raw())

    async def _load_or_create_key(self) -> Ed25519PrivateKey:
        def create(key: Ed25519PrivateKey | None) -> str | None:
            return _encode_base64(Ed25519PrivateKey.generate().private_bytes_raw()) if key is None else None

        key = (await update_state(self._state, SYSTEM, SIGNING, _KEY, _decode_private_key, create)).after
        assert key is not None
        return key


def _decode_private_key(entry: StateEntry | None) -> Ed25519PrivateKey | None:
    return None if entry is None else Ed25519PrivateKey.from_private_bytes(base64.b64decode(entry.value))


def parse_receipt(raw: bytes) -> Receipt:
    """Decode a receipt from JSON.

    Raises:
        Invalid: it is no receipt, or has fields that the signature does not cover.
    """
    try:
        said = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Invalid("this is not a receipt") from None
    return receipt_from_json(said)


def receipt_from_json(said: JsonObject) -> Receipt:
    """A receipt from JSON that was decoded already, as `parse_receipt`."""
    try:
        receipt = msgspec.convert(said, Receipt)
    except (msgspec.MsgspecError, RecursionError):
        raise Invalid("this is not a receipt") from None
    if not said.keys() <= set(Receipt.__struct_encode_fields__):
        raise Invalid("this is not a receipt: it has unknown fields")
    return receipt


def verify_receipt(receipt: Receipt, public_key: str | None = None) -> bool:
    """Whether the signature fits the receipt, and was made with `public_key` if given.

    Raises:
        Invalid: the key or the signature cannot be decoded.
    """
    if public_key is not None and public_key != receipt.public_key:
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(receipt.public_key, validate=True))
        key.verify(base64.b64decode(receipt.signature, validate=True), _bytes_to_sign(replace(receipt, signature="")))
    except InvalidSignature:
        return False
    except (ValueError, binascii.Error):
        raise Invalid("the receipt's key or signature is not one") from None
    return True


def why_invalid(receipt: Receipt, public_key: str | None, user: str | None = None) -> str | None:
    """Why a receipt is not one that the installation of this key signed, about this user if given; `None` if it is.

    Raises:
        Invalid: its key or signature cannot be decoded.
    """
    if public_key is None or receipt.public_key != public_key:
        return "it was not signed by this installation"
    if not verify_receipt(receipt, public_key):
        return "it was changed since it was signed"
    covered = (receipt.user_digest, *receipt.identity_digests)
    if user is not None and user_digest(receipt.tenant, user) not in covered:
        return "it is about another user"
    return None


def _bytes_to_sign(receipt: Receipt) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(receipt), order="sorted")


def _encode_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
