"""Our own calls on sessions: invalidations during a call, and for a moment after, are attributed to it.

A server may report several changes of a session at once, without their origin, so they cannot be counted. A change of
another process within that moment goes unnoticed until our next call. Removals are reported as such and never
attributed to our calls.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from tenuto.stores.journaled.seen_session import SeenSession

MOMENT: Final = 2.0
"""Seconds by which an invalidation may arrive after the answer, on a machine under load."""


class Call:
    """One call: the session as cached `before` it, and `since` how many losses of the feed it was sent.

    It is `certain` if the feed reports no later change than its answer.
    """

    __slots__ = ("_calls", "before", "certain", "changing", "key", "since")

    def __init__(
        self, calls: Calls, key: bytes, before: SeenSession | None, since: int, *, certain: bool, changing: bool
    ) -> None:
        self._calls = calls
        self.key = key
        self.before = before
        self.since = since
        self.certain = certain
        self.changing = changing

    def __enter__(self) -> Self:
        self._calls.add(self)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._calls.complete(self)


@dataclass(slots=True)
class _SessionActivity:
    """Our calls on one session: those under way, and until when invalidations of earlier ones may arrive."""

    under_way: list[Call] = field(default_factory=list)
    until: float = 0.0


class Calls:
    """The calls under way, and those of the last moment."""

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._lately: OrderedDict[bytes, _SessionActivity] = OrderedDict()

    def add(self, call: Call) -> None:
        """A call is about to be sent."""
        lately = self._lately.get(call.key)
        if lately is None:
            lately = self._lately[call.key] = _SessionActivity()
        lately.under_way.append(call)

    def complete(self, call: Call) -> None:
        """A call was answered or cancelled."""
        lately, now = self._lately[call.key], self._ticks()
        lately.under_way.remove(call)
        if call.changing:
            lately.until = now + MOMENT
            self._lately.move_to_end(call.key)
        while self._lately:
            oldest = next(iter(self._lately.values()))
            if oldest.under_way or now < oldest.until:
                break
            self._lately.popitem(last=False)

    def explain(self, key: bytes) -> bool:
        """Whether an invalidation may stem from our own change."""
        lately = self._lately.get(key)
        if lately is None:
            return False
        return self._ticks() < lately.until or any(call.changing for call in lately.under_way)

    def overtake(self, key: bytes) -> None:
        """The session changed: answers of calls under way may be older."""
        lately = self._lately.get(key)
        for call in lately.under_way if lately is not None else ():
            call.before, call.certain = None, False

    def mark_all_outdated(self) -> None:
        """Any session may have changed."""
        for key in self._lately:
            self.overtake(key)
