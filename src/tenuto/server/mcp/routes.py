"""The route of MCP clients. The SDK is loaded by the first request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tenuto.app import Tenuto
from tenuto.server.auth import AuthContext
from tenuto.server.lazy_server import LazyServer
from tenuto.server.openapi import Router

if TYPE_CHECKING:
    from tenuto.server.mcp.service import McpHttp

routes = Router("mcp", protocol="the Model Context Protocol")
_EXAMPLE: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
CALLER: Final = "tenuto.caller"
"""The entry of an ASGI scope that holds the admitted request."""


def lazy_mcp_server(tenuto: Tenuto) -> LazyServer[McpHttp]:
    """The MCP server of an application."""

    def load() -> Callable[[], McpHttp]:
        from tenuto.server.mcp.service import McpHttp

        return lambda: McpHttp(tenuto)

    return LazyServer(load, protocol="MCP", extra="mcp")


class _Handled(Response):
    """A response that the SDK sends."""

    def __init__(self, http: McpHttp) -> None:
        super().__init__()
        self._http = http

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._http.handle(scope, receive, send)


@routes.post("/mcp", body=_EXAMPLE, streams=True)
async def call_mcp(request: Request, admission: AuthContext) -> Response:
    """Send a message of an MCP client. Both versions of the protocol are served, with a handshake and without."""
    admission.scope()  # A wrong one is refused before the SDK is loaded.
    lazy_server: LazyServer[McpHttp] = request.app.state.mcp
    http = await lazy_server.open()
    request.scope[CALLER] = admission
    return _Handled(http)
