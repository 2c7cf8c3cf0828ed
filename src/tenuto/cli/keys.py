"""`tenuto keys`: the API keys that callers of the server show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec.structs import asdict

from tenuto.access import ApiKey, ApiKeys, KeyRole
from tenuto.app import Tenuto
from tenuto.cli.options import argument, choice, option
from tenuto.cli.running import StoreCall, shown_store
from tenuto.cli.short_ids import whole_key_id
from tenuto.cli.terminal import moment, show_facts, show_table
from tenuto.model.scope import check_tenant_id
from tenuto.model.values import check_id
from tenuto.ports import utc_now
from tenuto.settings import read_settings

keys = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Create, list and revoke API keys.")


@keys.command("create")
def create_key(
    call: StoreCall,
    tenant: Annotated[str, option("ID", "Tenant that the key belongs to.")],
    site: Annotated[str | None, option("ID", "Restrict the key to this site.")] = None,
    user: Annotated[str | None, option("ID", "Restrict the key to this user.")] = None,
    role: Annotated[
        KeyRole,
        choice(
            "What the key may do: admin acts for any user, privacy.reveal reads values behind placeholders, "
            "operator sees status and metrics."
        ),
    ] = KeyRole.MEMBER,
    agent: Annotated[str | None, option("NAME", "Restrict the key to this agent's work on tasks.")] = None,
    name: Annotated[str, option("TEXT", "Note what the key is for.")] = "",
) -> None:
    """Create a key and print its secret once."""
    key, secret = call.run(
        lambda app: _keys(app).create(tenant=tenant, site=site, user=user, role=role, name=name, agent=agent),
        making=True,
    )
    call.show({"key": asdict(key), "secret": secret}, lambda: _print_new_key(key, secret, call.store))


def _print_new_key(key: ApiKey, secret: str, store: str | None) -> None:
    # A server on another store stays open, so the report tells which one has the key.
    show_facts([*_key_facts(key), ("store", shown_store(read_settings(store=store)))])
    typer.echo(f"\n{secret}\n\nKeep this secret now: only its hash is stored, and it is never shown again.")


@keys.command("list")
def list_keys(call: StoreCall, tenant: Annotated[str | None, option("ID", "Show only this tenant.")] = None) -> None:
    """List keys, revoked ones included, without secrets."""
    if tenant is not None:
        check_tenant_id(tenant)
    api_keys = call.run(lambda app: _keys(app).list(tenant))
    call.show({"keys": [asdict(key) for key in api_keys]}, lambda: _print_keys(api_keys))


def _print_keys(api_keys: Sequence[ApiKey]) -> None:
    if not api_keys:
        typer.echo(
            "No keys yet: the server accepts requests from this machine only. Create one with: "
            "tenuto keys create --tenant ID"
        )
        return
    columns = ("ID", "TENANT", "SITE", "USER", "AGENT", "ROLE", "NAME", "CREATED", "USED", "REVOKED")
    show_table(columns, map(_key_row, api_keys), flexible="NAME")


@keys.command("revoke")
def revoke_key(call: StoreCall, key_id: Annotated[str, argument("ID", "ID of the key, not its secret.")]) -> None:
    """Revoke a key for good."""
    check_id(key_id, "the key id")

    async def revoke(app: Tenuto) -> ApiKey:
        keys = _keys(app)
        return await keys.revoke(await whole_key_id(keys, key_id))

    key = call.run(revoke)
    call.show(asdict(key), f"Key {key.id} is revoked.")


def _keys(app: Tenuto) -> ApiKeys:
    return ApiKeys(store=app.store.state, clock=utc_now)


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
    last_use, revocation = (moment(at) if at else "-" for at in (key.last_used_at, key.revoked_at))
    return (*(value for _, value in _key_facts(key)), moment(key.created_at), last_use, revocation)
