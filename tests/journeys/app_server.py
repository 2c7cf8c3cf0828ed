"""A server that knows apps, on a loopback port, with a model that answers whatever they ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import httpx

from tenuto.model.generation import ModelRequest
from tenuto.model.message import Role, readable_part
from tests.apps import AppModel, ChatApp, Kind, Line
from tests.chats import helper
from tests.journeys.http_service import HttpService, at, http_service
from tests.servers.loopback import serving

ALL = "open-webui,librechat,codex,claude-code,opencode,pi"
# By which the model tells the tasks of apps.
TASKS = (
    "### Task:\nGenerate",
    "### Task:\nPredict",
    "CONTEXT CHECKPOINT COMPACTION",
    "Write the title",
    "CRITICAL: Respond with TEXT ONLY",
    "title generator",
    "context summarization agent",
)

_SPEAKERS = (Role.USER.value, Role.ASSISTANT.value)


@dataclass(frozen=True)
class AppServer:
    """A server that needs keys, and the model behind it. Its tenant has a key for apps that name their users."""

    service: HttpService
    base_url: str
    model: AppModel
    secrets: dict[str, str]

    async def open(self, app: type[ChatApp], who: str = "ann", chat: str = "chat-1") -> ChatApp:
        """A chat of that app; one that cannot name its user has the user's key."""
        key = await self._secret("" if app.names_user else who)
        return app(self.base_url, chat, user=who, key=key)

    async def _secret(self, who: str) -> str:
        if who not in self.secrets:
            _, self.secrets[who] = await self.service.keys.create(tenant="acme", user=who or None)
        return self.secrets[who]

    async def get(self, path: str, who: str = "ann", **params: Any) -> Any:
        """What a user reads."""
        headers = {"Authorization": f"Bearer {await self._secret(who)}"}
        response = await self.service.http.get(path, headers=headers, params=params)
        assert response.status_code == httpx.codes.OK, response.text
        return response.json()

    async def sessions(self, who: str = "ann") -> list[Any]:
        """The sessions of a user."""
        listed: list[Any] = (await self.get("/v1/sessions", who))["sessions"]
        return listed

    async def talk(self, session_id: str, who: str = "ann") -> list[tuple[str, str]]:
        """The messages of a session, as an app would show them."""
        messages: list[Any] = []
        while page := (await self.get(at(session_id, "messages"), who, limit=100, **_before(messages)))["messages"]:
            messages = [*page, *messages]
        return _joined([line for message in messages for line in _lines_of(message)])


def _before(messages: list[Any]) -> dict[str, int]:
    return {"before": messages[0]["seq"]} if messages else {}


def _lines_of(message: dict[str, Any]) -> list[tuple[str, str]]:
    parts = [readable_part(part) for part in message["parts"]]
    text = "".join(part["text"] for part in parts if part["type"] == "text").strip()
    said = [(message["role"], text)] if text else []
    calls = [("call", part["name"]) for part in parts if part["type"] == "tool_call"]
    outputs = [("output", part["call_id"]) for part in parts if part["type"] == "tool_result"]
    return [*said, *calls, *outputs]


def shown_by(app: ChatApp) -> list[tuple[str, str]]:
    """The chat of an app in the same form."""
    forms = {Kind.CALL: attrgetter("tool"), Kind.OUTPUT: attrgetter("id")}
    said = [line for line in app.lines if not line.hidden]
    return _joined([(line.kind.value, forms.get(line.kind, _text_of)(line)) for line in said])


def _text_of(line: Line) -> str:
    return line.text.strip()


def sent_by(lines: tuple[Line, ...]) -> list[tuple[str, str]]:
    """The talk of a request that an app sent, as a model has to be shown it."""
    return _joined([_shown_line(line) for line in lines if not line.hidden])


def _joined(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Texts of one speaker in a row as one: models are asked so, and apps show an answer that went on so."""
    joined: list[tuple[str, str]] = []
    for role, text in lines:
        if joined and role == joined[-1][0] and role in _SPEAKERS and not joined[-1][1].startswith("call "):
            joined[-1] = (role, joined[-1][1] + text.strip())
        else:
            joined.append((role, text.strip()))
    return [(role, "".join(text.split("\n")) if role in _SPEAKERS else text) for role, text in joined]


def _shown_line(line: Line) -> tuple[str, str]:
    match line.kind:
        case Kind.CALL:
            return Role.ASSISTANT.value, f"call {line.id}"
        case Kind.OUTPUT:
            return Role.TOOL.value, f"output {line.id}"
        case _:
            return line.kind.value, _text_of(line)


def shown_to_model(request: ModelRequest) -> list[tuple[str, str]]:
    """The talk of a prompt in the same form, without what instructs the model."""
    shown = []
    for message in request.messages:
        if message.role is Role.SYSTEM:
            continue
        text = message.text.strip()
        if text:
            shown.append((message.role.value, text))
        shown += [(message.role.value, f"call {part['id']}") for part in message.parts if part["type"] == "tool_call"]
        results = [part for part in message.parts if part["type"] == "tool_result"]
        shown += [(message.role.value, f"output {part['call_id']}") for part in results]
    return _joined(shown)


@asynccontextmanager
async def app_server(**given: Any) -> AsyncIterator[AppServer]:
    """The server; any name of a model is its one assistant."""
    model = AppModel(*TASKS)
    settings = {"model": "scripted", "summarizer_model": "scripted", "assistant": "helper", "apps": ALL}
    service = http_service(
        locked=True,
        models={"scripted": model},
        assistants=[helper()],
        **{**settings, "unknown_models": "default", "embedder": "none", **given},
    )
    async with service as opened, serving(opened.app) as address:
        yield AppServer(opened, address, model, {})
