"""`tenuto keys`: the API keys that callers of the server show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from msgspec.structs import asdict

from tenuto.access import ApiKey, ApiKeys, KeyRole
from tenuto.app import Tenuto
from tenuto.cli.options import AsJson, StoreUrl
from tenuto.cli.running import run_command, shown_store
from tenuto.cli.short_ids import whole_key_id
from tenuto.cli.terminal import moment, show_facts, show_json, show_table
from tenuto.model.scope import check_tenant_id
from tenuto.model.values import check_id
from tenuto.ports import utc_now
from tenuto.settings import read_settings

_Answer = TypeVar("_Answer")

keys = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Create, list and revoke API keys.")


@keys.command("create")
def create_key(
    tenant: Annotated[str, typer.Option("--tenant", metavar="ID", help="Tenant that the key belongs to.")],
    site: Annotated[str | None, typer.Option("--site", metavar="ID", help="Restrict the key to this site.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="Restrict the key to this user.")] = None,
    role: Annotated[
        KeyRole,
        typer.Option(
            "--role",
            help="What the key may do: admin acts for any user, privacy.reveal reads values behind placeholders, "
            "operator sees status and metrics.",
        ),
    ] = (KeyRole.MEMBER),
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Restrict the key to this agent's work on tasks.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Note what the key is for.")] = "",
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print its secret once."""
    key, secret = _with_keys(
        lambda keys: keys.create(tenant=tenant, site=site, user=user, role=role, name=name, agent=agent),
        store,
        making=True,
    )
    if as_json:
        show_json({"key": asdict(key), "secret": secret})
        return
    # A server on another store stays open, so the report tells which one has the key.
    show_facts([*_key_facts(key), ("store", shown_store(read_settings(store=store)))])
    typer.echo(f"\n{secret}\n\nKeep this secret now: only its hash is stored, and it is never shown again.")


@keys.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="ID", help="Show only this tenant.")] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List keys, revoked ones included, without secrets."""
    if tenant is not None:
        check_tenant_id(tenant)
    found = _with_keys(lambda keys: keys.list(tenant), store)
    if as_json:
        show_json({"keys": [asdict(key) for key in found]})
    elif not found:
        typer.echo(
            "No keys yet: the server accepts requests from this machine only. Create one with: "
            "tenuto keys create --tenant ID"
        )
    else:
        columns = ("ID", "TENANT", "SITE", "USER", "AGENT", "ROLE", "NAME", "CREATED", "USED", "REVOKED")
        show_table(columns, map(_key_row, found), flexible="NAME")


@keys.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="ID of the key, not its secret.")],
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key for good."""
    check_id(key_id, "the key id")

    async def revoke(keys: ApiKeys) -> ApiKey:
        return await keys.revoke(await whole_key_id(keys, key_id))

    key = _with_keys(revoke, store)
    if as_json:
        show_json(asdict(key))
    else:
        typer.echo(f"Key {key.id} is revoked.")


def _with_keys(story: Callable[[ApiKeys], Awaitable[_Answer]], store: str | None, *, making: bool = False) -> _Answer:
    async def within(app: Tenuto) -> _Answer:
        return await story(ApiKeys(store=app.store.state, clock=utc_now))

    return run_command(within, store=store, making=making)


def _key_facts(key: ApiKey) -> list[tuple[str, str]]:
    return [
        ("key", key.id),
        ("tenant", key.tenant),
        ("site", key.site or "any"),
        ("user", key.user or "any"),
        ("agent", key.agent or "-"),
        ("role", key.role),
        ("name", key.name or "-"),
    ]


def _key_row(key: ApiKey) -> tuple[str, ...]:
    used, revoked = (moment(at) if at else "-" for at in (key.last_used_at, key.revoked_at))
    return (*(value for _, value in _key_facts(key)), moment(key.created_at), used, revoked)
