"""The port's errors for calls that failed."""

from __future__ import annotations

from tenuto.errors import StoreFull, StoreReadOnly, StoreUnavailable, Unavailable
from tenuto.stores.redis._resp import CallFailed, ResponseError

WHAT = "session store"


def port_error(exc: CallFailed) -> Exception:
    """The port's error for a failed call."""
    if not isinstance(exc, ResponseError):
        return StoreUnavailable(WHAT)
    match exc.code:
        case "WRONGTYPE":
            return Unavailable(WHAT, "holds a key of another type")
        case "OOM":
            return StoreFull()
        case "MISCONF" if exc.full:
            return StoreFull()
        # A replica; a primary that cannot write its files; one that has too few replicas to be allowed to.
        case "READONLY" | "MISCONF" | "NOREPLICAS":
            return StoreReadOnly()
        # It was not ready before the deadline of the call.
        case "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN":
            return StoreUnavailable(WHAT)
        case _:
            return Unavailable(WHAT)
