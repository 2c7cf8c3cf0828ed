"""Whatever app is used, its chat is one session: as the app shows it, through edits, stops and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apps import ChatApp, ClaudeCode, Codex, LibreChat, Llm, OpenCode, OpenWebUI, Pi, Script
from tests.journeys.app_server import AppServer, app_server, sent_by, shown_by, shown_to_model

NAMED: list[type[ChatApp]] = [OpenWebUI, LibreChat, Codex, ClaudeCode, OpenCode, Pi, Script]
HOME, ASKED = "I live in Ulm.", "Where do I live?"


def named(app: type[ChatApp]) -> str:
    return app.name


async def agree(server: AppServer, app: ChatApp) -> Any:
    """The one session of the chat has the messages that the app shows, and the newest prompt had what it sent."""
    (session,) = await server.sessions(app.user)
    assert await server.talk(session["id"], app.user) == shown_by(app)
    assert shown_to_model(server.model.requests[-1]) == sent_by(app.sent[-1])
    return session


@pytest.mark.parametrize("kind", [Llm, Script], ids=named)
async def test_without_the_setting_a_chat_is_answered_and_not_stored(kind: type[ChatApp]) -> None:
    """Without the setting no id of an app counts; a session is made by our own header alone."""
    async with app_server() as server:
        app = await server.open(kind)
        await app.ask(HOME)
        await app.ask("Please use the tool.")

        assert shown_to_model(server.model.requests[-1]) == sent_by(app.sent[-1])
        assert len(await server.sessions()) == (kind is Script)
