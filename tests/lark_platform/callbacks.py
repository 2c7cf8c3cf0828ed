"""Requests of the platform to a bot's callback address: encrypted and signed, or forged in one way."""

from __future__ import annotations

import json
import os
import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

Payload = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LarkCredentials:
    """What an app and the platform both know; without an encrypt key callbacks are neither encrypted nor signed.

    Each has an id of its own: the official client caches tokens by the app's id for as long as the process lives.
    """

    app_id: str = field(default_factory=lambda: f"cli_{secrets.token_hex(8)}")
    app_secret: str = "the-secret-of-the-app"
    encrypt_key: str | None = "the-encrypt-key"
    verification_token: str = "the-verification-token"
    tenant_key: str = "2ca1d211f64f6438"


@dataclass(frozen=True)
class Callback:
    """A request to the bot's address."""

    body: bytes
    headers: Mapping[str, str]


class Forgery(StrEnum):
    """What is wrong with a callback; everything else about it is right. Those about signatures need an encrypt key."""

    WRONG_SIGNATURE = "wrong signature"
    UNSIGNED = "unsigned"
    OTHER_BODY = "other body"
    OLD_TIMESTAMP = "old timestamp"
    WRONG_TOKEN = "wrong token"
    GARBAGE_CIPHERTEXT = "garbage ciphertext"
    NO_JSON = "no JSON"


def make_callback(app: LarkCredentials, payload: Payload, at: datetime) -> Callback:
    """A genuine callback."""
    return _signed(app, _sealed(app, json.dumps(payload, ensure_ascii=False).encode()), at)


def make_challenge(app: LarkCredentials, challenge: str, at: datetime) -> Callback:
    """The request by which the platform checks a callback address."""
    payload = {"challenge": challenge, "token": app.verification_token, "type": "url_verification"}
    return make_callback(app, payload, at)


def forge_callback(app: LarkCredentials, payload: Payload, how: Forgery, at: datetime) -> Callback:
    """A callback that a bot must refuse."""
    genuine = make_callback(app, payload, at)
    match how:
        case Forgery.WRONG_SIGNATURE:
            return Callback(genuine.body, {**genuine.headers, "X-Lark-Signature": sha256(b"guessed").hexdigest()})
        case Forgery.UNSIGNED:
            return Callback(genuine.body, {"Content-Type": genuine.headers["Content-Type"]})
        case Forgery.OTHER_BODY:
            return Callback(genuine.body + b" ", genuine.headers)
        case Forgery.OLD_TIMESTAMP:
            return make_callback(app, payload, at - timedelta(hours=1))
        case Forgery.WRONG_TOKEN:
            return make_callback(app, {**payload, "header": {**payload["header"], "token": "guessed"}}, at)
        case Forgery.GARBAGE_CIPHERTEXT:
            return _signed(app, json.dumps({"encrypt": b64encode(os.urandom(96)).decode()}).encode(), at)
        case Forgery.NO_JSON:
            return _signed(app, b"\xff\xfe not JSON", at)


def encrypt(key: str, plain: bytes) -> str:
    """Bytes as callbacks carry them: AES-256-CBC under the key's hash, behind their initialisation vector."""
    vector, padder = os.urandom(16), PKCS7(128).padder()
    encryptor = Cipher(AES(sha256(key.encode()).digest()), CBC(vector)).encryptor()
    sealed = encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()
    return b64encode(vector + sealed).decode()


def _sealed(app: LarkCredentials, plain: bytes) -> bytes:
    if app.encrypt_key is None:
        return plain
    return json.dumps({"encrypt": encrypt(app.encrypt_key, plain)}).encode()


def _signed(app: LarkCredentials, body: bytes, at: datetime) -> Callback:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if app.encrypt_key is not None:
        timestamp, nonce = str(int(at.timestamp())), str(secrets.randbelow(10**9))
        headers |= {
            "X-Lark-Request-Timestamp": timestamp,
            "X-Lark-Request-Nonce": nonce,
            "X-Lark-Signature": sha256(f"{timestamp}{nonce}{app.encrypt_key}".encode() + body).hexdigest(),
        }
    return Callback(body, headers)
