"""What follows the turns, off the request path: sweeping what expired, titles, compression."""

from tenuto.upkeep.discretion import Discretion
from tenuto.upkeep.story import Small, Upkeep

__all__ = ["Discretion", "Small", "Upkeep"]
