"""The route of MCP clients. The SDK is loaded by the first request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tenuto.app import Tenuto
from tenuto.errors import ExtraMissing
from tenuto.server.auth import asking
from tenuto.server.openapi import Router

if TYPE_CHECKING:
    from tenuto.server.mcp.service import McpHttp

routes = Router("mcp")
CALLER: Final = "tenuto.scope"
"""The entry of an ASGI scope that holds whom an admitted request acts for."""


class McpDoor:
    """The MCP server of an application, once a request has opened it."""

    def __init__(self, tenuto: Tenuto) -> None:
        self._tenuto = tenuto
        self._opening = asyncio.Lock()
        self._opened: McpHttp | None = None

    async def open(self) -> McpHttp:
        """The server.

        Raises:
            ExtraMissing: the SDK is not installed.
        """
        async with self._opening:
            if self._opened is None:
                service = await asyncio.to_thread(_load)
                self._opened = service(self._tenuto)
        return self._opened

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Close it at the end, if it was opened."""
        try:
            yield
        finally:
            if self._opened is not None:
                await self._opened.close()


def _load() -> type[McpHttp]:
    try:
        from tenuto.server.mcp.service import McpHttp
    except ModuleNotFoundError as absent:
        raise ExtraMissing("MCP", "mcp") from absent
    return McpHttp


class _Handled(Response):
    """A response that the SDK sends."""

    def __init__(self, http: McpHttp) -> None:
        super().__init__()
        self._http = http

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._http.handle(scope, receive, send)


@routes.post("/mcp")
async def call_mcp(request: Request) -> Response:
    """A message of an MCP client, by the protocol with a handshake or the one without."""
    caller = await asking(request)
    door: McpDoor = request.app.state.mcp
    http = await door.open()
    request.scope[CALLER] = caller
    return _Handled(http)
