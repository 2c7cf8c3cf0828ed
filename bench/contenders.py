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
BARE: Final = "tenuto's store alone"
ASK: Final = "tenuto ask"
IMPORTED: Final = "tenuto ask, imported history"
FORGETFUL: Final = "tenuto ask, memories off"
ENGINE: Final = "the engine"
DOOR: Final = "tenuto.open over it"


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
    about: str = ""
    reference: bool = False
    """Shown for comparison; no target speaks of it."""
    fresh: bool = False
    """Its sessions are made anew before each slice, since a few turns change what is measured."""

    @property
    def key(self) -> str:
        """The name on the worker's command line and in results."""
        return f"{self.backend}: {self.name}"


def _main(backend: Backend, side: Side, name: str, factory: str, about: str = "") -> Entry:
    return Entry(name=name, backend=backend, side=side, factory=factory, about=about)


def _variant(
    backend: Backend, name: str, factory: str, about: str, *, side: Side = "raw", reference: bool = True
) -> Entry:
    """A raw way beside the main one, or our store alone, looked at where the ratios are taken."""
    return Entry(
        name=name,
        backend=backend,
        side=side,
        factory=factory,
        lengths=(LENGTH_OF_RATIOS,),
        operations=("cycle",),
        about=about,
        reference=reference,
    )


def _peer(backend: Backend, name: str, factory: str, *, lengths: tuple[int, ...], about: str = "") -> Entry:
    return Entry(name=name, backend=backend, side="peer", factory=factory, lengths=lengths, about=about)


def _bare(backend: Backend) -> Entry:
    return _variant(backend, BARE, "bench.ours:open_bare", "begin_turn and finish_turn of the backend", side="store")


def _asks(backend: Backend) -> tuple[Entry, ...]:
    asked = Entry(name=ASK, backend=backend, side="ours", factory="bench.ours:open_asking", operations=("ask",))
    imported = replace(asked, name=IMPORTED, factory="bench.ours:open_asking_imported", lengths=_SHORT, fresh=True)
    # What other projects do in a turn: they have no memory of users beyond the session.
    forgetful = replace(
        asked, name=FORGETFUL, factory="bench.ours:open_asking_forgetful", lengths=(LENGTH_OF_RATIOS, LENGTH_OF_ASKS)
    )
    return (asked, imported, forgetful) if backend == "sqlite" else (asked, imported)


def _peer_asks(name: str, factory: str) -> Entry:
    lengths = (LENGTH_OF_RATIOS, LENGTH_OF_ASKS)
    return replace(_peer("sqlite", name, factory, lengths=lengths), operations=("ask",))


_BOTH: Final = (LENGTH_OF_RATIOS, LONG_HISTORY)
_SHORT: Final = (LENGTH_OF_RATIOS,)

ENTRIES: Final[tuple[Entry, ...]] = (
    _main("sqlite", "ours", "tenuto", "bench.ours:open_ours"),
    _bare("sqlite"),
    _main(
        "sqlite",
        "raw",
        "raw group commit",
        "bench.raw.sqlite:open_group",
        "one writer thread that commits what has queued up, synchronous=FULL",
    ),
    _variant("sqlite", "raw group commit, bytes", "bench.raw.sqlite:open_group_of_bytes", "the same without JSON"),
    _variant("sqlite", "raw, one fsync each", "bench.raw.sqlite:open_each", "every statement committed on its own"),
    _peer("sqlite", "openai-agents SQLiteSession", "bench.peers.openai_agents:open_sqlite", lengths=_BOTH),
    _peer("sqlite", "openai-agents SQLAlchemySession", "bench.peers.openai_agents:open_sqlalchemy", lengths=_BOTH),
    _peer("sqlite", "langgraph AsyncSqliteSaver", "bench.peers.langgraph:open_sqlite", lengths=_BOTH),
    _peer("sqlite", "google-adk DatabaseSessionService", "bench.peers.google_adk:open_service", lengths=_SHORT),
    _main("redis", "ours", "tenuto", "bench.ours:open_ours"),
    _bare("redis"),
    _main(
        "redis",
        "raw",
        "raw redis-py pool, script",
        "bench.raw.redis:open_script",
        "redis-py asyncio and its connection pool: LRANGE, then one script call for each message",
    ),
    _variant("redis", "raw redis-py pool, script, bytes", "bench.raw.redis:open_script_of_bytes", "without JSON"),
    _variant(
        "redis",
        "raw redis-py pool, MULTI",
        "bench.raw.redis:open_multi",
        "LRANGE, then one pipelined MULTI for each message",
        reference=False,
    ),
    _variant(
        "redis",
        "raw redis-py pool, load inside script",
        "bench.raw.redis:open_script_and_load",
        "two script calls, the first of which loads as well",
    ),
    _peer("redis", "openai-agents RedisSession", "bench.peers.openai_agents:open_redis", lengths=_BOTH),
    _main("postgres", "ours", "tenuto", "bench.ours:open_ours"),
    _bare("postgres"),
    _main(
        "postgres",
        "raw",
        "raw asyncpg pool",
        "bench.raw.postgres:open_pool",
        "select, insert, insert, each committed, over asyncpg's pool of ten",
    ),
    _variant("postgres", "raw asyncpg pool, bytes", "bench.raw.postgres:open_pool_of_bytes", "without JSON"),
    _peer("postgres", "openai-agents SQLAlchemySession", "bench.peers.openai_agents:open_sqlalchemy", lengths=_BOTH),
    _peer("postgres", "langgraph AsyncPostgresSaver", "bench.peers.langgraph:open_postgres", lengths=_BOTH),
    _peer("postgres", "google-adk DatabaseSessionService", "bench.peers.google_adk:open_service", lengths=_SHORT),
)


def _engine(
    name: str, factory: str, *, backend: Backend = "sqlite", side: Side = "store", what: Operation = "cycle"
) -> Entry:
    return replace(_variant(backend, name, factory, "", side=side), operations=(what,))


def _engines(situation: str, *names: tuple[str, str]) -> tuple[Entry, ...]:
    """On every backend; the first is the one that the others are compared with, and the second is at the door."""
    what: Operation = "append" if situation == "hot" else "cycle"
    return tuple(
        _engine(f"{name}, {situation}", f"bench.{factory}", backend=backend, what=what)
        for backend in BACKENDS
        for name, factory in names
    )


_RAW: Final = {
    "sqlite": "raw.sqlite:open_group",
    "redis": "raw.redis:open_multiplexed",
    "postgres": "raw.postgres:open_pool",
}
_AGENTS: Final = {"sqlite": "open_sqlite", "redis": "open_redis", "postgres": "open_sqlalchemy"}
# By situation.
ENGINES: Final[dict[str, tuple[Entry, ...]]] = {
    "warm": (
        *_engines(
            "warm",
            (ENGINE, "engine:open_engine"),
            (DOOR, "engine:open_door"),
            ("today's store", "ours:open_bare"),
            ("tenuto.open today", "ours:open_unsummarized"),
            ("the engine without keys", "engine:open_unkeyed"),
            ("today's store without keys", "engine:open_unkeyed_today"),
        ),
        *(_engine("raw, warm", f"bench.{_RAW[backend]}", backend=backend, side="raw") for backend in BACKENDS),
        *(
            _engine(
                "openai-agents, warm", f"bench.peers.openai_agents:{_AGENTS[backend]}", backend=backend, side="peer"
            )
            for backend in BACKENDS
        ),
    ),
    "cold": (
        *_engines("cold", (ENGINE, "engine:open_engine_cold"), (DOOR, "engine:open_door_cold")),
        _engine("today's store, cold", "bench.engine:open_today_cold"),
    ),
    "sealed": _engines("sealed", (DOOR, "engine:open_door_sealed"), ("tenuto.open today", "engine:open_sealed_today")),
    "hot": _engines(
        "hot",
        (ENGINE, "engine:open_engine"),
        (DOOR, "engine:open_door"),
        ("today's store", "ours:open_bare"),
        ("tenuto.open today", "ours:open_unsummarized"),
    ),
}
ASKERS: Final[tuple[Entry, ...]] = (
    *(entry for backend in BACKENDS for entry in _asks(backend)),
    _peer_asks("openai-agents Runner, SQLiteSession", "bench.peers.openai_agents:open_runner"),
    _peer_asks("langgraph graph, AsyncSqliteSaver", "bench.peers.langgraph:open_graph"),
)


def entries(backend: Backend, *, peers: bool, asking: bool = False) -> Sequence[Entry]:
    """The contenders on a backend, ours first: those that store turns, or those that take whole ones."""
    of_all = ASKERS if asking else ENTRIES
    return [entry for entry in of_all if entry.backend == backend and (peers or entry.side != "peer")]


def engine_entries(backend: Backend, situation: str, *, peers: bool) -> Sequence[Entry]:
    """Those who show what the engine is worth in a situation."""
    return [entry for entry in ENGINES[situation] if entry.backend == backend and (peers or entry.side != "peer")]


def entry(key: str) -> Entry:
    """The one with this key."""
    engines = (entry for group in ENGINES.values() for entry in group)
    return next(entry for entry in (*ENTRIES, *ASKERS, *engines) if entry.key == key)


async def open_contender(key: str, url: str) -> Contender:
    """Import and open one, in the process that will be measured."""
    module, _, factory = entry(key).factory.partition(":")
    return cast(Contender, await getattr(import_module(module), factory)(url))
