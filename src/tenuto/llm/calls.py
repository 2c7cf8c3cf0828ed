"""What became of the calls of each model in this process, for operators: times, counts and reasons, never words."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from tenuto.errors import FailureReason, ModelFailed, ModelTimeout
from tenuto.model.status import ModelFailure, ModelStatus
from tenuto.model.values import Value
from tenuto.ports import Clock, utc_now

# The calls that the rate of failures and the latencies are those of.
_RECENT: Final = 100


class _Call(Value, frozen=True, kw_only=True):
    seconds: float
    answered: bool


class ModelCalls:
    """The calls of one model. A call that its caller gave up before the time limit counts as neither."""

    def __init__(self, name: str, clock: Clock = utc_now) -> None:
        self.name = name
        self._clock = clock
        self._recent: deque[_Call] = deque(maxlen=_RECENT)
        self._answered = 0
        self._failed_in_a_row = 0
        self._last_answer_at: datetime | None = None
        self._last_failure: ModelFailure | None = None
        self.provider_message = ""
        """What the provider said itself of the last call, where it failed for a reason of access."""
        self.failures: Counter[FailureReason] = Counter()

    @contextmanager
    def call(self, limit: timedelta | None = None) -> Iterator[list[ModelFailed]]:
        """Count what becomes of a call; one that is cancelled after its time limit was too slow.

        A failure that the caller is told as an answer goes into the list: the provider declined to say anything.
        """
        began = time.perf_counter()
        declined: list[ModelFailed] = []
        try:
            yield declined
        except ModelFailed as error:
            self._fail(error, began)
            raise
        except asyncio.CancelledError:
            # The caller's own clock began a moment before.
            if limit is not None and time.perf_counter() - began >= 0.9 * limit.total_seconds():
                self._fail(ModelTimeout(self.name), began)
            raise
        if declined:
            self._fail(declined[0], began)
            return
        self._answered += 1
        self._failed_in_a_row, self.provider_message = 0, ""
        self._last_answer_at = self._clock()
        self._recent.append(_Call(seconds=time.perf_counter() - began, answered=True))

    def _fail(self, error: ModelFailed, began: float) -> None:
        # Not the error itself, whose traceback would keep the prompt of the call in memory.
        self.provider_message = error.provider_message
        self.failures[error.reason] += 1
        self._failed_in_a_row += 1
        self._last_failure = ModelFailure(at=self._clock(), reason=error.reason, code=error.code, message=str(error))
        self._recent.append(_Call(seconds=time.perf_counter() - began, answered=False))

    @property
    def answered(self) -> int:
        """How many calls were answered since the start."""
        return self._answered

    @property
    def status(self) -> ModelStatus:
        """How the model is, as a view."""
        seconds = sorted(call.seconds for call in self._recent if call.answered)
        failed = sum(not call.answered for call in self._recent)
        return ModelStatus(
            name=self.name,
            answered=self._answered,
            failed=self.failures.total(),
            failed_in_a_row=self._failed_in_a_row,
            failure_rate=round(failed / len(self._recent), 3) if self._recent else None,
            last_answer_at=self._last_answer_at,
            last_failure=self._last_failure,
            p50_ms=_percentile(seconds, 0.50),
            p95_ms=_percentile(seconds, 0.95),
        )


class ModelCallLog:
    """The calls of every provider's model that this process has opened, by name."""

    def __init__(self, clock: Clock = utc_now) -> None:
        self._clock = clock
        self._calls: dict[str, ModelCalls] = {}

    def of(self, name: str) -> ModelCalls:
        """The calls of the model of that name: one model has one record, in however many chains it stands."""
        return self._calls.setdefault(name, ModelCalls(name, self._clock))

    def __iter__(self) -> Iterator[ModelCalls]:
        return iter(self._calls.values())


def _percentile(ordered: list[float], share: float) -> float | None:
    """Milliseconds, by the nearest rank."""
    if not ordered:
        return None
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)
