"""The questions that the page suggests are answered by the offline model, by every character and in both languages."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest

from tenuto.assistants.assistant import PLAIN
from tenuto.llm.offline.phrases import PHRASES
from tests.journeys.http_service import ANN, HttpService, http_service

EMPTY = {phrase for words in PHRASES.values() for phrase in (words.nothing_found, words.nothing_said)}


def samples(language: str) -> dict[str, list[str]]:
    words = files("tenuto.server").joinpath("console", "words", f"{language}.js").read_text("utf-8")
    return {name: told.split(" | ") for name, told in re.findall(r'"try\.(\w+)": "(.*)"', words)}


async def ask(service: HttpService, text: str, **whom: Any) -> dict[str, Any]:
    response = await service.http.post("/v1/chat", headers=ANN, json={"message": text, **whom})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_each_sample_question_is_answered_offline() -> None:
    """No sample is refused or half answered, whichever character is asked."""
    pytest.importorskip("dbos")
    async with http_service() as service:
        assistants = (await service.http.get("/v1/assistants", headers=ANN)).json()["assistants"]
        known = {each["name"]: [None, *(persona["id"] for persona in each["personas"])] for each in assistants}
        for asked in map(samples, ("en", "zh")):
            # What a plain model knows is not for us to suggest.
            assert asked.keys() == known.keys() - {PLAIN}
            for name, text in [(each, text) for each in asked for text in asked[each]]:
                for persona in known[name]:
                    reply = await ask(service, text, assistant=name, persona=persona)
                    refused = reply["data"].get("policy_mode", "normal") != "normal" or reply["answer"] in EMPTY
                    assert not refused, (name, persona, text)
