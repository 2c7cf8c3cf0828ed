"""What a store tells of sessions that changed."""

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
