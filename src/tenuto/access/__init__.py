"""Who is calling: API keys, tokens, and what a verified one proves."""

from tenuto.access.caller import Caller
from tenuto.access.keys import ApiKey, ApiKeys, KeyRole
from tenuto.access.tokens import TokenPolicy, Tokens

__all__ = ["ApiKey", "ApiKeys", "Caller", "KeyRole", "TokenPolicy", "Tokens"]
