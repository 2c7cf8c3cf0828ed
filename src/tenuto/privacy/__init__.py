"""Private data in text: detection, redaction, and the policy for stored data.

Building the detector's tables takes time, so the first access to one of its names loads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.lazy_imports import lazy_exports
from tenuto.privacy.rules.span import ALWAYS, MARK, ON_REQUEST, PiiRule, PiiType, Span

if TYPE_CHECKING:
    from tenuto.privacy.rules.detector import RedactionStream, detect, redact

__all__ = ["ALWAYS", "MARK", "ON_REQUEST", "PiiRule", "PiiType", "RedactionStream", "Span", "detect", "redact"]


__getattr__ = lazy_exports(__name__, {"tenuto.privacy.rules.detector": ("RedactionStream", "detect", "redact")})
