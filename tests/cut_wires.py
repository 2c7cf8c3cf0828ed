"""A way to a store that a test can cut."""

from __future__ import annotations

from enum import Enum
from typing import Any

from tenuto.errors import StoreUnavailable
from tests.doubles import OwnPorts, port_with


class Fate(Enum):
    """What becomes of a call: refused, or carried out but unanswered."""

    REFUSED = "refused"
    UNANSWERED = "unanswered"


class Wire(OwnPorts):
    """The way to a store: it can be cut, and one call of those to come can have a fate of its own."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.cut = False
        self.calls: list[str] = []
        self._fates: dict[int, Fate] = {}

    def strike(self, at: int, fate: Fate) -> None:
        """The call that is `at` calls away, 0 for the next one."""
        self._fates[len(self.calls) + at] = fate

    @property
    def traces(self) -> Any:
        return self.store.traces

    def __getattr__(self, name: str) -> Any:
        step = getattr(port_with(self.store, name), name)

        async def call(*args: Any, **rest: Any) -> Any:
            fate = self._fates.pop(len(self.calls), None)
            self.calls.append(name)
            if self.cut or fate is Fate.REFUSED:
                raise StoreUnavailable
            answer = await step(*args, **rest)
            if fate is Fate.UNANSWERED:
                raise StoreUnavailable
            return answer

        return call
