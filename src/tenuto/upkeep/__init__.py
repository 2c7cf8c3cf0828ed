"""What follows the turns, off the request path: sweeping what expired, titles, compression."""

from tenuto.upkeep.jobs import SmallModel
from tenuto.upkeep.scheduled_scan import ScheduledScan
from tenuto.upkeep.service import LAST_WORK, Upkeep

__all__ = ["LAST_WORK", "ScheduledScan", "SmallModel", "Upkeep"]
