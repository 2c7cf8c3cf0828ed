"""What a server's own settings mean for what it has acknowledged."""

from __future__ import annotations

from tenuto.model.values import Value


class DurabilityFinding(Value, frozen=True, kw_only=True):
    """One thing that a server says about how it keeps data.

    Without `advice` all is as it should be. `loses` tells that it takes away what was acknowledged while it runs, not
    only when it dies.
    """

    about: str
    says: str
    advice: str | None = None
    loses: bool = False
