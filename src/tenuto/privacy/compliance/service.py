"""The privacy service: reveal the value of a placeholder, scan stored data, erase a user."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final

from tenuto.errors import DecryptionFailed, Invalid, PlaceholderNotFound
from tenuto.model import Scope
from tenuto.ports import Clock, Store
from tenuto.privacy.compliance.audit import MOST_MARKS, Act, AuditLog
from tenuto.privacy.compliance.compaction import CompactionStatus, Compactor
from tenuto.privacy.compliance.erasure import (
    Elsewhere,
    EndKeys,
    Erase,
    Identities,
    UserEraser,
    no_identities,
    user_alone,
)
from tenuto.privacy.compliance.mentions import Mentions
from tenuto.privacy.compliance.receipts import Receipt, ReceiptSigner
from tenuto.privacy.compliance.scan import Report, Scanner, ScanSummary
from tenuto.privacy.placeholders import normalize_placeholder
from tenuto.privacy.redactor import Redactor

_SPACES: Final = 100


class PrivacyService:
    """Reveals, scans, erases, and audits it. Callers check permissions."""

    def __init__(
        self,
        *,
        store: Store,
        redactor: Redactor,
        erase: Erase,
        clock: Clock,
        elsewhere: tuple[Elsewhere, ...] = (),
        end_keys: EndKeys | None = None,
        identities: Identities = user_alone,
        erase_identities: Elsewhere = no_identities,
        compactor: Compactor | None = None,
    ) -> None:
        self._store = store
        self._redactor = redactor
        self.audit = AuditLog(state=store.state, clock=clock)
        self.signer = ReceiptSigner(store.state)
        self.compactor = compactor or Compactor(state=store.state, upkeep=store.upkeep, clock=clock)
        self._scanner = Scanner(store=store, redactor=redactor, clock=clock)
        self._eraser = UserEraser(
            erase=erase,
            sessions=store.sessions,
            audit=self.audit,
            signer=self.signer,
            clock=clock,
            spoken=Mentions(store=store, redactor=redactor),
            compactor=self.compactor,
            sites=self.list_sites,
            elsewhere=elsewhere,
            end_keys=end_keys,
            identities=identities,
            erase_identities=erase_identities,
        )

    async def reveal(self, scope: Scope, session_id: str, placeholders: Sequence[str], *, by: str) -> dict[str, str]:
        """The values of placeholders of a session; audited before they are returned.

        A placeholder may be written without its brackets. Unknown ones are left out.

        Raises:
            SessionNotFound: there is no such session in the scope.
            PlaceholderNotFound: the session has none of them.
            Invalid: no placeholders, or too many.
        """
        if not 1 <= len(placeholders) <= MOST_MARKS:
            raise Invalid(f"name between 1 and {MOST_MARKS} placeholders, such as [EMAIL_1]")
        session = await self._store.sessions.get(scope, session_id)
        vault = self._redactor.vault
        known = await vault.values(session) if vault is not None else {}
        wanted = [mark for mark in dict.fromkeys(map(normalize_placeholder, placeholders)) if mark in known]
        if not wanted:
            raise PlaceholderNotFound
        await self.audit.note(scope, Act.REVEALED, by=by, about={"session": session_id, "placeholders": wanted})
        return {mark: known[mark] for mark in wanted}

    async def scan(self, scope: Scope, *, fix: bool = False, by: str = "") -> AsyncGenerator[Report, None]:
        """Scan a tenant's site; yields the same report as it grows.

        With `fix`, changes are audited and deleted bytes are cleared at the end, as the last report says.
        """
        async with aclosing(self._scan_site(scope, fix, by)) as reports:
            async for report in reports:
                yield report
        if fix:
            report.compaction, report.remaining_reason = await self._compact_if_due()
            yield report

    async def extent(self, scope: Scope) -> int:
        """How many records a scan of the site will read, for a progress display."""
        return await self._scanner.extent(scope)

    async def scan_all(self, *, fix: bool = False, by: str = "") -> AsyncIterator[ScanSummary]:
        """Scan all stored data, site by site, each by its own tenant's policy.

        It crosses tenants, so it is for the operator alone. Changes are audited for each site, and deleted bytes are
        cleared once at the end. A tenant whose keys are missing is skipped.
        """
        summary = ScanSummary()
        async for space in self.list_sites():
            sessions, remembered = summary.sessions, summary.memories
            try:
                async for report in self._scan_site(space, fix, by):
                    summary.reports[space] = report
                    summary.sessions = sessions + report.sessions
                    summary.memories = remembered + report.memories
                    yield summary
            except DecryptionFailed as error:
                summary.locked_sites[space] = error
        if fix:
            summary.compaction, summary.remaining_reason = await self._compact_if_due()
        yield summary

    async def _scan_site(self, scope: Scope, fix: bool, by: str) -> AsyncGenerator[Report, None]:
        owed, report = 0, Report()
        try:
            async for report in self._scanner.scan(scope, fix=fix):
                if report.fixed + report.orphaned_vaults > owed:
                    # Each time: another process may have cleared earlier bytes, but not these.
                    await self.compactor.owe()
                    owed = report.fixed + report.orphaned_vaults
                yield report
        except BaseException:
            # Also where the caller closes the scan or is cancelled: what was changed until then is audited.
            if owed:
                await self._record_fixes(scope, report, by)
            raise
        if fix:
            await self._record_fixes(scope, report, by)

    async def _record_fixes(self, scope: Scope, report: Report, by: str) -> None:
        about = {"sessions": report.sessions, "memories": report.memories, "fixed": report.fixed}
        await self.audit.note(scope, Act.FIXED, by=by, about=about)

    async def _compact_if_due(self) -> tuple[CompactionStatus, str]:
        return await self.compactor.now() if await self.compactor.due() else (CompactionStatus.NOTHING, "")

    async def list_sites(self) -> AsyncIterator[Scope]:
        """Every tenant's site that holds sessions or state of its users."""
        last: Scope | None = None
        while page := await self._store.upkeep.list_sites(last, _SPACES):
            for last in page:
                yield last

    async def erase(
        self,
        scope: Scope,
        *,
        by: str,
        only_site: bool = False,
        member_keys_only: bool = False,
        own_key: str | None = None,
        on_keys_end: Callable[[], None] | None = None,
    ) -> Receipt:
        """Remove everything of the scope's user on every site of the tenant, or on the scope's alone."""
        receipts = self._eraser.erase(
            scope,
            by=by,
            only_site=only_site,
            member_keys_only=member_keys_only,
            own_key=own_key,
            on_keys_end=on_keys_end,
            patient=False,
        )
        return [receipt async for receipt in receipts][-1]

    def erasing(self, scope: Scope, *, by: str, only_site: bool = False) -> AsyncIterator[Receipt]:
        """As `erase`, step by step, until deleted bytes are cleared; the last receipt is signed."""
        return self._eraser.erase(scope, by=by, only_site=only_site)
