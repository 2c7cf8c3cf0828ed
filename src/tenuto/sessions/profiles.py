"""The profile of each user, which outlives sessions and tasks (E24). It is erased with the user."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from tenuto.compare_and_set import update_state
from tenuto.model import Scope, StateEntry
from tenuto.model.values import JsonObject
from tenuto.ports import OwnersOf, StateStore, owner_alone

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "profile"
_KEY: Final = "profile"
_MOST_BYTES: Final = 16 * 1024


class Profiles:
    """Profiles of users. Members of a chat and callers without a user have none: it would be shown to others.

    Each identity of a person keeps what was said of it; the profile is that of all of them, and of two values the one
    of the identity that is asked counts.
    """

    def __init__(self, state: StateStore, owners_of: OwnersOf = owner_alone) -> None:
        self._state = state
        self._owners_of = owners_of

    async def read(self, scope: Scope) -> JsonObject:
        """The profile of the scope's user; empty if there is none."""
        return await self._read_all(await self._owners_of(scope)) if _is_one_user(scope) else {}

    async def _read_all(self, owners: Sequence[Scope]) -> JsonObject:
        profile: JsonObject = {}
        for owner in reversed(owners):
            profile |= _to_profile(await self._state.read_state(owner, _NAMESPACE, _KEY))
        return profile

    async def update(self, scope: Scope, changes: JsonObject) -> JsonObject:
        """Add to the profile and return it; a field that is null is removed. One above 16 KiB stays as it is."""
        if not _is_one_user(scope):
            return {}
        owner, *others = await self._owners_of(scope)
        removals: JsonObject = {name: None for name, value in changes.items() if value is None}
        for other in others if removals else ():
            await self._update_owner(other, removals)
        profile = await self._update_owner(owner, changes)
        return {**await self._read_all(others), **profile} if others else profile

    async def _update_owner(self, owner: Scope, changes: JsonObject) -> JsonObject:
        def merge(known: JsonObject) -> JsonObject | None:
            profile = {name: value for name, value in {**known, **changes}.items() if value is not None}
            if profile == known:
                return None
            if len(msgspec.json.encode(profile)) > _MOST_BYTES:
                _log.warning("a profile above %s bytes is not stored", _MOST_BYTES)
                return None
            return profile

        return (await update_state(self._state, owner, _NAMESPACE, _KEY, _to_profile, merge)).after


def _to_profile(entry: StateEntry | None) -> JsonObject:
    return entry.value if entry is not None and isinstance(entry.value, dict) else {}


def _is_one_user(scope: Scope) -> bool:
    return scope.user is not None and scope.chat is None
