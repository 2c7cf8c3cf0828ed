"""How a server process is: the one view of it for HTTP, the page and `tenuto top`.

Numbers only: it covers every tenant, so it names no session, user or tenant. The findings say what an operator should
look at, by a stable code; the page has its own words for each code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from tenuto.errors import FailureReason, PromptTooLong
from tenuto.extras import install_line, with_folder
from tenuto.model.values import View

_SLOW_MS: Final = 250.0
_LONG_UNREAD: Final = 300
_MANY_JOBS: Final = 100
# Fewer failures in a row prove little: the next attempt of a job often succeeds.
_FAILING: Final = 5
_FAILING_TURNS: Final = 3
_HALF: Final = 0.5
_MODEL_ADVICE: Final = {
    FailureReason.UNREACHABLE: "Start its server, or check its address (TENUTO_MODEL_BASE_URL, or the provider's own, "
    "as OLLAMA_BASE_URL) and the network.",
    FailureReason.REFUSED: (
        "Check the key, its permissions and the model's name; "
        "`tenuto doctor`, with the server's variables, asks the provider."
    ),
    FailureReason.LIMIT: "Wait, or raise the limit or quota with the provider; or add a second model.",
    FailureReason.TOO_SLOW: "Check its server's load, or raise TENUTO_FIRST_TOKEN_TIMEOUT or TENUTO_MODEL_TIMEOUT.",
    FailureReason.CONTENT_FILTER: "The provider's filter declined the question or the answer: look at the trace.",
    FailureReason.OTHER: (
        "Run `tenuto doctor` with the server's variables: it shows what the provider answers. The log says more."
    ),
}
_PROMPT_ADVICE: Final = "Lower TENUTO_PROMPT_TOKENS to what the model reads."
# SQLite keeps a log of 64 MiB for the next writes. One that is larger for long is one that cannot be emptied.
_LEAST_LARGE_LOG: Final = 128 * 1024 * 1024
_MOST_LOG: Final = 512 * 1024 * 1024
_LOG_SHARE: Final = 0.1
LARGE_LOG: Final = "The write-ahead log of the store has grown large."
LARGE_LOG_ADVICE: Final = (
    "Close what reads the file for long (a shell, a backup, an export): its log is emptied once no reader needs it."
)


class Level(StrEnum):
    """How bad something is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class StatusFinding(View, frozen=True, kw_only=True):
    """What is not as it should be, and what to do; `subject` names the model or assistant that it is about."""

    code: str
    level: Level
    message: str
    advice: str
    subject: str | None = None


class StoreStatus(View, frozen=True, kw_only=True):
    """The store without its credentials. `ping_ms` and `version` are null while it does not answer; the sizes of the
    file and of its write-ahead log are null for a server."""

    backend: str
    address: str
    answers: bool
    ping_ms: float | None
    version: str | None
    file_bytes: int | None = None
    log_bytes: int | None = None


class BreakerStatus(View, frozen=True, kw_only=True):
    """`closed`, `open` or `half-open`, and the calls that it rejected since the start."""

    state: str
    rejected: int


class JournalStatus(View, frozen=True, kw_only=True):
    """Turns on disk that wait for the store, the age of the oldest, and those that it refused. `since` is when the
    present outage began, null without one. Turns `replayed`, and turns and appends `refused` in an outage, are those of
    this process since its start."""

    waiting: int
    oldest_seconds: float | None
    quarantined: int
    replayed: int
    refused: int = 0
    since: datetime | None = None


class CacheStatus(View, frozen=True, kw_only=True):
    """The session cache of the process. `hit_rate` is null before the first read."""

    sessions: int
    max_sessions: int
    bytes: int
    max_bytes: int
    hits: int
    misses: int
    hit_rate: float | None


class JobsStatus(View, frozen=True, kw_only=True):
    """Upkeep: titles, summaries and memories after turns, and sweeps. `done` and `failed` count since the start,
    `failed_in_a_row` since the last success, each kind of sweep by itself: the worst of them. `unread` is the backlog
    of captures."""

    waiting: int
    running: int
    done: int
    failed: int
    failed_in_a_row: int
    unread: int = 0
    unread_seconds: float | None = None


class TurnsStatus(View, frozen=True, kw_only=True):
    """Turns that run now, those that ended since the start, and the failures since the last answer, without the turns
    that users cancelled."""

    live: int
    answered: int
    failed: int
    failed_in_a_row: int
    per_minute: float


class ModelFailure(View, frozen=True, kw_only=True):
    """The last failed call of a model: when, why, the code of the error, and its message, which has no words of users
    or of the provider."""

    at: datetime
    reason: FailureReason
    code: str
    message: str


class ModelStatus(View, frozen=True, kw_only=True):
    """The calls of a provider's model since the start: of turns, titles and summaries. `failed_in_a_row` counts since
    the last answer; `failure_rate`, `p50_ms` and `p95_ms` (whole answers) are those of the last 100 calls, and null
    where there is none. `address` is that of its server without a password, if it is set or local, and
    `address_variable` what sets it."""

    name: str
    answered: int
    failed: int
    failed_in_a_row: int
    failure_rate: float | None
    last_answer_at: datetime | None
    last_failure: ModelFailure | None
    p50_ms: float | None
    p95_ms: float | None
    address: str | None = None
    address_variable: str | None = None

    @property
    def is_failing(self) -> bool:
        """Whether its last call failed, or at least half of the last ones."""
        return self.failed_in_a_row > 0 or (self.failure_rate is not None and self.failure_rate >= _HALF)


class SessionsStatus(View, frozen=True, kw_only=True):
    """Sessions that this process created, deleted and let expire since the start."""

    created: int
    deleted: int
    expired: int
    created_per_minute: float


EXTRA_MISSING: Final = "extra_missing"
"""The error of the work on tasks where nothing needs it yet and the extra is not installed."""


class WorkerStatus(View, frozen=True, kw_only=True):
    """The work on tasks: `ready`, `idle` (no task needs it yet) or `unavailable` with the code of the `error`."""

    status: str
    error: str | None


class ProcessStatus(View, frozen=True, kw_only=True):
    """The server process, or all `workers` together, with the start of the oldest. `memory_bytes` is resident memory,
    null where the system does not tell."""

    version: str
    started_at: datetime
    uptime_seconds: float
    cpu_seconds: float
    memory_bytes: int | None
    workers: int = 1


class StatusView(View, frozen=True, kw_only=True):
    """How this server process is. `level` is that of the worst finding; without any it is `ok`.

    `breaker`, `journal` and `cache` are null where the store has none: the first two exist in front of servers only.
    `models` are those of providers, as settings and assistants name them; the offline model is none.
    """

    level: Level
    findings: list[StatusFinding]
    process: ProcessStatus
    store: StoreStatus
    breaker: BreakerStatus | None
    journal: JournalStatus | None
    cache: CacheStatus | None
    turns: TurnsStatus
    models: list[ModelStatus]
    sessions: SessionsStatus
    jobs: JobsStatus
    tasks: WorkerStatus


_NOTHING_LACKING: Final[Mapping[str, str]] = MappingProxyType({})


def find_problems(
    *,
    store: StoreStatus,
    breaker: BreakerStatus | None,
    journal: JournalStatus | None,
    turns: TurnsStatus,
    jobs: JobsStatus,
    tasks: WorkerStatus,
    models: Sequence[ModelStatus] = (),
    lacking: Mapping[str, str] = _NOTHING_LACKING,
    broken: Mapping[str, str] = _NOTHING_LACKING,
    failed: Sequence[str] = (),
) -> list[StatusFinding]:
    """What an operator should look at, the worst first. `lacking` has the command that installs the package of each
    assistant whose package is missing, `broken` why the file of an assistant cannot be loaded; of the
    assistants in `failed`, turns failed in the last minutes for another reason than the model's."""
    failing = [_model_finding(model, model.last_failure) for model in models if model.is_failing and model.last_failure]
    work = _work_findings(turns, jobs, tasks, store.answers, bool(failing))
    extras = _extra_findings(tasks, lacking)
    files = [_file_finding(name, cause) for name, cause in broken.items()]
    turns_failed = [_failed_finding(name) for name in failed] if store.answers else []
    found = [*_store_findings(store, breaker, journal), *failing, *files, *turns_failed, *extras, *work]
    return sorted(found, key=lambda finding: finding.level is not Level.ERROR)


def worst_level(findings: list[StatusFinding]) -> Level:
    """The level of all findings together."""
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.ERROR, Level.WARNING) if level in levels), Level.OK)


def is_large_log(log_bytes: int, file_bytes: int) -> bool:
    """Whether a SQLite file's write-ahead log is larger than its size explains."""
    return log_bytes > min(max(_LEAST_LARGE_LOG, int(file_bytes * _LOG_SHARE)), _MOST_LOG)


def _store_findings(
    store: StoreStatus, breaker: BreakerStatus | None, journal: JournalStatus | None
) -> Iterator[StatusFinding]:
    if not store.answers:
        then = "turns are kept in the journal until then" if journal is not None else "turns fail until then"
        yield _error(
            "store_unavailable",
            "The store does not answer.",
            f"Start it or check the network to {store.address}; {then}. Rates are counted by each process meanwhile.",
        )
    elif breaker is not None and breaker.state != "closed":
        yield _warning(
            "circuit_open", "The circuit breaker is not closed.", "Wait. It closes as soon as the store answers again."
        )
    elif store.ping_ms is not None and store.ping_ms > _SLOW_MS:
        yield _warning("store_slow", "The store answers slowly.", "Check its load and the network in between.")
    if store.log_bytes is not None and is_large_log(store.log_bytes, store.file_bytes or 0):
        yield _warning("log_large", LARGE_LOG, LARGE_LOG_ADVICE)
    if journal is not None and journal.quarantined:
        yield _error(
            "journal_quarantined",
            "The store refused turns of the journal.",
            "Run `tenuto journal` on this machine: it lists them and says why.",
        )
    if journal is not None and journal.waiting:
        yield _warning(
            "journal_waiting",
            "Turns are waiting in the journal.",
            "Keep the disk of this machine. The turns are delivered when the store answers again.",
        )


def _work_findings(
    turns: TurnsStatus, jobs: JobsStatus, tasks: WorkerStatus, store_answers: bool, model_fails: bool
) -> Iterator[StatusFinding]:
    if tasks.status == "unavailable" and tasks.error != EXTRA_MISSING:
        yield _error("task_worker", "This server does not work on tasks.", "Run `tenuto doctor` to see why.")
    if not store_answers:
        return  # What else fails meanwhile fails for that reason.
    if turns.failed_in_a_row >= _FAILING_TURNS and not model_fails:
        yield _warning("turns_failing", "The last turns failed.", "Look at their traces, which name the error.")
    if jobs.waiting >= _MANY_JOBS:
        yield _warning("jobs_waiting", "Upkeep has fallen behind.", "Check how fast summarizer_model answers.")
    if jobs.unread_seconds is not None and jobs.unread_seconds >= _LONG_UNREAD:
        yield _warning(
            "statements_unread",
            "What users said waits to be remembered.",
            "Check how fast embedder and summarizer_model answer. Nothing is lost meanwhile.",
        )
    if jobs.failed_in_a_row >= _FAILING:
        yield _warning(
            "jobs_failing", "The last upkeep jobs failed.", "Look for `postponed` in the log; check summarizer_model."
        )


def _extra_findings(tasks: WorkerStatus, lacking: Mapping[str, str]) -> Iterator[StatusFinding]:
    if tasks.error == EXTRA_MISSING:
        yield _warning(
            "tasks_extra", "Plans cannot run: the extra tasks is not installed.", with_folder(install_line("tasks"))
        )
    for name, install in lacking.items():
        yield replace(
            _warning("assistant_extra", f"The assistant {name} takes no turns: a package is missing.", install),
            subject=name,
        )


def _failed_finding(name: str) -> StatusFinding:
    message = f"The assistant {name} failed in the last minutes."
    return replace(_warning("assistant_failed", message, "Look at its traces, which name the exception."), subject=name)


def _file_finding(name: str, cause: str) -> StatusFinding:
    message = f"The assistant {name} takes no turns: its file cannot be loaded."
    return replace(_warning("assistant_file", message, f"{cause}."), subject=name)


def _model_finding(model: ModelStatus, failure: ModelFailure) -> StatusFinding:
    """By its reason: what to do is another thing for each. What the questions themselves caused is no error."""
    by_questions = failure.reason is FailureReason.CONTENT_FILTER or failure.code == PromptTooLong.code
    level = Level.WARNING if by_questions or model.failed_in_a_row < _FAILING_TURNS else Level.ERROR
    lead = "" if model.failed_in_a_row else "Half of the last calls of a model failed. "
    message = f"{lead}{failure.message[:1].upper()}{failure.message[1:]}."
    advice = _PROMPT_ADVICE if failure.code == PromptTooLong.code else _MODEL_ADVICE[failure.reason]
    if failure.reason is FailureReason.UNREACHABLE and model.address and model.address_variable:
        advice = f"Start its server at {model.address}, or set {model.address_variable} to its address."
    return StatusFinding(
        code=f"model_{failure.reason}", level=level, message=message, advice=advice, subject=model.name
    )


def _error(code: str, message: str, advice: str) -> StatusFinding:
    return StatusFinding(code=code, level=Level.ERROR, message=message, advice=advice)


def _warning(code: str, message: str, advice: str) -> StatusFinding:
    return StatusFinding(code=code, level=Level.WARNING, message=message, advice=advice)
