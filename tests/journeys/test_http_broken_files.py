"""Files of assistants that cannot be loaded: each is listed with its cause, and the others work."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tenuto.access import KeyRole
from tests.journeys.http_service import ANN, code, http_service

GRAPH = "import os\nimport no_such_graph\n"
NAME = "def assistant():\n    return Assistent(name='name')\n"
CAUSES = {
    "graph": "graph.py (No module named 'no_such_graph' at line 2) needs a package that is not installed",
    "name": "name.py: assistant() raises NameError at line 2: name 'Assistent' is not defined",
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "graph.py").write_text(GRAPH)
    (tmp_path / "name.py").write_text(NAME)
    (tmp_path / "good.toml").write_text('system.en = "You are good."\n')
    return str(tmp_path)


async def test_each_is_named_everywhere_and_leaves_no_session(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tenuto.server"):
        async with http_service(folder=folder) as service:
            listed = (await service.http.get("/v1/assistants", headers=ANN)).json()["assistants"]
            refused = [
                await service.http.post("/v1/chat", headers=ANN, json={"message": "Hi", "assistant": name})
                for name in CAUSES
            ]
            sessions = (await service.http.get("/v1/stats", headers=ANN)).json()["sessions"]
            answered = [
                await service.http.post("/v1/chat", headers=ANN, json={"message": "Hi", "assistant": name})
                for name in ("good", "general")
            ]
            health = (await service.http.get("/v1/status")).json()

    missing = {each["name"]: each["missing"] for each in listed if each["missing"] is not None}
    assert {name: missing[name]["cause"] for name in CAUSES} == CAUSES
    assert missing["graph"]["advice"].startswith("install the package that has the module no_such_graph")
    assert [code(answer) for answer in refused] == [(503, "assistant_missing")] * 2
    assert sessions == 0
    assert [answer.status_code for answer in answered] == [200, 200]
    found = {each["subject"]: each for each in health["findings"] if each["code"] == "assistant_file"}
    assert {name: found[name]["advice"].startswith(CAUSES[name]) for name in CAUSES} == dict.fromkeys(CAUSES, True)
    warned = [record.getMessage() for record in caplog.records if "is missing" in record.getMessage()]
    for line, (name, cause) in zip(warned, CAUSES.items(), strict=True):
        assert line.startswith(f"assistant {name} is missing: {cause}; ")


async def test_the_cause_is_for_operators(folder: str, subtests: pytest.Subtests) -> None:
    async with http_service(folder=folder, locked=True) as service:
        user = await service.key(user="ann")
        credentials = {
            "user": (user, False),
            "backend": ({**await service.key(), "X-User-ID": "ann"}, True),
            "admin": (await service.key(user="ann", role=KeyRole.ADMIN), True),
        }
        for who, (key, sees) in credentials.items():
            listed = await service.http.get("/v1/assistants", headers=key)
            asked = {"message": "Hi", "assistant": "name"}
            response = await service.http.post("/v1/chat", headers=key, json=asked)
            with subtests.test(who):
                missing = {each["name"]: each["missing"] for each in listed.json()["assistants"]}
                assert missing["name"] is not None
                assert ("NameError" in listed.text) == sees
                assert "NameError" not in response.text
