"""How much is measured: the quick run to look, the full run to publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from bench.contenders import LENGTH_OF_ASKS, LENGTH_OF_RATIOS, LONG_HISTORY, Entry
from bench.workload import OPERATIONS, YOUNG, Operation

MANY: Final = 32
ASKING: Final = 16
# Turns in a session that is made anew for a slice.
_FRESH_TURNS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of one run. Times are in seconds."""

    name: str
    rounds: int
    slow_rounds: int
    """For what takes seconds a slice: peers that read and write a long history whole."""
    slice: float
    repeats: int
    """Slices in a round of what the ratios are made of: a single one scatters by half on a busy machine."""
    pools: Mapping[int, int]
    """Sessions for each length of history; more of the short ones, since each turn changes those most."""
    peer_sessions: int
    ask_pools: Mapping[int, int]
    """Sessions of whole turns, at least as many as take turns at once."""
    ask_slice: float
    known_sessions: int
    """How many sessions memory is measured with."""
    serve_slice: float
    fsync_cycles: int
    lookups: int
    hits: int
    starts: int
    peer_starts: int
    operations: tuple[Operation, ...] = OPERATIONS
    concurrencies: tuple[int, ...] = (1, MANY)
    grows_freely: bool = False
    """Slices end by time alone: where the length of a session matters little, few sessions are used again and again."""

    def for_asking(self) -> Plan:
        """The same for whole turns."""
        return replace(
            self, pools=self.ask_pools, slice=self.ask_slice, repeats=1, operations=("ask",), concurrencies=(ASKING,)
        )

    def for_slices_of(self, what: Operation, *, sessions: int, callers: int) -> Plan:
        """The same for one operation on a few sessions."""
        return replace(
            self,
            pools={LENGTH_OF_RATIOS: sessions},
            operations=(what,),
            concurrencies=(callers,),
            rounds=self.rounds * max(2, self.repeats),
            repeats=1,
            grows_freely=True,
        )

    def sessions(self, entry: Entry, history: int) -> int:
        """How many sessions of this length a contender keeps."""
        if entry.fresh:
            return ASKING
        return min(self.peer_sessions, self.pools[history]) if entry.side == "peer" else self.pools[history]

    def at_most(self, entry: Entry, history: int) -> int:
        """Operations in a slice, so that the sessions grow by half at most over the whole run."""
        if self.grows_freely:
            return 10**9
        if entry.fresh:
            return ASKING * _FRESH_TURNS
        once_more = self.repeats - 1 if history == LENGTH_OF_RATIOS else 0
        writing = [what for what in self.operations if what != "load"]
        writing_slices = (len(writing) * len(self.concurrencies) + once_more) * self.rounds
        return max(64, self.sessions(entry, history) * history // 4 // writing_slices)

    def times(self, history: int, what: Operation, at_once: int) -> int:
        """How many slices of this a round has."""
        ratios = (LENGTH_OF_RATIOS, "cycle", MANY)
        return self.repeats if (history, what, at_once) == ratios else 1

    def rounds_of(self, entry: Entry, history: int) -> int:
        """How often a slice of this kind is repeated."""
        return self.slow_rounds if entry.side == "peer" and history >= LONG_HISTORY else self.rounds


QUICK: Final = Plan(
    name="quick",
    rounds=3,
    slow_rounds=1,
    slice=0.15,
    repeats=1,
    pools={10: 512, LENGTH_OF_RATIOS: 256, 1000: 32},
    peer_sessions=64,
    ask_pools={YOUNG: 0, LENGTH_OF_RATIOS: 32, LENGTH_OF_ASKS: 16},
    ask_slice=1.0,
    known_sessions=500,
    serve_slice=2.0,
    fsync_cycles=2000,
    lookups=200,
    hits=2000,
    starts=3,
    peer_starts=1,
)

FULL: Final = Plan(
    name="full",
    rounds=5,
    slow_rounds=2,
    slice=0.4,
    repeats=3,
    pools={10: 4096, LENGTH_OF_RATIOS: 1024, 1000: 64, LONG_HISTORY: 32, 10_000: 32},
    peer_sessions=64,
    ask_pools={YOUNG: 0, LENGTH_OF_RATIOS: 64, LENGTH_OF_ASKS: 32, 10_000: 16},
    ask_slice=2.0,
    known_sessions=2000,
    serve_slice=5.0,
    fsync_cycles=5000,
    lookups=1000,
    hits=10_000,
    starts=5,
    peer_starts=3,
)
