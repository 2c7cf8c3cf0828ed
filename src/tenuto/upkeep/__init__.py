"""What follows the turns, off the request path: sweeping what expired, titles, compression."""

from tenuto.upkeep.story import Redact, Small, Upkeep

__all__ = ["Redact", "Small", "Upkeep"]
