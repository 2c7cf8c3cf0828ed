"""Erasing a person: everything that is theirs, what they said elsewhere, and the bytes it left behind.

Sessions and state of the user go; in talks that belong to others (a group, the tenant) the user's own words are taken
out and the talk stays. That it was done is noted before the store is asked to clear deleted bytes, which may take long.
A turn that is running while its session goes is lost and stores nothing.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, Invalid, MasterKeyMissing
from tenuto.model import EraseResult, Scope
from tenuto.model.scope import site_scope, user_digest
from tenuto.ports import Clock, SessionStore
from tenuto.privacy.compliance.audit import Act, AuditLog
from tenuto.privacy.compliance.compaction import CompactionStatus, Compactor
from tenuto.privacy.compliance.iteration import iter_sessions
from tenuto.privacy.compliance.mentions import Mentions
from tenuto.privacy.compliance.receipts import Receipt, ReceiptSigner

_log = logging.getLogger(__name__)
_STEP: Final = 100
_UNOPENED: Final = "unopened"

# What else knows a person: removes it, and tells how many of what went.
Elsewhere: TypeAlias = Callable[[Scope], Awaitable[dict[str, int]]]
Erase: TypeAlias = Callable[[Scope, int], Awaitable[EraseResult]]


class UserEraser:
    """Removes people. `erase` is the sessions room's, so that listeners hear which sessions went."""

    def __init__(
        self,
        *,
        erase: Erase,
        sessions: SessionStore,
        audit: AuditLog,
        signer: ReceiptSigner,
        clock: Clock,
        spoken: Mentions,
        compactor: Compactor,
        elsewhere: tuple[Elsewhere, ...] = (),
    ) -> None:
        self._erase = erase
        self._sessions = sessions
        self._audit = audit
        self._signer = signer
        self._clock = clock
        self._spoken = spoken
        self._compactor = compactor
        self._elsewhere = elsewhere

    async def erase(self, scope: Scope, *, by: str) -> Receipt:
        """Remove everything of the scope's user on that site; done again it removes what came since.

        Deleted bytes are cleared if something went, now or by a later round of upkeep, as the receipt says.

        Raises:
            Invalid: the scope names no user, or more than that.
        """
        return [receipt async for receipt in self.steps(scope, by=by, patient=False)][-1]

    async def steps(self, scope: Scope, *, by: str, patient: bool = True) -> AsyncIterator[Receipt]:
        """As `erase`, telling after each step what went so far; the last receipt is signed.

        Who is `patient` has deleted bytes cleared in any case, and waits for it.
        """
        if scope.user is None or scope.chat is not None:
            raise Invalid("erasing takes a user, and no chat")
        # First what may fail: nothing is removed that no receipt could be given for.
        await self._signer.ready()
        counts: Counter[str] = Counter()
        receipt = Receipt(
            id=secrets.token_hex(16),
            tenant=scope.tenant,
            site=scope.site,
            person=user_digest(scope.tenant, scope.user),
            erased_at=self._clock(),
            counts={},
        )
        more = True
        while more:
            gone = await self._erase(scope, _STEP)
            counts.update(_result_counts(gone))
            more = gone.more
            yield replace(receipt, counts=dict(counts))
        async for went in self._erase_shared_messages(scope):
            counts.update(went)
            yield replace(receipt, counts=dict(counts))
        for elsewhere in self._elsewhere:
            counts.update(await elsewhere(scope))
        counts["orphans"] += await self._spoken.forget_orphans(scope)
        receipt = await self._signer.sign(replace(receipt, erased_at=self._clock(), counts=dict(counts)))
        about = {"receipt": receipt.id, "person": receipt.person, "counts": receipt.counts}
        await self._audit.note(scope, Act.ERASED, by=by, about=about)
        compacted, remains = await self._compact(counts, patient)
        yield await self._signer.sign(replace(receipt, compacted=compacted, remains=remains))

    async def _compact(self, counts: Counter[str], patient: bool) -> tuple[CompactionStatus, str]:
        if patient:
            return await self._compactor.now()
        went = any(many for what, many in counts.items() if what != _UNOPENED)
        if went:
            return await self._compactor.soon()
        # An earlier erasure's bytes may still wait for their turn.
        return CompactionStatus.LATER if await self._compactor.due() else CompactionStatus.NOTHING, ""

    async def _erase_shared_messages(self, scope: Scope) -> AsyncIterator[dict[str, int]]:
        """Take the user's words out of talks that belong to nobody, or to a chat; those that do not open are told."""
        everybody = site_scope(scope)
        async for session in iter_sessions(self._sessions, everybody):
            if session.scope.owner[:1] != ("user",):
                try:
                    yield await self._spoken.erase_user(everybody, session, scope.user or "")
                except MasterKeyMissing:
                    raise
                except DecryptionFailed as closed:
                    _log.warning("session %s was not looked into: %s", session.id, closed)
                    yield {_UNOPENED: 1}


def _result_counts(gone: EraseResult) -> dict[str, int]:
    return {
        "sessions": len(gone.gone),
        "messages": gone.messages,
        "traces": gone.traces,
        "states": gone.states,
        "quarantined": gone.quarantined,
        "values": gone.values,
        "journal": gone.journal,
    }
