"""The official A2A client, and what is sent and read with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import get_artifact_text, new_text_message
from a2a.types import a2a_pb2 as proto
from starlette.types import ASGIApp

from tests.journeys.http_service import BASE, HttpService

BINDINGS = ("JSONRPC", "HTTP+JSON")


State = proto.TaskState


@asynccontextmanager
async def client(
    service: HttpService,
    headers: dict[str, str],
    binding: str = "JSONRPC",
    *,
    streams: bool = False,
    agent: str = "",
    app: ASGIApp | None = None,
) -> AsyncIterator[Client]:
    """A client of the default assistant, or of another agent, as its card says."""
    transport = httpx.ASGITransport(app=app or service.app)
    async with httpx.AsyncClient(transport=transport, headers=headers, base_url=BASE, timeout=60) as http:
        card = await A2ACardResolver(http, f"{BASE}{agent}").get_agent_card()
        config = ClientConfig(httpx_client=http, streaming=streams, supported_protocol_bindings=[binding])
        yield ClientFactory(config).create(card)


def message(text: str, **fields: Any) -> proto.SendMessageRequest:
    """A message of a user, and how it is sent."""
    how = {name: fields.pop(name) for name in ("return_immediately", "history_length") if name in fields}
    said = new_text_message(text, role=proto.ROLE_USER, **fields)
    return proto.SendMessageRequest(message=said, configuration=proto.SendMessageConfiguration(**how))


async def send(agent: Client, request: proto.SendMessageRequest) -> proto.Task:
    """The task that a message ends in."""
    last = [event async for event in agent.send_message(request)][-1]
    if last.HasField("task"):
        return last.task
    return await agent.get_task(proto.GetTaskRequest(id=last.status_update.task_id))


def answer(task: proto.Task) -> str:
    """What a task has answered."""
    return get_artifact_text(task.artifacts[0])
