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


def complete_session(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of sessions for the tab key."""
    # Commands that are run, not completed, need none of it.
    from tenuto.cli import completion

    return completion.complete_session(ctx, incomplete)


StoreUrl: TypeAlias = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Use this store instead of TENUTO_STORE.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Tenant: TypeAlias = Annotated[str, typer.Option("--tenant", metavar="ID", help="Act for this tenant.")]
Site: TypeAlias = Annotated[str, typer.Option("--site", metavar="ID", help="Act on this site of the tenant.")]
User: TypeAlias = Annotated[
    str | None, typer.Option("--user", metavar="ID", help="Act for this user; by default for the tenant itself.")
]
SessionId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", callback=_session_id, autocompletion=complete_session, help="ID of the session.")
]
MaybeSessionId: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="ID", callback=_maybe_session_id, autocompletion=complete_session, help="ID of the session."
    ),
]
SessionIds: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="ID", callback=_session_ids, autocompletion=complete_session, help="IDs of the sessions."),
]
TaskId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", callback=lambda value: check_id(value, "the task id"), help="ID of the task.")
]


def caller(tenant: str, site: str, user: str | None) -> Scope:
    """Whom the command acts for."""
    return Scope(tenant=check_tenant_id(tenant), site=site, user=user)
