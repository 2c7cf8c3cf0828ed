"""A turn for the reader: what the model saw, how long each step took, what the tools did."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import msgspec
import typer

from tenuto.cli.bars import bar_width, budget_bar, has_colours, timeline
from tenuto.cli.terminal import moment, pluralize, show_facts, show_table, tally, visible
from tenuto.model.prompt import Manifest, ManifestEntry, PartState, PartText
from tenuto.model.session import NANOS_PER_USD
from tenuto.model.turn import Trace

# Beside a step's bar stand its name and its milliseconds.
_BESIDE_STEPS: Final = 30
_STATES: Final = {
    PartState.REDACTED: "(redacted: the model saw the values)",
    PartState.CHANGED: "(changed since)",
    PartState.UNCHECKED: "(stored now; whether the model saw it so is not known here)",
    PartState.GONE: "(no longer stored)",
    PartState.UNSTORED: "(not stored)",
    PartState.WITHHELD: "(withheld)",
}


def show_trace(trace: Trace, texts: Sequence[PartText] | None = None) -> None:
    """Everything about a turn, with the `texts` of its prompt if they were asked for."""
    show_facts(_trace_facts(trace))
    for heading, text in (("Request", trace.request), ("Answer", trace.answer)):
        if text:
            typer.secho(f"\n{heading}", bold=True)
            typer.echo(visible(text, lines=True))
    if trace.tools:
        typer.secho("\nTools", bold=True)
        show_table(
            ("TOOL", "MS", "OUTCOME", "ARGUMENTS"),
            [
                (
                    run.name,
                    f"{run.milliseconds:,.1f}",
                    run.error or "answered",
                    msgspec.json.encode(run.arguments).decode(),
                )
                for run in trace.tools
            ],
            flexible="ARGUMENTS",
            numbers=("MS",),
        )
    for run in trace.tools:
        if run.exception:
            typer.echo(visible(f"{run.name} raised {run.exception}"))
    typer.secho("\nSteps", bold=True)
    for line in timeline(trace.steps, width=bar_width(_BESIDE_STEPS)):
        typer.echo(line)
    typer.secho("\nContext", bold=True)
    show_manifest(trace.manifest, failed=trace.error is not None)
    if trace.manifest is not None and texts is not None:
        _show_texts(trace.manifest, texts)


def _show_texts(manifest: Manifest, texts: Sequence[PartText]) -> None:
    for entry, part in zip(manifest.entries, texts, strict=True):
        labels = filter(None, (entry.kind, _entry_text(entry), part.speaker or part.role))
        typer.secho(f"\n{' '.join(labels)}", bold=True)
        if part.state is not PartState.STORED:
            typer.secho(_STATES[part.state], dim=True)
        if part.text:
            typer.echo(visible(part.text, lines=True))


def outcome(trace: Trace) -> str:
    """How it ended, in a word or two."""
    if trace.stopped:
        return "stopped"
    if trace.error is not None:
        return trace.error if trace.reason is None else f"{trace.error}: {trace.reason}"
    return f"degraded: {', '.join(trace.degraded)}" if trace.degraded else "answered"


def _app_text(trace: Trace) -> str:
    """The app that asked, and what it asked for beside the talk."""
    task = f", {trace.app_task}" if trace.app_task else ""
    return f"{trace.app}{task}{'; stored against its store: false' if trace.store_overridden else ''}"


def _trace_facts(trace: Trace) -> list[tuple[str, str]]:
    tokens = f"{trace.input_tokens:,} in, {trace.output_tokens:,} out"
    persona = f" as {trace.persona}" if trace.persona else ""
    return [
        ("trace", trace.id),
        ("session", trace.session_id),
        ("turn", str(trace.number)),
        ("began", moment(trace.began_at)),
        ("assistant", f"{trace.assistant}{persona}"),
        *([("app", _app_text(trace))] if trace.app else []),
        ("model", trace.model),
        ("outcome", outcome(trace)),
        *([("because", trace.error_message)] if trace.error_message else []),
        ("tokens", tokens),
        ("cost", f"{Decimal(trace.cost_nanos) / NANOS_PER_USD:f} USD"),
        ("took", f"{sum(trace.steps.values()):,.1f} ms"),
        *([("redacted", tally(trace.redacted))] if trace.redacted else []),
    ]


def show_manifest(manifest: Manifest | None, *, failed: bool = False) -> None:
    """What the model saw: the budget as a bar, and what became of every part."""
    if manifest is None:
        why = "the turn ended before it" if failed else "a tool had the answer"
        typer.echo(f"No model was called: {why}.")
        return
    exact = "counted exactly" if manifest.exact and manifest.margin == 1 else "estimated with a margin"
    typer.echo(
        f"{pluralize(manifest.total, 'token')} of {manifest.prompt_limit:,} in the prompt, "
        f"{manifest.reply_tokens:,} kept for the reply ({exact})"
    )
    typer.echo(budget_bar(manifest, width=bar_width(), coloured=has_colours()))
    show_table(
        ("KIND", "DISPOSITION", "REASON", "TOKENS", "WHAT"),
        [
            (entry.kind, entry.disposition, entry.reason, f"{entry.tokens:,}", _entry_text(entry))
            for entry in manifest.entries
        ],
        flexible="WHAT",
        numbers=("TOKENS",),
    )


def _entry_text(entry: ManifestEntry) -> str:
    """Which one it is: messages by their numbers, evidence and memories by their ids."""
    if entry.first is not None and entry.last is not None:
        place = f"#{entry.first}" if entry.first == entry.last else f"#{entry.first} to #{entry.last}"
    else:
        place = entry.id or ""
    cut = f"of {entry.uncut_tokens:,} tokens" if entry.uncut_tokens > entry.tokens > 0 else ""
    return ", ".join(filter(None, (place, cut)))
