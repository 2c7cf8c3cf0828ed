"""The routes of A2A clients: cards, JSON-RPC and REST for each assistant. The SDK is loaded by the first call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from tenuto.app import Tenuto
from tenuto.chat import LiveTurns
from tenuto.errors import ExtraMissing
from tenuto.model.values import JsonObject
from tenuto.server.a2a.card import agent_card
from tenuto.server.auth import authenticate_request, service
from tenuto.server.json_io import path_parameter, read_body
from tenuto.server.lazy_server import LazyServer
from tenuto.server.openapi import Router

if TYPE_CHECKING:
    from tenuto.server.a2a.service import A2aService

routes = Router("a2a", protocol="A2A")
CALLER: Final = "tenuto.auth"
"""The entry of an ASGI scope that holds the admission of a request."""
REQUEST: Final = "tenuto.request"
"""What the context of a call has its request under."""
_CARD: Final = "/.well-known/agent-card.json"
_AGENT: Final = "/a2a/{assistant}"
# Each with the method of the SDK's dispatcher.
_REST: Final = (
    ("POST", "/message:send", "on_message_send", "Send a message to an assistant."),
    ("POST", "/message:stream", "on_message_send_stream", "Send a message and follow the answer."),
    ("GET", "/tasks", "list_tasks", "List tasks of A2A."),
    ("POST", "/tasks/{id}:cancel", "on_cancel_task", "Cancel a task of A2A."),
    ("GET", "/tasks/{id}:subscribe", "on_subscribe_to_task", "Follow a task of A2A."),
    ("POST", "/tasks/{id}:subscribe", "on_subscribe_to_task", "Follow a task of A2A."),
    ("GET", "/tasks/{id}", "on_get_task", "Get a task of A2A."),
    ("POST", "/tasks/{id}/pushNotificationConfigs", "set_push_notification", "Add a webhook to a task."),
    ("GET", "/tasks/{id}/pushNotificationConfigs", "list_push_notifications", "List the webhooks of a task."),
    ("GET", "/tasks/{id}/pushNotificationConfigs/{push_id}", "get_push_notification", "Get a webhook of a task."),
    (
        "DELETE",
        "/tasks/{id}/pushNotificationConfigs/{push_id}",
        "delete_push_notification",
        "Delete a webhook of a task.",
    ),
    ("GET", "/extendedAgentCard", "handle_authenticated_agent_card", "Get the agent card for a known caller."),
)
_MESSAGE: Final[JsonObject] = {
    "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Where do I start?"}]}
}
_RPC_EXAMPLE: Final[JsonObject] = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": _MESSAGE}
_WEBHOOK: Final[JsonObject] = {"url": "https://example.com/hook"}
_BODIES: Final = {
    "/message:send": _MESSAGE,
    "/message:stream": _MESSAGE,
    "/tasks/{id}/pushNotificationConfigs": _WEBHOOK,
}


def lazy_a2a_server(tenuto: Tenuto, live: LiveTurns) -> LazyServer[A2aService]:
    """The A2A server of an application. At its end it leaves the turns under way; their tasks are brought to an end
    when a client asks for them again."""

    def load() -> Callable[[], A2aService]:
        from tenuto.server.a2a.service import A2aService

        return lambda: A2aService(tenuto, live)

    return LazyServer(load, protocol="A2A", extra="a2a")


@routes.get(_CARD, public=True)
async def get_default_card(request: Request) -> Response:
    """Get the agent card of the default assistant."""
    return await _card(request, None)


@routes.get(f"{_AGENT}{_CARD}", public=True)
async def get_card(request: Request, assistant: str) -> Response:
    """Get the agent card of an assistant."""
    return await _card(request, assistant)


async def _card(request: Request, name: str | None) -> Response:
    """Cards are public: clients learn from them which credential is needed. An open server is this machine's alone."""
    is_open = await service(request).gate.is_open()
    if is_open:
        await authenticate_request(request)
    if find_spec("a2a") is None:
        raise ExtraMissing("protocol A2A", "a2a")
    assistant = service(request).chat.assistants.find(name)
    card = agent_card(assistant, server_address(request), needs_credential=not is_open)
    # A client that reads the card calls soon, and the SDK takes seconds to load.
    loading = BackgroundTask(request.app.state.a2a.open)
    return Response(msgspec.json.encode(card), media_type="application/json", background=loading)


def server_address(request: Request) -> str:
    """The address under which the client has called, without a slash at its end."""
    # Behind a proxy that ends TLS; a header of the client's own changes nothing but its own answer.
    secure = request.headers.get("x-forwarded-proto") == "https"
    return str(request.base_url.replace(scheme="https") if secure else request.base_url).rstrip("/")


@routes.post(_AGENT, body=_RPC_EXAMPLE, streams=True)
async def call_a2a(request: Request) -> Response:
    """Call an assistant by JSON-RPC, version 1.0 or 0.3 of A2A."""
    opened = await _admit(request)
    return await _dispatch(request, opened.rpc.handle_requests)


def _rest(method: str, name: str, about: str) -> Callable[[Request], Awaitable[Response]]:
    async def call(request: Request) -> Response:
        opened = await _admit(request)
        request.path_params.update({name: path_parameter(request, name) for name in request.path_params})
        return await _dispatch(request, getattr(opened.rest, method))

    call.__name__, call.__doc__ = name, about
    return call


for _method, _path, _name, _about in _REST:
    routes.add(
        _method,
        f"{_AGENT}{_path}",
        body=_BODIES.get(_path) if _method == "POST" else None,
        streams=_path.endswith((":stream", ":subscribe")),
    )(_rest(_name, f"a2a_{_method.lower()}_{_name}", _about))


async def _admit(request: Request) -> A2aService:
    request.scope[CALLER] = await authenticate_request(request)
    service(request).chat.assistants.find(path_parameter(request, "assistant"))
    lazy_server: LazyServer[A2aService] = request.app.state.a2a
    return await lazy_server.open()


async def _dispatch(request: Request, handle: Callable[[Request], Awaitable[Response]]) -> Response:
    """Let the SDK answer, with a body of limited size; it takes anything that is no JSON for this beginning of one."""
    body = await read_body(request, service(request).settings.max_body_bytes)
    if body and not _is_json(body):
        body = b"{"

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    response = await handle(Request(request.scope, receive))
    # A turn goes on without its readers, so a stream does not delay the server's end.
    request.state.endless = response.media_type == "text/event-stream"
    return response


def _is_json(body: bytes) -> bool:
    """Whether a body can be read: bytes that are no text and endless nesting would be failures inside the SDK."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
