"""Metrics: requests by route, session events, store, detector. Labels are routes and kinds, never ids or text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tenuto.errors import TurnStopped
from tenuto.llm import ModelCallLog
from tenuto.model.privacy import Sink
from tenuto.model.turn import Trace
from tenuto.ports import CacheCounts
from tenuto.sessions import SessionEvent
from tenuto.sessions.events import EventKind
from tenuto.stores.breaker import BreakerState, CircuitState
from tenuto.upkeep import ScheduledScan, Upkeep
from tenuto.wiring.stores import Stores

# They come with tables and stores of their own.
if TYPE_CHECKING:
    from tenuto.privacy.detection.external import ExternalDetector
    from tenuto.stores.engine.journal import Journal

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_ANSWERED = "answered"
# How turns end that their users gave up: they say nothing about the model.
_GIVEN_UP = frozenset({"cancelled", "turn_stopped"})
_FAILURES_KEPT = 1000
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class Metrics:
    """The meters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tenuto_http_requests", "Requests answered", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "tenuto_http_request_seconds",
            "Time to answer",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.failed_turns_in_a_row = 0
        # When turns began that failed for another reason than the model's, and their assistants.
        self._failed_lately: deque[tuple[datetime, str]] = deque(maxlen=_FAILURES_KEPT)
        self._by_route: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._events = Counter("tenuto_session_events", "Session events", ["kind"], registry=self._registry)
        self._turns = Counter("tenuto_turns", "Turns that ended", ["assistant", "outcome"], registry=self._registry)
        self._degraded = Counter("tenuto_turns_degraded", "Degraded answers", ["what"], registry=self._registry)
        self._tokens = Counter(
            "tenuto_model_tokens", "Tokens that models read and wrote", ["model", "direction"], registry=self._registry
        )
        self._steps = Histogram(
            "tenuto_turn_step_seconds",
            "Time of a turn's steps",
            ["step"],
            buckets=(*_SECONDS, 30, 120),
            registry=self._registry,
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        meters = self._by_route.get((method, route, status))
        if meters is None:
            known = method if method in _METHODS else "other"
            meters = self._requests.labels(known, route, str(status)), self._seconds.labels(known, route)
            if known == method:
                self._by_route[method, route, status] = meters
        meters[0].inc()
        meters[1].observe(seconds)

    async def count_session_event(self, event: SessionEvent) -> None:
        """Count what happened to a session."""
        self._events.labels(event.kind.value).inc()

    def count_turn(self, trace: Trace) -> None:
        """Count a turn that ended."""
        self._turns.labels(trace.assistant, trace.error or _ANSWERED).inc()
        if trace.error not in _GIVEN_UP:
            self.failed_turns_in_a_row = 0 if trace.error is None else self.failed_turns_in_a_row + 1
            if trace.error is not None and trace.reason is None:
                self._failed_lately.append((trace.began_at, trace.assistant))
        for what in trace.degraded:
            self._degraded.labels(what).inc()
        if trace.error is None:
            self._tokens.labels(trace.model, "in").inc(trace.input_tokens)
            self._tokens.labels(trace.model, "out").inc(trace.output_tokens)
        for step, milliseconds in trace.steps.items():
            self._steps.labels(step).observe(milliseconds / 1000)

    def failed_assistants(self, since: datetime) -> list[str]:
        """Assistants of which a turn failed that began since then, for another reason than the model's."""
        return list(dict.fromkeys(name for began, name in self._failed_lately if began >= since))

    def ended_turns(self) -> tuple[int, int]:
        """How many turns were answered, and how many failed. One that was stopped without an answer did neither."""
        totals = {False: 0.0, True: 0.0}
        for sample in _totals(self._turns):
            if sample.labels["outcome"] != TurnStopped.code:
                totals[sample.labels["outcome"] == _ANSWERED] += sample.value
        return int(totals[True]), int(totals[False])

    def session_events(self, kind: EventKind) -> int:
        """How often this happened to sessions."""
        return int(sum(sample.value for sample in _totals(self._events) if sample.labels["kind"] == kind))

    def watch(
        self,
        stores: Stores,
        calls: ModelCallLog,
        upkeep: Upkeep,
        detector: ExternalDetector | None = None,
        scan: ScheduledScan | None = None,
    ) -> None:
        """Register models, captures, breaker, L1 cache, journal, detector and scheduled scan, if present."""
        self._registry.register(_ModelCollector(calls))
        self._registry.register(_CaptureCollector(upkeep))
        if stores.circuit is not None:
            self._registry.register(_BreakerCollector(stores.circuit))
        if stores.cache is not None:
            self._registry.register(_CacheCollector(stores.cache))
        if stores.journal is not None:
            self._registry.register(_JournalCollector(stores.journal))
        if detector is not None:
            self._registry.register(_DetectorCollector(detector))
        if scan is not None:
            self._registry.register(_ScanCollector(scan))

    def text(self) -> bytes:
        """All meters, as Prometheus reads them."""
        return generate_latest(self._registry)

    async def encode(self) -> bytes:
        """All meters, for `merged_text`."""
        return msgspec.json.encode(
            [
                MeterFamily(
                    name=family.name,
                    help=family.documentation,
                    kind=family.type,
                    # A truth is a number here as well.
                    samples=[(sample.name, sample.labels, float(sample.value)) for sample in family.samples],
                )
                for family in self._registry.collect()
            ]
        )


class MeterFamily(msgspec.Struct, frozen=True):
    """A metric with its samples: names, labels and values."""

    name: str
    help: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


def merged_text(answers: Mapping[int, bytes], workers: int) -> bytes:
    """The meters of several workers; the label `worker` names whose a sample is, since their counters begin again one
    by one."""
    return generate_latest(_MergedCollector(answers, workers))


class _MergedCollector(Collector):
    def __init__(self, answers: Mapping[int, bytes], workers: int) -> None:
        self._answers = answers
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        merged: dict[str, Metric] = {}
        for number, answer in self._answers.items():
            for family in msgspec.json.decode(answer, type=list[MeterFamily]):
                metric = merged.setdefault(family.name, Metric(family.name, family.help, family.kind))
                for name, labels, value in family.samples:
                    metric.add_sample(name, {**labels, "worker": str(number)}, value)
        up = merged["tenuto_worker_up"] = GaugeMetricFamily(
            "tenuto_worker_up", "Whether a worker answered its fellow that was asked", labels=["worker"]
        )
        for number in range(1, self._workers + 1):
            up.add_metric([str(number)], number in self._answers)
        yield from merged.values()


def _totals(counter: Counter) -> Iterator[Sample]:
    """The values of a counter, without the times of their creation."""
    return (sample for family in counter.collect() for sample in family.samples if sample.name.endswith("_total"))


class _ModelCollector(Collector):
    """The calls of models, read at collection."""

    def __init__(self, calls: ModelCallLog) -> None:
        self._calls = calls

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "tenuto_model_calls", "Calls of providers' models, by outcome", labels=["model", "outcome"]
        )
        for calls in self._calls:
            family.add_metric([calls.name, _ANSWERED], calls.answered)
            for reason, count in calls.failures.items():
                family.add_metric([calls.name, reason], count)
        yield family


class _DetectorCollector(Collector):
    """The counters of the external detector, read at collection."""

    def __init__(self, outside: ExternalDetector) -> None:
        self._outside = outside

    def collect(self) -> Iterator[Metric]:
        counts = self._outside.counts
        asked = CounterMetricFamily(
            "tenuto_detector_requests", "Texts sent to the external detector, by outcome", labels=["result"]
        )
        for result in self._outside.RESULTS:
            asked.add_metric([result], counts.get(result, 0))
        yield asked
        yield CounterMetricFamily(
            "tenuto_detector_matches", "Values that only the external detector found", value=counts.get("matches", 0)
        )
        yield GaugeMetricFamily(
            "tenuto_detector_circuit_open", "Whether its circuit breaker is open", value=self._outside.circuit_open
        )


class _ScanCollector(Collector):
    """What the last scheduled privacy scan of this process found."""

    def __init__(self, scan: ScheduledScan) -> None:
        self._scan = scan

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("tenuto_privacy_scans", "Scheduled privacy scans", value=self._scan.scans)
        found = GaugeMetricFamily(
            "tenuto_privacy_violations", "Values that violated the policy in the last scheduled scan", labels=["sink"]
        )
        for sink in Sink:
            found.add_metric([sink.value], self._scan.violations[sink])
        yield found


class _BreakerCollector(Collector):
    """Circuit state and rejected calls."""

    def __init__(self, circuit: CircuitState) -> None:
        self._circuit = circuit

    def collect(self) -> Iterator[Metric]:
        stands = GaugeMetricFamily(
            "tenuto_store_circuit_state", "State of the store's circuit breaker", labels=["state"]
        )
        for state in BreakerState:
            stands.add_metric([state.value], self._circuit.state is state)
        yield stands
        yield CounterMetricFamily(
            "tenuto_store_rejected_calls",
            "Calls rejected while the store's circuit breaker was open",
            value=self._circuit.rejected,
        )


class _CaptureCollector(Collector):
    """What users said and no capture has read yet."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    def collect(self) -> Iterator[Metric]:
        statements, since = self._upkeep.backlog
        yield GaugeMetricFamily(
            "tenuto_capture_backlog", "Statements of users that were not read for memories yet", value=statements
        )
        yield GaugeMetricFamily(
            "tenuto_capture_backlog_start_seconds",
            "When the oldest of them was said, in seconds since 1970; 0 without one",
            value=since.timestamp() if since is not None else 0,
        )


class _JournalCollector(Collector):
    """Turns acknowledged while the store was unavailable."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def collect(self) -> Iterator[Metric]:
        state = self._journal.status
        yield GaugeMetricFamily(
            "tenuto_journal_waiting", "Turns waiting in the journal for the store", value=state.waiting
        )
        yield GaugeMetricFamily(
            "tenuto_journal_quarantined", "Quarantined turns: the store can never accept them", value=state.quarantined
        )
        yield CounterMetricFamily(
            "tenuto_journal_replayed", "Turns delivered from the journal to the store", value=state.replayed
        )
        yield CounterMetricFamily(
            "tenuto_journal_refused", "Turns and appends refused while the store was unavailable", value=state.refused
        )
        yield GaugeMetricFamily(
            "tenuto_journal_outage_start_seconds",
            "When the store became unavailable, in seconds since 1970; 0 while it answers",
            value=state.since.timestamp() if state.since is not None else 0,
        )


class _CacheCollector(Collector):
    """The counters of the cache, read at collection."""

    def __init__(self, counts: CacheCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        looks = CounterMetricFamily("tenuto_cache_reads", "Reads that L1 answered or passed on", labels=["result"])
        looks.add_metric(["hit"], self._counts.hits)
        looks.add_metric(["miss"], self._counts.misses)
        yield looks
        yield GaugeMetricFamily("tenuto_cache_sessions", "Sessions in L1", value=len(self._counts))
