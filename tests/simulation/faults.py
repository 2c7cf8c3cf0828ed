"""Faults: what goes wrong in a story, at a time or at an event."""

from __future__ import annotations

from contextvars import Context
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenuto.stores.engine.journal_rows import decode_row
from tests.simulation.hosts import Host
from tests.simulation.plan import FaultPlan
from tests.simulation.store import Fate, SimFeed

if TYPE_CHECKING:
    from tests.simulation.world import World


class Faults:
    """The faults of a plan, until the story is over."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._luck = world.stream("faults")
        self.outage_until = 0.0
        self._outage_fate = Fate.REFUSED

    @property
    def in_outage(self) -> bool:
        """Whether the store answers no process."""
        return self._world.loop.time() < self.outage_until

    def start(self) -> None:
        """Wait for the times of the faults."""
        for fault in self._world.plan.faults:
            if not fault.event:
                self._world.loop.call_later(fault.at, self.strike, fault)

    def fate(self, process: str, _kind: str) -> Fate:
        """What becomes of a call."""
        world = self._world
        if world.is_over:
            return Fate.FINE
        if self.in_outage or world.loop.time() < world.host_named(process).cut_until:
            return self._outage_fate
        roll = world.luck.random()
        for fate, rate in world.plan.rates.items():
            roll -= rate
            if roll < 0:
                return fate
        return Fate.FINE

    def on_event(self, kind: str, host: Host, times: int) -> None:
        """Something happened in a process: faults may be tied to it."""
        for fault in self._world.plan.faults:
            if (fault.event, fault.process, fault.nth) == (kind, host.number, times):
                self.strike(fault)

    def strike(self, fault: FaultPlan) -> None:
        """Let a fault begin."""
        world = self._world
        if world.is_over:
            return
        host, until = world.hosts[fault.process], world.loop.time() + fault.lasts
        world.tell(host.name, fault.kind)
        match fault.kind:
            case "outage":
                self.outage_until = until
                self._outage_fate = self._luck.choice((Fate.REFUSED, Fate.REQUEST_LOST))
                for one in world.hosts:
                    self._disconnect_feed(one, fault.lasts)
            case "cut":
                host.cut_until = until
            case "freeze" if host.process is not None:
                host.process.frozen_until = until
            case "clock":
                host.skew += timedelta(seconds=self._luck.choice((-30, -3, 3, 30)))
            case "deaf":
                self._disconnect_feed(host, fault.lasts)
            case "kill":
                # A callback of the process may be on the stack: it ends first.
                world.loop.call_later(0, host.kill, context=Context())
                world.loop.call_later(fault.lasts, self._restart, host, context=Context())
            case "full":
                world.folder.is_full = True
                world.loop.call_later(fault.lasts, self._free_disk, context=Context())
            case "torn":
                self._tear_row()

    def _disconnect_feed(self, host: Host, lasts: float) -> None:
        if host.client is not None:
            host.client.feed.disconnect()
            self._world.loop.call_later(lasts, self._reconnect_feed, host.client.feed, context=Context())

    def _reconnect_feed(self, feed: SimFeed) -> None:
        """A feed comes back when the store does."""
        if self.in_outage:
            self._world.loop.call_later(0.1, self._reconnect_feed, feed, context=Context())
        else:
            feed.reconnect()

    def _restart(self, host: Host) -> None:
        if host.process is None:
            self._world.tell(host.name, "started")
            host.start()

    def _free_disk(self) -> None:
        self._world.folder.is_full = False

    def _tear_row(self) -> None:
        """Damage the newest row of a session; its messages are lost, and the loss must be counted."""
        world = self._world
        fenced = [key for key in world.folder.order if key not in world.folder.locks]
        if not fenced:
            return
        key = self._luck.choice(fenced)
        session = world.folder.sessions[key]
        *before, row = session.rows
        if row.body.startswith(b"\0"):
            return
        torn = decode_row(key, row, world.codec)
        for draft in torn.command.messages:
            world.said[draft.id].torn = True
        if torn.creates:
            world.orphaned.add(torn.command.session_id)
        world.torn += 1
        world.folder.sessions[key] = replace(session, rows=(*before, replace(row, body=b"\0" + row.body)))
