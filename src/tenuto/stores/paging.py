"""Paging over many records: the order of state names and of sites, matching, and erasure in batches."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from tenuto.errors import Invalid
from tenuto.model import EraseResult, Scope, Session, SessionQuery, StateLocation
from tenuto.model.scope import owner_key, site_key, site_scope, state_key

_log = logging.getLogger(__name__)
BEHIND_ALL: Final = b"\xff" * 17
"""After every owner's key."""


class Stretch(NamedTuple):
    """The range of state locations after a place, up to and including the owner `last`."""

    owner: bytes
    drawer: bytes
    key: str
    last: bytes


def stretch(scope: Scope, after: StateLocation | None) -> Stretch:
    """The range of a scope after a location; the tenant itself reaches every owner."""
    first, last = (owner_key(scope), owner_key(scope)) if scope.owner else (b"", BEHIND_ALL)
    if after is None or owner_key(after.scope) < first:
        return Stretch(first, b"", "", last)
    return Stretch(owner_key(after.scope), state_key(after.scope, after.namespace), after.key, last)


def first_sites(scopes: Iterable[Scope], limit: int) -> tuple[Scope, ...]:
    """The first distinct sites, in order of `site_key`."""
    found = {site_key(scope): site_scope(scope) for scope in scopes}
    return tuple(found[key] for key in sorted(found)[: max(0, limit)])


def read_location(drawer: bytes, decode: Callable[[], tuple[Scope, str, str]]) -> StateLocation | None:
    """The location of a value in a drawer; `None` if it cannot be decoded, or is of another drawer."""
    try:
        scope, namespace, key = decode()
        if state_key(scope, namespace) == drawer:
            return StateLocation(scope=scope, namespace=namespace, key=key)
    except (ValueError, TypeError, msgspec.MsgspecError, Invalid):
        pass
    _log.warning("left out a state value whose name cannot be read")
    return None


def matches_query(session: Session, query: SessionQuery) -> bool:
    """Whether a session has the status and title of a query."""
    if query.status is not None and session.status is not query.status:
        return False
    return query.title is None or query.title.casefold() in session.title.casefold()


async def erase_in_batches(step: Callable[[int], Awaitable[EraseResult]], limit: int, stride: int) -> EraseResult:
    """Erase up to `limit` sessions, at most `stride` in one step; other calls run in between."""
    left, steps = max(0, limit), list[EraseResult]()
    while not steps or (steps[-1].more and left):
        size = min(stride, left)
        steps.append(await step(size))
        left -= size
    return EraseResult(
        removed_sessions=tuple(item for done in steps for item in done.removed_sessions),
        messages=sum(done.messages for done in steps),
        traces=sum(done.traces for done in steps),
        states=sum(done.states for done in steps),
        quarantined=sum(done.quarantined for done in steps),
        more=steps[-1].more,
    )
