"""`tenuto usage` and `tenuto topics`: what a tenant's site used, and what its sessions are about."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from tenuto.cli.bars import bars
from tenuto.cli.options import limit_option, option
from tenuto.cli.running import SiteCall
from tenuto.cli.terminal import pluralize, show_table
from tenuto.model.analytics import USAGE_DAYS, TopicReport, UsageCounts, UsageReport
from tenuto.model.session import usd
from tenuto.sessions.views import TopicReportView, UsageReportView

_BAR: Final = 24
_COLUMNS: Final = ("TURNS", "INPUT", "OUTPUT", "USD")
Days: TypeAlias = Annotated[int, option("N", "Number of days, today (UTC) included.", min=1, max=USAGE_DAYS)]


def usage(call: SiteCall, days: Days = 30) -> None:
    """Count turns, tokens and cost by day and assistant."""
    report = call.read(lambda app: app.analytics.usage(call.scope, days=days))
    call.show(UsageReportView.of(report), lambda: _show_usage(report))


def _show_usage(report: UsageReport) -> None:
    if not report.rows:
        typer.echo(f"No usage since {report.first_day.isoformat()}.")
        return
    by_day, by_assistant = report.by_day, report.by_assistant
    lengths = bars([counts.tokens for counts in by_day.values()], width=_BAR)
    rows = [(day.isoformat(), *_cells(counts), bar) for (day, counts), bar in zip(by_day.items(), lengths, strict=True)]
    total = ("total", *_cells(report.total), "")
    show_table(("DAY", *_COLUMNS, "TOKENS"), [*rows, total], flexible="TOKENS", numbers=_COLUMNS)
    typer.echo()
    shares = bars([counts.tokens for counts in by_assistant.values()], width=_BAR)
    rows_named = [
        (name or "(titles, summaries)", *_cells(counts), bar)
        for (name, counts), bar in zip(by_assistant.items(), shares, strict=True)
    ]
    show_table(("ASSISTANT", *_COLUMNS, "TOKENS"), rows_named, flexible="TOKENS", numbers=_COLUMNS)


def _cells(counts: UsageCounts) -> tuple[str, ...]:
    numbers = (counts.turns, counts.input_tokens, counts.output_tokens)
    return (*(f"{number:,}" for number in numbers), usd(counts.cost_nanos))


def topics(call: SiteCall, days: Days = 7, limit: Annotated[int, limit_option(100)] = 20) -> None:
    """Show topics that three or more users raised."""
    report = call.read(lambda app: app.analytics.topics(call.scope, days=days, limit=limit))
    call.show(TopicReportView.of(report), lambda: _show_topics(report))


def _show_topics(report: TopicReport) -> None:
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
