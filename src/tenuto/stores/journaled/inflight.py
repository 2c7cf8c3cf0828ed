"""Our own calls on sessions: while one is under way, and for a moment after, news of its session are taken for its own.

A server may tell of a session once for several changes, and not whose they were: counting would take somebody else's
for ours sooner or later. So what somebody else says within that moment is not noticed, and our next call brings it to
light. What somebody takes away is told as such, and never taken for ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from tenuto.stores.journaled.seen_session import SeenSession

MOMENT: Final = 2.0
"""Seconds for which news may be behind an answer: what they take on a machine that stands still now and then."""


class Call:
    """One call: what was known `before` it was sent, and `since` how many losses of the feed its answer counts.

    It is `certain` when the answer is what the session is by now, as far as the feed tells.
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

    def mark_unchanged(self) -> None:
        """The store has said so, or it was not asked: there will be no news of it."""
        self.changing = False

    def overtaken(self) -> None:
        """Somebody else changed the session meanwhile: the answer may be older, and so is what was known before."""
        self.before, self.certain = None, False


@dataclass(slots=True)
class _SessionActivity:
    """What we do with one session: the calls under way, and until when news of those before may come."""

    under_way: list[Call] = field(default_factory=list)
    until: float = 0.0


class Calls:
    """The calls under way, and those of the last moment."""

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._lately: OrderedDict[bytes, _SessionActivity] = OrderedDict()

    def add(self, call: Call) -> None:
        """It is on its way."""
        lately = self._lately.get(call.key)
        if lately is None:
            lately = self._lately[call.key] = _SessionActivity()
        lately.under_way.append(call)

    def complete(self, call: Call) -> None:
        """It was answered, or given up."""
        lately, now = self._lately[call.key], self._ticks()
        lately.under_way.remove(call)
        if call.changing:
            lately.until = now + MOMENT
            self._lately.move_to_end(call.key)
        while self._lately and self._is_over(next(iter(self._lately.values())), now):
            self._lately.popitem(last=False)

    def explain(self, key: bytes) -> bool:
        """Whether news of a session may be of a change of ours."""
        lately = self._lately.get(key)
        if lately is None:
            return False
        return self._ticks() < lately.until or any(call.changing for call in lately.under_way)

    def overtake(self, key: bytes) -> None:
        """A session is not what calls under way will tell."""
        lately = self._lately.get(key)
        for call in lately.under_way if lately is not None else ():
            call.overtaken()

    def mark_all_outdated(self) -> None:
        """No session is."""
        for key in self._lately:
            self.overtake(key)

    def _is_over(self, lately: _SessionActivity, now: float) -> bool:
        return not lately.under_way and now >= lately.until
