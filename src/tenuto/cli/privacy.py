"""`tenuto privacy`: look through what is stored, erase people, look behind placeholders, and see who did."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tenuto.app import Tenuto
from tenuto.cli import privacy_policies
from tenuto.cli.options import LOCAL, SessionId, Yes, argument, confirm, flag, limit_option, option
from tenuto.cli.running import SiteCall, StoreCall, TenantCall, UserCall
from tenuto.cli.short_ids import whole_session_id
from tenuto.cli.terminal import (
    advancing,
    is_watched,
    moment,
    operator_name,
    pluralize,
    show_facts,
    show_json,
    show_table,
    tally,
    visible,
)
from tenuto.cli.transfer import write_atomically
from tenuto.errors import Invalid, InvalidSetting
from tenuto.model import Scope
from tenuto.model.values import check_id
from tenuto.privacy.compliance.compaction import CompactionStatus
from tenuto.privacy.placeholders import normalize_placeholder

# Signatures and ciphers are heavy to load; each command loads what it needs.
if TYPE_CHECKING:
    from tenuto.privacy.compliance.receipts import Receipt
    from tenuto.privacy.compliance.scan import Report, ScanSummary

privacy = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Scan for private data, erase users, reveal placeholders."
)


@privacy.command("scan")
def scan(
    call: SiteCall,
    fix: Annotated[bool, flag("--fix", "Redact what violates the policy.")] = False,
    everything: Annotated[bool, flag("--all", "Scan every site of every tenant.")] = False,
) -> None:
    """Scan stored data for values that violate the policy.

    The exit code is 1 if there are any.
    """
    from tenuto.privacy.compliance.views import report_view, summary_json

    if everything:
        if call.tenant != LOCAL or call.site:
            raise typer.BadParameter("covers every tenant: leave out --tenant and --site", param_hint="--all")
        summary = call.run(lambda app: _scan_all(app, fix, quiet=call.as_json), read_only=not fix)
        call.show(summary_json(summary), lambda: _print_summary(summary, fix))
        has_findings = bool(summary.locked_sites or summary.unreadable or (summary.violations and not fix))
    else:
        report = call.run(lambda app: _scan(app, call.scope, fix, quiet=call.as_json), read_only=not fix)
        call.show(report_view(report), lambda: _print_report(report, fix))
        has_findings = bool(report.unreadable or (report.violations and not fix))
    if has_findings:
        raise typer.Exit(1)


async def _scan_all(app: Tenuto, fix: bool, *, quiet: bool) -> ScanSummary:
    total = (
        sum([await app.privacy.extent(space) async for space in app.privacy.list_sites()])
        if is_watched(quiet)
        else None
    )
    with advancing(total, "Scanning", quiet=quiet) as advance:
        async for summary in app.privacy.scan_all(fix=fix, by=operator_name()):
            advance(summary.records)
    return summary


async def _scan(app: Tenuto, scope: Scope, fix: bool, *, quiet: bool) -> Report:
    total = await app.privacy.extent(scope) if is_watched(quiet) else None
    with advancing(total, "Scanning", quiet=quiet) as advance:
        async for report in app.privacy.scan(scope, fix=fix, by=operator_name()):
            advance(report.records)
    return report


def _print_summary(summary: ScanSummary, fix: bool) -> None:
    sites = sorted(
        (
            space.tenant,
            space.site,
            f"{report.sessions:,}",
            f"{report.memories:,}",
            f"{report.total:,}",
            f"{report.violations:,}",
        )
        for space, report in summary.reports.items()
    )
    if sites:
        numbers = ("SESSIONS", "MEMORIES", "MATCHES", "VIOLATIONS")
        show_table(("TENANT", "SITE", *numbers), sites, flexible="SITE", numbers=numbers)
        typer.echo()
    violations = summary.matches_by_sink(violations_only=True)
    rows = [
        (sink.value, name, f"{many:,}", f"{violations[sink][name] if sink in violations else 0:,}")
        for sink, names in sorted(summary.matches_by_sink().items())
        for name, many in sorted(names.items())
    ]
    if rows:
        show_table(("SINK", "TYPE", "MATCHES", "VIOLATIONS"), rows, flexible="TYPE", numbers=("MATCHES", "VIOLATIONS"))
        typer.echo()
    typer.echo(f"{pluralize(len(sites), 'site')}, ", nl=False)
    _print_totals(summary, fix)
    for space, why in summary.locked_sites.items():
        typer.echo(visible(f"{why.code}: {_describe_site(space)} was not scanned: {why}"), err=True)


def _print_report(report: Report, fix: bool) -> None:
    rows = [
        (sink.value, name, f"{many:,}", "allowed" if sink in report.allowed_sinks else "against the policy")
        for sink, names in sorted(report.matches.items())
        for name, many in sorted(names.items())
    ]
    if rows:
        show_table(("SINK", "TYPE", "MATCHES", "STATUS"), rows, flexible="STATUS", numbers=("MATCHES",))
        typer.echo()
    _print_totals(report, fix)


def _print_totals(report: Report | ScanSummary, fix: bool) -> None:
    scanned = ", ".join(
        (pluralize(report.sessions, "session"), pluralize(report.memories, "memory"), pluralize(report.texts, "text"))
    )
    typer.echo(f"{scanned} scanned.")
    if fix:
        typer.echo(f"{pluralize(report.fixed, 'record')} fixed.")
        compaction = _compaction_text(report.compaction or CompactionStatus.NOTHING, report.remaining_reason)
        typer.echo(f"Deleted bytes, in the whole store: {compaction}.")
    elif report.violations:
        typer.echo(f"{pluralize(report.violations, 'value')} violating the policy: --fix redacts them.")
    else:
        typer.echo("Nothing violates the policy.")
    if report.unreadable:
        typer.echo(f"{pluralize(report.unreadable, 'record')} could not be decrypted and were not scanned.")


@privacy.command("erase")
def erase(
    call: TenantCall,
    user: Annotated[str, option("ID", "User to erase.")],
    yes: Yes = False,
    out: Annotated[Path | None, option("FILE", "Also write the receipt to this file.")] = None,
    site: Annotated[
        str | None, option("NAME", "Erase on this site only; by default on all sites of the tenant.")
    ] = None,
) -> None:
    """Erase a user everywhere and print the signed receipt."""
    from tenuto.privacy.compliance.views import ReceiptView

    call = replace(call, site=site or "", user=check_id(user, "the user id"))
    scope, only_site = call.scope, site is not None
    if not yes:
        where = _describe_site(scope) if only_site else f"all sites of tenant {scope.tenant}"
        confirm("erase", f"everything of user {user} in {where}", as_json=call.as_json)
    # The file is opened first: a receipt that cannot be written should be known before there is nothing left to erase.
    with write_atomically(out) if out is not None else nullcontext() as file:
        receipt = call.run(lambda app: _run_erase(app, scope, only_site=only_site, quiet=call.as_json))
        if file is not None:
            file.write(msgspec.json.format(msgspec.json.encode(ReceiptView.of(receipt))) + b"\n")
    call.show(ReceiptView.of(receipt), lambda: show_facts(_receipt_facts(receipt)))


def _describe_site(scope: Scope) -> str:
    return f"tenant {scope.tenant}" + (f", site {scope.site}" if scope.site else "")


async def _run_erase(app: Tenuto, scope: Scope, *, only_site: bool, quiet: bool) -> Receipt:
    with advancing(None, "Erasing", quiet=quiet) as advance:
        async for receipt in app.privacy.erasing(scope, by=operator_name(), only_site=only_site):
            advance(sum(receipt.counts.values()))
    return receipt


_BYTES = {
    "done": "cleared",
    "later": "not cleared yet because the store was busy: upkeep clears them later, or run this command again",
    "partly": "not all cleared",
    "nothing": "nothing to clear",
}


def _compaction_text(status: CompactionStatus, remains: str) -> str:
    return _BYTES[status] + (f": {remains}" if remains else "")


def _receipt_facts(receipt: Receipt) -> list[tuple[str, str]]:
    return [
        ("receipt", receipt.id),
        ("tenant", receipt.tenant),
        ("sites", ", ".join(site or "(no site)" for site in receipt.sites)),
        ("user digest", receipt.user_digest),
        ("erased", moment(receipt.erased_at)),
        (
            "removed",
            tally({name: many for name, many in receipt.counts.items() if many}) or "there was nothing to erase",
        ),
        ("bytes", _compaction_text(receipt.compaction, receipt.remaining_reason)),
        ("limits", receipt.limits),
        ("key", receipt.public_key),
        ("signature", receipt.signature),
    ]


@privacy.command("verify")
def verify(
    call: StoreCall,
    file: Annotated[Path, argument("FILE", "Receipt as a JSON file.")],
    key: Annotated[str | None, option("KEY", "Check with this public key, without a store.")] = None,
    user: Annotated[str | None, option("ID", "Also check that the receipt is about this user.")] = None,
) -> None:
    """Check the signature of a receipt.

    The exit code is 1 if this installation did not sign it so.
    """
    from tenuto.privacy.compliance.receipts import parse_receipt, why_invalid
    from tenuto.privacy.compliance.views import ReceiptView

    try:
        receipt = parse_receipt(file.read_bytes())
    except OSError as error:
        raise Invalid(f"cannot read {file}: {error.strerror}") from error
    public_key = key or call.read(lambda app: app.privacy.signer.public_key())
    why = why_invalid(receipt, public_key, user)
    if call.as_json:
        show_json({"valid": why is None, "why": why, "receipt": ReceiptView.of(receipt)})
    elif why is None:
        show_facts(_receipt_facts(receipt))
        typer.echo("\nThe receipt is valid: it is unchanged since this installation signed it.")
    else:
        typer.echo(f"receipt_invalid: {why}", err=True)
    if why is not None:
        raise typer.Exit(1)


@privacy.command("reveal")
def reveal(
    call: UserCall,
    session_id: SessionId,
    marks: Annotated[list[str], argument("PLACEHOLDER", "Placeholders such as EMAIL_1, with or without brackets.")],
) -> None:
    """Show values behind placeholders; each look is audited."""

    async def reveal_values(app: Tenuto) -> dict[str, str]:
        if app.redactor.vault is None:
            raise InvalidSetting("privacy_key", "is needed to decrypt stored values: set it, or privacy_key_file")
        session = await whole_session_id(app, call.scope, session_id)
        return await app.privacy.reveal(call.scope, session, marks, by=operator_name())

    values = call.run(reveal_values)
    missing_marks = [mark for mark in dict.fromkeys(map(normalize_placeholder, marks)) if mark not in values]
    call.show({"values": values, "unknown": missing_marks}, lambda: show_facts(values.items()))
    if missing_marks and not call.as_json:
        typer.echo(visible(f"Unknown: {', '.join(missing_marks)}."), err=True)
    if missing_marks:
        raise typer.Exit(1)


@privacy.command("audit")
def audit(
    call: SiteCall,
    limit: Annotated[int, limit_option(1000)] = 100,
    after: Annotated[str, option("ID", "Continue after the entry of this ID.")] = "",
) -> None:
    """List reveals, fixes and erasures, oldest first."""
    from tenuto.privacy.compliance.views import AuditEntryView

    notes = call.read(lambda app: app.privacy.audit.notes(call.scope, after=after, limit=limit))
    if call.as_json:
        show_json({"entries": list(map(AuditEntryView.of, notes))})
    elif not notes:
        typer.echo("The audit log is empty.")
    else:
        rows = [(moment(note.at), note.act, note.by, msgspec.json.encode(note.about).decode()) for note in notes]
        show_table(("AT", "ACT", "BY", "ABOUT"), rows, flexible="ABOUT")
        if len(notes) == limit:
            typer.echo(f"\nThere may be more: --after {notes[-1].id}")


privacy.command("policy")(privacy_policies.show_policy)
privacy.command("test")(privacy_policies.try_text)
privacy.command("new-key")(privacy_policies.new_key)
privacy.command("rotate")(privacy_policies.rotate)
