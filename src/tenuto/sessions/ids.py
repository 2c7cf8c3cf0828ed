"""Ids: fresh ones that sort by time, and derived ones that the same facts always lead to."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from typing import Final

from tenuto.model import Scope

# By which digit a UUID says its variant: two bits are fixed, two are free.
_VARIANTS: Final = "89ab" * 4


def fresh_id() -> str:
    """A UUID of version 7: unguessable, never given twice, in order of time (A23)."""
    # Written out here: a `UUID` on the way would take longer than all the rest.
    stamp, chance = f"{time.time_ns() // 1_000_000:012x}", os.urandom(10).hex()
    variant = _VARIANTS[int(chance[3], 16)]
    return f"{stamp[:8]}-{stamp[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[8:]}"


def derived_id(prefix: str, *facts: str) -> str:
    """`prefix` and 24 hex digits (96 bits) of a hash over the facts; ("a", "b") and ("ab",) differ."""
    digest = sha256()
    for fact in facts:
        raw = fact.encode()
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return prefix + digest.hexdigest()[:24]


def session_id_for_key(scope: Scope, key: str) -> str:
    """The session that a turn without a session id begins under an idempotency key: sent again, it is the same one."""
    return derived_id("s-", scope.tenant, scope.site, *scope.owner, key)
