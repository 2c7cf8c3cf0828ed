"""Spans and metrics of turns, as OpenTelemetry's own SDK collects them: ids, counts and codes, never words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import InvalidSetting, ModelFailed
from tenuto.llm import Call, Fail, Hang, Say, ScriptedModel
from tenuto.model.parameters import ModelParameters
from tenuto.telemetry import open_telemetry
from tenuto.telemetry.spans import OpenTelemetry
from tests.chats import Adder, ask, helper, talk
from tests.engines import plan_of, wait_for_end
from tests.providers import Answer, Text, Tokens, ToolCall, start_provider
from tests.samples import ANN
from tests.warm_start import open_program

SECRET = "heliotrope"


@dataclass
class Collected:
    """What was exported."""

    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracers: TracerProvider
    meters: MeterProvider

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def tree(self) -> Any:
        """The names of all spans, each with those below it."""
        children: dict[int | None, list[ReadableSpan]] = {}
        for span in sorted(self.spans, key=lambda span: span.start_time or 0):
            children.setdefault(span.parent.span_id if span.parent else None, []).append(span)

        def below(parent: int | None) -> list[Any]:
            names = [(span.name, below(span.context.span_id)) for span in children.get(parent, [])]
            return [(name, inside) if inside else name for name, inside in names]

        return below(None)

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return [
            point for scope in scopes for metric in scope.metrics if metric.name == name
            for point in metric.data.data_points
        ]  # fmt: skip

    def __str__(self) -> str:
        return "".join(span.to_json() for span in self.spans)


@pytest.fixture
def collected() -> Iterator[Collected]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    yield Collected(exporter, reader, tracers, meters)
    meters.shutdown()
    exporter.shutdown()


@pytest.fixture
def telemetry(collected: Collected) -> OpenTelemetry:
    return OpenTelemetry(collected.tracers.get_tracer("tenuto"), collected.meters.get_meter("tenuto"))


@pytest.fixture
def programs_own(collected: Collected, monkeypatch: pytest.MonkeyPatch) -> Collected:
    """OpenTelemetry as a program sets it up for itself."""
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: collected.tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: collected.meters)
    return collected


async def test_a_turn_holds_an_agent_that_holds_its_calls_of_models_and_tools(
    telemetry: OpenTelemetry, collected: Collected
) -> None:
    script = [Call("add", {"a": 1, "b": 2}, id="call_1")], SECRET
    chat = talk(*script, assistants=[helper(tools=(Adder(),))], telemetry=telemetry).chat

    reply = await chat.take_turn(ANN, ask(SECRET))

    agent = "invoke_agent helper", ["tenuto.assemble", "chat scripted", "execute_tool add", "chat scripted"]
    assert collected.tree() == [("tenuto.turn", ["tenuto.begin", agent, "tenuto.trace", "tenuto.finish"])]
    (turn,) = collected.named("tenuto.turn")
    session = {"gen_ai.conversation.id": reply.session_id, "session.id": reply.session_id}
    assert dict(turn.attributes or {}) == {
        **session,
        "tenuto.tenant": ANN.tenant,
        "tenuto.session": reply.session_id,
        "tenuto.turn": 1,
        "tenuto.trace": reply.trace_id,
        "tenuto.assistant": "helper",
        "tenuto.model": "scripted",
        "tenuto.input_tokens": reply.input_tokens,
        "tenuto.output_tokens": reply.output_tokens,
    }
    (invoked,) = collected.named("invoke_agent helper")
    assert dict(invoked.attributes or {}) == {
        **session,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "helper",
        "gen_ai.provider.name": "_OTHER",
    }
    (ran,) = collected.named("execute_tool add")
    assert dict(ran.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
    }
    assert SECRET not in str(collected)


async def test_a_call_of_a_provider_tells_request_answer_and_tokens_once(programs_own: Collected) -> None:
    """Also where the program lets Pydantic AI make spans of its own, which hold words."""
    collected = programs_own
    tokens = Tokens(input=2_000, output=30, cached=1_024)
    Agent.instrument_all(InstrumentationSettings(tracer_provider=collected.tracers))
    try:
        with start_provider() as provider:
            provider.plays(Answer(ToolCall("add", {"a": 1, "b": 2}), tokens=tokens), Answer(Text(SECRET)))
            async with tenuto.open(
                "memory://",
                model="openai:gpt-4.1-mini",
                model_base_url=provider.openai_url,
                model_api_key=provider.key,
                summarizer_model="offline",
                assistants=[helper(tools=(Adder(),))],
                telemetry=True,
            ) as app:
                parameters = ModelParameters(temperature=0.5, stop=(SECRET,))
                reply = await app.ask(
                    app.scope(), ask(SECRET, assistant="helper", parameters=parameters, reply_tokens=99)
                )
    finally:
        Agent.instrument_all(False)

    assert len(collected.named("chat gpt-4.1-mini")) == 2
    first, last = collected.named("chat gpt-4.1-mini")
    assert first.kind is SpanKind.CLIENT
    told = dict(first.attributes or {})
    assert 0 < told.pop("gen_ai.response.time_to_first_chunk") < 60  # type: ignore[operator]
    assert told.pop("gen_ai.response.id")
    assert told.pop("tenuto.cost_nanos")
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4.1-mini",
        "gen_ai.response.model": "gpt-4.1-mini",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.output.type": "text",
        "gen_ai.conversation.id": reply.session_id,
        "session.id": reply.session_id,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 2_000,
        "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 1_024,
    }
    assert (last.attributes or {})["gen_ai.response.finish_reasons"] == ("stop",)
    assert SECRET not in str(collected)
    of_model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4.1-mini",
    }
    read, written = sorted(collected.points("gen_ai.client.token.usage"), key=lambda point: -point.sum)
    assert of_model.items() <= read.attributes.items()
    assert (read.attributes["gen_ai.token.type"], read.sum) == ("input", reply.input_tokens)
    assert (written.attributes["gen_ai.token.type"], written.sum) == ("output", reply.output_tokens)
    assert read.explicit_bounds[-1] == 67_108_864
    (took,) = collected.points("gen_ai.client.operation.duration")
    assert took.count == 2
    assert took.explicit_bounds[0] == 0.01


async def test_each_model_of_a_chain_has_a_span_and_the_one_that_failed_its_code(programs_own: Collected) -> None:
    models = {"one": ScriptedModel(Fail(), name="one"), "two": ScriptedModel("Well.", name="two")}
    async with tenuto.open("memory://", model="one, two", models=models, telemetry=True) as app:
        await _hello(app)

    failed, answered = programs_own.named("chat one")[0], programs_own.named("chat two")[0]
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "model_failed")
    assert answered.status.status_code is StatusCode.UNSET
    points = programs_own.points("gen_ai.client.operation.duration")
    assert {point.attributes["gen_ai.request.model"]: point.attributes.get("error.type") for point in points} == {
        "one": "model_failed",
        "two": None,
    }


async def test_a_tool_that_fails_tells_its_code_and_one_that_is_made_up_no_name(
    telemetry: OpenTelemetry, collected: Collected
) -> None:
    script = [Call("add", {"a": 1, "b": 2}), Call(SECRET)], "Sorry."
    tools = (Adder(fault=ZeroDivisionError(SECRET)),)
    chat = talk(*script, assistants=[helper(tools=tools)], telemetry=telemetry).chat

    await chat.take_turn(ANN, ask("Add"))

    (failed,), (unknown,) = collected.named("execute_tool add"), collected.named("execute_tool")
    assert failed.status.description == "tool_failed"
    assert unknown.status.description == "no_such_tool"
    assert SECRET not in str(collected)


async def test_an_error_is_told_by_its_code_alone(telemetry: OpenTelemetry, collected: Collected) -> None:
    chat = talk([Fail(ModelFailed("scripted", SECRET))], telemetry=telemetry).chat

    with pytest.raises(ModelFailed):
        await chat.take_turn(ANN, ask(SECRET))

    for name in ("tenuto.turn", "invoke_agent helper", "chat scripted"):
        (span,) = collected.named(name)
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "model_failed")
        assert span.attributes is not None
        assert span.attributes["error.type"] == "model_failed"
        assert span.events == ()
    assert SECRET not in str(collected)


async def test_an_unforeseen_fault_tells_its_kind_alone(telemetry: OpenTelemetry, collected: Collected) -> None:
    with pytest.raises(ZeroDivisionError), telemetry.span("turn"):
        raise ZeroDivisionError(SECRET)

    (span,) = collected.spans
    assert span.status.description == "zerodivisionerror"
    assert SECRET not in str(collected)


async def test_a_cancelled_turn_is_no_error(telemetry: OpenTelemetry, collected: Collected) -> None:
    hang = Hang()
    chat = talk([Say("Well"), hang], telemetry=telemetry).chat
    turn = asyncio.create_task(chat.take_turn(ANN, ask("Go")))
    await hang.reached.wait()

    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    for name in ("tenuto.turn", "chat scripted"):
        (span,) = collected.named(name)
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes is not None
        assert span.attributes["error.type"] == "cancelled"


async def test_turns_at_the_same_time_keep_their_spans_apart(telemetry: OpenTelemetry, collected: Collected) -> None:
    hangs = [Hang(), Hang()]
    chat = talk([hangs[0], Say("One.")], [hangs[1], Say("Two.")], telemetry=telemetry).chat
    turns = [asyncio.create_task(chat.take_turn(ANN, ask("Go"))) for _ in hangs]
    for hang in hangs:
        await hang.reached.wait()
    for hang in reversed(hangs):
        hang.release.set()
    await asyncio.gather(*turns)

    agent = "invoke_agent helper", ["tenuto.assemble", "chat scripted"]
    assert collected.tree() == [("tenuto.turn", ["tenuto.begin", agent, "tenuto.trace", "tenuto.finish"])] * 2


async def test_a_programs_own_telemetry_gets_the_spans_below_its_own(programs_own: Collected) -> None:
    async with tenuto.open("memory://", telemetry=True) as app:
        with programs_own.tracers.get_tracer("program").start_as_current_span("request"):
            await _hello(app)

    ((name, (turn,)),) = programs_own.tree()
    assert (name, turn[0]) == ("request", "tenuto.turn")


@pytest.mark.parametrize("signal", ["traces", "metrics"])
async def test_an_exporter_that_no_package_brings_stops_the_start_with_a_sentence(
    signal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv(f"OTEL_{signal.upper()}_EXPORTER", "carrier-pigeon")

    with pytest.raises(InvalidSetting, match=f"carrier-pigeon.*{signal.upper()}"):
        async with open_telemetry():
            pass


def test_a_process_exports_what_the_standard_variables_say(tmp_path: Path) -> None:
    """The real program, with the SDK's own console exporters: spans on stderr, the answer alone on stdout."""
    exporters = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
    env = {"TENUTO_TELEMETRY": "true", "OTEL_SERVICE_NAME": "front-desk", **exporters}
    args = ("-m", "tenuto", "chat", f"My name is {SECRET}")
    with open_program(*args, cwd=tmp_path, env={"PATH": "", **env}, stdout=PIPE, stderr=PIPE, text=True) as process:
        answer, told = process.communicate(timeout=120)

    assert process.returncode == 0, told
    assert '"name": "tenuto.turn"' in told
    assert '"name": "gen_ai.client.operation.duration"' in told
    assert '"service.name": "front-desk"' in told
    assert SECRET not in told
    assert "tenuto.turn" not in answer


async def _hello(app: Tenuto) -> None:
    await app.ask(app.scope(), "Hello")


@pytest.mark.requirement("E18")
async def test_each_attempt_of_a_step_is_a_span_that_names_task_step_and_agent(
    telemetry: OpenTelemetry, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the conversation it belongs to, and no goal and no output."""
    tries: list[int] = []

    async def work(ctx: tenuto.AgentContext) -> str:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise ValueError(SECRET)
        return SECRET

    @asynccontextmanager
    async def own_telemetry(*, metrics: bool) -> AsyncIterator[OpenTelemetry]:
        yield telemetry

    monkeypatch.setattr("tenuto.wiring.tasks.open_telemetry", own_telemetry)
    async with tenuto.open("memory://", telemetry=True) as app:
        app.agents.register("worker", work)
        session = (await app.sessions.create(ANN, None))[0].id
        new = tenuto.NewTask(type="t", goal=SECRET, session_id=session)
        plan = plan_of({"id": "a", "agent": "worker", "retries": 1, "backoff": 0})
        task = await (await app.engine()).submit(ANN, new, plan)
        await wait_for_end(app.tasks, ANN, task.id)

    attempts = collected.named("invoke_agent worker")
    about = {
        "gen_ai.agent.name": "worker",
        "gen_ai.conversation.id": session,
        "tenuto.session": session,
        "tenuto.task": task.id,
        "tenuto.step": "a",
        "tenuto.agent": "worker",
    }
    assert [about.items() <= dict(span.attributes or {}).items() for span in attempts] == [True, True]
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR, StatusCode.UNSET]
    assert SECRET not in str(collected)
