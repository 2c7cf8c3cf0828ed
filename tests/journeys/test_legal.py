"""The legal assistant: a router, experts and a decision agent answer each turn as one task."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("dbos")

from tenuto.llm import Call, Fail, ScriptedModel
from tenuto.model import Role, Scope
from tenuto.model.message import STATE
from tenuto.tasks.agents import AgentContext
from tests.journeys.http_service import ANN, HttpService, code, http_service, user
from tests.servers.loopback import serving

pytestmark = pytest.mark.requirement("E1", "E14", "E15", "E16")


LABOUR, CONTRACT, DECISION = "labour-law-expert", "contract-law-expert", "legal-decision"
E1 = {
    "en": (
        "There is a problem with the employment contract I signed.",
        "What about the non-compete part of that contract?",
    ),
    "zh": ("我跟公司签的劳动合同有问题", "上面那份合同里关于竞业协议的部分怎么看?"),
}
# An expert that fails unless the user speaks of tomorrow.
FAILING = """
import tenuto

@tenuto.agent("{agent}")
async def advise(ctx: tenuto.AgentContext) -> dict:
    if "tomorrow" not in ctx.goal:
        {what}
    return {{"text": "Done."}}
"""


async def ask(
    service: HttpService, text: str, session: str | None = None, key: str | None = None, **body: Any
) -> httpx.Response:
    headers = {**ANN, **({"Idempotency-Key": key} if key is not None else {})}
    asked = {"message": text, "assistant": "legal", **({"session_id": session} if session else {}), **body}
    return await service.http.post("/v1/chat", json=asked, headers=headers)


async def told(
    service: HttpService, text: str, session: str | None = None, key: str | None = None, **body: Any
) -> dict[str, Any]:
    response = await ask(service, text, session, key, **body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def tasks_of(service: HttpService, session: str) -> list[dict[str, Any]]:
    listed = await service.http.get("/v1/tasks", params={"session_id": session}, headers=ANN)
    tasks: list[dict[str, Any]] = listed.json()["tasks"]
    return tasks


def scripted(*scripts: Any) -> dict[str, Any]:
    return {"models": {"m": ScriptedModel(*scripts)}, "model": "m", "summarizer_model": "offline"}


def route(field: str, **rest: Any) -> Call:
    return Call("answer", {"field": field, **rest})


def opine(text: str = "", **rest: Any) -> Call:
    return Call("answer", {"text": text, **rest})


def agents_in(folder: Path, agent: str, what: str) -> str:
    folder.mkdir()
    (folder / "expert.py").write_text(FAILING.format(agent=agent, what=what))
    return str(folder)


@pytest.mark.requirement("E1", "E14")
@pytest.mark.parametrize("language", E1)
async def test_a_follow_up_goes_to_the_expert_of_the_conversation_after_a_restart(
    language: str, tmp_path: Path
) -> None:
    """Without a model: texts are quoted with their ids, and each answer names its task."""
    store = f"sqlite:///{tmp_path / 't.db'}"
    first, second = E1[language]
    async with http_service(store=store) as service:
        before = await told(service, first)
        session = before["session_id"]
    async with http_service(store=store) as service:
        after = await told(service, second, session)
        alone = await told(service, second)
        tasks = await tasks_of(service, session)
        record = (await service.http.get(f"/v1/sessions/{session}", headers=ANN)).json()
        board = (await service.http.get(f"/v1/tasks/{after['data']['task_id']}/board", headers=ANN)).json()["entries"]

    assert before["data"]["experts"] == [LABOUR]
    assert after["data"]["experts"][0] == LABOUR
    assert record["context"]["intent"] == "labour"
    assert {"LAB-07", "LAB-08"} & {source["id"] for source in after["data"]["sources"]}
    assert alone["data"]["experts"][0] == CONTRACT, "without the conversation it is a contract like any other"
    written = {entry["key"]: (entry["writer"], entry["value"]) for entry in board}
    assert written["route"] == ("legal-router", "labour")
    assert written["final_decision"][0] == DECISION
    assert after["answer"].startswith(written["final_decision"][1]["text"])
    for answer in (before, after):
        assert answer["data"]["task_id"] not in answer["answer"]
    assert {task["id"] for task in tasks} == {before["data"]["task_id"], after["data"]["task_id"]}
    assert {task["status"] for task in tasks} == {"completed"}


@pytest.mark.requirement("E15")
@pytest.mark.parametrize("chain", ["m", "m, offline"])
async def test_a_model_that_answers_prose_is_replaced_by_quotations(chain: str) -> None:
    """No agent fails for it; the reply says what it had to do without, and the conversation goes on."""
    model = ScriptedModel("Well, that depends on many things.")
    async with http_service(models={"m": model}, model=chain, summarizer_model="offline") as service:
        first = await told(service, "我跟公司签的劳动合同有问题")
        second = await told(service, "那份合同里的竞业条款怎么看？", first["session_id"])

    for answer in (first, second):
        assert answer["data"]["experts"] == [LABOUR]
        assert "fallback_model" in answer["degraded"]
    assert {"LAB-07", "LAB-08"} & {source["id"] for source in second["data"]["sources"]}


@pytest.mark.requirement("E1")
async def test_a_close_call_is_asked_back_and_the_answer_decides() -> None:
    """Without a model: the question goes with the answer to the expert that the user names."""
    async with http_service() as service:
        session = (await told(service, "租房押金"))["session_id"]
        asked = await told(service, "公司不给年假", session)
        answer = await told(service, "劳动法", session)

    assert (asked["data"]["asked"], asked["data"]["experts"]) == ("legal-router", [])
    assert (answer["data"]["asked"], answer["data"]["experts"]) == (None, [LABOUR])
    assert "LAB-12" in {source["id"] for source in answer["data"]["sources"]}


@pytest.mark.requirement("E1", "E12")
async def test_with_a_model_router_and_experts_are_typed_and_see_the_conversation(tmp_path: Path) -> None:
    """With a model: the second question is restated by the router, and ids that no text has are removed."""
    store, (first, second) = f"sqlite:///{tmp_path / 't.db'}", E1["en"]
    restated = "Is a non-compete after employment binding?"
    before = scripted(route("labour", question=first), opine("Keep the copy [LAB-02].", sources=["LAB-02"]))
    after = scripted(
        route("labour", question=restated), opine("Only if paid [LAB-07], as always [LAB-99].", sources=["CON-01"])
    )
    async with http_service(store=store, **before) as service:
        session = (await told(service, first))["session_id"]
    async with http_service(store=store, **after) as service:
        answer = await told(service, second, session)

    requests = after["models"]["m"].requests
    prompts = ["\n".join(message.text for message in request.messages) for request in requests]
    assert len(requests) == 2, "one for the router, one for the expert"
    assert all(first in prompt and "Keep the copy" in prompt and second in prompt for prompt in prompts)
    assert "[LAB-07]" in prompts[1]
    assert restated in prompts[1]
    assert answer["answer"].startswith("Only if paid [LAB-07], as always.")
    assert [source["id"] for source in answer["data"]["sources"]] == ["LAB-07"]


async def test_two_opinions_become_one_decision() -> None:
    """The experts work in parallel, so the model answers both alike."""
    model = scripted(route("labour", aside=True), opine("A.", sources=[]), opine("A."), opine("Both say A."))
    async with http_service(**model) as service:
        answer = await told(service, E1["en"][1])

    assert answer["data"]["experts"] == [LABOUR, CONTRACT]
    assert answer["answer"].startswith("Both say A.")


@pytest.mark.requirement("E14")
async def test_the_next_message_returns_to_the_agent_that_asked(subtests: pytest.Subtests) -> None:
    """A question of an expert is the answer of its turn; the router does not think about the reply to it."""
    with subtests.test("a model asks"):
        model = scripted(route("contract"), opine(ask="Since when?"), opine("Then you may go.", sources=[]))
        async with http_service(**model) as service:
            asked = await told(service, "I want out of my lease")
            answer = await told(service, "May", asked["session_id"])
        assert asked["answer"].startswith("Since when?")
        assert answer["answer"].startswith("Then you may go.")
        assert answer["data"]["experts"] == [CONTRACT]
        assert len(model["models"]["m"].requests) == 3
    with subtests.test("nothing is found, and it is asked once"):
        async with http_service() as service:
            first = await told(service, E1["en"][0])
            session = first["session_id"]
            vague, again = await told(service, "Hm?", session), await told(service, "Hm!", session)
            clear = await told(service, "Overtime", session)
            log = (await service.tenuto.sessions.messages(Scope(tenant="acme", user="ann"), session)).messages
        asked_by = [message.metadata[STATE]["legal"]["asked"] for message in log if message.role is Role.ASSISTANT]
        assert asked_by == [None, "labour", None, None]
        assert "Which point" in vague["answer"]
        assert "say nothing about this" in again["answer"]
        assert [source["id"] for source in clear["data"]["sources"]] == ["LAB-10"]
    with subtests.test("no field is found, and the router asks once"):
        async with http_service() as service:
            lost = await told(service, "谁赢了世界杯？")
            still = await told(service, "球赛", lost["session_id"])
            in_english = await told(service, "谁赢了世界杯？", language="en")
        assert in_english["answer"].startswith("I found nothing about this."), "E11: agents know the turn's language"
        assert lost["answer"].startswith("我没有找到相关内容")
        assert still["answer"].startswith("现有文本没有相关内容")


@pytest.mark.requirement("E15")
async def test_an_optional_expert_may_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The answer says so, and the log warns by ids."""
    folder = agents_in(tmp_path / "agents", CONTRACT, "raise OSError(ctx.goal)")
    async with http_service(agents=folder) as service:
        session = (await told(service, E1["en"][0]))["session_id"]
        answer = await told(service, E1["en"][1], session)

    assert (answer["data"]["experts"], answer["data"]["failed"]) == ([LABOUR], [CONTRACT])
    assert "Contract law: the expert could not answer." in answer["answer"]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "step failed: agent_failed" in warnings


@pytest.mark.requirement("E15", "E16")
@pytest.mark.parametrize(
    ("what", "why"),
    [("raise OSError(ctx.goal)", "agent_failed"), ('await ctx.board.write("final_decision", "sign")', "key_protected")],
)
async def test_a_required_expert_that_fails_ends_the_task_and_the_conversation_stays_usable(
    what: str, why: str, tmp_path: Path
) -> None:
    """No agent but the decision agent writes `final_decision`."""
    folder = agents_in(tmp_path / "agents", LABOUR, what)
    async with http_service(agents=folder) as service:
        failed = await ask(service, E1["en"][0], "s", key="k")
        (task,) = await tasks_of(service, "s")
        tried_again = await ask(service, E1["en"][0], "s", key="k")
        after = await told(service, "And my wages tomorrow?", "s")
        tasks = await tasks_of(service, "s")

    assert code(failed) == code(tried_again) == (503, "task_failed")
    assert f"{task['id']} failed at step labour: {why}" in failed.json()["detail"]
    assert task["status"] == "failed"
    assert after["answer"].startswith("Done.")
    assert len(tasks) == 2, "the same key goes on with its own task"


STREAMS = {
    "v1": ("/v1/chat", {"message": E1["en"][0], "assistant": "legal", "stream": True}),
    "ai-sdk": (
        "/v1/ai-sdk/chat",
        {
            "id": "s",
            "assistant": "legal",
            "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": E1["en"][0]}]}],
        },
    ),
    "ag-ui": (
        "/v1/ag-ui/legal",
        {"threadId": "s", "runId": "r", "messages": [{"id": "m", "role": "user", "content": E1["en"][0]}]},
    ),
}


def step_of(chunk: dict[str, Any]) -> tuple[str, str] | None:
    """The step that an event of any of the streams is about, and its state."""
    if chunk.get("type") == "data-step":
        chunk = chunk["data"]
    elif str(chunk.get("type")).startswith("STEP_"):
        return chunk["stepName"], {"STEP_STARTED": "started", "STEP_FINISHED": "done"}[chunk["type"]]
    return (chunk["id"], chunk["state"]) if "titles" in chunk else None


async def test_steps_are_streamed_as_they_happen(subtests: pytest.Subtests) -> None:
    """The expert does not end before its beginning was read."""
    asked = asyncio.Event()

    async def advise(ctx: AgentContext) -> dict[str, str]:
        await asked.wait()
        return {"text": "Done."}

    async with (
        http_service() as service,
        serving(service.app) as base,
        httpx.AsyncClient(base_url=base, timeout=60) as http,
    ):
        service.tenuto.agents.register(LABOUR, advise)
        for stream, (path, body) in STREAMS.items():
            asked.clear()
            steps: list[tuple[str, str]] = []
            chunks: list[dict[str, Any]] = []
            async with http.stream("POST", path, json=body, headers=user(stream)) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        chunks.append(json.loads(line.removeprefix("data: ")))
                        steps += [step] if (step := step_of(chunks[-1])) else []
                    if ("labour", "started") in steps:
                        asked.set()
            with subtests.test(stream):
                names = ("route", "labour", "decision")
                assert steps == [(name, state) for name in names for state in ("started", "done")]
                assert "Done." in str(chunks[-5:])
                if stream == "v1":
                    titles = [chunk["titles"]["en"] for chunk in chunks if chunk.get("state") == "done"]
                    assert titles == ["Choice of the expert", "Expert of labour law", "Decision"]


@pytest.mark.requirement("E14")
async def test_a_retried_turn_goes_on_with_its_task_and_an_answered_one_is_replayed() -> None:
    """One key is one task, whatever becomes of the tries."""
    down = [Fail()] * 2  # As often as the router is tried.
    model = scripted(*down, route("labour"), opine("Now."))
    async with http_service(**model) as service:
        failed = await ask(service, E1["en"][0], "s", key="k")
        answers = [await told(service, E1["en"][0], "s", key="k") for _ in range(2)]
        tasks = await tasks_of(service, "s")

    assert code(failed) == (503, "task_failed")
    assert [answer["replayed"] for answer in answers] == [False, True]
    assert answers[0]["answer"] == answers[1]["answer"]
    assert answers[0]["answer"].startswith("Now.")
    assert [task["id"] for task in tasks] == [answers[0]["data"]["task_id"]]


async def test_a_regenerated_answer_is_another_task() -> None:
    async with http_service() as service:
        first = await told(service, E1["en"][0])
        again = await told(service, "", first["session_id"], regenerate=True)

    assert again["data"]["sources"] == first["data"]["sources"]
    assert again["data"]["task_id"] != first["data"]["task_id"]


WITHOUT_EXTRA = """
import asyncio, sys, tenuto
from tenuto.errors import ExtraMissing
from tenuto.extras import install_line

async def main():
    async with tenuto.open("memory://") as t:
        ann = t.scope(user="ann")
        await t.ask(ann, "My name is Ann.")
        assert "legal" in (await t.chat()).assistants.names
        assert "dbos" not in sys.modules
    sys.modules["dbos"] = None
    async with tenuto.open("memory://") as t:
        try:
            await t.ask(ann, "My wages are late", assistant="legal", session_id="s")
        except ExtraMissing as error:
            assert install_line("tasks") in str(error)
        else:
            raise AssertionError("it was answered")
        assert (await t.sessions.stats(ann)).sessions == 0
        await t.ask(ann, "What is my name?", assistant="goods", session_id="s")

asyncio.run(main())
"""


def test_the_engine_is_imported_by_legal_turns_alone_and_its_absence_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr


async def test_an_answer_says_what_the_experts_did_not_get() -> None:
    script = scripted(route("labour"), opine("Three months."))
    picture = {"url": "https://pictures.example/contract.png"}
    async with http_service(**script) as service:
        reply = await told(service, "How long is the notice in this contract?", attachments=[picture])
        model: Any = script["models"]["m"]

    assert "not shown" in model.requests[0].messages[-1].text
    assert reply["degraded"] == ["attachment"]
