"""Checks the format of stored data when a store is opened.

Each session records its format. Only a few are read: data from before the first release is old as a whole. An old
session that is met later is refused and left as it is.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tenuto.errors import Unavailable
from tenuto.model.scope import SYSTEM, session_key, state_key
from tenuto.stores.codec import Undecodable
from tenuto.stores.redis._failures import WHAT
from tenuto.stores.redis._records import FORMAT, decode_identity
from tenuto.stores.redis._runner import OLDER, ScriptRunner

# The first state of an installation. Old names lack the digest of their drawer.
_API_KEYS: Final = "api-keys"


async def check_format(asking: ScriptRunner) -> None:
    """Check a few records.

    Raises:
        Unavailable: one was written before the first release.
    """
    looks = [_session_is_older(asking, part) for part in asking.keys.expiries]
    if any(await asyncio.gather(_state_is_older(asking), *looks)):
        raise Unavailable(WHAT, OLDER)


async def _state_is_older(asking: ScriptRunner) -> bool:
    _, names, _ = asking.keys.state(SYSTEM, _API_KEYS)
    drawer = state_key(SYSTEM, _API_KEYS)
    try:
        first = await asking.call("ZRANGE", names, 0, 0, key=names)
    except Undecodable:
        return False  # Reading it raises the error.
    return any(not name.startswith(drawer) for name in first)


async def _session_is_older(asking: ScriptRunner, part: bytes) -> bool:
    """Whether the session that expires first in a part of the expiry index is old."""
    try:
        for facts in await asking.call("ZRANGE", part, 0, 0, key=part):
            identity = decode_identity(facts)
            head = asking.keys.session(session_key(identity.scope, identity.session_id))[0]
            numbers = await asking.call("HGET", head, "s", key=head)
            return numbers is not None and 0 < int.from_bytes(numbers[:8], "big") < FORMAT
    except Undecodable:
        return False  # Reading it quarantines it.
    return False
