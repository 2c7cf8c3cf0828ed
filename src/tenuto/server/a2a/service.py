"""The A2A server: the SDK's dispatchers in front of our handler."""

from __future__ import annotations

import logging

from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.server.routes.rest_dispatcher import RestDispatcher
from starlette.requests import Request

from tenuto.app import Tenuto
from tenuto.chat import LiveTurns
from tenuto.server.a2a.handler import ASSISTANT, A2aHandler
from tenuto.server.a2a.records import TaskRecords
from tenuto.server.a2a.routes import CALLER, REQUEST
from tenuto.server.a2a.runs import Runs
from tenuto.server.json_io import path_parameter

# Its warnings tell of refused calls, which the client is told and the access log has.
logging.getLogger("a2a").setLevel(logging.ERROR)


class A2aService:
    """The dispatchers of both bindings, and the turns that they begin."""

    def __init__(self, tenuto: Tenuto, live: LiveTurns) -> None:
        records = TaskRecords(tenuto.tasks, tenuto.sessions)
        self._runs = Runs(live=live, tasks=tenuto.tasks, records=records)
        handler, context = A2aHandler(tenuto, records, self._runs), _ContextBuilder()
        self.rpc = JsonRpcDispatcher(handler, context, enable_v0_3_compat=True)
        self.rest = RestDispatcher(handler, context)

    async def close(self) -> None:
        """Stop the turns under way."""
        await self._runs.close()


class _ContextBuilder(DefaultServerCallContextBuilder):
    """What a call brings: its admission, and the assistant that its path names."""

    def build(self, request: Request) -> ServerCallContext:
        state = {
            "headers": dict(request.headers),
            CALLER: request.scope[CALLER],
            REQUEST: request,
            ASSISTANT: path_parameter(request, ASSISTANT),
        }
        extensions = get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER))
        return ServerCallContext(state=state, requested_extensions=extensions)
