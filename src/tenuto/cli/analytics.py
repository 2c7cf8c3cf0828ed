"""`tenuto usage` and `tenuto topics`: what a tenant's site used, and what its sessions are about."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from tenuto.cli.bars import bars
from tenuto.cli.options import LOCAL, AsJson, Site, StoreUrl, Tenant, caller
from tenuto.cli.running import run_command
from tenuto.cli.terminal import pluralize, show_json, show_table
from tenuto.model.analytics import USAGE_DAYS, UsageCounts, UsageReport
from tenuto.model.session import usd
from tenuto.sessions.views import TopicReportView, UsageReportView

_BAR: Final = 24
_COLUMNS: Final = ("TURNS", "INPUT", "OUTPUT", "USD")
Days: TypeAlias = Annotated[
    int, typer.Option("--days", min=1, max=USAGE_DAYS, metavar="N", help="Number of days, today (UTC) included.")
]


def usage(
    days: Days = 30, tenant: Tenant = LOCAL, site: Site = "", store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Count turns, tokens and cost by day and assistant."""
    scope = caller(tenant, site, None)
    report = run_command(lambda app: app.analytics.usage(scope, days=days), store=store, read_only=True)
    if as_json:
        show_json(UsageReportView.of(report))
    elif not report.rows:
        typer.echo(f"No usage since {report.first_day.isoformat()}.")
    else:
        _show_usage(report)


def _show_usage(report: UsageReport) -> None:
    by_day, by_assistant = report.by_day, report.by_assistant
    lengths = bars([counts.tokens for counts in by_day.values()], width=_BAR)
    rows = [(day.isoformat(), *_cells(counts), bar) for (day, counts), bar in zip(by_day.items(), lengths, strict=True)]
    total = ("total", *_cells(report.total), "")
    show_table(("DAY", *_COLUMNS, "TOKENS"), [*rows, total], flexible="TOKENS", numbers=_COLUMNS)
    typer.echo()
    shares = bars([counts.tokens for counts in by_assistant.values()], width=_BAR)
    named = [
        (name or "(titles, summaries)", *_cells(counts), bar)
        for (name, counts), bar in zip(by_assistant.items(), shares, strict=True)
    ]
    show_table(("ASSISTANT", *_COLUMNS, "TOKENS"), named, flexible="TOKENS", numbers=_COLUMNS)


def _cells(counts: UsageCounts) -> tuple[str, ...]:
    numbers = (counts.turns, counts.input_tokens, counts.output_tokens)
    return (*(f"{number:,}" for number in numbers), usd(counts.cost_nanos))


def topics(
    days: Days = 7,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, metavar="N", help="Maximum number of results.")] = 20,
    tenant: Tenant = LOCAL,
    site: Site = "",
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show topics that three or more users raised."""
    scope = caller(tenant, site, None)
    report = run_command(lambda app: app.analytics.topics(scope, days=days, limit=limit), store=store, read_only=True)
    if as_json:
        show_json(TopicReportView.of(report))
        return
    if report.topics:
        lengths = bars([topic.sessions for topic in report.topics], width=_BAR)
        rows = [
            (topic.name, f"{topic.sessions:,}", f"{topic.users:,}", bar)
            for topic, bar in zip(report.topics, lengths, strict=True)
        ]
        show_table(("TOPIC", "SESSIONS", "USERS", ""), rows, flexible="TOPIC", numbers=("SESSIONS", "USERS"))
        typer.echo()
    else:
        typer.echo("No topic was raised by at least three users.")
    older = "; older ones in this period were not read" if report.truncated else ""
    typer.echo(f"{pluralize(report.sessions, 'session')} since {report.first_day.isoformat()}{older}.")
