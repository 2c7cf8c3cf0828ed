"""How long to wait: before something that failed is tried again, until an exact moment, and for what falls silent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable
from datetime import timedelta
from typing import Final, TypeVar

_T = TypeVar("_T")

# 2.0 to the power of more is no number.
_MOST_DOUBLINGS: Final = 64
_ROUNDING_SECONDS: Final = 0.0011


class Backoff:
    """Pauses in seconds, from `first` on, each twice the one before it up to `longest`.

    Each is shortened at random by up to the share `jitter`, so that processes that failed together try apart.
    """

    def __init__(
        self,
        first: float,
        longest: float,
        *,
        jitter: float = 0.5,
        chance: Callable[[], float] = random.random,
        failures: int = 0,
    ) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._chance = chance
        self.failures = failures

    def next_pause(self) -> float:
        """The pause after one more failure."""
        pause = min(self._longest, self._first * 2.0 ** min(self.failures, _MOST_DOUBLINGS))
        self.failures += 1
        return pause * (1 - self._jitter * self._chance())

    async def wait(self) -> None:
        """Wait after one more failure."""
        await asyncio.sleep(self.next_pause())

    def reset(self) -> None:
        """It worked: the next pause is the first again."""
        self.failures = 0


async def pause_exactly_until(moment: float) -> None:
    """Wait until a moment of the event loop's clock, to the last microseconds.

    A sleep is rounded up to whole milliseconds, and how far would tell when it began.
    """
    loop = asyncio.get_running_loop()
    await asyncio.sleep(moment - loop.time() - _ROUNDING_SECONDS)
    while loop.time() < moment:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def until_silence(events: AsyncIterable[_T], most: timedelta) -> AsyncIterator[_T]:
    """The events, the first one whenever it comes; later ones are not waited for longer than that."""
    waiting = aiter(events)
    limit: float | None = None
    while True:
        try:
            async with asyncio.timeout(limit):
                event = await anext(waiting)
        except StopAsyncIteration:
            return
        yield event
        limit = most.total_seconds()
