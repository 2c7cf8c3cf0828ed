"""Limits at the door: how big a body may be and how often one caller may ask."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import ClassVar, Final

from starlette.requests import Request

from tenuto.errors import LimitReached, TooLarge

_CALLERS: Final = 10_000


class RateLimited(LimitReached):
    """The caller asked more often than the setting allows."""

    code: ClassVar[str] = "rate_limited"

    def __init__(self, per_minute: int, retry_after: timedelta, what: str = "requests") -> None:
        super().__init__(f"more than {per_minute} {what} per minute")
        self.retry_after = retry_after


class RateLimiter:
    """A bucket per caller: it holds a minute's worth of requests (or of `what` else) and fills again evenly."""

    def __init__(self, per_minute: int, *, what: str = "requests", now: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._what = what
        self._per_second = per_minute / 60
        self._now = now
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def acquire(self, caller: Hashable) -> None:
        """Count one request.

        Raises:
            RateReached: the caller's bucket is empty.
        """
        if not self._per_minute:
            return
        now = self._now()
        left, seen = self._buckets.pop(caller, (float(self._per_minute), now))
        left = min(self._per_minute, left + (now - seen) * self._per_second)
        self._buckets[caller] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _CALLERS:
            # Whoever was quiet the longest has a full bucket or the nearest to one: forgetting it gives least away.
            self._buckets.popitem(last=False)
        if left < 1:
            raise RateLimited(self._per_minute, timedelta(seconds=(1 - left) / self._per_second), self._what)


async def read_body(request: Request, limit: int) -> bytes:
    """The request's body, counted while it comes in: what its header says about it is a hint and no more.

    Raises:
        TooLarge: it is bigger than `limit`.
    """
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:20]) > limit:
        raise TooLarge("request", limit)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise TooLarge("request", limit)
        pieces.append(piece)
    return b"".join(pieces)
