"""Tokens: what the settings may say about them."""

from __future__ import annotations

import time
from typing import Any

import jwt
import pytest

from tenuto.access import Caller, JwtPolicy, JwtVerifier, KeyRole
from tenuto.errors import InvalidSetting
from tenuto.model.privacy import PrivacyPolicy
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.privacy.tenant_policies import TenantPolicies

SECRET = "a shared secret of more than sixty-four bytes, which is what HS512 asks for"


def token(algorithm: str = "HS256", **claims: Any) -> str:
    return jwt.encode({"tenant_id": "acme", "sub": "ann", "exp": time.time() + 60, **claims}, SECRET, algorithm)


def test_a_token_becomes_a_caller() -> None:
    tokens = JwtVerifier(JwtPolicy(secret=SECRET))

    assert tokens.verify(token()) == Caller(tenant="acme", user="ann")
    assert tokens.verify(token(site_id="museum", role="admin")) == Caller(
        tenant="acme", site="museum", user="ann", role=KeyRole.ADMIN
    )
    assert tokens.verify(token(role="superuser")) == Caller(tenant="acme", user="ann")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": 1}, "ExpiredSignatureError"),
        ({"tenant_id": None}, "it has no tenant_id"),
        ({"aud": "other"}, "InvalidAudienceError"),
    ],
    ids=str,
)
def test_the_log_says_why_a_token_is_refused(
    claims: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind the redaction of logs, which takes what follows the word token for one."""
    caplog.set_level("INFO")
    clean = LogRedactor(lambda: TenantPolicies(PrivacyPolicy()))

    assert JwtVerifier(JwtPolicy(secret=SECRET)).verify(token(**claims)) is None
    assert why in clean(caplog.messages[0])


def test_the_algorithm_follows_the_setting() -> None:
    tokens = JwtVerifier(JwtPolicy(secret=SECRET, algorithm="HS512"))

    assert tokens.verify(token("HS512")) is not None
    assert tokens.verify(token("HS256")) is None


@pytest.mark.parametrize(
    "given",
    [
        {"secret": SECRET, "algorithm": "RS256"},
        {"secret": SECRET, "algorithm": "none"},
        {"key_file": "key.pem", "algorithm": "HS256"},
        {"jwks_file": "jwks.json", "algorithm": "HS256"},
        {"algorithm": "HS256"},
    ],
    ids=str,
)
def test_an_algorithm_that_does_not_go_with_the_key_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match="jwt_algorithm"):
        JwtPolicy(**given)


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "x" * 100_000, "\ud800", "e30.e30.", "é.é.é", "W10.W10.W10"])
def test_what_is_no_token_is_nobody(text: str) -> None:
    assert JwtVerifier(JwtPolicy(secret=SECRET)).verify(text) is None


def test_a_missing_key_file_stops_the_start() -> None:
    with pytest.raises(InvalidSetting, match="jwt_key_file"):
        JwtVerifier(JwtPolicy(key_file="nowhere.pem"))
    with pytest.raises(InvalidSetting, match="jwt_jwks_file"):
        JwtVerifier(JwtPolicy(jwks_file="nowhere.json"))
