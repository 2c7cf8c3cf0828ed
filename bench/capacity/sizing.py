"""What a number of sessions needs, calculated from the figures of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.capacity.sizes import PARTS
from bench.tables import Table
from tenuto.model.turn import TRACES_KEPT

_DAY: Final = 86_400
# Above this share of a processor or of a machine's memory there is no room for a peak, a fork or a failed neighbour.
_USED: Final = 0.6
_GB: Final = 1e9
PLANNED: Final = (1e6, 1e8, 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be stored and answered. Without `turns_per_second` all sessions are spread over `days`, and a peak is
    three times the mean."""

    sessions: float
    messages: float = 10
    message_bytes: float | None = None
    memories: float | None = None
    turns_per_second: float | None = None
    days: float = 30
    shard_gb: float = 32
    server_tb: float = 4
    server_cores: float = 16

    @property
    def turns(self) -> float:
        """Turns of a session."""
        return max(1.0, self.messages / 2)

    @property
    def peak(self) -> float:
        """Turns per second."""
        if self.turns_per_second is not None:
            return self.turns_per_second
        return 3 * self.sessions * self.turns / self.days / _DAY


@dataclass(frozen=True, slots=True)
class Need:
    """What one backend needs for a load: bytes, machines of the backend, processes of tenuto and their bytes."""

    backend: str
    stored: float
    by_size: int
    by_turns: int
    processes: int
    resident: float

    @property
    def servers(self) -> int:
        """Shards of Redis without their replicas, or servers."""
        return max(self.by_size, self.by_turns)


def session_bytes(measured: Mapping[str, Any], sample: Mapping[str, float], load: Load) -> float:
    """Bytes of one session with its messages, traces and memories."""
    each = _each_session(measured["stages"][-1])
    longer = 0 if load.message_bytes is None else load.message_bytes - sample["message_bytes"]
    # A trace has the question and the answer, too.
    message = each["messages"] / sample["messages"] + longer
    trace = each["traces"] / sample["traces"] + 2 * longer
    memories = 1.0 if load.memories is None else load.memories / sample["memories"]
    logs = load.messages * message + min(load.turns, TRACES_KEPT) * trace
    return each["sessions"] + each["rest"] + logs + each["state"] * memories


def _each_session(stage: Mapping[str, Any]) -> dict[str, float]:
    return {part: stage["bytes"].get(part, 0) / stage["sessions"] for part in PARTS}


def calculate(measured: Mapping[str, Any], sample: Mapping[str, float], load: Load) -> Need:
    """The first turn of a session meets a process that does not know it, the others one that does."""
    stored = load.sessions * session_bytes(measured, sample, load)
    first, later = measured["turns"]["unknown sessions"], measured["turns"]["known sessions"]

    def cores(name: str) -> float:
        turn: float = (first[name] + (load.turns - 1) * later[name]) / load.turns
        return load.peak * turn / 1e3 / _USED

    redis = measured["backend"] == "redis"
    room = load.shard_gb * _GB * _USED if redis else load.server_tb * 1e12
    processes = math.ceil(cores("server_cpu"))
    return Need(
        backend=measured["backend"],
        stored=stored,
        by_size=math.ceil(stored / room),
        by_turns=math.ceil(cores("backend_cpu") / (1 if redis else load.server_cores)),
        processes=max(1, processes),
        resident=max(1, processes) * max(first["resident"], later["resident"]),
    )


def plan_table(figures: Mapping[str, Any], load: Load) -> Table:
    """The needs of a load on each backend."""
    table = Table(
        f"{load.sessions:,.0f} sessions of {load.messages:g} messages, {load.peak:,.0f} turns per second",
        ("backend", "stored", "servers or shards", "by size", "by turns", "tenuto processes", "their memory"),
    )
    for measured in figures["backends"]:
        need = calculate(measured, figures["sample"], load)
        servers = "one file" if need.backend == "sqlite" else f"{need.servers:,}"
        limits = ("", "") if need.backend == "sqlite" else (f"{need.by_size:,}", f"{need.by_turns:,}")
        processes = f"{need.processes:,}"
        table.add(need.backend, scaled(need.stored), servers, *limits, processes, scaled(need.resident))
    return table


def page_tables(figures: Mapping[str, Any]) -> list[Table]:
    """The tables of docs/ideas/capacity.md."""
    return [*measured_tables(figures), *(plan_table(figures, Load(sessions=size)) for size in PLANNED)]


def measured_tables(figures: Mapping[str, Any]) -> list[Table]:
    """What was measured."""
    return [_bytes_table(figures), _reads_table(figures), _turns_table(figures)]


def _bytes_table(figures: Mapping[str, Any]) -> Table:
    table = Table("Bytes per session", ("backend", "store of", *PARTS, "in all", "a message more", "a trace more"))
    sample = figures["sample"]
    for measured in figures["backends"]:
        for stage in measured["stages"]:
            each = _each_session(stage)
            more = each["messages"] / sample["messages"], each["traces"] / sample["traces"]
            cells = (*each.values(), sum(each.values()), *more)
            table.add(measured["backend"], f"{stage['sessions']:,}", *(f"{cell:,.0f}" for cell in cells))
    return table


def _reads_table(figures: Mapping[str, Any]) -> Table:
    heads = [f"{one['backend']} {stage['sessions']:,}" for one in figures["backends"] for stage in one["stages"]]
    table = Table("Milliseconds of a read, p50 / p99 (processor time of the caller)", ("read", *heads))
    stages = [stage["reads"] for one in figures["backends"] for stage in one["stages"]]
    for name in stages[0]:
        found = [reads[name] for reads in stages]
        table.add(name, *("{} / {} ({})".format(*map(_short, (one["p50"], one["p99"], one["cpu"]))) for one in found))
    return table


def _turns_table(figures: Mapping[str, Any]) -> Table:
    costs = ("processor ms", "of the backend", "turns per second and core", "memory of the process")
    table = Table("Turns over HTTP, one process", ("backend", "sessions", *costs))
    for measured in figures["backends"]:
        for name, turns in measured["turns"].items():
            cpu = turns["server_cpu"], turns["backend_cpu"]
            cells = (f"{cpu[0]:.1f}", f"{cpu[1]:.2f}", f"{1e3 / cpu[0]:.0f}", scaled(turns["resident"]))
            table.add(measured["backend"], name.removesuffix(" sessions"), *cells)
    return table


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def scaled(size: float) -> str:
    """A number of bytes in the unit that fits."""
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size / 1e6:,.0f} MB"
