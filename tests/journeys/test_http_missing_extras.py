"""An assistant whose package is not installed: it is listed with what to install, and takes no turns."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tenuto import extras
from tenuto.extras import install_line, with_folder
from tests.chats import helper
from tests.journeys.http_service import ANN, HttpService, code, http_service

TASKS, MODELS = install_line("tasks"), install_line("models")
# As operators are told them.
HERE = {line: with_folder(line) for line in (TASKS, MODELS)}
SAID = {"role": "user", "content": "Hi"}
PART = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}


async def _say(service: HttpService, assistant: str) -> list[Any]:
    message = {"id": "m", "role": "user", "content": "Hi"}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat": {"message": "Hi", "assistant": assistant},
        "/v1/chat/completions": {"model": assistant, "messages": [SAID]},
        "/v1/responses": {"model": assistant, "input": "Hi"},
        f"/v1/ag-ui/{assistant}": {"threadId": "t", "runId": "r", "messages": [message]},
        "/v1/ai-sdk/chat": {"id": "c", "messages": [PART], "assistant": assistant},
    }
    return [await service.http.post(path, headers=ANN, json=body) for path, body in bodies.items()]


async def test_it_is_labelled_and_leaves_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    # None stands for a module that cannot be found.
    for module in ("dbos", "tenuto.llm.pydantic_ai"):
        monkeypatch.setitem(sys.modules, module, None)
    own = helper(name="clever", model="openai:gpt-5.4-mini")
    async with http_service(assistants=[own]) as service:
        listed = (await service.http.get("/v1/assistants", headers=ANN)).json()["assistants"]
        refused = {name: await _say(service, name) for name in ("legal", "clever")}
        left = [(await service.http.get(path, headers=ANN)).json() for path in ("/v1/stats", "/v1/tasks")]
        health = (await service.http.get("/v1/status")).json()
        answered = await service.http.post("/v1/chat", headers=ANN, json={"message": "Hi"})

    assert {each["name"]: each["missing"] for each in listed} == {
        **dict.fromkeys(("general", "goods", "npc", "plain")),
        "legal": {"install": HERE[TASKS], "cause": None, "advice": None},
        "clever": {"install": HERE[MODELS], "cause": None, "advice": None},
    }
    for name, install in (("legal", TASKS), ("clever", MODELS)):
        assert [response.status_code for response in refused[name]] == [503] * 5
        assert all(install in response.text and "extra_missing" in response.text for response in refused[name])
    assert code(refused["legal"][0]) == (503, "extra_missing")
    assert (left[0]["sessions"], left[1]["tasks"]) == (0, [])
    assert answered.status_code == 200
    extras = {(each["code"], each.get("subject"), each["advice"]) for each in health["findings"]}
    assert extras == {
        ("tasks_extra", None, HERE[TASKS]),
        ("assistant_extra", "legal", HERE[TASKS]),
        ("assistant_extra", "clever", HERE[MODELS]),
    }
    assert health["level"] == "warning"


async def test_the_folder_of_the_clone_is_for_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)
    monkeypatch.setattr(extras, "_origin", lambda: {"url": "file:///srv/clone", "dir_info": {}})
    async with http_service(locked=True) as service:
        user, operator = await service.key(user="ann"), await service.key()
        listed = [(await service.http.get("/v1/assistants", headers=key)).text for key in (user, operator)]
        response = await service.http.post("/v1/chat", headers=user, json={"message": "Hi", "assistant": "legal"})

    assert ["pip install '.[tasks]'" in text for text in listed] == [True, False]
    assert ["pip install '/srv/clone[tasks]'" in text for text in listed] == [False, True]
    assert "/srv/clone" not in response.text
