"""What follows the turns, off the request path: sweeping what expired, titles, compression."""

from tenuto.upkeep.jobs import Small
from tenuto.upkeep.scheduled_scan import ScheduledScan
from tenuto.upkeep.service import Upkeep

__all__ = ["ScheduledScan", "Small", "Upkeep"]
