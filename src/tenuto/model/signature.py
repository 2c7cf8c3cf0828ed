"""Signatures of Standard Webhooks: HMAC-SHA256 over a message's id, its time and the bytes of its body."""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from tenuto.errors import DeliveryRefused, InvalidSetting

_BASE64_FOLLOWS: Final = "whsec_"
_LEAST_SECRET: Final = 16
# A message that is sent again is signed anew; the rest is for clocks that differ.
_WINDOW: Final = timedelta(minutes=5)
_SECONDS: Final = re.compile(r"\d{1,12}", re.ASCII)


def read_signing_key(secret: str, setting: str) -> bytes:
    """The key of a secret: its bytes, or what they encode after `whsec_`.

    Raises:
        InvalidSetting: it is too short, or no base64 where it should be.
    """
    try:
        key = (
            b64decode(secret.removeprefix(_BASE64_FOLLOWS), validate=True)
            if secret.startswith(_BASE64_FOLLOWS)
            else b""
        )
    except binascii.Error:
        raise InvalidSetting(setting, "is not base64 after whsec_") from None
    key = key or secret.encode()
    if len(key) < _LEAST_SECRET:
        raise InvalidSetting(setting, f"must have at least {_LEAST_SECRET} bytes")
    return key


def signed_headers(key: bytes, message_id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers of a JSON message that is sent now; a repeated one has the same id."""
    seconds = str(int(at.timestamp()))
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": seconds,
        "webhook-signature": _sign(key, message_id, seconds, body),
    }


def check_signature(key: bytes, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
    """Return if the bytes were signed with this key at most five minutes ago; one of several signatures is enough.

    Raises:
        DeliveryRefused: they were not, or nothing proves it.
    """
    message_id, seconds = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    expected = _sign(key, message_id, seconds, body).encode()
    given = headers.get("webhook-signature", "").split()
    if not message_id or not any(hmac.compare_digest(one.encode(), expected) for one in given):
        raise DeliveryRefused("the signature is wrong or missing", forged=True)
    if not _SECONDS.fullmatch(seconds) or abs(now.timestamp() - int(seconds)) > _WINDOW.total_seconds():
        raise DeliveryRefused("the signature is older than five minutes, or a clock is wrong", forged=True)


def _sign(key: bytes, message_id: str, seconds: str, body: bytes) -> str:
    signature = hmac.digest(key, f"{message_id}.{seconds}.".encode() + body, sha256)
    return f"v1,{b64encode(signature).decode()}"
