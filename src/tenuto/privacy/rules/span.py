"""Spans: the range of a private value, its type and rule, and the placeholder that replaces it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from tenuto.model.patterns import lazy_pattern


class PiiType(StrEnum):
    """What kind of private data a span holds. The last three are searched only if a policy asks for them."""

    EMAIL = "EMAIL"
    PHONE = "PHONE"
    CARD = "CARD"
    SSN = "SSN"
    CN_ID = "CN_ID"
    PASSPORT = "PASSPORT"
    IP = "IP"
    API_KEY = "API_KEY"
    SECRET = "SECRET"  # noqa: S105 - the name of a type, not a password
    IBAN = "IBAN"
    ORDER_ID = "ORDER_ID"
    ADDRESS = "ADDRESS"
    PERSON = "PERSON"


ON_REQUEST: Final = frozenset({PiiType.ORDER_ID, PiiType.ADDRESS, PiiType.PERSON})
ALWAYS: Final = frozenset(PiiType) - ON_REQUEST


class PiiRule(StrEnum):
    """The rule that found a span. It is finer than the type and safe to log."""

    EMAIL = "EMAIL"
    EMAIL_SPELLED = "EMAIL_SPELLED"
    PHONE = "PHONE"
    PHONE_SPELLED = "PHONE_SPELLED"
    CC = "CC"
    BANK_CARD = "BANK_CARD"
    SSN = "SSN"
    CN_ID = "CN_ID"
    PASSPORT = "PASSPORT"
    IPV4 = "IPV4"
    IPV6 = "IPV6"
    API_KEY = "API_KEY"
    JWT = "JWT"
    WEBHOOK = "WEBHOOK"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a rule
    PRIVATE_KEY = "PRIVATE_KEY"
    URL_CREDENTIALS = "URL_CREDENTIALS"
    IBAN = "IBAN"
    ORDER_ID = "ORDER_ID"
    ADDRESS = "ADDRESS"
    PERSON = "PERSON"


TYPE_OF: Final = {rule: PiiType(rule) for rule in PiiRule if rule in PiiType.__members__} | {
    PiiRule.EMAIL_SPELLED: PiiType.EMAIL,
    PiiRule.PHONE_SPELLED: PiiType.PHONE,
    PiiRule.CC: PiiType.CARD,
    PiiRule.BANK_CARD: PiiType.CARD,
    PiiRule.IPV4: PiiType.IP,
    PiiRule.IPV6: PiiType.IP,
    PiiRule.JWT: PiiType.API_KEY,
    PiiRule.WEBHOOK: PiiType.API_KEY,
    PiiRule.PASSWORD: PiiType.SECRET,
    PiiRule.PRIVATE_KEY: PiiType.SECRET,
    PiiRule.URL_CREDENTIALS: PiiType.SECRET,
}
"""A rule with the name of a type finds that type; all others are listed."""

# A placeholder is as specific as a reader of the conversation needs, and no more.
_MARKED_BY_RULE: Final = frozenset({PiiRule.CC, PiiRule.BANK_CARD, PiiRule.JWT, PiiRule.PRIVATE_KEY})


Find: TypeAlias = tuple[int, int, PiiRule]
"""What a rule found in a view of the text: start, end and rule."""


class Span(msgspec.Struct, frozen=True, order=True):
    """One private value. `start` and `end` are code points of the searched text."""

    start: int
    end: int
    type: PiiType
    rule: PiiRule

    @property
    def name(self) -> str:
        """The name in the placeholder: the type, or the rule where that is more helpful to a reader."""
        return (self.rule if self.rule in _MARKED_BY_RULE else self.type).value

    def shifted(self, by: int) -> Span:
        """The span `by` characters further on."""
        return Span(self.start + by, self.end + by, self.type, self.rule)

    @property
    def placeholder(self) -> str:
        """The placeholder for the value: `[REDACTED_EMAIL]`."""
        return f"[REDACTED_{self.name}]"


_NAMES: Final = "|".join(sorted({str(name) for name in (*PiiType, *PiiRule)}, key=len, reverse=True))

# A placeholder in a text: a redaction, or a numbered pseudonym. The number is short, so that it cannot be a phone.
MAY_BE_MARK: Final = lazy_pattern(r"\[[A-Z]{2}")
"""Occurs in every text with a placeholder, and in few others: checked first."""
MARK: Final = lazy_pattern(rf"\[(?:REDACTED_)?(?:{_NAMES})(?:_[0-9]{{1,4}})?\]")
