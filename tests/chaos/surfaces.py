"""Every way in for another framework or protocol, as the same thing: texts are added under a key, and read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import httpx

from tenuto.errors import StoreUnavailable
from tenuto.model import NewSession, Page, Role
from tests.integrations.conversations import ADAPTERS, open_talk
from tests.journeys.http_service import ANN as WHO
from tests.journeys.http_service import PROBLEM, HttpService
from tests.samples import ANN

Asked: TypeAlias = tuple[str, dict[str, Any]]
_OUTAGE: Final = ("unavailable", "circuit_open")
_ACCEPT: Final = "application/json, text/event-stream"
# What a stream says only when all is stored.
_ENDS: Final = {"response_stream": "response.completed", "ai_sdk": '"finish"', "ag_ui": "RUN_FINISHED"}
_UNANSWERED: Final = ("items", "mcp")


class Surface(Protocol):
    """A conversation of Ann's."""

    async def add(self, text: str) -> None:
        """Returns when the text is acknowledged; raises `Unavailable` for the documented error."""
        ...

    async def texts(self) -> list[str]:
        """What Ann has said, as it is stored."""
        ...


def _chat(session: str, text: str) -> Asked:
    return "/v1/chat", {"message": text, "session_id": session}


def _responses(session: str, text: str) -> Asked:
    return "/v1/responses", {"input": text, "conversation": session}


def _response_stream(session: str, text: str) -> Asked:
    return "/v1/responses", {"input": text, "conversation": session, "stream": True}


def _items(session: str, text: str) -> Asked:
    return f"/v1/conversations/{session}/items", {"items": [{"id": f"msg_{text}", "role": "user", "content": text}]}


def _completions(session: str, text: str) -> Asked:
    return "/v1/chat/completions", {"model": "general", "messages": [{"role": "user", "content": text}]}


def _messages(session: str, text: str) -> Asked:
    return "/v1/messages", {"model": "general", "max_tokens": 99, "messages": [{"role": "user", "content": text}]}


def _ai_sdk(session: str, text: str) -> Asked:
    said = {"id": f"u{text}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return "/v1/ai-sdk/chat", {"id": session, "messages": [said]}


def _ag_ui(session: str, text: str) -> Asked:
    said = {"id": f"u{text}", "role": "user", "content": text}
    given: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return "/v1/ag-ui/general", {"threadId": session, "runId": f"r{text}", "messages": [said], **given}


def _mcp(session: str, text: str) -> Asked:
    arguments = {"session_id": session, "text": text, "idempotency_key": text}
    return "/mcp", rpc("tools/call", {"name": "append_message", "arguments": arguments})


def _a2a(session: str, text: str) -> Asked:
    said = {"messageId": f"m{text}", "role": "ROLE_USER", "parts": [{"text": text}], "contextId": session}
    return "/a2a/general", rpc("SendMessage", {"message": said})


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A call of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


ROUTES: Final[Mapping[str, Callable[[str, str], Asked]]] = {
    "chat": _chat,
    "responses": _responses,
    "response_stream": _response_stream,
    "items": _items,
    "completions": _completions,
    "messages": _messages,
    "ai_sdk": _ai_sdk,
    "ag_ui": _ag_ui,
    "mcp": _mcp,
    "a2a": _a2a,
}


def outage_told(answer: httpx.Response) -> bool:
    """Whether an answer is the documented error of an outage, in the form that its clients read."""
    told = answer.headers["content-type"]
    if told == PROBLEM:
        return answer.status_code == 503 and answer.json()["code"] in _OUTAGE
    if "event-stream" in told:
        return any(f'"{code}' in answer.text for code in _OUTAGE)
    body = answer.json()
    if answer.status_code != 200:
        error = body["error"]
        if body.get("type") == "error":
            return answer.status_code == 503 and error["details"]["error_code"] in _OUTAGE
        return (answer.status_code, error["type"]) == (503, "server_error") and error["code"] in _OUTAGE
    if "jsonrpc" not in body:
        return False
    result = body.get("result", {})
    text = result["content"][0]["text"] if result.get("isError") else body.get("error", {}).get("message", "")
    return any(f"{code}: " in text for code in _OUTAGE)


class Route:
    """A route of the server that stores what it is sent."""

    def __init__(self, name: str, service: HttpService) -> None:
        self._name, self._http, self._app = name, service.http, service.tenuto

    async def create(self) -> None:
        """Make its session, if there is none."""
        await self._app.sessions.create(ANN, NewSession(), self._name)

    async def add(self, text: str) -> None:
        path, body = ROUTES[self._name](self._name, text)
        headers = {"Idempotency-Key": text, "Tenuto-Session": self._name, "A2A-Version": "1.0", "Accept": _ACCEPT}
        answer = await self._http.post(path, json=body, headers={**WHO, **headers})
        if outage_told(answer):
            raise StoreUnavailable
        assert answer.status_code == 200, (self._name, answer.text)
        assert _ENDS.get(self._name, "") in answer.text, (self._name, answer.text)

    async def texts(self) -> list[str]:
        """What Ann has said; each was answered once, or none was."""
        page = await self._app.store.sessions.messages(ANN, self._name, Page(limit=10_000))
        texts = [message.text for message in page.messages if message.role is Role.USER]
        answers = len(page.messages) - len(texts)
        assert answers == (0 if self._name in _UNANSWERED else len(texts)), self._name
        return texts


async def open_surfaces(service: HttpService) -> dict[str, Surface]:
    """A conversation on each surface, by its name."""
    routes = {name: Route(name, service) for name in ROUTES}
    for route in routes.values():
        await route.create()
    return {**{name: open_talk(name, service.tenuto, ANN, name) for name in ADAPTERS}, **routes}
