"""Ids: fresh ones that sort by time, and derived ones that the same facts always lead to."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from typing import Final

from tenuto.model import Scope

# Where a UUID says which version and variant it is.
_MARKS: Final = 0x7 << 76 | 0x2 << 62
_WITHOUT_MARKS: Final = ~(0xF << 76 | 0x3 << 62)


def fresh_id() -> str:
    """A UUID of version 7: unguessable, never given twice, in order of time (A23)."""
    stamp = time.time_ns() // 1_000_000
    value = (stamp << 80) | int.from_bytes(os.urandom(10), "big")
    value = value & _WITHOUT_MARKS | _MARKS
    # Written out here: a `UUID` on the way would take longer than all the rest.
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def derived_id(prefix: str, *facts: str) -> str:
    """`prefix` and 24 hex digits (96 bits) of a hash over the facts; ("a", "b") and ("ab",) differ."""
    digest = sha256()
    for fact in facts:
        raw = fact.encode()
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return prefix + digest.hexdigest()[:24]


def id_for_key(scope: Scope, key: str) -> str:
    """The session that a turn without a session id begins under an idempotency key: sent again, it is the same one."""
    return derived_id("s-", scope.tenant, scope.site, *scope.owner, key)
