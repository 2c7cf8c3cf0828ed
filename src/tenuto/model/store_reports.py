"""What a store reports: sessions that changed, and how durable its server keeps what it acknowledged."""

from __future__ import annotations

from tenuto.model.values import Value


class Invalidation(Value, frozen=True, kw_only=True):
    """Sessions that changed, by `session_key`.

    `removed` is true where something that was said is not to be shown any more: deleted, reset, cut off, rewritten,
    evicted, erased. `local` says whether the change came through the object that tells; `None` where it cannot tell.
    `mixed` says that changes of several writers may be told as one.
    """

    keys: tuple[bytes, ...]
    removed: bool = False
    local: bool | None = None
    mixed: bool = False


class DurabilityFinding(Value, frozen=True, kw_only=True):
    """One thing that a server says about how it keeps data.

    Without `advice` all is as it should be. `loses_acknowledged` tells that it takes away what was acknowledged while
    it runs, not only when it dies.
    """

    name: str
    message: str
    advice: str | None = None
    loses_acknowledged: bool = False
