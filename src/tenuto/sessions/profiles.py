"""The profile of each user, which outlives sessions and tasks (E24). It is erased with the user."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from tenuto.compare_and_set import update_state
from tenuto.model import Scope, StateEntry
from tenuto.model.values import JsonObject
from tenuto.ports import StateStore

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "profile"
_KEY: Final = "profile"
_MOST_BYTES: Final = 16 * 1024


class Profiles:
    """Profiles of users. Members of a chat and callers without a user have none: it would be shown to others."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    async def read(self, scope: Scope) -> JsonObject:
        """The profile of the scope's user; empty if there is none."""
        return _to_profile(await self._state.read_state(scope, _NAMESPACE, _KEY)) if _is_one_user(scope) else {}

    async def update(self, scope: Scope, changes: JsonObject) -> JsonObject:
        """Add to the profile and return it; a field that is null is removed. One above 16 KiB stays as it is."""
        if not _is_one_user(scope):
            return {}

        def merge(known: JsonObject) -> JsonObject | None:
            profile = {name: value for name, value in {**known, **changes}.items() if value is not None}
            if profile == known:
                return None
            if len(msgspec.json.encode(profile)) > _MOST_BYTES:
                _log.warning("a profile above %s bytes is not stored", _MOST_BYTES)
                return None
            return profile

        return (await update_state(self._state, scope, _NAMESPACE, _KEY, _to_profile, merge)).after


def _to_profile(entry: StateEntry | None) -> JsonObject:
    return entry.value if entry is not None and isinstance(entry.value, dict) else {}


def _is_one_user(scope: Scope) -> bool:
    return scope.user is not None and scope.chat is None
