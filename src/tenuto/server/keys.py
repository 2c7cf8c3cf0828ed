"""Routes of API keys, for admins of their tenant. On an open server the first key ends open mode."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from tenuto.access import ApiKey, KeyRole
from tenuto.errors import InvalidCursor
from tenuto.model.values import JsonObject, View
from tenuto.server.auth import AuthContext, ServerContext
from tenuto.server.handlers import Answer
from tenuto.server.openapi import Router
from tenuto.server.problems import Forbidden
from tenuto.server.requests import CreateKey, KeyListQuery

routes = Router("keys", prefix="/v1/keys")
_log = logging.getLogger(__name__)
_KEY: Final[JsonObject] = {
    "id": "3f9a1c0d5e7b2846",
    "tenant": "acme",
    "site": "shop",
    "user": None,
    "agent": None,
    "role": "member",
    "name": "the backend of the shop",
    "created_at": "2026-11-18T04:00:00Z",
    "last_used_at": None,
    "revoked_at": None,
}


class KeyView(View, frozen=True, kw_only=True):
    """An API key without its secret. A `site` of null means any site; `last_used_at` is exact to an hour."""

    id: str
    tenant: str
    site: str | None
    user: str | None
    agent: str | None
    role: KeyRole
    name: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeyList(View, frozen=True, kw_only=True):
    """Part of the keys, newest first, revoked ones included; `cursor` continues it, null ends it."""

    keys: list[KeyView]
    cursor: str | None


class CreatedKey(View, frozen=True, kw_only=True):
    """A new key and its secret, which is shown here only: the store keeps its hash."""

    key: KeyView
    secret: str


@routes.get("", example={"keys": [_KEY], "cursor": None})
async def list_keys(admission: AuthContext, context: ServerContext, query: KeyListQuery) -> KeyList:
    """List the API keys of the tenant. For a credential that is bound to a site, those of the site. For admins."""
    check_admin(admission)
    keys = await context.gate.keys.list(admission.scope().tenant, _bound_site(admission))
    rest = _keys_after(keys[::-1], query.cursor)
    page = rest[: query.limit]
    cursor = page[-1].id if len(rest) > query.limit else None
    return KeyList(keys=list(map(KeyView.of, page)), cursor=cursor)


@routes.post("", 201, example={"key": _KEY, "secret": "tnt_3f9a1c0d5e7b2846_…"})
async def create_key(admission: AuthContext, context: ServerContext, body: CreateKey) -> Answer[CreatedKey]:
    """Create an API key.

    Its secret is in this answer and never shown again. For admins, and on a server without keys for callers on its
    own machine; the first key ends that. Only a credential with the role `privacy.reveal` or `operator` can give
    that role.
    """
    check_admin(admission)
    if admission.caller is not None and not admission.caller.may_grant(body.role):
        raise Forbidden(
            f"the role {body.role} is given by a credential that has it, "
            f"or on the server's machine: tenuto keys create --role {body.role}"
        )
    scope = admission.scope(body.tenant_id, body.site_id)
    sites = (body.site_id, admission.site, _bound_site(admission))
    gate = context.gate
    key, secret = await gate.keys.create(
        tenant=scope.tenant,
        # A key that names no site is for all of them, one for the site "" is not.
        site=scope.site if any(site is not None for site in sites) else None,
        user=body.user_id,
        role=body.role,
        name=body.name,
        agent=body.agent,
    )
    gate.close()
    _log.info("API key %s was created", key.id)
    return Answer(CreatedKey(key=KeyView.of(key), secret=secret), 201, {"Cache-Control": "no-store"})


@routes.delete("/{key_id}", example={**_KEY, "revoked_at": "2026-11-18T05:00:00Z"})
async def revoke_key(admission: AuthContext, context: ServerContext, key_id: str) -> KeyView:
    """Revoke an API key for good. Idempotent. For admins. A key of another tenant is answered with 404."""
    check_admin(admission)
    gate = context.gate
    key = await gate.keys.revoke(key_id, tenant=admission.scope().tenant, site=_bound_site(admission))
    gate.forget(key.id)
    _log.info("API key %s was revoked", key.id)
    return KeyView.of(key)


def check_admin(admission: AuthContext, what: str = "API keys are") -> None:
    """Refuse a request that is for admins, and on an open server for everyone."""
    if admission.caller is not None and admission.caller.role is not KeyRole.ADMIN:
        raise Forbidden(f"{what} for credentials with the role admin")


def _bound_site(admission: AuthContext) -> str | None:
    """The only site whose keys the credential reaches."""
    return admission.caller.site if admission.caller is not None else None


def _keys_after(keys: tuple[ApiKey, ...], cursor: str | None) -> tuple[ApiKey, ...]:
    if cursor is None:
        return keys
    for place, key in enumerate(keys):
        if key.id == cursor:
            return keys[place + 1 :]
    raise InvalidCursor
