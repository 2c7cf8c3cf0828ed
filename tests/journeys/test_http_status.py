"""`GET /v1/status`: how the server is, for operators, and nothing about anyone in it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec import convert
from msgspec.structs import replace

from tenuto.access import KeyRole
from tenuto.errors import FailureReason, ModelFailed, ModelKeyRefused, PromptTooLong
from tenuto.extras import install_line, with_folder
from tenuto.llm import ScriptedModel
from tenuto.llm.calls import ModelCalls
from tenuto.llm.scripted import Fail
from tenuto.model.status import (
    BreakerStatus,
    JobsStatus,
    JournalStatus,
    Level,
    StatusView,
    StoreStatus,
    TurnsStatus,
    WorkerStatus,
    find_problems,
    worst_level,
)
from tenuto.model.turn import Trace
from tenuto.server import web_console
from tenuto.server.metrics import Metrics
from tests.journeys.http_service import ANN, HttpService, bearer, code, http_service, playing
from tests.journeys.json_web_tokens import JWT_SECRET, jwt_header
from tests.samples import SENT_AT


async def status(service: HttpService, who: dict[str, str] | None = None) -> StatusView:
    response = await service.http.get("/v1/status", headers=who)
    assert response.status_code == 200, response.text
    return convert(response.json(), StatusView)


async def test_the_status_counts_what_happened_and_names_no_one(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    async with http_service(store=store, **playing(ScriptedModel("One.", "Two.", Fail()))) as service:
        fresh = await status(service)
        first = await service.http.post("/v1/chat", headers=ANN, json={"message": "the-words"})
        session = {"session_id": first.json()["session_id"]}
        await service.http.post("/v1/chat", headers=ANN, json={"message": "more", **session})
        await service.http.post("/v1/chat", headers=ANN, json={"message": "again", **session})
        await service.tenuto.upkeep.drain()
        await service.http.get(f"/v1/sessions/{session['session_id']}", headers=ANN)
        text = (await service.http.get("/v1/status")).text
        used = await status(service)

    assert (fresh.level, fresh.findings, fresh.tasks.status) == (Level.OK, [], "idle")
    assert (fresh.breaker, fresh.journal) == (None, None)
    assert fresh.cache is not None
    assert fresh.cache.hit_rate is None
    turns, jobs, cache = used.turns, used.jobs, used.cache
    assert (turns.live, turns.answered, turns.failed, used.sessions.created) == (0, 2, 1, 1)
    assert (jobs.waiting, jobs.running, jobs.done >= 1) == (0, 0, True)
    assert cache is not None
    assert cache.hits >= 1
    assert cache.bytes > 0
    for secret in ("the-words", "acme", "ann", session["session_id"]):
        assert secret not in text


async def test_the_status_tells_what_store_and_process_take(tmp_path: Path) -> None:
    async with http_service(store=f"sqlite:///{tmp_path / 'sessions.db'}") as service:
        shown = await status(service)

    store, memory = shown.store, shown.process.memory_bytes
    assert (store.backend, store.answers, (store.version or "")[:9]) == ("sqlite", True, "SQLite 3.")
    assert (store.file_bytes or 0) > 0
    assert store.log_bytes is not None
    assert memory is None or memory > 10_000_000


async def test_a_server_that_can_run_no_plan_says_which_line_changes_that(monkeypatch: pytest.MonkeyPatch) -> None:
    # None stands for a module that cannot be found.
    monkeypatch.setitem(sys.modules, "dbos", None)
    async with http_service() as service:
        shown = await status(service)

    assert (shown.level, shown.tasks.status) == (Level.WARNING, "unavailable")
    assert shown.findings[0].advice == with_folder(install_line("tasks"))


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("path", ["/v1/status", "/metrics"])
async def test_what_covers_every_tenant_is_for_operators(path: str) -> None:
    """Not for an admin, whose reach is a tenant; nor may an admin make a key for it."""
    async with http_service(locked=True, metrics_token="scrape") as service:
        admin, operator = await service.key(role=KeyRole.ADMIN), await service.key(role=KeyRole.OPERATOR)
        granted = await service.http.post("/v1/keys", headers=admin, json={"role": "operator"})
        for wrong in ({}, bearer("scraped")):
            assert code(await service.http.get(path, headers=wrong)) == (401, "invalid_credential")
        for tenants in (await service.key(), await service.key(role=KeyRole.REVEAL), admin):
            assert code(await service.http.get(path, headers=tenants)) == (403, "forbidden")
        assert code(granted) == (403, "forbidden")
        for right in (operator, bearer("scrape")):
            assert (await service.http.get(path, headers=right)).status_code == 200
    async with http_service(jwt_secret=JWT_SECRET) as service:
        both = jwt_header("root", role=["admin", "operator"])
        assert code(await service.http.get(path, headers=jwt_header("root", role="admin"))) == (403, "forbidden")
        assert (await service.http.get(path, headers=both)).status_code == 200
        assert (await service.http.post("/v1/keys", headers=both, json={"role": "operator"})).status_code == 201


def test_turns_that_users_cancelled_say_nothing_about_the_model() -> None:
    meters = Metrics()
    for ended in ("model_failed", "cancelled", "turn_stopped", "model_failed", *["cancelled"] * 9):
        meters.count_turn(
            Trace(id="t", session_id="s", turn_id="1", number=1, began_at=SENT_AT, assistant="a", error=ended)
        )

    assert (meters.failed_turns_in_a_row, meters.ended_turns()) == (2, (0, 12))


WORDS = Path(web_console.__file__).parent / "console" / "words" / "health.js"
STORE = StoreStatus(backend="redis", address="redis://here:6379", answers=True, ping_ms=1.0, version="Redis 7.2")
GONE = StoreStatus(backend="redis", address="redis://here:6379", answers=False, ping_ms=None, version=None)
SLOW = StoreStatus(backend="redis", address="redis://here:6379", answers=True, ping_ms=900.0, version="Redis 7.2")
FILE = StoreStatus(
    backend="sqlite", address="t.db", answers=True, ping_ms=1.0, version="", file_bytes=3 << 30, log_bytes=300 << 20
)
LOGGED, LARGE = replace(FILE, log_bytes=1 << 30), replace(FILE, file_bytes=1 << 20, log_bytes=129 << 20)
CLOSED, HALF = BreakerStatus(state="closed", rejected=9), BreakerStatus(state="half-open", rejected=9)
EMPTY = JournalStatus(waiting=0, oldest_seconds=None, quarantined=0, replayed=4)
WAITING = JournalStatus(waiting=2, oldest_seconds=3.0, quarantined=1, replayed=0)
TURNS = TurnsStatus(live=0, answered=99, failed=50, failed_in_a_row=2, per_minute=1.0)
FAILING = TurnsStatus(live=0, answered=99, failed=50, failed_in_a_row=3, per_minute=1.0)
JOBS = JobsStatus(waiting=1, running=4, done=90, failed=30, failed_in_a_row=0)
UNREAD = JobsStatus(waiting=1, running=4, done=90, failed=30, failed_in_a_row=0, unread=3, unread_seconds=400.0)
BEHIND = JobsStatus(waiting=300, running=4, done=1, failed=9, failed_in_a_row=9)
IDLE, HINDERED = WorkerStatus(status="idle", error=None), WorkerStatus(status="unavailable", error="engine_failed")
ABSENT = WorkerStatus(status="unavailable", error="extra_missing")


@pytest.mark.parametrize(
    ("store", "breaker", "journal", "turns", "jobs", "tasks", "found"),
    [
        (STORE, CLOSED, EMPTY, TURNS, JOBS, IDLE, []),
        (STORE, None, None, TURNS, JOBS, IDLE, []),
        (FILE, None, None, TURNS, JOBS, IDLE, []),
        (STORE, None, None, TURNS, JOBS, ABSENT, ["tasks_extra"]),
        (LOGGED, None, None, TURNS, JOBS, IDLE, ["log_large"]),
        (LARGE, None, None, TURNS, JOBS, IDLE, ["log_large"]),
        (GONE, HALF, WAITING, FAILING, BEHIND, IDLE, ["store_unavailable", "journal_quarantined", "journal_waiting"]),
        (STORE, HALF, EMPTY, TURNS, JOBS, IDLE, ["circuit_open"]),
        (SLOW, CLOSED, EMPTY, FAILING, JOBS, IDLE, ["store_slow", "turns_failing"]),
        (STORE, CLOSED, EMPTY, TURNS, UNREAD, IDLE, ["statements_unread"]),
        (STORE, CLOSED, EMPTY, TURNS, BEHIND, HINDERED, ["task_worker", "jobs_waiting", "jobs_failing"]),
    ],
)
def test_findings_say_what_to_look_at_the_worst_first(
    store: StoreStatus,
    breaker: BreakerStatus | None,
    journal: JournalStatus | None,
    turns: TurnsStatus,
    jobs: JobsStatus,
    tasks: WorkerStatus,
    found: list[str],
) -> None:
    findings = find_problems(store=store, breaker=breaker, journal=journal, turns=turns, jobs=jobs, tasks=tasks)

    assert [finding.code for finding in findings] == found
    assert all(f'"health.finding.{finding.code}"' in WORDS.read_text() for finding in findings)
    assert worst_level(findings) is (findings[0].level if findings else Level.OK)


@pytest.mark.parametrize(
    ("error", "level", "advice"),
    [
        (ModelKeyRefused("m", "refuses our key", FailureReason.REFUSED), Level.ERROR, "Check the key"),
        (PromptTooLong("m", "cannot take a prompt this long", FailureReason.REFUSED), Level.WARNING, "PROMPT_TOKENS"),
        (ModelFailed("m", "declined to answer", FailureReason.CONTENT_FILTER), Level.WARNING, "filter"),
    ],
)
def test_what_questions_cause_is_no_broken_model(error: ModelFailed, level: Level, advice: str) -> None:
    calls = ModelCalls("m")
    for _ in range(3):
        with pytest.raises(ModelFailed), calls.call():
            raise error

    [finding] = find_problems(
        store=STORE, breaker=None, journal=None, turns=TURNS, jobs=JOBS, tasks=IDLE, models=[calls.status]
    )

    assert (finding.level, advice in finding.advice) == (level, True)
