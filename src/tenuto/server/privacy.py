"""Routes about private data: the policy, values of placeholders, a scan, the audit, the erasure of a user."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.access import KeyRole
from tenuto.app import Tenuto
from tenuto.errors import InvalidCursor
from tenuto.model import Scope
from tenuto.model.scope import site_scope
from tenuto.model.values import View
from tenuto.privacy.compliance.receipts import receipt_from_json, why_invalid
from tenuto.privacy.compliance.service import PrivacyService
from tenuto.privacy.compliance.views import (
    AuditEntryView,
    PolicyView,
    ReceiptView,
    ReportView,
    policy_view,
    report_view,
)
from tenuto.privacy.placeholders import normalize_placeholder
from tenuto.server.auth import AuthContext, ServerContext, with_user
from tenuto.server.handlers import Answer
from tenuto.server.openapi import EventStream, Router
from tenuto.server.problems import Forbidden, Problem
from tenuto.server.requests import AuditQuery, RevealBody, ScanBody, VerifyReceipt
from tenuto.server.streams import ServerSentEvent, cancel_on_disconnect, event_stream, until_lapsed

routes = Router("privacy", prefix="/v1")

# How many times a scan tells of its progress, at most about.
_STEPS: Final = 100
_NOTE_ID: Final = re.compile(r"[0-9]+\.[0-9]{6}-[0-9a-f]{8}", re.ASCII)


class PrivacyView(PolicyView, frozen=True, kw_only=True):
    """What becomes of private data here: a mode for each sink, what is looked for, and what stands behind it.

    `patterns` names the tenant's own; `receipt_key` checks receipts, and is null until the first was signed.
    """

    vault: bool
    detector: bool
    degraded: bool
    encryption: bool
    receipt_key: str | None


class RevealView(View, frozen=True, kw_only=True):
    """Values by placeholder, and the placeholders that the session does not have."""

    values: dict[str, str]
    unknown: list[str]


class AuditList(View, frozen=True, kw_only=True):
    """Part of the audit, oldest first; `cursor` continues it, null ends it."""

    entries: list[AuditEntryView]
    cursor: str | None


class ScanProgress(View, frozen=True, kw_only=True):
    """How many sessions and memories a scan has read, of how many; more may come meanwhile."""

    done: int
    total: int


class ReceiptCheck(View, frozen=True, kw_only=True):
    """Whether a receipt is as this installation signed it, and why not."""

    valid: bool
    why: str | None


_SCAN: Final = EventStream(
    "Server-sent events: `progress` (`ScanProgress`), then `report` (`ReportView`) or `error` (`Problem`).",
    example='event: progress\ndata: {"done":40,"total":2100}\n\n',
    events=(ScanProgress, ReportView, Problem),
)


@routes.get("/privacy")
async def get_privacy(scope: Scope, tenuto: Tenuto) -> PrivacyView:
    """Get the privacy policy of the caller's tenant."""
    redactor = tenuto.redactor
    return PrivacyView.derive(
        policy_view(redactor.policies, scope),
        vault=redactor.vault is not None,
        detector=redactor.outside is not None,
        degraded=redactor.degraded,
        encryption=tenuto.settings.encryption,
        receipt_key=await tenuto.privacy.signer.public_key(),
    )


@routes.post("/sessions/{session_id}/reveal")
async def reveal_placeholders(
    admission: AuthContext, tenuto: Tenuto, session_id: str, body: RevealBody
) -> Answer[RevealView]:
    """Get the values behind placeholders of a session.

    Needs the role `privacy.reveal`, and is audited. Brackets are optional. If the session has none of the
    placeholders, the answer is 404 `placeholder_not_found`.
    """
    _check_can_reveal(admission)
    scope = admission.scope()
    values = await tenuto.privacy.reveal(scope, session_id, body.placeholders, by=actor_name(admission))
    unknown = [mark for mark in dict.fromkeys(map(normalize_placeholder, body.placeholders)) if mark not in values]
    return Answer(RevealView(values=dict(values), unknown=unknown), headers={"Cache-Control": "no-store"})


@routes.get("/privacy/audit")
async def get_audit(admission: AuthContext, tenuto: Tenuto, query: AuditQuery) -> AuditList:
    """List audited reveals, fixes, erasures and reads of notes. For the tenant's own backend and for admins."""
    _check_operator(admission, "the audit is")
    if query.cursor is not None and not _NOTE_ID.fullmatch(query.cursor):
        raise InvalidCursor
    notes = await tenuto.privacy.audit.notes(admission.scope(), after=query.cursor or "", limit=query.limit)
    cursor = notes[-1].id if len(notes) == query.limit else None
    return AuditList(entries=list(map(AuditEntryView.of, notes)), cursor=cursor)


@routes.post("/privacy/scan", stream=_SCAN)
async def scan_site(request: Request, admission: AuthContext, tenuto: Tenuto, body: ScanBody) -> ReportView | Response:
    """Count the private values in stored data of the site.

    With `fix`, those that the policy does not allow are redacted for good. With `stream`, progress comes as
    server-sent events. A client that disconnects ends the scan; what was fixed stays and is audited. For the
    tenant's own backend and for admins.
    """
    _check_operator(admission, "scans are")
    scope = site_scope(admission.scope())
    events = _scan_events(tenuto.privacy, scope, fix=body.fix, by=actor_name(admission))
    if body.stream:
        return await event_stream(request, until_lapsed(request, events), _encode_scan)
    return await cancel_on_disconnect(request, _report(events))


@routes.post("/privacy/verify", example={"valid": True, "why": None})
async def verify_receipt(admission: AuthContext, tenuto: Tenuto, body: VerifyReceipt) -> ReceiptCheck:
    """Verify the receipt of an erasure.

    It is valid if this installation signed it as it is and, where a user is named, for that user.
    """
    known = await tenuto.privacy.signer.public_key()
    why = why_invalid(receipt_from_json(body.receipt), known, body.user_id)
    return ReceiptCheck(valid=why is None, why=why)


@routes.delete("/users/{user_id}")
async def erase_user(admission: AuthContext, context: ServerContext, user_id: str) -> ReceiptView:
    """Erase a user.

    Deletes all data of the user, on all sites unless one is named, and returns a signed receipt. On each site that
    goes for all users who are linked as the same person. For that user, for the tenant's own backend and for admins.
    An unknown user gets a receipt with zero counts. The API keys are revoked; those with a role only by an admin, and
    those for other sites not by the key of a site. `api_keys_left` counts the keys that remain.
    """
    admission = with_user(admission, user_id)
    scope = admission.scope()
    themselves = admission.caller is not None and admission.caller.user == user_id
    # The audit stays, and must not keep the name of a person who was just erased.
    by = "themselves" if themselves else actor_name(admission)
    # A credential that is bound to a site reaches no other.
    only_site = admission.site is not None or (admission.caller is not None and admission.caller.site is not None)
    members_only = admission.caller is not None and admission.caller.role is not KeyRole.ADMIN
    forget = partial(context.gate.forget_tenant, scope.tenant)
    receipt = await context.tenuto.privacy.erase(
        scope,
        by=by,
        only_site=only_site,
        member_keys_only=members_only,
        own_key=None if admission.caller is None else admission.caller.key_id,
        on_keys_end=forget,
    )
    forget()
    return ReceiptView.of(receipt)


async def _scan_events(
    office: PrivacyService, scope: Scope, *, fix: bool, by: str
) -> AsyncIterator[ScanProgress | ReportView]:
    """The progress of a scan in about a hundred steps, then its report."""
    total = await office.extent(scope)
    yield ScanProgress(done=0, total=total)
    reported, step = 0, max(1, total // _STEPS)
    async with aclosing(office.scan(scope, fix=fix, by=by)) as reports:
        async for report in reports:
            await asyncio.sleep(0)  # An embedded store yields to no other request in between.
            if report.records >= reported + step:
                reported = report.records
                yield ScanProgress(done=reported, total=max(reported, total))
    yield report_view(report)


async def _report(events: AsyncIterator[ScanProgress | ReportView]) -> ReportView:
    return [event async for event in events if isinstance(event, ReportView)][-1]


def _encode_scan(event: ScanProgress | ReportView) -> ServerSentEvent:
    name = "progress" if isinstance(event, ScanProgress) else "report"
    return ServerSentEvent(name, msgspec.json.encode(event))


def _check_operator(admission: AuthContext, what: str) -> None:
    """Refuse a request about everything of a site to those who act for one user."""
    if admission.caller is not None and not admission.caller.can_act_for_users:
        raise Forbidden(f"{what} for the tenant's own credential, or one with the role admin")


def _check_can_reveal(admission: AuthContext) -> None:
    if admission.caller is None:
        raise Forbidden(
            f"revealing needs a credential with the role {KeyRole.REVEAL}, but this server requires no credentials: "
            f"tenuto keys create --role {KeyRole.REVEAL} makes one, and from then on every request needs a key"
        )
    if not admission.caller.reveals:
        raise Forbidden(f"revealing needs a credential with the role {KeyRole.REVEAL}")


def actor_name(admission: AuthContext) -> str:
    """Who acts, as the audit names them: a key by its id, a token by its user."""
    caller = admission.caller
    if caller is None:
        return "open server"
    return f"key {caller.key_id}" if caller.key_id is not None else f"token {caller.user or caller.role}"
