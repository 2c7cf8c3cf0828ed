"""How commands spell their options, and those options that several have."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final, TypeAlias

import typer

from tenuto.cli.terminal import visible
from tenuto.model.values import check_id

LOCAL: Final = "local"
STDIN: Final = "-"


# What typer returns has a type that says nothing, and stands in annotations alone.
def option(metavar: str, about: str, *names: str, **more: Any) -> Any:
    """An option with a value, called as its parameter unless `names` say otherwise."""
    return typer.Option(*names, metavar=metavar, help=about, **more)


def choice(about: str) -> Any:
    """An option whose value is one of a few; help lists them."""
    return typer.Option(help=about)


def flag(name: str, about: str, *names: str) -> Any:
    """An option without a value."""
    return typer.Option(name, *names, help=about)


def argument(metavar: str, about: str, **more: Any) -> Any:
    """A word that is no option."""
    return typer.Argument(metavar=metavar, help=about, **more)


def limit_option(most: int | None = None, about: str = "Maximum number of results.") -> Any:
    """How many at most."""
    return option("N", about, min=1, max=most)


def session_option(about: str) -> Any:
    """A session, which the tab key completes."""
    return option("ID", about, autocompletion=complete_session)


def complete_session(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of sessions for the tab key."""
    # Commands that are run, not completed, need none of it.
    from tenuto.cli import completion

    return completion.complete_session(ctx, incomplete)


def _session_argument(about: str = "ID of the session.") -> Any:
    return argument("ID", about, callback=_check_session_ids, autocompletion=complete_session)


def _check_session_ids(value: str | list[str] | None) -> str | list[str] | None:
    for session_id in value if isinstance(value, list) else [value]:
        if session_id is not None:
            check_id(session_id, "the session id")
    return value


StoreUrl: TypeAlias = Annotated[str | None, option("URL", "Use this store instead of TENUTO_STORE.")]
AsJson: TypeAlias = Annotated[bool, flag("--json", "Print one JSON document and nothing else.")]
Tenant: TypeAlias = Annotated[str, option("ID", "Act for this tenant.")]
Site: TypeAlias = Annotated[str, option("ID", "Act on this site of the tenant.")]
User: TypeAlias = Annotated[str | None, option("ID", "Act for this user; by default for the tenant itself.")]
Chat: TypeAlias = Annotated[str | None, option("ID", "Act for this group chat.")]
Channel: TypeAlias = Annotated[str | None, option("NAME", "Chat platform of --chat, such as lark.")]
Yes: TypeAlias = Annotated[bool, flag("--yes", "Do not ask for confirmation.", "-y")]
Cursor: TypeAlias = Annotated[str | None, option("CURSOR", "Continue a listing from its cursor.")]
OfSession: TypeAlias = Annotated[str | None, session_option("Show only this session.")]
SessionId: TypeAlias = Annotated[str, _session_argument()]
MaybeSessionId: TypeAlias = Annotated[str | None, _session_argument()]
SessionIds: TypeAlias = Annotated[list[str], _session_argument("IDs of the sessions.")]
TaskId: TypeAlias = Annotated[
    str, argument("ID", "ID of the task.", callback=lambda value: check_id(value, "the task id"))
]


def confirm(doing: str, what: str, *, as_json: bool) -> None:
    """Ask before something is gone for good.

    Raises:
        BadParameter: no terminal to ask on.
    """
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter(
            f"there is no terminal to ask for confirmation: pass --yes to {doing} permanently", param_hint="--yes"
        )
    typer.confirm(visible(f"{doing.capitalize()} {what} permanently?"), abort=True, err=True)
