"""The profile of each user, which outlives sessions and tasks (E24). It is erased with the user."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from tenuto.errors import VersionConflict
from tenuto.model import Scope
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
        return (await self._read(scope))[0] if _is_one_user(scope) else {}

    async def update(self, scope: Scope, told: JsonObject) -> JsonObject:
        """Add to the profile and return it; a field that is null is removed. One above 16 KiB stays as it is."""
        if not _is_one_user(scope):
            return {}
        while True:
            known, version = await self._read(scope)
            profile = {name: value for name, value in {**known, **told}.items() if value is not None}
            if profile == known:
                return known
            if len(msgspec.json.encode(profile)) > _MOST_BYTES:
                _log.warning("a profile above %s bytes is not stored", _MOST_BYTES)
                return known
            try:
                entry = await self._state.write_state(scope, _NAMESPACE, _KEY, profile, if_version=version)
            except VersionConflict:
                continue
            return entry.value if isinstance(entry.value, dict) else {}

    async def _read(self, scope: Scope) -> tuple[JsonObject, int]:
        entry = await self._state.read_state(scope, _NAMESPACE, _KEY)
        if entry is None:
            return {}, 0
        return entry.value if isinstance(entry.value, dict) else {}, entry.version


def _is_one_user(scope: Scope) -> bool:
    return scope.user is not None and scope.chat is None
