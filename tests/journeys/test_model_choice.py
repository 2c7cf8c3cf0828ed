"""Callers choose the model that answers: from an allow-list, by alias, and another one in mid-conversation."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.journeys.openai_clients import openai_served
from tests.providers.provider import KEY, ScriptedProvider
from tests.providers.script import Answer, Text

SETTINGS: dict[str, Any] = {
    "model": "openai-chat:gpt-4.1",
    "model_api_key": KEY,
    "summarizer_model": "offline",
    "allowed_models": "openai-chat:gpt-4.1-mini, acme/openai-chat:gpt-5*, anthropic:claude-nought",
    "model_aliases": "small=openai-chat:gpt-4.1-mini, helper=general, gone=anthropic:claude-nought",
    "unknown_models": "refuse",
}
HI: list[Any] = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def settings(provider: ScriptedProvider) -> dict[str, Any]:
    provider.plays(Answer(Text("Hello.")))
    return {**SETTINGS, "model_base_url": provider.openai_url}


async def test_a_name_selects_an_assistant_or_a_model_that_the_key_may_use(
    settings: dict[str, Any], provider: ScriptedProvider
) -> None:
    async with openai_served(**settings) as served:

        async def asked_for(name: str, **said: Any) -> tuple[str, list[str]]:
            """The model that the provider is asked for, and the roles of its prompt."""
            done = await served.ann.chat.completions.create(model=name, messages=HI, **said)
            assert (done.model, done.choices[0].message.content) == (name, "Hello.")
            body = provider.accepted[-1]
            return body["model"], [message["role"] for message in body["messages"]]

        assert await asked_for("general") == ("gpt-4.1", ["system", "user"])
        assert await asked_for("helper") == ("gpt-4.1", ["system", "user"])
        assert await asked_for("openai-chat:gpt-4.1") == ("gpt-4.1", ["user"])
        assert await asked_for("small") == ("gpt-4.1-mini", ["user"])
        assert await asked_for("openai-chat:gpt-5-mini") == ("gpt-5-mini", ["user"])

        own = {model.id async for model in served.ann.models.list()}
        others = {model.id async for model in served.eve.models.list()}
        assert (
            own
            == others
            == {"general", "goods", "npc", "legal", "plain", "helper", "small", "gone"}
            | {*("openai-chat:gpt-4.1", "openai-chat:gpt-4.1-mini", "anthropic:claude-nought")}
        )
        assert (await served.ann.models.retrieve("openai-chat:gpt-5-mini")).id == "openai-chat:gpt-5-mini"


async def test_a_model_that_the_key_may_not_use_is_not_found_and_nothing_is_stored(
    settings: dict[str, Any], provider: ScriptedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    async with openai_served(**settings) as served:
        for client, name in ((served.eve, "openai-chat:gpt-5-mini"), (served.ann, "gpt-5"), (served.ann, "openai:o4")):
            for refused in (
                client.chat.completions.create(model=name, messages=HI),
                client.responses.create(model=name, input="Hi"),
                client.models.retrieve(name),
            ):
                with pytest.raises(openai.NotFoundError) as error:
                    await refused
                assert error.value.code == "model_not_found"
        said = await served.service.http.post(
            "/v1/chat", json={"message": "Hi", "model": "gpt-5"}, headers={"Authorization": f"Bearer {served.key}"}
        )
        assert (said.status_code, said.json()["code"]) == (404, "model_unknown")
        with pytest.raises(openai.InternalServerError) as unopened:
            await served.ann.responses.create(model="gone", input="Hi")
        assert unopened.value.code == "model_failed"
        assert "claude-nought" in caplog.text
        assert not provider.received
        listed = await served.service.http.get("/v1/sessions", headers={"Authorization": f"Bearer {served.key}"})
        assert listed.json()["sessions"] == []


async def test_a_conversation_goes_on_with_another_model_and_remembers_each(
    settings: dict[str, Any], provider: ScriptedProvider
) -> None:
    async with openai_served(**settings) as served:
        ann, headers = served.ann, {"Authorization": f"Bearer {served.key}"}
        first = await ann.responses.create(model="general", input="Hi")
        second = await ann.responses.create(model="small", input="And now?", previous_response_id=first.id)
        await ann.responses.create(model="helper", input="And then?", previous_response_id=second.id)
        models = [body["model"] for body in provider.accepted]
        assert models == ["gpt-4.1", "gpt-4.1-mini", "gpt-4.1"]
        assert [message["role"] for message in provider.accepted[-1]["messages"]][1:] == [
            *("user", "assistant") * 2,
            "user",
        ]
        traces = (await served.service.http.get("/v1/traces", headers=headers)).json()["traces"]
        assert sorted(trace["model"] for trace in traces) == sorted(f"openai-chat:{name}" for name in models)


async def test_names_of_programs_that_cannot_change_theirs_get_the_default_assistant(settings: dict[str, Any]) -> None:
    async with openai_served(**{**settings, "unknown_models": "default"}) as served:
        done = await served.ann.chat.completions.create(model="gpt-9", messages=HI)
        assert done.choices[0].message.content == "Hello."
