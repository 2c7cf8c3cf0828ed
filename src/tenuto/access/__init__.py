"""Who is calling: API keys, tokens, and what a verified one proves."""

from tenuto.access.api_keys import ApiKey, ApiKeys, Caller, KeyRole
from tenuto.access.jwt_verifier import JwtPolicy, JwtVerifier

__all__ = ["ApiKey", "ApiKeys", "Caller", "JwtPolicy", "JwtVerifier", "KeyRole"]
