"""Ids: fresh ones, ids derived from facts, and the fingerprint that an idempotency key stands for."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import Final

import msgspec

from tenuto.model import Draft, IdempotencyKey, Scope
from tenuto.model.message import check_drafts

# The digit of a UUID that holds its variant: two bits are fixed, two are free.
_VARIANTS: Final = "89ab" * 4


def fresh_id() -> str:
    """A UUID of version 7: unguessable, unique, in order of time (A23)."""
    # Formatted here: building a `UUID` takes longer than the rest.
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


def session_id_for_name(scope: Scope, name: str | None) -> str:
    """The id that owner and name lead to: an idempotency key, so that a retry gets the same session, or another user's
    session id. Without a name, a fresh id."""
    return derived_id("s-", scope.tenant, scope.site, *scope.owner, name) if name is not None else fresh_id()


def fingerprint(drafts: Sequence[Draft]) -> str:
    """A digest of the content that an idempotency key stands for, without ids and times."""
    check_drafts(drafts)
    return digest_of([(draft.role, draft.parts, draft.speaker, draft.extra) for draft in drafts])


def digest_of(value: object) -> str:
    """A digest of a value by its JSON."""
    return blake2b(msgspec.json.encode(value), digest_size=16).hexdigest()


def key_of_request(key: str, drafts: Sequence[Draft], given: str | None) -> IdempotencyKey:
    """The key of a request, with the fingerprint that its door gives it or its messages have."""
    return IdempotencyKey(key=key, fingerprint=given or fingerprint(drafts))
