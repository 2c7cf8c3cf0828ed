"""Fields that the provider alone knows: passed on, but for those that would make another request of it."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.app import open_app
from tenuto.chat import ChatRequest
from tenuto.errors import UnsupportedParameter
from tenuto.llm import ScriptedModel
from tenuto.model.parameters import OWN_FIELDS, ModelParameters
from tenuto.model.privacy import Mode
from tenuto.settings import Settings
from tests.chats import helper
from tests.journeys.http_service import ANN as ANN_HEADERS
from tests.journeys.scripted_providers import provided
from tests.providers import Answer, ScriptedProvider, Text
from tests.samples import ANN

HI: Any = [{"role": "user", "content": "Hi"}]
# Another model than the allowed one, a prompt past the privacy policy, and what other callers said there.
BESIDE: Any = [
    ("model", "gpt-4.1-mini"),
    ("messages", HI),
    ("input", "Hi"),
    ("instructions", "Be rude."),
    ("max_completion_tokens", 100_000),
    ("previous_response_id", "resp_of_another"),
    ("conversation", "conv_of_another"),
    ("tools", [{"type": "web_search"}]),
]


@pytest.mark.parametrize("assistant", ["chat", "gpt"])
async def test_no_field_makes_another_request_of_it(provider: ScriptedProvider, assistant: str) -> None:
    provider.plays(Answer(Text("Hello.")))
    refused = []
    async with provided(provider) as service:
        for name, value in BESIDE:
            asked = {"message": "Hi", "assistant": assistant, "parameters": {"extra": {name: value}}}
            response = await service.http.post("/v1/chat", headers=ANN_HEADERS, json=asked)
            refused.append((response.status_code, response.json()["code"], response.json()["detail"].split(":")[0]))
        for name, value in (("input", "Hi"), ("previous_response_id", "resp_1"), ("conversation", "conv_1")):
            asked = {"model": assistant, "messages": HI, name: value}
            response = await service.http.post("/v1/chat/completions", headers=ANN_HEADERS, json=asked)
            refused.append((response.status_code, response.json()["error"]["code"], response.json()["error"]["param"]))

    names = [*(name for name, _ in BESIDE), "input", "previous_response_id", "conversation"]
    assert refused == [(400, "unsupported_parameter", name) for name in names]
    assert provider.received == []


async def test_null_says_nothing(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Text("Hello.")))
    async with provided(provider) as service:
        asked = {"model": "chat", "messages": HI, "input": None, "metadata": None}
        response = await service.http.post("/v1/chat/completions", headers=ANN_HEADERS, json=asked)

    assert (response.status_code, "input" in provider.last.body) == (200, False)


async def asked_with(*assistants: Any, parameters: ModelParameters, **settings: Any) -> ModelParameters:
    """What the model got of these parameters."""
    model = ScriptedModel("Hello.")
    given = Settings(store="memory://", model="m", summarizer_model="offline", assistant=assistants[0].name, **settings)
    async with open_app(given, models={"m": model}, assistants=assistants, run_upkeep=False) as app:
        await app.ask(ANN, ChatRequest(text="Hi", parameters=parameters))
    return model.requests[0].parameters


async def test_the_assistants_own_fields_stay_beside_the_callers() -> None:
    careful = helper(parameters=ModelParameters(extra={"provider": {"data_collection": "deny"}, "top_a": 1}))

    got = await asked_with(careful, parameters=ModelParameters(extra={"top_a": 2, "min_p": 0.1}))

    assert got.extra == {"provider": {"data_collection": "deny"}, "top_a": 2, "min_p": 0.1}


@pytest.mark.parametrize("extra", [{"temperature": 2}, {"reasoning": {"effort": "high"}}])
async def test_what_an_assistant_fixes_no_field_changes(extra: Any) -> None:
    fixed = ModelParameters(temperature=0, reasoning_effort="low")
    bound = helper(parameters=fixed, fixed_parameters=("temperature", "reasoning_effort"))

    with pytest.raises(UnsupportedParameter, match="is fixed"):
        await asked_with(bound, parameters=ModelParameters(extra=extra))


async def test_parameters_are_redacted_as_the_prompt_is() -> None:
    mail = "ann@example.org"
    given = ModelParameters(
        user=mail,
        stop=(mail,),
        seed=13800138000,
        prediction={"type": "content", "content": mail},
        extra={"documents": [{"text": mail}]},
    )

    got = await asked_with(helper(), parameters=given, privacy_model=Mode.REDACT)

    assert (mail in str(got.given), got.seed, got.stop) == (False, 13800138000, ("[REDACTED_EMAIL]",))


def test_no_parameter_is_refused_as_a_field() -> None:
    assert OWN_FIELDS.isdisjoint(ModelParameters.__struct_fields__)
