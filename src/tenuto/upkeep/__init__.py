"""What follows the turns, off the request path: sweeping what expired, titles, compression."""

from tenuto.upkeep.service import Upkeep
from tenuto.upkeep.summarizer_model import Small

__all__ = ["Small", "Upkeep"]
