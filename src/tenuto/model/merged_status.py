"""How the workers of a server are together: numbers are sums, states and times the worst of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from tenuto.model.status import Level, ModelStatus, StatusFinding, StatusView, worst_level
from tenuto.model.values import View

_Part = TypeVar("_Part", bound=View)
_TASKS: Final = ("unavailable", "ready", "idle")


def merge_views(views: Sequence[StatusView], workers: int) -> StatusView:
    """One view of several workers, of which some may not have answered."""
    findings = _merge_findings(views, len(views), workers)
    breakers = [view.breaker for view in views if view.breaker is not None]
    journals = [view.journal for view in views if view.journal is not None]
    caches = [view.cache for view in views if view.cache is not None]
    turns, jobs = [view.turns for view in views], [view.jobs for view in views]
    sessions, memory = [view.sessions for view in views], [view.process.memory_bytes for view in views]
    looks, hits = sum(each.hits + each.misses for each in caches), sum(each.hits for each in caches)
    breaker = max(breakers, key=lambda one: one.state != "closed", default=None)
    # What waits is the machine's: every worker tells the same.
    journal = max(journals, key=lambda one: (one.waiting, one.since is not None), default=None)
    names = dict.fromkeys(model.name for view in views for model in view.models)
    cached = ("sessions", "max_sessions", "bytes", "max_bytes", "hits", "misses")
    return StatusView(
        level=worst_level(findings),
        findings=findings,
        process=replace(
            min((view.process for view in views), key=lambda process: process.started_at),
            cpu_seconds=round(sum(view.process.cpu_seconds for view in views), 2),
            memory_bytes=None if None in memory else sum(each or 0 for each in memory),
            workers=workers,
        ),
        store=max((view.store for view in views), key=lambda store: (not store.answers, store.ping_ms or 0)),
        breaker=None if breaker is None else _add_up(breaker, breakers, "rejected"),
        journal=None if journal is None else _add_up(journal, journals, "replayed", "refused"),
        cache=replace(_add_up(caches[0], caches, *cached), hit_rate=round(hits / looks, 3) if looks else None)
        if caches
        else None,
        turns=_add_up(
            max(turns, key=lambda one: one.failed_in_a_row), turns, "live", "answered", "failed", "per_minute"
        ),
        models=[_merge_models([one for view in views for one in view.models if one.name == name]) for name in names],
        sessions=_add_up(sessions[0], sessions, "created", "deleted", "expired", "created_per_minute"),
        jobs=replace(
            _add_up(
                *(max(jobs, key=lambda one: one.failed_in_a_row), jobs),
                *("waiting", "running", "done", "failed", "unread"),
            ),
            unread_seconds=max((one.unread_seconds for one in jobs if one.unread_seconds is not None), default=None),
        ),
        tasks=min((view.tasks for view in views), key=lambda tasks: _TASKS.index(tasks.status)),
    )


def _merge_findings(views: Sequence[StatusView], answering: int, workers: int) -> list[StatusFinding]:
    """Each once, the worst first."""
    findings = list({(each.code, each.subject): each for view in views for each in view.findings}.values())
    if answering < workers:
        findings.append(
            StatusFinding(
                code="workers_silent",
                level=Level.WARNING,
                message="Workers of this server do not answer.",
                advice="They are being started, or hang: the log of `tenuto serve` says which.",
            )
        )
    return sorted(findings, key=lambda finding: finding.level is not Level.ERROR)


def _merge_models(models: Sequence[ModelStatus]) -> ModelStatus:
    """The calls of one model."""
    worst = max(models, key=lambda model: (model.failed_in_a_row, model.failure_rate or 0.0))
    return replace(
        _add_up(worst, models, "answered", "failed"),
        last_answer_at=max((model.last_answer_at for model in models if model.last_answer_at), default=None),
        last_failure=max(
            (model.last_failure for model in models if model.last_failure), key=lambda failure: failure.at, default=None
        ),
        p50_ms=max((model.p50_ms for model in models if model.p50_ms is not None), default=None),
        p95_ms=max((model.p95_ms for model in models if model.p95_ms is not None), default=None),
    )


def _add_up(kept: _Part, parts: Sequence[_Part], *names: str) -> _Part:
    """One of them, with the sums of all in these fields."""
    return replace(kept, **{name: _total([getattr(part, name) for part in parts]) for name in names})


def _total(numbers: Sequence[float]) -> float:
    total = sum(numbers)
    return total if isinstance(total, int) else round(total, 2)
