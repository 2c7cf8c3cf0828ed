"""Private data in text: find it, put marks in its place, and keep what is stored to the policy.

The detector's tables take a while to build, so they are loaded with the first name that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenuto.privacy.rules.redaction import RedactionStream, detect, redact
    from tenuto.privacy.rules.span import ALWAYS, MARK, ON_REQUEST, PiiRule, PiiType, Span

__all__ = ["ALWAYS", "MARK", "ON_REQUEST", "PiiRule", "PiiType", "RedactionStream", "Span", "detect", "redact"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tenuto.privacy.rules import redaction, span

    return getattr(redaction if hasattr(redaction, name) and not hasattr(span, name) else span, name)
