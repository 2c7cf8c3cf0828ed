"""Erasing a person, as whichever user: sessions and state, messages in shared sessions, and the deleted bytes.

The user's API keys end first, so that no client writes behind the receipt; the caller's own key ends last, so that a
call that failed can be repeated. Sessions and state of the user are deleted; in sessions that belong to a chat or the
tenant only the user's messages are removed. The erasure is audited before the store compacts its files, which may take
long. A turn that runs while its session is deleted is lost and stores nothing.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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
_LIMITS: Final = (
    "in sessions of a group or the tenant, answers to other members, summaries and titles stay and may quote the user; "
    "turns that wait or are quarantined in the journal of another machine go when that reaches the store; "
    "files of replicas, archives and backups are not covered"
)
_UNREADABLE: Final = "unreadable"
KEYS_LEFT: Final = "api_keys_left"
"""How many keys of the user the receipt counts that still hold: the caller may not end them."""
_LEFT: Final = (_UNREADABLE, KEYS_LEFT)

# Removes a user's data elsewhere; returns counts of what was removed.
Elsewhere: TypeAlias = Callable[[Scope], Awaitable[dict[str, int]]]
Erase: TypeAlias = Callable[[Scope, int], Awaitable[EraseResult]]
# Ends the API keys of a user: of the scope's site only, members' only, and all but one, if so asked; returns counts.
EndKeys: TypeAlias = Callable[[Scope, bool, bool, str | None], Awaitable[dict[str, int]]]
# The users of the site who are the same person as the scope's, that one included.
Identities: TypeAlias = Callable[[Scope], Awaitable[tuple[str, ...]]]


async def user_alone(scope: Scope) -> tuple[str, ...]:
    """The identities of a user where none are linked."""
    return (scope.user or "",)


async def no_identities(scope: Scope) -> dict[str, int]:
    """What is removed of identities there."""
    return {}


class UserEraser:
    """Erases users. `erase` is that of the session service, which emits an event for each deleted session."""

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
        sites: Callable[[], AsyncIterator[Scope]],
        elsewhere: tuple[Elsewhere, ...] = (),
        end_keys: EndKeys | None = None,
        identities: Identities = user_alone,
        erase_identities: Elsewhere = no_identities,
    ) -> None:
        self._erase = erase
        self._sessions = sessions
        self._audit = audit
        self._signer = signer
        self._clock = clock
        self._spoken = spoken
        self._compactor = compactor
        self._sites = sites
        self._elsewhere = elsewhere
        self._end_keys = end_keys
        self._identities = identities
        self._erase_identities = erase_identities

    async def erase(
        self,
        scope: Scope,
        *,
        by: str,
        only_site: bool = False,
        member_keys_only: bool = False,
        own_key: str | None = None,
        on_keys_end: Callable[[], None] | None = None,
        patient: bool = True,
    ) -> AsyncIterator[Receipt]:
        """Remove everything of the scope's user on the tenant's sites; a second call removes what was added since.
        After each step comes a receipt of what was removed so far; the last one is signed.

        On each site that goes for all users who are linked there as the same person. The links themselves go last, so
        that a call that failed can be repeated.

        With `only_site` the other sites and their keys are left alone; the receipt names the sites that it covers. With
        `member_keys_only` so are keys with another role. The receipt counts the keys that still hold. `own_key` is the
        id of the caller's key; `on_keys_end` is called when the others have ended, before data is removed.

        If something was removed, deleted bytes are cleared now or by a later upkeep round, as the receipt says; a
        `patient` caller waits until they are.

        Raises:
            Invalid: the scope has no user, or also a chat.
        """
        if scope.user is None or scope.chat is not None:
            raise Invalid("erasing needs a user and no chat")
        # Load the signing key first: without it no receipt could be issued.
        await self._signer.ready()
        counts: Counter[str] = Counter()
        receipt = Receipt(
            id=secrets.token_hex(16),
            tenant=scope.tenant,
            sites=(),
            user_digest=user_digest(scope.tenant, scope.user),
            erased_at=self._clock(),
            counts={},
            limits=_LIMITS,
        )
        sites = {scope.site: scope}
        if not only_site:
            sites |= {
                one.site: replace(scope, site=one.site) async for one in self._sites() if one.tenant == scope.tenant
            }
        identities = [replace(site, user=user) for site in sites.values() for user in await self._identities(site)]
        users = dict.fromkeys([scope.user, *[one.user for one in identities if one.user is not None]])
        others = sorted([user_digest(scope.tenant, user) for user in users if user != scope.user])
        receipt = replace(receipt, identity_digests=tuple(others))
        owners = [replace(scope, user=user) for user in users]
        ended = await self._end_all_keys(owners, only_site, member_keys_only, own_key)
        counts.update({what: many for what, many in ended.items() if what != KEYS_LEFT})
        if on_keys_end is not None:
            on_keys_end()
        for site in identities:
            async for went in self._erase_on_site(site):
                counts.update(went)
                yield replace(receipt, counts=dict(counts))
        for site in sites.values():
            counts.update(await self._erase_identities(site))
        counts.update(await self._end_all_keys(owners, only_site, member_keys_only, None))
        receipt = replace(receipt, sites=tuple(sorted(sites)), erased_at=self._clock(), counts=dict(counts))
        receipt = await self._signer.sign(receipt)
        about = {
            "receipt": receipt.id,
            "user_digest": receipt.user_digest,
            "identity_digests": others,
            "counts": receipt.counts,
        }
        for site in sites.values():
            await self._audit.note(site, Act.ERASED, by=by, about=about)
        compacted, remains = await self._compact(counts, patient)
        yield await self._signer.sign(replace(receipt, compaction=compacted, remaining_reason=remains))

    async def _end_all_keys(
        self, owners: Sequence[Scope], only_site: bool, member_keys_only: bool, own_key: str | None
    ) -> Counter[str]:
        counts: Counter[str] = Counter()
        if self._end_keys is not None:
            for owner in owners:
                counts.update(await self._end_keys(owner, only_site, member_keys_only, own_key))
        return counts

    async def _erase_on_site(self, scope: Scope) -> AsyncIterator[dict[str, int]]:
        more = True
        while more:
            gone = await self._erase(scope, _STEP)
            more = gone.more
            yield _result_counts(gone)
        async for went in self._erase_shared_messages(scope):
            yield went
        for elsewhere in self._elsewhere:
            yield await elsewhere(scope)
        yield {"orphaned_vaults": await self._spoken.forget_orphans(scope)}

    async def _compact(self, counts: Counter[str], patient: bool) -> tuple[CompactionStatus, str]:
        if patient:
            return await self._compactor.now()
        went = any(many for what, many in counts.items() if what not in _LEFT)
        if went:
            return await self._compactor.soon()
        # Bytes of an earlier erasure may still be pending.
        return CompactionStatus.LATER if await self._compactor.due() else CompactionStatus.NOTHING, ""

    async def _erase_shared_messages(self, scope: Scope) -> AsyncIterator[dict[str, int]]:
        """Remove the user's messages from sessions of a chat or without a user; count those that do not decrypt."""
        site = site_scope(scope)
        async for session in iter_sessions(self._sessions, site):
            if session.scope.owner[:1] != ("user",):
                try:
                    yield await self._spoken.erase_user(site, session, scope.user or "")
                except MasterKeyMissing:
                    raise
                except DecryptionFailed as error:
                    _log.warning("session %s was skipped: %s", session.id, error)
                    yield {_UNREADABLE: 1}


def _result_counts(gone: EraseResult) -> dict[str, int]:
    return {
        "sessions": len(gone.removed_sessions),
        "messages": gone.messages,
        "traces": gone.traces,
        "attachments": gone.attachments,
        "states": gone.states,
        "quarantined": gone.quarantined,
        "vault_values": gone.vault_values,
        "journal": gone.journal,
    }
