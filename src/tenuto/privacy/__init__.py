"""Private data in text: find it, and put marks in its place. Pure: no I/O, no clock, no network."""

from tenuto.privacy.redaction import RedactionStream, detect, redact
from tenuto.privacy.span import ALWAYS, MARK, ON_REQUEST, Rule, Span, Type

__all__ = ["ALWAYS", "MARK", "ON_REQUEST", "RedactionStream", "Rule", "Span", "Type", "detect", "redact"]
