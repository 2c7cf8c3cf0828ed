"""Who takes part, on which backend, at which lengths of history, and with which operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final, Literal, cast

from bench.workload import OPERATIONS, Contender, Operation

Backend = Literal["sqlite", "redis", "postgres"]
Side = Literal["ours", "store", "raw", "peer"]
BACKENDS: Final[tuple[Backend, ...]] = ("sqlite", "redis", "postgres")
LENGTH_OF_RATIOS: Final = 100
LENGTH_OF_ASKS: Final = 1000
LONG_HISTORY: Final = 5000
ASK: Final = "tenuto ask"
IMPORTED: Final = "tenuto ask, imported history"
FORGETFUL: Final = "tenuto ask, memories off"
# Each message is a new statement that is remembered: of dozens of users, of one, and found by words alone.
STATEMENTS: Final = {
    "tenuto ask, new facts": "open_stating",
    "tenuto ask, new facts, one user": "open_stating_alone",
    "tenuto ask, new facts, no encoder": "open_stating_by_words",
}
ENGINE: Final = "the engine"
DOOR: Final = "tenuto.open"
SEALED: Final = "tenuto.open, encrypted"
RAW: Final = "raw"
AGENTS: Final = "openai-agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One contender. `factory` names an async function `(url) -> Contender`; its module is imported in the worker."""

    name: str
    backend: Backend
    side: Side
    factory: str
    lengths: tuple[int, ...] | None = None
    """`None`: all that the plan has."""
    operations: tuple[Operation, ...] = OPERATIONS
    fresh: bool = False
    """Its sessions are made anew before each slice, since a few turns change what is measured."""

    @property
    def key(self) -> str:
        """The name on the worker's command line and in results."""
        return f"{self.backend}: {self.name}"


def _raw(backend: Backend, name: str, factory: str, *, lengths: tuple[int, ...] | None = None) -> Entry:
    """A bare driver; one way of using it is measured at all lengths."""
    return Entry(name=name, backend=backend, side="raw", factory=f"bench.raw.{backend}:{factory}", lengths=lengths)


def _peer(backend: Backend, name: str, factory: str, *, lengths: tuple[int, ...]) -> Entry:
    return Entry(name=name, backend=backend, side="peer", factory=f"bench.peers.{factory}", lengths=lengths)


def _asks(backend: Backend) -> tuple[Entry, ...]:
    asked = Entry(name=ASK, backend=backend, side="ours", factory="bench.ours:open_asking", operations=("ask",))
    imported = replace(asked, name=IMPORTED, factory="bench.ours:open_asking_imported", lengths=_SHORT, fresh=True)
    # What other projects do in a turn: they have no memory of users beyond the session.
    forgetful = replace(
        asked, name=FORGETFUL, factory="bench.ours:open_asking_forgetful", lengths=(LENGTH_OF_RATIOS, LENGTH_OF_ASKS)
    )
    stating = [
        replace(asked, name=name, factory=f"bench.ours:{factory}", lengths=_SHORT)
        for name, factory in STATEMENTS.items()
    ]
    return (asked, imported, forgetful, *stating) if backend == "sqlite" else (asked, imported)


def _peer_asks(name: str, factory: str) -> Entry:
    lengths = (LENGTH_OF_RATIOS, LENGTH_OF_ASKS)
    return replace(_peer("sqlite", name, factory, lengths=lengths), operations=("ask",))


_BOTH: Final = (LENGTH_OF_RATIOS, LONG_HISTORY)
_SHORT: Final = (LENGTH_OF_RATIOS,)

_OURS: Final = {
    backend: Entry(name="tenuto", backend=backend, side="ours", factory="bench.ours:open_ours") for backend in BACKENDS
}
ENTRIES: Final[tuple[Entry, ...]] = (
    _OURS["sqlite"],
    _raw("sqlite", "raw group commit", "open_group"),
    replace(_raw("sqlite", "raw, one fsync each", "open_each", lengths=_SHORT), operations=("cycle",)),
    _peer("sqlite", "openai-agents SQLiteSession", "openai_agents:open_sqlite", lengths=_BOTH),
    _peer("sqlite", "openai-agents SQLAlchemySession", "openai_agents:open_sqlalchemy", lengths=_BOTH),
    _peer("sqlite", "langgraph AsyncSqliteSaver", "langgraph:open_sqlite", lengths=_BOTH),
    _peer("sqlite", "google-adk DatabaseSessionService", "google_adk:open_service", lengths=_SHORT),
    _OURS["redis"],
    _raw("redis", "raw redis-py pool, script", "open_script"),
    replace(_raw("redis", "raw redis-py pool, MULTI", "open_multi", lengths=_SHORT), operations=("cycle",)),
    _peer("redis", "openai-agents RedisSession", "openai_agents:open_redis", lengths=_BOTH),
    _OURS["postgres"],
    _raw("postgres", "raw asyncpg pool", "open_pool"),
    _peer("postgres", "openai-agents SQLAlchemySession", "openai_agents:open_sqlalchemy", lengths=_BOTH),
    _peer("postgres", "langgraph AsyncPostgresSaver", "langgraph:open_postgres", lengths=_BOTH),
    _peer("postgres", "google-adk DatabaseSessionService", "google_adk:open_service", lengths=_SHORT),
)


_RAW: Final = {
    "sqlite": "raw.sqlite:open_group",
    "redis": "raw.redis:open_multiplexed",
    "postgres": "raw.postgres:open_pool",
}
_AGENTS: Final = {"sqlite": "open_sqlite", "redis": "open_redis", "postgres": "open_sqlalchemy"}
# By situation: the first two are compared with all others.
_SITUATIONS: Final[dict[str, tuple[tuple[Side, str, str], ...]]] = {
    "warm": (
        ("store", ENGINE, "ours:open_bare"),
        ("ours", DOOR, "ours:open_ours"),
        ("store", "the engine without keys", "ours:open_unkeyed"),
    ),
    "cold": (("store", ENGINE, "engine:open_engine_cold"), ("ours", DOOR, "engine:open_door_cold")),
    "sealed": (("ours", SEALED, "engine:open_door_sealed"), ("ours", DOOR, "ours:open_ours")),
    "hot": (("store", ENGINE, "ours:open_bare"), ("ours", DOOR, "ours:open_ours")),
}


def engine_entries(backend: Backend, situation: str, *, peers: bool) -> Sequence[Entry]:
    """Those who show what the engine costs in a situation; in sessions in use beside the driver and a peer."""
    who = list(_SITUATIONS[situation])
    if situation == "warm":
        who.append(("raw", RAW, _RAW[backend]))
        who += [("peer", AGENTS, f"peers.openai_agents:{_AGENTS[backend]}")] if peers else []
    what: Operation = "append" if situation == "hot" else "cycle"
    return [
        Entry(
            name=f"{name}, {situation}",
            backend=backend,
            side=side,
            factory=f"bench.{factory}",
            lengths=_SHORT,
            operations=(what,),
        )
        for side, name, factory in who
    ]


ASKERS: Final[tuple[Entry, ...]] = (
    *(entry for backend in BACKENDS for entry in _asks(backend)),
    _peer_asks("openai-agents Runner, SQLiteSession", "openai_agents:open_runner"),
    _peer_asks("langgraph graph, AsyncSqliteSaver", "langgraph:open_graph"),
)


def entries(backend: Backend, *, peers: bool, asking: bool = False) -> Sequence[Entry]:
    """The contenders on a backend, ours first: those that store turns, or those that take whole ones."""
    of_all = ASKERS if asking else ENTRIES
    return [entry for entry in of_all if entry.backend == backend and (peers or entry.side != "peer")]


def entry(key: str) -> Entry:
    """The one with this key."""
    engines = (
        entry
        for backend in BACKENDS
        for situation in _SITUATIONS
        for entry in engine_entries(backend, situation, peers=True)
    )
    return next(entry for entry in (*ENTRIES, *ASKERS, *engines) if entry.key == key)


async def open_contender(key: str, url: str) -> Contender:
    """Import and open one, in the process that will be measured."""
    module, _, factory = entry(key).factory.partition(":")
    return cast(Contender, await getattr(import_module(module), factory)(url))
