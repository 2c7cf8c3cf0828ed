"""What follows the turns, off the request path: sweeping what expired, titles, compression."""

from tenuto.upkeep.small import Small
from tenuto.upkeep.story import Upkeep

__all__ = ["Small", "Upkeep"]
