"""Compare-and-set: a change is stored only over what it was decided on, and decided again if that has changed.

`update_state` is for a change that is a function of the stored value; `retry_on_conflict` for one that waits for
something in between, and for sessions. The conflict of an `if_version` that a caller brought is the caller's to see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from types import EllipsisType
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from tenuto.errors import Unavailable, VersionConflict
from tenuto.model import Scope, StateChange, StateEntry
from tenuto.pauses import Backoff
from tenuto.ports import StateStore

_T = TypeVar("_T")
_New = TypeVar("_New")
# Some seconds in all: hundreds of writers of one value get through.
_ATTEMPTS: Final = 32
_FIRST_PAUSE: Final = 0.004
_LONGEST_PAUSE: Final = 0.25


class Removal(Enum):
    """What a change returns to remove the value."""

    REMOVE = "remove"


REMOVE: Final = Removal.REMOVE
Entry: TypeAlias = StateEntry | None


class Update(NamedTuple, Generic[_T]):
    """What was stored before and after a change, and whether it changed anything."""

    before: _T
    after: _T
    changed: bool


async def update_state(
    state: StateStore,
    scope: Scope,
    namespace: str,
    key: str,
    decode: Callable[[Entry], _T],
    change: Callable[[_T], object | Removal | None],
) -> Update[_T]:
    """Change a value of the state, creating or removing it as `change` says; see `update`.

    `change` gets what `decode` makes of the stored entry, and what it returns is stored as JSON.
    """

    async def read() -> tuple[_T, int]:
        entry = await state.read_state(scope, namespace, key)
        return decode(entry), 0 if entry is None else entry.version

    async def write(before: tuple[_T, int], new: object | Removal) -> tuple[_T, int]:
        if new is REMOVE:
            await state.delete_state(scope, namespace, key, before[1])
            return decode(None), 0
        entry = await state.write_state(scope, namespace, key, msgspec.to_builtins(new), before[1])
        return decode(entry), entry.version

    made = await update(read, lambda before: change(before[0]), write)
    return Update(made.before[0], made.after[0], made.changed)


async def update_states(
    state: StateStore,
    scope: Scope,
    namespace: str,
    keys: Sequence[str],
    change: Callable[[Sequence[Entry]], Sequence[StateChange] | None],
    guess: Sequence[Entry] | EllipsisType = ...,
) -> None:
    """Change several values in one atomic step; see `update`. `change` gets the values in the order of their keys."""

    async def write(before: Sequence[Entry], changes: Sequence[StateChange]) -> Sequence[Entry]:
        await state.change_states(scope, namespace, changes)
        return before

    await update(lambda: state.read_states(scope, namespace, keys), change, write, guess)


async def update(
    read: Callable[[], Awaitable[_T]],
    change: Callable[[_T], _New | None],
    write: Callable[[_T, _New], Awaitable[_T]],
    guess: _T | EllipsisType = ...,
) -> Update[_T]:
    """Change what `read` returns; `write` stores it over the version that was read, or raises `VersionConflict`.

    `change` is pure. It is called with what is stored, again after each conflict, and returns `None` to leave that. If
    an answer of the store is lost, its own result may be what it is called with. What it raises ends the update. With
    a right `guess` of what is stored, nothing need be read.

    Raises:
        Unavailable: others have changed it before each of many attempts.
    """
    before = await read() if guess is ... else guess
    backoff = _backoff()
    while (new := change(before)) is not None:
        try:
            return Update(before, await write(before, new), changed=True)
        except VersionConflict:
            await _pause(backoff)
        before = await read()
    return Update(before, before, changed=False)


async def retry_on_conflict(attempt: Callable[[], Awaitable[_T]]) -> _T:
    """Run a step that reads, decides and writes what it has read, again after each conflict.

    Raises:
        Unavailable: as in `update`.
    """
    backoff = _backoff()
    while True:
        try:
            return await attempt()
        except VersionConflict:
            await _pause(backoff)


async def write_if_unchanged(write: Awaitable[_T]) -> _T | None:
    """The result of a write over the version that was read; `None`, without another attempt, if that is not stored."""
    try:
        return await write
    except VersionConflict:
        return None


def _backoff() -> Backoff:
    """Pauses wholly at random, so that writers that met do not meet again, and longer until there is room for all."""
    return Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=1)


async def _pause(backoff: Backoff) -> None:
    if backoff.failures == _ATTEMPTS - 1:
        raise Unavailable("record", "keeps being changed by other writers")
    await backoff.wait()
