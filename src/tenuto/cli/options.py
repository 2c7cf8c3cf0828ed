"""The options that many commands share, each spelled once."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from tenuto.model import Scope
from tenuto.model.scope import check_tenant_id
from tenuto.model.values import check_id

LOCAL: Final = "local"


def _session_id(value: str) -> str:
    return check_id(value, "the session id")


def _maybe_session_id(value: str | None) -> str | None:
    return None if value is None else _session_id(value)


def _session_ids(values: list[str]) -> list[str]:
    return [_session_id(value) for value in values]


StoreUrl: TypeAlias = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Where sessions are kept, instead of TENUTO_STORE.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Tenant: TypeAlias = Annotated[str, typer.Option("--tenant", metavar="ID", help="The tenant to act for.")]
Site: TypeAlias = Annotated[str, typer.Option("--site", metavar="ID", help="The tenant's site.")]
User: TypeAlias = Annotated[
    str | None, typer.Option("--user", metavar="ID", help="Act for this user; without it, for the tenant itself.")
]
SessionId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", callback=_session_id, help="The session's id.")]
MaybeSessionId: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="ID", callback=_maybe_session_id, help="The session's id.")
]
SessionIds: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="ID", callback=_session_ids, help="The sessions' ids.")
]
TaskId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", callback=lambda value: check_id(value, "the task id"), help="The task's id.")
]


def caller(tenant: str, site: str, user: str | None) -> Scope:
    """Whom the command acts for."""
    return Scope(tenant=check_tenant_id(tenant), site=site, user=user)
