"""The long connection: a websocket that carries events to the bot, in the frames of the official client.

The official package defines the frames; it is imported with the first connection, since that takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from tests.lark_platform.chats import Event, World

_CONTROL, _DATA = 0, 1
_AUTH_FAILED = 514
_CONFIG = {"ReconnectCount": -1, "ReconnectInterval": 1, "ReconnectNonce": 0, "PingInterval": 120}


@dataclass(kw_only=True)
class LongConnections:
    """The open connections of the app, newest last, and the events that await their acknowledgement."""

    world: World
    open: list[WebSocket] = field(default_factory=list)
    _tickets: set[str] = field(default_factory=set)
    _waiting: dict[str, asyncio.Future[int]] = field(default_factory=dict)

    def routes(self) -> list[BaseRoute]:
        """The address that names the websocket, and the websocket."""
        return [
            Route("/callback/ws/endpoint", self._endpoint, methods=["POST"]),
            WebSocketRoute("/ws/v2", self._connection),
        ]

    async def push(self, event: Event, seconds: float) -> int:
        """Send an event to the newest connection; returns the code of the acknowledgement, 200 if all is well."""
        key = secrets.token_hex(16)
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[key] = acknowledged
        headers = {"type": "event", "message_id": key, "sum": "1", "seq": "0", "trace_id": secrets.token_hex(16)}
        frame = _frame(_DATA, headers, json.dumps(event.payload, ensure_ascii=False).encode())
        async with asyncio.timeout(seconds):
            await self.open[-1].send_bytes(frame.SerializeToString())
            return await acknowledged

    async def drop(self) -> None:
        """Close every connection, as the platform does now and then."""
        for websocket in tuple(self.open):
            await websocket.close(1012)

    async def _endpoint(self, request: Request) -> Response:
        self.world.count("endpoint")
        given, app = await request.json(), self.world.app
        if (given.get("AppID"), given.get("AppSecret")) != (app.app_id, app.app_secret):
            return JSONResponse({"code": _AUTH_FAILED, "msg": "app_id or app_secret is invalid"})
        ticket = secrets.token_hex(8)
        self._tickets.add(ticket)
        url = f"ws://{request.url.netloc}/ws/v2?device_id={ticket}&service_id=33554678"
        return JSONResponse({"code": 0, "msg": "", "data": {"URL": url, "ClientConfig": _CONFIG}})

    async def _connection(self, websocket: WebSocket) -> None:
        ticket = websocket.query_params.get("device_id", "")
        if ticket not in self._tickets:
            await websocket.close()
            return
        self._tickets.remove(ticket)
        await websocket.accept()
        self.open.append(websocket)
        self.world.announce()
        try:
            async for data in websocket.iter_bytes():
                await self._take(websocket, data)
        finally:
            self.open.remove(websocket)
            self.world.announce()

    async def _take(self, websocket: WebSocket, data: bytes) -> None:
        """Answer a ping, or note an acknowledgement."""
        frame = _frames().Frame()
        frame.ParseFromString(data)
        headers = {header.key: header.value for header in frame.headers}
        if frame.method == _CONTROL and headers["type"] == "ping":
            pong = _frame(_CONTROL, {"type": "pong"}, json.dumps(_CONFIG).encode())
            await websocket.send_bytes(pong.SerializeToString())
        elif frame.method == _DATA:
            acknowledged = self._waiting.pop(headers["message_id"])
            if not acknowledged.done():
                acknowledged.set_result(json.loads(frame.payload)["code"])


def _frames() -> Any:
    return import_module("lark_oapi.ws.pb.pbbp2_pb2")


def _frame(method: int, headers: dict[str, str], payload: bytes) -> Any:
    frame = _frames().Frame()
    frame.SeqID, frame.LogID, frame.service, frame.method, frame.payload = 1, 1, 33554678, method, payload
    for key, value in headers.items():
        frame.headers.add(key=key, value=value)
    return frame
