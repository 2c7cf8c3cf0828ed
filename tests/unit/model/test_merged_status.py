"""The status of several workers as one."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenuto.model.merged_status import merge_views
from tenuto.model.status import Level, StatusFinding, StatusView
from tenuto.server.status import _EXAMPLE

ONE = msgspec.convert(_EXAMPLE, StatusView)
SLOW = StatusFinding(code="store_slow", level=Level.WARNING, message="slow", advice="wait")
FAILED = StatusFinding(code="task_worker", level=Level.ERROR, message="failed", advice="look")


def test_numbers_are_sums_and_states_the_worst() -> None:
    assert ONE.breaker is not None
    assert ONE.cache is not None
    model = replace(ONE.models[0], failed_in_a_row=3, p95_ms=9000.0, answered=2)
    other = replace(
        ONE,
        findings=[SLOW, FAILED],
        breaker=replace(ONE.breaker, state="open", rejected=5),
        cache=replace(ONE.cache, hits=0, misses=6115),
        models=[model, replace(model, name="other:model")],
        store=replace(ONE.store, answers=False),
        tasks=replace(ONE.tasks, status="unavailable", error="engine_failed"),
    )

    merged = merge_views([replace(ONE, findings=[SLOW]), other], 2)

    assert merged.findings == [FAILED, SLOW]
    assert merged.level is Level.ERROR
    assert (merged.process.workers, merged.process.cpu_seconds) == (2, 83.0)
    assert merged.process.memory_bytes == 2 * 121634816
    assert merged.breaker == replace(ONE.breaker, state="open", rejected=5)
    assert merged.cache is not None
    assert (merged.cache.sessions, merged.cache.hit_rate) == (1624, 0.426)
    assert (merged.turns.answered, merged.turns.live, merged.sessions.created) == (3660, 6, 840)
    assert merged.jobs.done == 1280
    assert merged.jobs.unread_seconds == 0.8
    assert [(each.name, each.answered, each.failed_in_a_row, each.p95_ms) for each in merged.models] == [
        ("openai:gpt-5.4-mini", 1830, 3, 9000.0),
        ("other:model", 2, 3, 9000.0),
    ]
    assert not merged.store.answers
    slow = replace(ONE, store=replace(ONE.store, ping_ms=900.0))
    assert merge_views([ONE, slow], 2).store.ping_ms == 900.0
    assert merged.tasks.error == "engine_failed"


def test_a_worker_that_does_not_answer_is_a_finding() -> None:
    merged = merge_views([ONE], 3)

    assert [(finding.code, finding.level) for finding in merged.findings] == [("workers_silent", Level.WARNING)]
    assert merged.level is Level.WARNING
    assert replace(merged, level=ONE.level, findings=[], process=ONE.process) == ONE
