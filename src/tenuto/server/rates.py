"""How often a caller may ask: counted by each process, and told to the others through the store in small batches.

A process lets a twentieth of a minute's worth pass before it tells the store, which answers with what is left for all.
So each process lets at most that much pass beyond the limit, and a caller costs twenty writes a minute at most, however
often it asks. While the store is away each process counts for itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from heapq import nsmallest
from typing import ClassVar, Final

import msgspec

from tenuto.compare_and_set import update_state
from tenuto.errors import LimitReached, TenutoError
from tenuto.lru_cache import LruCache
from tenuto.model import StateEntry
from tenuto.model.scope import SYSTEM
from tenuto.model.values import JsonObject
from tenuto.ports import Clock, StateStore

_log = logging.getLogger(__name__)
_MINUTE: Final = 60.0
_RATES: Final = "rates"
_REMEMBERED: Final = 10_000
# Of a minute's worth: what a process lets pass before it tells the others.
_BATCH: Final = 1 / 20
# What processes let pass beyond the limit is waited for, but no longer than this part of a minute.
_MOST_DEBT: Final = 1 / 4
# Values that callers are spread over, and callers in one; those with most left go first.
_SHARDS: Final = 16
_MOST_CALLERS: Final = 1000
_STORE_SECONDS: Final = 1.0
# How long the store is not asked after it failed: its breaker may be closed, and each caller would wait.
_ASK_AGAIN_AFTER: Final = 5.0


class RateLimited(LimitReached):
    """The caller asked more often than the setting allows."""

    code: ClassVar[str] = "rate_limited"

    def __init__(self, per_minute: int, retry_after: timedelta, what: str = "requests") -> None:
        super().__init__(f"more than {per_minute} {what} per minute")
        self.retry_after = retry_after


class _Bucket(msgspec.Struct):
    """What is left of a minute's worth, at a time: of the installation in the store, in a process as it knows it."""

    left: float
    at: float

    def refill(self, per_minute: int, now: float) -> None:
        """Clocks of machines differ: one that is behind refills nothing, and one far behind begins anew."""
        if self.at > now + _MINUTE:
            self.at = now
        self.left = min(per_minute, self.left + max(0.0, now - self.at) * per_minute / _MINUTE)
        self.at = max(self.at, now)


@dataclass(slots=True)
class _Draw:
    """What a process let pass for a caller, and what it asks for now; then whether it may, and what is left for all."""

    key: str
    passed: float
    asked: int
    granted: bool = False
    left: float = 0.0
    done: bool = False


@dataclass(slots=True)
class _Shard:
    """A value of the state, and the draws that wait for the write before them."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Draw] = field(default_factory=list)


class SharedRates:
    """The buckets of all processes of an installation, as a few values of the store's state."""

    def __init__(self, *, state: StateStore, clock: Clock, ticks: Callable[[], float]) -> None:
        self._state = state
        self._clock = clock
        self._ticks = ticks
        self._shards: dict[str, _Shard] = {}
        self._away_until: float | None = None

    async def draw(self, what: str, per_minute: int, draw: _Draw) -> bool:
        """Fill in the rest of a draw; false where the store is away."""
        name = f"{what}/{int(draw.key[:2], 16) % _SHARDS}"
        shard = self._shards.setdefault(name, _Shard())
        shard.waiting.append(draw)
        try:
            # One write at a time carries what came during the one before it.
            async with shard.lock:
                if not draw.done and not self._is_away():
                    await self._settle(name, per_minute, tuple(shard.waiting))
                return draw.done
        finally:
            shard.waiting.remove(draw)

    async def _settle(self, name: str, per_minute: int, draws: tuple[_Draw, ...]) -> None:
        draws = tuple(draw for draw in draws if not draw.done)
        now = self._clock().timestamp()

        def change(buckets: dict[str, _Bucket]) -> JsonObject:
            return _apply(buckets, draws, per_minute, now)

        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await update_state(self._state, SYSTEM, _RATES, name, _decode, change)
        except (TenutoError, TimeoutError):
            if self._away_until is None:
                _log.warning("rates are counted by this process alone: the store does not take them")
            self._away_until = self._ticks() + _ASK_AGAIN_AFTER
            return
        if self._away_until is not None:
            _log.info("rates are those of all processes again")
        self._away_until = None
        for draw in draws:
            draw.done = True

    def _is_away(self) -> bool:
        return self._away_until is not None and self._ticks() < self._away_until


class RateLimiter:
    """A token bucket per caller: it holds the requests (or `what` else) of a minute and refills evenly.

    With `shared`, it is one of all processes; a process that did not meet a caller for a minute begins with a full one.
    """

    def __init__(
        self,
        per_minute: int,
        *,
        what: str = "requests",
        now: Callable[[], float] = time.monotonic,
        shared: SharedRates | None = None,
    ) -> None:
        self._per_minute = per_minute
        self._what = what
        self._now = now
        self._shared = shared
        self._batch = max(1.0, per_minute * _BATCH)
        self._buckets = LruCache[Hashable, _LocalBucket](_REMEMBERED)

    async def acquire(self, caller: Hashable, count: int = 1) -> None:
        """Count one request, or so many of `what` is limited.

        Raises:
            RateLimited: the caller's bucket holds less.
        """
        if not self._per_minute:
            return
        now = self._now()
        bucket = self._buckets.get(caller)
        if bucket is None or now - bucket.at >= _MINUTE:
            bucket = _LocalBucket(left=self._per_minute, at=now, lock=asyncio.Lock())
        # The caller idle for longest has the fullest bucket, so dropping it loses least.
        self._buckets.put(caller, bucket)
        async with bucket.lock:
            bucket.refill(self._per_minute, now)
            granted = bucket.left >= count
            if granted and self._shared is not None and bucket.untold + count >= self._batch:
                granted = await self._draw(self._shared, caller, bucket, count)
            elif granted:
                bucket.left -= count
                bucket.untold += count
            if not granted:
                wait = (count - bucket.left) * _MINUTE / self._per_minute
                raise RateLimited(self._per_minute, timedelta(seconds=wait), self._what)

    async def _draw(self, shared: SharedRates, caller: Hashable, bucket: _LocalBucket, count: int) -> bool:
        # A digest, since callers are named by their ids and addresses.
        key = blake2b(repr(caller).encode(errors="surrogatepass"), digest_size=9).hexdigest()
        draw = _Draw(key, bucket.untold, count)
        if await shared.draw(self._what, self._per_minute, draw):
            bucket.left, bucket.untold = draw.left, 0.0
            return draw.granted
        bucket.left -= count
        # What is told late is told once the store is back, as far as it can still matter.
        bucket.untold = min(bucket.untold + count, self._per_minute)
        return True


class _LocalBucket(_Bucket):
    """What a process knows of a bucket, and what it let pass and did not tell the store."""

    lock: asyncio.Lock
    untold: float = 0.0


def _apply(buckets: dict[str, _Bucket], draws: tuple[_Draw, ...], per_minute: int, now: float) -> JsonObject:
    """The buckets after these draws. One that is full tells nothing, and goes."""
    for bucket in buckets.values():
        bucket.refill(per_minute, now)
    for draw in draws:
        bucket = buckets.setdefault(draw.key, _Bucket(float(per_minute), now))
        bucket.left = max(bucket.left - draw.passed, -per_minute * _MOST_DEBT)
        draw.granted = bucket.left >= draw.asked
        if draw.granted:
            bucket.left -= draw.asked
        draw.left = bucket.left
    used = {key: bucket for key, bucket in buckets.items() if bucket.left < per_minute}
    if len(used) > _MOST_CALLERS:
        used = dict(nsmallest(_MOST_CALLERS, used.items(), key=lambda one: one[1].left))
    return {key: [round(bucket.left, 3), round(bucket.at, 3)] for key, bucket in used.items()}


def _decode(entry: StateEntry | None) -> dict[str, _Bucket]:
    """What cannot be read counts as full."""
    try:
        stored: Mapping[str, tuple[float, float]] = msgspec.convert(
            entry.value if entry is not None else {}, dict[str, tuple[float, float]]
        )
    except msgspec.ValidationError:
        return {}
    return {key: _Bucket(left, at) for key, (left, at) in stored.items()}
