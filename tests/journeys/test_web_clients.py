"""The npm packages `ai` and `@ag-ui/client`, unmodified, against a server."""

from __future__ import annotations

import json
from typing import Any

from tenuto.llm import Call, Hang, Say, ScriptedModel
from tests.journeys.http_service import http_service, playing
from tests.npm_clients import install_clients, run_node
from tests.servers.loopback import serving


async def test_the_clients_of_both_protocols_talk_call_tools_reload_and_stop() -> None:
    model = ScriptedModel(
        [Call("look", id="c1")],
        "Red.",
        "Red again.",
        [Say("One ", "two "), Hang()],
        [Say("Let me look."), Call("look", id="c2")],
        "Blue.",
    )
    place = await install_clients()
    async with http_service(**playing(model)) as service, serving(service.app) as base:
        held: dict[str, Any] = json.loads(await run_node("web_clients.mjs", base, "ann", cwd=place))

    ai_sdk, ag_ui = held["aiSdk"], held["agUi"]
    assert ai_sdk["first"] == [["user", "What is there?"], ["assistant", "Red again."]]
    assert ai_sdk["reloaded"] == [*ai_sdk["first"], ["user", "Count"], ["assistant", "One two "]]
    assert (ai_sdk["status"], ai_sdk["error"]) == ("ready", "undefined")
    assert [(role, text) for _, role, text in ag_ui["live"]] == [
        ("user", "What is there?"), ("assistant", "Let me look."), ("tool", "red"), ("assistant", "Blue.")
    ]  # fmt: skip
    assert (ag_ui["reloaded"], ag_ui["state"]) == (ag_ui["live"], {"a": 1})
    assert (len(model.requests), model.cancelled) == (6, 1)
