"""Proof that the platform sent a callback: its signature, its encryption and the app's verification token."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from tenuto.errors import DeliveryRefused

# The platform signs each delivery anew; the rest is for clocks that differ.
SIGNATURE_WINDOW: Final = timedelta(minutes=5)
_BLOCK: Final = 16


def is_signed(headers: Mapping[str, str]) -> bool:
    """Whether a callback carries a signature; the platform does not sign every challenge."""
    return "x-lark-signature" in headers


def check_signature(key: str, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
    """Check the signature over the bytes that came, and its age.

    Raises:
        DeliveryRefused: it is missing, wrong, or older or newer than the window.
    """
    timestamp, nonce = headers.get("x-lark-request-timestamp", ""), headers.get("x-lark-request-nonce", "")
    signature = sha256(f"{timestamp}{nonce}{key}".encode() + body).hexdigest()
    if not same_text(headers.get("x-lark-signature", ""), signature):
        raise DeliveryRefused("the signature is wrong or missing", forged=True)
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 12:
        raise DeliveryRefused("the signature has no time", forged=True)
    if abs(now.timestamp() - int(timestamp)) > SIGNATURE_WINDOW.total_seconds():
        raise DeliveryRefused("the signature is too old, or this machine's clock is wrong", forged=True)


def same_text(given: str, expected: str) -> bool:
    """Compare in a time that does not tell how much is right."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def decrypt(key: str, ciphertext: str) -> bytes:
    """The plain text of an encrypted callback: base64 of the IV and AES-256-CBC, by the hash of the key.

    Raises:
        DeliveryRefused: it was not encrypted with this key.
    """
    try:
        raw = b64decode(ciphertext, validate=True)
        if len(raw) < 2 * _BLOCK:
            raise ValueError
        cipher = Cipher(algorithms.AES256(sha256(key.encode()).digest()), modes.CBC(raw[:_BLOCK])).decryptor()
        padded_text = cipher.update(raw[_BLOCK:]) + cipher.finalize()
        padding = PKCS7(8 * _BLOCK).unpadder()
        return padding.update(padded_text) + padding.finalize()
    except (ValueError, binascii.Error):
        raise DeliveryRefused("the event cannot be decrypted: the encrypt key differs from the app's") from None
