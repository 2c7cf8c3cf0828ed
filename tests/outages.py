"""A store that goes away when a test says so, and a process with a journal in front of it that dies and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any, cast

from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.model import FinishTurn, OpenTurn, Page, Scope
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import Ciphers, Store
from tenuto.stores.cached import CachedStore
from tenuto.stores.journaled import JournaledStore, Outbox
from tests.clock import FakeClock
from tests.doubles import MemoryStore, OwnPorts, port_with
from tests.samples import begin, closing


class Killed(BaseException):
    """The process ends here."""


async def full_disk(*_: object) -> Any:
    """In the place of what the journal writes."""
    raise Unavailable("journal", "cannot be written")


class Fate(Enum):
    """What becomes of a call: refused, carried out but unanswered, or the end of the process before or after it."""

    REFUSED = "refused"
    UNANSWERED = "unanswered"
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"


class Wire(OwnPorts):
    """The way to a store: it can be cut, and one call of those to come can have a fate of its own."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.cut = False
        self.calls: list[str] = []
        self._fates: dict[int, Fate] = {}
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.tell: Callable[[list[bytes]], None] = lambda _: None

    def strike(self, at: int, fate: Fate) -> None:
        """The call that is `at` calls away, 0 for the next one."""
        self._fates[len(self.calls) + at] = fate

    def spare(self) -> None:
        """Whatever was planned, does not happen."""
        self._fates.clear()

    @property
    def traces(self) -> Any:
        return self.store.traces

    def __getattr__(self, name: str) -> Any:
        step = getattr(port_with(self.store, name), name)

        async def call(*args: Any, **rest: Any) -> Any:
            fate = self._fates.pop(len(self.calls), None)
            self.calls.append(name)
            if fate is Fate.KILLED_BEFORE:
                raise Killed
            if self.cut or fate is Fate.REFUSED:
                raise StoreUnavailable
            before = self._version(name, args)
            answer = await step(*args, **rest)
            if self._version(name, args) != before:
                self.tell([_key(name, args)])
            if fate is Fate.KILLED_AFTER:
                raise Killed
            if fate is Fate.UNANSWERED:
                if self.meanwhile is not None:
                    await self.meanwhile()
                raise StoreUnavailable
            return answer

        return call

    def _version(self, name: str, args: tuple[Any, ...]) -> int | None:
        """How often the session of a turn, or of a patch, was changed."""
        if not isinstance(self.store, MemoryStore) or name not in ("begin_turn", "finish_turn", "patch"):
            return None
        record = self.store.sessions.record(_key(name, args))
        return None if record is None else int(record.session.version)


def _key(name: str, args: tuple[Any, ...]) -> bytes:
    if name == "finish_turn":
        return session_key(args[0].scope, args[0].session.id)
    return session_key(args[0], args[1].session_id if name == "begin_turn" else args[1])
