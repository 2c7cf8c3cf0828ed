"""Spans of turns, as OpenTelemetry's own SDK collects them: ids and codes, never words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import InvalidSetting, ModelFailed
from tenuto.llm import Call, Fail, Hang, Say
from tenuto.telemetry import Spans, open_spans
from tests.chats import Adder, ask, helper, talk
from tests.engines import plan_of, wait_for_end
from tests.samples import ANN
from tests.warm_start import open_program

SECRET = "heliotrope"


@pytest.fixture
def collected() -> Iterator[InMemorySpanExporter]:
    """What was exported."""
    exporter = InMemorySpanExporter()
    yield exporter
    exporter.shutdown()


@pytest.fixture
def spans(collected: InMemorySpanExporter) -> Spans:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(collected))
    return Spans(provider.get_tracer("tenuto"))


def named(collected: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in collected.get_finished_spans() if span.name == name]


def everything(collected: InMemorySpanExporter) -> str:
    return "".join(span.to_json() for span in collected.get_finished_spans())


async def test_a_turn_is_one_span_with_a_child_for_each_step(spans: Spans, collected: InMemorySpanExporter) -> None:
    chat = talk([Call("add", {"a": 1, "b": 2})], SECRET, assistants=[helper(tools=(Adder(),))], span=spans).chat

    reply = await chat.take_turn(ANN, ask(SECRET))

    (turn,) = named(collected, "tenuto.turn")
    assert turn.attributes is not None
    assert dict(turn.attributes) == {
        "tenuto.tenant": ANN.tenant,
        "tenuto.session": reply.session_id,
        "tenuto.turn": 1,
        "tenuto.trace": reply.trace_id,
        "tenuto.assistant": "helper",
        "tenuto.model": "scripted",
        "tenuto.input_tokens": reply.input_tokens,
        "tenuto.output_tokens": reply.output_tokens,
    }
    steps = [span for span in collected.get_finished_spans() if span is not turn]
    assert [span.name.removeprefix("tenuto.") for span in steps] == [
        "begin", "assemble", "model", "tools", "model", "trace", "finish"
    ]  # fmt: skip
    assert {span.parent.span_id for span in steps if span.parent} == {turn.context.span_id}
    assert turn.parent is None
    assert SECRET not in everything(collected)


async def test_an_error_is_told_by_its_code_alone(spans: Spans, collected: InMemorySpanExporter) -> None:
    chat = talk([Fail(ModelFailed("scripted", SECRET))], span=spans).chat

    with pytest.raises(ModelFailed):
        await chat.take_turn(ANN, ask(SECRET))

    for span in (*named(collected, "tenuto.turn"), *named(collected, "tenuto.model")):
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "model_failed")
        assert span.attributes is not None
        assert span.attributes["error.type"] == "model_failed"
        assert span.events == ()
    assert SECRET not in everything(collected)


async def test_an_unforeseen_fault_tells_its_kind_alone(spans: Spans, collected: InMemorySpanExporter) -> None:
    with pytest.raises(ZeroDivisionError), spans("tenuto.turn"):
        raise ZeroDivisionError(SECRET)

    (span,) = collected.get_finished_spans()
    assert span.status.description == "zerodivisionerror"
    assert SECRET not in everything(collected)


async def test_a_cancelled_turn_is_no_error(spans: Spans, collected: InMemorySpanExporter) -> None:
    hang = Hang()
    chat = talk([Say("Well"), hang], span=spans).chat
    turn = asyncio.create_task(chat.take_turn(ANN, ask("Go")))
    await hang.reached.wait()

    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    (span,) = named(collected, "tenuto.turn")
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes is not None
    assert span.attributes["error.type"] == "cancelled"


async def test_turns_at_the_same_time_keep_their_spans_apart(spans: Spans, collected: InMemorySpanExporter) -> None:
    hangs = [Hang(), Hang()]
    chat = talk([hangs[0], Say("One.")], [hangs[1], Say("Two.")], span=spans).chat
    turns = [asyncio.create_task(chat.take_turn(ANN, ask("Go"))) for _ in hangs]
    for hang in hangs:
        await hang.reached.wait()
    for hang in reversed(hangs):
        hang.release.set()
    await asyncio.gather(*turns)

    parents = [span.context.span_id for span in named(collected, "tenuto.turn")]
    children = [span.parent.span_id for span in named(collected, "tenuto.model") if span.parent is not None]
    assert sorted(parents) == sorted(children)


async def test_a_programs_own_telemetry_gets_the_spans_below_its_own(
    collected: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(collected))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    async with tenuto.open("memory://", telemetry=True) as app:
        with provider.get_tracer("program").start_as_current_span("request") as request:
            await _hello(app)

    (turn,) = named(collected, "tenuto.turn")
    assert turn.parent is not None
    assert turn.parent.span_id == request.get_span_context().span_id


async def test_an_exporter_nobody_brings_stops_the_start_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")

    with pytest.raises(InvalidSetting, match="carrier-pigeon"):
        async with open_spans():
            pass


def test_a_process_exports_what_the_standard_variables_say(tmp_path: Path) -> None:
    """The real program, with the SDK's own console exporter: spans on stderr, the answer alone on stdout."""
    env = {"TENUTO_TELEMETRY": "true", "OTEL_TRACES_EXPORTER": "console", "OTEL_SERVICE_NAME": "front-desk"}
    args = ("-m", "tenuto", "chat", f"My name is {SECRET}")
    with open_program(*args, cwd=tmp_path, env={"PATH": "", **env}, stdout=PIPE, stderr=PIPE, text=True) as process:
        answer, told = process.communicate(timeout=120)

    assert process.returncode == 0, told
    assert '"name": "tenuto.turn"' in told
    assert '"service.name": "front-desk"' in told
    assert SECRET not in told
    assert "tenuto.turn" not in answer


async def _hello(app: Tenuto) -> None:
    await app.ask(app.scope(), "Hello")


@pytest.mark.requirement("E18")
async def test_each_attempt_of_a_step_is_a_span_that_names_task_step_and_agent(
    spans: Spans, collected: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the conversation it belongs to, and no goal and no output."""
    tries: list[int] = []

    async def work(ctx: tenuto.AgentContext) -> str:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise ValueError(SECRET)
        return SECRET

    @asynccontextmanager
    async def own_spans() -> AsyncIterator[Spans]:
        yield spans

    monkeypatch.setattr("tenuto.wiring.tasks.open_spans", own_spans)
    async with tenuto.open("memory://", telemetry=True) as app:
        app.agents.register("worker", work)
        session = (await app.sessions.create(ANN, None))[0].id
        new = tenuto.NewTask(type="t", goal=SECRET, session_id=session)
        plan = plan_of({"id": "a", "agent": "worker", "retries": 1, "backoff": 0})
        task = await (await app.engine()).submit(ANN, new, plan)
        await wait_for_end(app.tasks, ANN, task.id)

    found = named(collected, "tenuto.step")
    about = {"tenuto.session": session, "tenuto.task": task.id, "tenuto.step": "a", "tenuto.agent": "worker"}
    assert [about.items() <= dict(span.attributes or {}).items() for span in found] == [True, True]
    assert [span.status.status_code for span in found] == [StatusCode.ERROR, StatusCode.UNSET]
    assert SECRET not in everything(collected)
