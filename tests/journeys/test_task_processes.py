"""Plans run by the processes that operators start: `tenuto serve`, `worker` and `tasks run`, stopped, killed, followed.

Each takes over from the one before it, on one SQLite store.
"""

from __future__ import annotations

import asyncio
import signal
import tomllib
from pathlib import Path

import httpx
import pytest

import tenuto
from tenuto.model import Scope
from tenuto.model.plan import TaskProgress, parse_plan
from tenuto.model.task import TaskStatus
from tests.engines import plan_of, wait_for_end, wait_for_step
from tests.journeys.http_service import code, http_service
from tests.journeys.terminal import Shell, await_log_line, running_command
from tests.timeouts import LONG, wait_until

pytest.importorskip("dbos")

ANN = Scope(tenant="local", user="ann")
AGENTS = """
import asyncio, pathlib, tenuto

@tenuto.agent("reader")
async def read(ctx):
    with open("calls", "a") as calls:
        calls.write(ctx.step + "\\n")
    while ctx.step == "gated" and not pathlib.Path("gate").exists():
        await asyncio.sleep(0.05)
    return ctx.goal
"""
PLAN = """
goal = "Find the notice period"
[[steps]]
id = "first"
agent = "reader"
[[steps]]
id = "gated"
agent = "reader"
after = ["first"]
[[steps]]
id = "ask"
human_input = "Send it?"
after = ["first"]
[[steps]]
id = "last"
agent = "reader"
after = ["gated", "ask"]
"""


@pytest.fixture
def office(shell: Shell) -> Shell:
    """A desk with agents, one of which waits until there is a file named gate."""
    (shell.folder / "agents").mkdir()
    (shell.folder / "agents" / "readers.py").write_text(AGENTS)
    (shell.folder / "plan.toml").write_text(PLAN)
    shell.env |= {"TENUTO_AGENTS": "agents", "TENUTO_STORE": "sqlite:///chat.db"}
    return shell


def store_of(shell: Shell) -> str:
    return f"sqlite:///{shell.folder}/chat.db"


@pytest.mark.requirement("E17", "E14")
async def test_a_task_goes_on_from_the_terminal_to_a_worker_and_a_person_answers_between(office: Shell) -> None:
    """What has ended is not run again; the answer is given while no process works."""
    async with tenuto.open(store_of(office)) as app:
        with running_command(office, "tasks", "run", "plan.toml", "--user", "ann") as command:
            await wait_until(lambda: "gated" in calls(office))
            (task,) = (await app.tasks.list(ANN)).tasks
            await wait_for_step(app.tasks, ANN, task.id, "ask", "waiting")
            command.send_signal(signal.SIGINT)
            _, err = await asyncio.to_thread(command.communicate)
        assert command.returncode == 130, err
        assert f"follow: tenuto tasks follow {task.id} --user ann" in err.decode()

        answered = await asyncio.to_thread(office.run, "tasks", "answer", task.id, "ask", "yes", "--user", "ann")
        assert (answered.returncode, answered.stdout) == (0, "Answered ask.\n")
        (office.folder / "gate").touch()
        with running_command(office, "worker", "--concurrency", "2") as worker:
            told = await asyncio.to_thread(await_log_line, worker, "working on tasks")
            progress = await wait_for_end(app.tasks, ANN, task.id)
            worker.terminate()
            assert await asyncio.to_thread(worker.wait, LONG) == 0

    assert "chat.db, engine database sqlite:///chat-tasks.db, agents reader" in told
    check_end(office, progress)


@pytest.mark.requirement("E17")
async def test_a_killed_server_goes_on_with_its_task_when_it_is_started_again(office: Shell) -> None:
    """Nothing has to be asked of it; and a server that is told to stop ends at once."""
    async with tenuto.open(store_of(office)) as app:
        with running_command(office, "serve", "--port", "0") as server:
            await asyncio.to_thread(await_log_line, server, "listening on")
            engine = await app.engine(worker=False)
            async with asyncio.timeout(LONG):
                while not await engine.agents():  # noqa: ASYNC110 (the engine opens after the server)
                    await asyncio.sleep(0.05)
            fields = tomllib.loads(PLAN)
            new = tenuto.NewTask(type="review", goal=fields.pop("goal"))
            task_id = (await engine.submit(ANN, new, parse_plan(fields))).id
            await wait_for_step(app.tasks, ANN, task_id, "ask", "waiting")
            await wait_until(lambda: "gated" in calls(office))
            server.kill()
        (office.folder / "gate").touch()
        with running_command(office, "serve", "--port", "0") as server:
            line = await asyncio.to_thread(await_log_line, server, "listening on")
            await wait_for_step(app.tasks, ANN, task_id, "gated", "completed")
            async with httpx.AsyncClient(timeout=LONG) as http:
                ready = (await http.get(line.split()[-1].strip('"') + "/readyz")).json()
            await engine.answer(ANN, task_id, "ask", "yes")
            progress = await wait_for_end(app.tasks, ANN, task_id)
            server.terminate()
            assert await asyncio.to_thread(server.wait, LONG) == 0

    assert ready == {"status": "ready", "tasks": {"status": "ready"}}
    check_end(office, progress)


def calls(shell: Shell) -> list[str]:
    file = shell.folder / "calls"
    return file.read_text().split() if file.exists() else []


def check_end(shell: Shell, progress: TaskProgress) -> None:
    assert (progress.task.status, progress.task.result) == (TaskStatus.COMPLETED, {"last": "Find the notice period"})
    assert [run.attempts for run in progress.steps] == [1, 2, 1, 1]
    assert calls(shell) == ["first", "gated", "gated", "last"]


async def test_a_server_serves_though_its_engine_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_package")
    async with http_service(agents=str(tmp_path)) as service:
        async with asyncio.timeout(LONG):
            while "tasks" not in (ready := (await service.http.get("/readyz")).json()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        turn = await service.http.post("/v1/chat", json={"message": "Hello!"})
        legal = await service.http.post("/v1/chat", json={"message": "Hello!", "assistant": "legal"})

    assert code(legal) == (503, "engine_unavailable")
    assert "agents: broken.py (No module named 'no_such_package' at line 1)" in legal.json()["detail"]
    assert ready == {"status": "ready", "tasks": {"status": "unavailable", "error": "invalid_setting"}}
    assert turn.status_code == 200


async def test_a_worker_leaves_a_task_to_the_one_that_has_its_agents(office: Shell) -> None:
    (office.folder / "others").mkdir()
    (office.folder / "others" / "writers.py").write_text(AGENTS.replace('"reader"', '"writer"'))
    with running_command(office, "worker") as reader:
        await asyncio.to_thread(await_log_line, reader, "working on tasks")
        office.env["TENUTO_AGENTS"] = "others"
        with running_command(office, "worker") as writer:
            await asyncio.to_thread(await_log_line, writer, "working on tasks")
            async with tenuto.open(store_of(office)) as app:
                engine = await app.engine(worker=False)
                plans = [plan_of({"id": "s", "agent": agent}) for agent in ("reader", "writer") for _ in range(8)]
                tasks = [await engine.submit(ANN, tenuto.NewTask(type="x"), plan) for plan in plans]
                ended = [(await wait_for_end(app.tasks, ANN, task.id)).task for task in tasks]

    assert [task.error for task in ended] == [None] * len(plans)


async def test_a_server_begins_with_unfinished_plans_of_an_earlier_one(tmp_path: Path) -> None:
    """The store tells that plans were run; a server without agents of its own leaves their work to others."""
    store = f"sqlite:///{tmp_path}/chat.db"
    async with tenuto.open(store) as app:
        assert not await app.tasks.has_runs()
        app.agents.register("reader", _read)
        engine = await app.engine()
        asks = {"id": "ask", "human_input": "Which?"}
        plan = plan_of(asks, {"id": "a", "agent": "reader", "after": ["ask"]})
        task = await engine.submit(ANN, tenuto.NewTask(type="x"), plan)
        await wait_for_step(app.tasks, ANN, task.id, "ask", "waiting")
    async with http_service(store=store) as service:
        assert await service.tenuto.tasks.has_runs()
        await wait_until(lambda: service.tenuto.works_on_tasks)
        assert (await service.http.get("/readyz")).json() == {"status": "ready", "tasks": {"status": "ready"}}

        own = await (await service.tenuto.engine()).submit(ANN, tenuto.NewTask(type="x"), plan_of(asks))
        await wait_for_step(service.tenuto.tasks, ANN, own.id, "ask", "waiting")
        await (await service.tenuto.engine()).answer(ANN, task.id, "ask", "both")
        assert (await service.tenuto.tasks.progress(ANN, task.id)).steps[1].status == "pending"
    async with tenuto.open(store) as app:
        app.agents.register("reader", _read)
        await app.engine()
        assert (await wait_for_end(app.tasks, ANN, task.id)).task.status == "completed"


async def _read(ctx: tenuto.AgentContext) -> str:
    return ctx.goal
