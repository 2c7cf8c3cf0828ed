"""What a store reports: sessions that changed, and how durable its server keeps what it acknowledged."""

from __future__ import annotations

from tenuto.model.values import Value


class Invalidation(Value, frozen=True, kw_only=True):
    """Sessions that changed, by `session_key`.

    `taken_away` is true where something that was said is not to be shown any more: deleted, reset, cut off, rewritten,
    evicted, erased. `ours` says whether the change came through the object that tells; `None` where it cannot tell.
    """

    keys: tuple[bytes, ...]
    taken_away: bool = False
    ours: bool | None = None


class DurabilityFinding(Value, frozen=True, kw_only=True):
    """One thing that a server says about how it keeps data.

    Without `advice` all is as it should be. `loses` tells that it takes away what was acknowledged while it runs, not
    only when it dies.
    """

    about: str
    says: str
    advice: str | None = None
    loses: bool = False
