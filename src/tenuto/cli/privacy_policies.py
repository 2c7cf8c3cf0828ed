"""`tenuto privacy policy`, `test`, `new-key` and `rotate`: what holds, what it does to a text, the keys behind it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import asdict

from tenuto.app import Tenuto
from tenuto.cli.options import STDIN, AsJson, argument, flag, option
from tenuto.cli.privacy_checks import why_keys_closed
from tenuto.cli.resealing import Resealed, print_reseal_report, reseal_records
from tenuto.cli.running import StoreCall, TenantCall, run_command, sqlite_file
from tenuto.cli.terminal import pluralize, progress, show_facts, show_json, show_table, visible
from tenuto.errors import InvalidSetting, TenutoError
from tenuto.model import Scope
from tenuto.model.privacy import Mode, Sink
from tenuto.model.scope import check_tenant_id
from tenuto.model.values import JsonObject
from tenuto.ports import utc_now
from tenuto.privacy.tenant_policies import TenantPolicies
from tenuto.settings import Settings, read_settings
from tenuto.wiring.privacy import open_ciphers, open_policies, refuse_keyless

if TYPE_CHECKING:
    from tenuto.privacy.compliance.preview import Preview
    from tenuto.privacy.compliance.views import PolicyView
    from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers

_ABOUT: Final = {
    Sink.MESSAGE: "messages that no summary covers yet",
    Sink.PAST: "messages that a summary covers; keep: as stored by message",
    Sink.SUMMARY: "summaries",
    Sink.MEMORY: "memories of a user",
    Sink.BOARD: "tasks: goals, boards, outputs, notes of agents",
    Sink.TITLE: "titles",
    Sink.TRACE: "traces",
    Sink.LOG: "the program's own log",
    Sink.EXPORT: "exports",
    Sink.MODEL: "text sent to a model",
    Sink.ANSWER: "a model's answer to the user",
}


def show_policy(call: TenantCall) -> None:
    """Show a tenant's privacy policy, sink by sink.

    The exit code is 1 if its key is missing or wrong.
    """
    from tenuto.privacy.compliance.views import policy_view

    settings = read_settings(store=call.store)
    policies = open_policies(settings)
    key = bool(settings.privacy_key or settings.privacy_key_file)
    holds = policy_view(policies, call.scope)
    beside = {"key": key, "detector": settings.privacy_detector is not None, "encryption": settings.encryption}
    call.show(
        {"tenant": call.tenant, **asdict(holds), **beside, "tenants": list(policies.tenants)},
        lambda: _print_policy(settings, policies, call.scope, holds),
    )
    # Refuse what a server start would refuse; the command may run before any server does.
    refuse_keyless(settings, policies)
    if key:
        _check_keys_open(settings, call.tenant)


def _check_keys_open(settings: Settings, tenant: str) -> None:
    """Refuse a key that cannot be used, or that does not open what the tenant has sealed by now.

    Raises:
        InvalidSetting: what is wrong with it.
    """
    from tenuto.privacy.crypto.keyring import load_key_ring

    load_key_ring(key=settings.privacy_key, file=settings.privacy_key_file)
    file = sqlite_file(settings.store)
    if file is not None and not file.exists():
        return  # Nothing was sealed yet.
    why = run_command(lambda app: _why_keys_closed(app, tenant), store=settings.store, read_only=True)
    if why is not None:
        setting = "privacy_key" if settings.privacy_key_file is None else "privacy_key_file"
        raise InvalidSetting(setting, f"cannot decrypt the data of tenant {tenant}: {why}")


async def _why_keys_closed(app: Tenuto, tenant: str) -> str | None:
    ciphers = open_ciphers(app.settings, app.stores.plain_state, utc_now)
    return await why_keys_closed(ciphers, tenant) if ciphers is not None else None


def _print_policy(settings: Settings, policies: TenantPolicies, scope: Scope, holds: PolicyView) -> None:
    key = settings.privacy_key or settings.privacy_key_file
    rows = [(sink.value, holds.modes[sink], _ABOUT[sink]) for sink in Sink]
    show_table(("SINK", "MODE", "WHAT"), rows, flexible="WHAT")
    typer.echo()
    show_facts(
        [
            ("looked for", ", ".join(holds.types)),
            ("own patterns", ", ".join(holds.patterns) or "none"),
            ("never in a vault", ", ".join(holds.unvaulted) or "none"),
            ("attachments", ", ".join([f"{sink}: {mode}" for sink, mode in holds.attachments.items()])),
            ("allowed values", f"{len(policies.of(scope).allow):,}"),
            ("key", "there" if key else "none"),
            ("encryption", "on" if settings.encryption else "off"),
            ("external detector", "asked" if settings.privacy_detector else "none"),
            ("own policies", ", ".join(policies.tenants) or "no tenant"),
        ]
    )


def try_text(
    call: TenantCall, text: Annotated[str, argument("TEXT", "Text to check; - reads standard input.")]
) -> None:
    """Show what the policy finds in a text and makes of it.

    An external detector is not asked.
    """
    from tenuto.privacy.compliance.preview import preview

    policies = open_policies(read_settings(store=call.store))
    content = sys.stdin.buffer.read().decode(errors="replace") if text == STDIN else text
    result = preview(content, policies.finder(call.scope), policies.of(call.scope).unvaulted)
    matches = [{"type": one.type, "rule": one.rule, "start": one.start, "end": one.end} for one in result.matches]
    by_mode = {mode.value: example for mode, example in result.by_mode.items()}
    call.show({"matches": matches, **by_mode}, lambda: _print_preview(result))


def _print_preview(preview: Preview) -> None:
    if not preview.matches:
        typer.echo("No private data found.")
        return
    show_table(
        ("TYPE", "RULE", "FROM", "TO"),
        [(one.type, one.rule, str(one.start), str(one.end)) for one in preview.matches],
        flexible="RULE",
        numbers=("FROM", "TO"),
    )
    for mode in Mode:
        typer.secho(f"\n{mode}", bold=True)
        typer.echo(visible(preview.by_mode[mode], lines=True))


def new_key(path: Annotated[Path, argument("PATH", "File to create.")], as_json: AsJson = False) -> None:
    """Create a key file that only its owner can read."""
    from tenuto.privacy.crypto.keyring import create_key_file

    name = create_key_file(path)
    if as_json:
        show_json({"file": str(path), "key": name})
    else:
        typer.echo(visible(f"Key {name} is in {path}. Set TENUTO_PRIVACY_KEY_FILE={path}"))
        typer.echo("Keep a copy away from the store: encrypted data cannot be read without the key.")


def rotate(
    call: StoreCall,
    tenant: Annotated[str | None, option("ID", "Rotate only this tenant.")] = None,
    renew: Annotated[bool, flag("--renew", "Also create new data keys for what is encrypted from now on.")] = False,
    reseal: Annotated[
        bool, flag("--reseal", "Also rewrite stored records: with the data keys in use, or plain.")
    ] = False,
) -> None:
    """Wrap the data keys with the current master key.

    Stored records are rewritten with --reseal only.
    """
    if tenant is not None:
        check_tenant_id(tenant)
        if reseal:
            raise typer.BadParameter("covers every tenant: leave out --tenant", param_hint="--reseal")

    async def run(app: Tenuto) -> tuple[dict[str, int], list[JsonObject], Resealed | None]:
        counts, failures = await _rotate_keys(app, tenant, renew, quiet=call.as_json)
        return counts, failures, await reseal_records(app, quiet=call.as_json) if reseal else None

    counts, failures, report = call.run(run)
    if call.as_json:
        result = {"wrapped": counts, "renewed": list(counts) if renew else [], "failed": failures}
        show_json(result if report is None else {**result, "resealed": report.view()})
    else:
        typer.echo(f"{pluralize(sum(counts.values()), 'key')} of {pluralize(len(counts), 'tenant')} wrapped again.")
        if renew:
            typer.echo(f"{pluralize(len(counts), 'new data key')} made; running servers follow within a minute.")
        for failure in failures:
            typer.echo(visible(f"{failure['code']}: tenant {failure['tenant']}: {failure['error']}"), err=True)
        if report is not None:
            print_reseal_report(report)
    if failures or not (report is None or report.is_complete):
        raise typer.Exit(1)


async def _rotate_keys(
    app: Tenuto, tenant: str | None, renew: bool, *, quiet: bool
) -> tuple[dict[str, int], list[JsonObject]]:
    """Rotate each tenant's keys; one whose master key is missing does not keep the others."""
    ciphers = open_ciphers(app.settings, app.stores.plain_state, utc_now)
    if ciphers is None:
        raise InvalidSetting("privacy_key", "is not set, so there is nothing to rotate: set it, or privacy_key_file")
    wrapped_keys: dict[str, int] = {}
    failures: list[JsonObject] = []
    tenants = [name async for name in ciphers.tenants() if tenant is None or name == tenant]
    with progress(tenants, "Rotating", quiet=quiet) as remaining:
        for name in remaining:
            try:
                wrapped_keys[name] = await _rotate_tenant(ciphers, name, renew)
            except TenutoError as error:
                failures.append({"tenant": name, "code": error.code, "error": str(error)})
    return wrapped_keys, failures


async def _rotate_tenant(ciphers: TenantCiphers, tenant: str, renew: bool) -> int:
    scope = Scope(tenant=tenant)
    many = await ciphers.rewrap(scope)
    if renew:
        await ciphers.renew(scope)
    return many
