"""A talk in a session service of the Agent Development Kit."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event, EventActions
from google.genai import types

from tenuto.integrations.adk import TenutoSessionService
from tenuto.integrations.event_loops import Installation
from tenuto.model import Scope
from tests.integrations.conversations import PIXEL


class AdkTalk:
    """Google ADK."""

    kinds: list[Any] = [
        Event(id="e1", author="user", content=types.Content(role="user", parts=[types.Part(text="How warm is it?")])),
        Event(
            id="e2",
            author="bot",
            invocation_id="i",
            branch="a.b",
            long_running_tool_ids={"c1"},
            content=types.Content(
                role="model",
                parts=[
                    types.Part(text="hm", thought=True, thought_signature=PIXEL),
                    types.Part(function_call=types.FunctionCall(id="c1", name="weather", args={"city": "北京"})),
                ],
            ),
        ),
        Event(
            id="e3",
            author="bot",
            content=types.Content(
                role="user",
                parts=[
                    types.Part(function_response=types.FunctionResponse(id="c1", name="weather", response={"t": 21.5})),
                    types.Part(inline_data=types.Blob(data=PIXEL, mime_type="image/png")),
                ],
            ),
        ),
        Event(id="e4", author="bot", actions=EventActions(state_delta={"city": "北京", "none": None}, escalate=True)),
    ]

    def __init__(self, where: Installation, scope: Scope, name: str) -> None:
        self.service = TenutoSessionService(where, tenant=scope.tenant)
        self.place: dict[str, Any] = {"app_name": "shop", "user_id": scope.user, "session_id": name}

    async def add(self, text: str) -> None:
        content = types.Content(role="user", parts=[types.Part(text=text)])
        await self.store([Event(id=str(uuid4()), author="user", content=content)])

    async def texts(self) -> list[str]:
        return [event.content.parts[0].text for event in await self.read()]

    async def store(self, messages: list[Any]) -> None:
        for event in messages:
            while True:
                session = await self.service.get_session(**self.place)
                try:
                    session = session or await self.service.create_session(**self.place)
                    await self.service.append_event(session, event.model_copy(deep=True))
                except (StaleSessionError, AlreadyExistsError):
                    continue
                break

    async def read(self) -> list[Any]:
        session = await self.service.get_session(**self.place)
        return session.events if session is not None else []

    async def clear(self) -> None:
        await self.service.delete_session(**self.place)


TALK = AdkTalk
