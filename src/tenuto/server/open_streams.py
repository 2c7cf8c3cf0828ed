"""How many streams an owner has open: counted by each process, and told to the others in fours.

So each process holds at most three beyond the number, and an owner with few streams costs the store nothing.
What a killed process has told ends with the longest stream; while the store is away each process counts for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import timedelta
from secrets import token_hex
from typing import Final

import msgspec

from tenuto.compare_and_set import REMOVE, Removal, update_state
from tenuto.errors import LimitReached, TenutoError
from tenuto.model import StateEntry
from tenuto.model.scope import SYSTEM
from tenuto.ports import Clock, StateStore

_log = logging.getLogger(__name__)
_STREAMS: Final = "streams"
_BATCH: Final = 4
_STORE_SECONDS: Final = 1.0


class OpenStreams:
    """The streams of each owner, which last no longer than `lasts`. Without a `state` there are no other processes."""

    def __init__(self, *, lasts: timedelta, state: StateStore | None, clock: Clock) -> None:
        self._lasts = lasts.total_seconds()
        self._state = state
        self._clock = clock
        self._process = token_hex(6)
        self._here: Counter[bytes] = Counter()
        self._reported: Counter[bytes] = Counter()
        # At how many open streams the others learn of them next.
        self._reports_at: dict[bytes, int] = {}

    async def add(self, owner: bytes, most: int) -> None:
        """Count a stream.

        Raises:
            LimitReached: the owner has more than `most`.
        """
        refusal = LimitReached(f"{most} streams of events are already open")
        if self._here[owner] >= most:
            raise refusal
        self._here[owner] += 1
        try:
            if self._here[owner] < self._reports_at.get(owner, _BATCH):
                return
            if self._here[owner] + await self._report(owner) > most:
                self._reports_at[owner] = self._here[owner]
                raise refusal
        except BaseException:
            self._uncount(owner)
            raise

    async def remove(self, owner: bytes) -> None:
        """Count a stream no longer."""
        self._uncount(owner)
        reported, here = self._reported[owner], self._here[owner]
        if reported - here >= _BATCH or (reported and not here):
            await self._report(owner)
        if not self._here[owner]:
            for counts in (self._here, self._reported, self._reports_at):
                counts.pop(owner, None)

    def _uncount(self, owner: bytes) -> None:
        self._here[owner] -= 1

    async def _report(self, owner: bytes) -> int:
        """Tell how many are open here; returns how many others have open, 0 while the store is away."""
        if self._state is None:
            return 0
        now, here = self._clock().timestamp(), self._here[owner]
        others = 0

        def change(reported: dict[str, tuple[int, float]]) -> dict[str, tuple[int, float]] | Removal:
            nonlocal others
            living = {name: one for name, one in reported.items() if one[1] > now and name != self._process}
            others = sum(count for count, _ in living.values())
            if here:
                living[self._process] = (here, round(now + self._lasts))
            return living or REMOVE

        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await update_state(self._state, SYSTEM, _STREAMS, owner.hex(), _decode, change)
        except (TenutoError, TimeoutError):
            _log.warning("streams are counted by this process alone: the store does not take them")
            return 0
        self._reported[owner], self._reports_at[owner] = here, here + _BATCH
        return others


def _decode(entry: StateEntry | None) -> dict[str, tuple[int, float]]:
    try:
        return msgspec.convert(entry.value if entry is not None else {}, dict[str, tuple[int, float]])
    except msgspec.ValidationError:
        return {}
