"""What a store reports of its server: how durable it keeps what it acknowledged."""

from __future__ import annotations

from tenuto.model.values import Value


class DurabilityFinding(Value, frozen=True, kw_only=True):
    """One thing that a server says about how it keeps data.

    Without `advice` all is as it should be. `loses_acknowledged` tells that it takes away what was acknowledged while
    it runs, not only when it dies.
    """

    name: str
    message: str
    advice: str | None = None
    loses_acknowledged: bool = False
