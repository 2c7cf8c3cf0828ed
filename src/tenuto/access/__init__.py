"""Who is calling: API keys, tokens, what a verified one proves, and which users are one person."""

from tenuto.access.api_keys import ApiKey, ApiKeys, Caller, KeyRole
from tenuto.access.jwt_verifier import JwtPolicy, JwtVerifier
from tenuto.access.people import Identity, LinkCode, LinkedBy, People, Person, PersonNews

__all__ = [
    "ApiKey",
    "ApiKeys",
    "Caller",
    "Identity",
    "JwtPolicy",
    "JwtVerifier",
    "KeyRole",
    "LinkCode",
    "LinkedBy",
    "People",
    "Person",
    "PersonNews",
]
