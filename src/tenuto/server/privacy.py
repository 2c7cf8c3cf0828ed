"""Routes about private data: what holds, what a mark stands for, who looked, and how a person is erased."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tenuto.access import KeyRole
from tenuto.errors import InvalidCursor
from tenuto.model.values import View
from tenuto.privacy.compliance.views import AuditEntryView, PolicyView, ReceiptView, policy_view
from tenuto.privacy.crypto.vault import normalize_placeholder
from tenuto.server.auth import AuthContext, asking, authenticate_request, service, with_user
from tenuto.server.json_io import answer, body_of, parse_query, path_parameter
from tenuto.server.openapi import Router, describe
from tenuto.server.problems import Forbidden
from tenuto.server.requests import AuditQuery, RevealBody

routes = Router("privacy", prefix="/v1")

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
    """Values by the marks that stand for them, and those marks that the session does not know."""

    values: dict[str, str]
    unknown: list[str]


class AuditList(View, frozen=True, kw_only=True):
    """Part of the audit, oldest first; `cursor` continues it, null ends it."""

    entries: list[AuditEntryView]
    cursor: str | None


@routes.get("/privacy", describe(PrivacyView))
async def get_privacy(request: Request) -> Response:
    """What becomes of private data of the caller's tenant, sink by sink."""
    scope = await asking(request)
    tenuto = service(request).tenuto
    screen = tenuto.redactor
    return answer(
        PrivacyView.derive(
            policy_view(screen.policies, scope),
            vault=screen.vault is not None,
            detector=screen.outside is not None,
            degraded=screen.degraded,
            encryption=tenuto.settings.encryption,
            receipt_key=await tenuto.privacy.signer.public_key(),
        )
    )


@routes.post("/sessions/{session_id}/reveal", describe(RevealView, body=RevealBody))
async def reveal_placeholders(request: Request) -> Response:
    """The values behind placeholders of a session, for a credential with the role privacy.reveal; reveals are audited.
    Brackets are optional; if the session has none of the placeholders, the answer is 404 `placeholder_not_found`."""
    admission = await authenticate_request(request)
    _check_can_reveal(admission)
    scope = admission.scope()
    body = await body_of(request, RevealBody)
    values = await service(request).tenuto.privacy.reveal(
        scope, path_parameter(request), body.placeholders, by=_actor_name(admission)
    )
    unknown = [mark for mark in dict.fromkeys(map(normalize_placeholder, body.placeholders)) if mark not in values]
    return answer(RevealView(values=dict(values), unknown=unknown), headers={"Cache-Control": "no-store"})


@routes.get("/privacy/audit", describe(AuditList, query=AuditQuery))
async def get_audit(request: Request) -> Response:
    """Reveals, fixes and erasures on this site; for the tenant's own backend and for admins."""
    admission = await authenticate_request(request)
    if admission.caller is not None and not admission.caller.can_act_for_users:
        raise Forbidden("the audit is for the tenant's own credential, or one with the role admin")
    scope = admission.scope()
    asked = parse_query(request, AuditQuery)
    if asked.cursor is not None and not _NOTE_ID.fullmatch(asked.cursor):
        raise InvalidCursor
    notes = await service(request).tenuto.privacy.audit.notes(scope, after=asked.cursor or "", limit=asked.limit)
    cursor = notes[-1].id if len(notes) == asked.limit else None
    return answer(AuditList(entries=list(map(AuditEntryView.of, notes)), cursor=cursor))


@routes.delete("/users/{user_id}", describe(ReceiptView))
async def erase_user(request: Request) -> Response:
    """Remove everything of a user, on all sites unless one is named, and answer with a signed receipt; for that
    user, for the tenant's own backend and for admins. An unknown user gets one as well, with nothing counted."""
    user = path_parameter(request, "user_id")
    admission = with_user(await authenticate_request(request), user)
    scope = admission.scope()
    themselves = admission.caller is not None and admission.caller.user == user
    # The audit stays, and must not keep the name of a person who was just erased.
    by = "themselves" if themselves else _actor_name(admission)
    # A credential that is bound to a site reaches no other.
    only_site = admission.site is not None or (admission.caller is not None and admission.caller.site is not None)
    receipt = await service(request).tenuto.privacy.erase(scope, by=by, only_site=only_site)
    return answer(ReceiptView.of(receipt))


def _check_can_reveal(admission: AuthContext) -> None:
    if admission.caller is None:
        raise Forbidden(
            f"revealing needs a credential with the role {KeyRole.REVEAL}, and this server asks for none: "
            f"tenuto keys create --role {KeyRole.REVEAL} makes one, and from then on every request needs a key"
        )
    if not admission.caller.reveals:
        raise Forbidden(f"revealing needs a credential with the role {KeyRole.REVEAL}")


def _actor_name(admission: AuthContext) -> str:
    """Who acts, as the audit names them: a key by its id, a token by its user."""
    caller = admission.caller
    if caller is None:
        return "open server"
    return f"key {caller.key_id}" if caller.key_id is not None else f"token {caller.user or caller.role}"
