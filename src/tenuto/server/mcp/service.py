"""The MCP server behind `/mcp`, opened by the first request, and on standard input and output."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from tenuto.app import Tenuto
from tenuto.model import Scope
from tenuto.server.mcp.routes import CALLER
from tenuto.server.mcp.tools import make_mcp_server


class McpHttp:
    """Streamable HTTP. Each request stands alone and brings its credential: no session of the protocol is kept, so a
    restart or another server behind the same address makes no difference to clients of either era."""

    def __init__(self, tenuto: Tenuto) -> None:
        server = make_mcp_server(tenuto, _caller_of)
        self._manager = StreamableHTTPSessionManager(
            # The wrapped server has no public name, and the SDK's own application would check hosts and credentials by
            # rules of its own; those of the gate hold here.
            server._lowlevel_server,
            json_response=True,
            stateless=True,
            max_request_body_size=tenuto.settings.max_body_bytes,
        )
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        # The manager's task group must end in the task that began it.
        self._running = asyncio.create_task(self._run(), name="tenuto mcp")

    async def _run(self) -> None:
        async with self._manager.run():
            self._ready.set()
            await self._stop.wait()

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request that was admitted."""
        await self._ready.wait()
        await self._manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """End requests under way."""
        self._stop.set()
        await asyncio.wait([self._running])


def _caller_of(ctx: Context[Any, Any]) -> Scope:
    request = ctx.request_context.request
    assert request is not None  # Every message over HTTP has its request.
    caller: Scope = request.scope[CALLER]
    return caller


async def serve_stdio(tenuto: Tenuto, caller: Scope) -> None:
    """Speak MCP on standard input and output until the input ends, for one caller."""
    await make_mcp_server(tenuto, lambda _: caller).run_stdio_async()
