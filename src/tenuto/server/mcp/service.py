"""The MCP server behind `/mcp`, opened by the first request, and on standard input and output."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from importlib.metadata import version
from typing import Any, Final, ParamSpec, TypeVar, get_type_hints
from urllib.parse import quote

import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    InputRequiredResult,
    ListResourcesResult,
    PaginatedRequestParams,
    Resource,
    TextContent,
    ToolAnnotations,
)
from pydantic import ValidationError
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from tenuto.app import Tenuto
from tenuto.background import run_in_background
from tenuto.errors import Invalid, NotFound, TenutoError
from tenuto.model import Scope
from tenuto.model.policy import TaskPolicy
from tenuto.model.values import View
from tenuto.server.auth import AuthContext
from tenuto.server.mcp.attachments import AttachmentAnswer
from tenuto.server.mcp.routes import CALLER
from tenuto.server.mcp.tools import RESOURCE_MESSAGES, CheckWriter, ScopeOf, Tools
from tenuto.server.schemas import answer_schema
from tenuto.sessions.views import SessionBrief

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LISTED: Final = 50
_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_REMOVES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
_INSTRUCTIONS: Final = (
    "Keeps conversations and what is remembered of users. Begin with create_session, or find one with list_sessions; "
    "store each message with append_message; before calling a model, assemble_context gives what it should see, within "
    "its budget. Memories outlast sessions. Agents that work on one task share its board."
)


def make_mcp_server(tenuto: Tenuto, scope_of: ScopeOf, check_writer: CheckWriter = lambda *_: None) -> MCPServer[Any]:
    """The server for one installation; `scope_of` gives the scope of each call, and `check_writer` whether it may
    write a key of a board in an agent's name."""
    tools = Tools(tenuto, scope_of, check_writer)
    server = _Server(
        "tenuto",
        title="tenuto",
        version=version("tenuto"),
        instructions=_INSTRUCTIONS,
        tools=[
            _make_tool(tool, hints)
            for tool, hints in (
                (tools.create_session, _ADDS),
                (tools.list_sessions, _READS),
                (tools.search_sessions, _READS),
                (tools.append_message, _ADDS),
                (tools.get_history, _READS),
                (tools.get_attachment, _READS),
                (tools.assemble_context, _READS),
                (tools.search_memory, _READS),
                (tools.remember, _ADDS),
                (tools.forget, _REMOVES),
                (tools.open_task, _ADDS),
                (tools.read_board, _READS),
                (tools.write_board, _REMOVES),
            )
            if tool != tools.search_sessions or tenuto.settings.session_search
        ],
        log_level="WARNING",
        # Lists of tools and resources never change, and sessions are not watched.
        subscriptions=False,
    )
    server.resource(
        "session://{id}",
        name="session",
        title="A session",
        description=f"A session and its newest {RESOURCE_MESSAGES} messages, as JSON.",
        mime_type="application/json",
    )(_reading(tools.read_session))

    async def list_sessions(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams) -> ListResourcesResult:
        page = await _listing(tools.list_sessions)(Context(request_context=ctx), cursor=params.cursor, limit=_LISTED)
        return ListResourcesResult(resources=list(map(_to_resource, page.sessions)), next_cursor=page.cursor)

    # The SDK lists the same resources to every caller; sessions have owners.
    server._lowlevel_server.add_request_handler("resources/list", PaginatedRequestParams, list_sessions)
    return server


class _Server(MCPServer[Any]):
    """The server of the SDK, except that an error of a tool begins with a stable code and not with the tool's name."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError as error:
            raise UnexpectedToolError("internal: something went wrong here") from error.__cause__
        except ToolError as error:
            raise ToolError(_reason_of(error.__cause__)) from error.__cause__


def _reason_of(cause: BaseException | None) -> str:
    """Why a tool was not called or refused; without a cause there is no such tool."""
    match cause:
        case ToolError():
            return str(cause)
        case ValidationError():
            wrong = cause.errors(include_url=False, include_context=False, include_input=False)
            return f"{Invalid.code}: " + "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in wrong)
    return f"{NotFound.code}: there is no such tool"


def _to_resource(session: SessionBrief) -> Resource:
    return Resource(
        uri=f"session://{quote(session.id, safe='')}",
        name=session.id,
        title=session.title or None,
        mime_type="application/json",
    )


def _make_tool(tool: Callable[..., Awaitable[View | AttachmentAnswer]], hints: ToolAnnotations) -> Tool:
    """A tool of the SDK, which would derive the schema of an answer from nothing but pydantic's types."""
    about = " ".join((tool.__doc__ or "").split())
    made = Tool.from_function(_answering(tool), description=about, annotations=hints, structured_output=False)
    answer = get_type_hints(tool)["return"]
    view = get_type_hints(answer)["view"] if answer is AttachmentAnswer else answer
    made.fn_metadata.output_schema = answer_schema(view)
    return made


def _answering(tool: Callable[_P, Awaitable[View | AttachmentAnswer]]) -> Callable[_P, Awaitable[CallToolResult]]:
    """The tool, with our errors as results that a model can read: the stable code, then the sentence."""

    @wraps(tool)
    async def call(*args: _P.args, **kwargs: _P.kwargs) -> CallToolResult:
        try:
            answer = await tool(*args, **kwargs)
        except TenutoError as error:
            raise ToolError(f"{error.code}: {error}") from error
        view, blocks = (answer.view, [answer.block]) if isinstance(answer, AttachmentAnswer) else (answer, [])
        text = TextContent(type="text", text=msgspec.json.encode(view).decode())
        return CallToolResult(content=[text, *blocks], structured_content=msgspec.to_builtins(view))

    return call


def _reading(resource: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    @wraps(resource)
    async def read(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await resource(*args, **kwargs)
        except NotFound as error:
            raise ResourceNotFoundError(f"{error.code}: {error}") from error
        except TenutoError as error:
            raise ResourceError(f"{error.code}: {error}") from error

    return read


def _listing(listing: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    async def read(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await listing(*args, **kwargs)
        except Invalid as error:
            raise MCPError(code=INVALID_PARAMS, message=f"{error.code}: {error}") from error

    return read


class McpHttp:
    """Streamable HTTP. Each request stands alone and brings its credential: no session of the protocol is kept, so a
    restart or another server behind the same address makes no difference to clients of either era."""

    def __init__(self, tenuto: Tenuto) -> None:
        server = make_mcp_server(tenuto, lambda ctx: _admission(ctx).scope(), _check_board_writer)
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
        self._running = run_in_background(self._run(), "mcp")

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


def _admission(ctx: Context[Any, Any]) -> AuthContext:
    request = ctx.request_context.request
    assert request is not None  # Every message over HTTP has its request.
    admission: AuthContext = request.scope[CALLER]
    return admission


def _check_board_writer(ctx: Context[Any, Any], policy: TaskPolicy, key: str) -> None:
    _admission(ctx).check_board_writer(policy, key)


async def serve_stdio(tenuto: Tenuto, caller: Scope) -> None:
    """Speak MCP on standard input and output until the input ends, for one caller."""
    await make_mcp_server(tenuto, lambda _: caller).run_stdio_async()
