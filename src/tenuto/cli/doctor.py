"""`tenuto doctor`: is this installation well, and if not, what to do.

Each check answers with one line. What is wrong ends the command with 1; a note is worth knowing and harms nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer
from msgspec.structs import replace

from tenuto.app import open_app
from tenuto.cli import chat_checks, checks, privacy_checks, task_checks
from tenuto.cli.checks import CheckStatus, Finding
from tenuto.cli.effective_settings import effective
from tenuto.cli.options import argument, flag
from tenuto.cli.running import SiteCall, sqlite_file
from tenuto.cli.terminal import pluralize, show_facts, show_json, visible, without_warnings
from tenuto.errors import TenutoError
from tenuto.extras import install_line
from tenuto.model import Scope
from tenuto.settings import Settings, read_settings

# A store that takes longer to open, write, read and delete is not well.
_TIMEOUT_SECONDS: Final = 20
_COLOURS: Final = {CheckStatus.OK: "green", CheckStatus.WARNING: "yellow", CheckStatus.ERROR: "red"}


class CheckedPart(StrEnum):
    """A part of an installation that is checked by asking others, and so only on request."""

    LARK = "lark"


def doctor(
    call: SiteCall,
    part: Annotated[CheckedPart | None, argument("PART", "Check only the apps on this platform.")] = None,
    show_settings: Annotated[bool, flag("--settings", "Also show every setting in force.")] = False,
) -> None:
    """Check this installation and advise what to do."""
    settings, findings = _run_checks(call.scope, call.store) if part is None else _run_lark_checks()
    well = all(finding.status is not CheckStatus.ERROR for finding in findings)
    settings_rows = effective(settings) if settings is not None else {}
    if call.as_json:
        values = {name: setting.value for name, setting in settings_rows.items()}
        sources = {name: setting.source for name, setting in settings_rows.items()}
        show_json({"ok": well, "checks": msgspec.to_builtins(findings), "settings": values, "sources": sources})
    else:
        _print_findings(findings)
        typer.echo(f"\n{_verdict(findings)}")
        if show_settings and settings_rows:
            typer.secho("\nSettings", bold=True)
            show_facts((name, f"{setting.value}  ({setting.source})") for name, setting in settings_rows.items())
    if not well:
        raise typer.Exit(1)


def _verdict(findings: Sequence[Finding]) -> str:
    warnings = sum(finding.status is CheckStatus.WARNING for finding in findings)
    if any(finding.status is CheckStatus.ERROR for finding in findings):
        return "Something is wrong; the lines marked error say what to do."
    return f"No errors, {pluralize(warnings, 'warning')}." if warnings else "All is well."


def _run_checks(scope: Scope, store: str | None) -> tuple[Settings | None, list[Finding]]:
    findings = checks.versions()
    try:
        settings = read_settings(store=store)
    except TenutoError as error:
        return None, [*findings, checks.settings_error(error)]
    findings.append(checks.settings_ok(settings))
    # Before the store is opened, since opening it may deliver waiting entries.
    outages = checks.outages(settings)
    file = sqlite_file(settings.store)
    # A file that was moved away would be replaced by an empty one, and its log be deleted.
    is_new = file is not None and not file.exists() and checks.can_begin(file, settings)
    if file is not None and is_new:
        findings += [checks.store_absent(file), *asyncio.run(_findings_without_store(settings, scope))]
    else:
        findings += asyncio.run(_store_findings(settings, scope))
    findings += outages
    if file is not None and file.is_file():
        findings += checks.check_sqlite_file(file, settings)
    return settings, findings


def _run_lark_checks() -> tuple[Settings | None, list[Finding]]:
    try:
        settings = read_settings()
        # Here, since it needs a package that not every installation has.
        from tenuto.cli import lark_checks

        return settings, asyncio.run(lark_checks.findings(settings))
    except ModuleNotFoundError as error:
        advice = install_line("lark")
        says = f"the package {error.name} is missing"
        return None, [Finding(name="lark", status=CheckStatus.ERROR, message=says, advice=advice)]
    except TenutoError as error:
        return None, [checks.settings_error(error)]


async def _store_findings(settings: Settings, scope: Scope) -> list[Finding]:
    """What only an open store can tell; the first failure of the store ends the list.

    Models, assistants and tasks are beside the store, and their time is none of its own: libraries of providers take
    seconds to load, and a provider may take as long to answer.
    """
    findings: list[Finding] = []
    try:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                app = await stack.enter_async_context(open_app(replace(settings, l1=False), run_upkeep=False))
                findings.append(await checks.answers(app))
                findings.append(await checks.check_round_trip(app.store.sessions))
                findings += await checks.check_durability(app.stores.backend)
                findings.append(await checks.holdings(app, scope))
                findings.append(await checks.clock(app, scope))
                findings.append(await checks.credentials(app))
            # The finding about a model says what its warnings say.
            with without_warnings("tenuto.llm"):
                findings += await chat_checks.talking(app)
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                findings += await task_checks.findings(app)
                findings += await privacy_checks.findings(app, scope)
    except TimeoutError:
        findings.append(checks.store_timeout(settings, _TIMEOUT_SECONDS))
    except TenutoError as error:
        finding = privacy_checks.privacy_settings_error(error)
        findings.append(finding if finding is not None else checks.store_error(settings, error))
    return findings


async def _findings_without_store(settings: Settings, scope: Scope) -> list[Finding]:
    """What can be told before there is a store."""
    findings: list[Finding] = []
    empty = replace(settings, store="memory://", l1=False)
    try:
        async with open_app(empty, run_upkeep=False) as app:
            findings.append(await checks.credentials(app))
            with without_warnings("tenuto.llm"):
                findings += await chat_checks.talking(app)
            findings += await task_checks.findings(app, with_engine=False)
            findings += await privacy_checks.findings(app, scope)
    except TenutoError as error:
        finding = privacy_checks.privacy_settings_error(error)
        findings.append(finding if finding is not None else checks.store_error(settings, error))
    return findings


def _print_findings(findings: Sequence[Finding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark = typer.style(f"{finding.status:<7}", fg=_COLOURS[finding.status])
        typer.echo(f"{mark}  {finding.name:<{width}}  {visible(finding.message)}")
        if finding.advice is not None:
            typer.echo(f"{'':7}  {'':{width}}  -> {visible(finding.advice)}")
