"""Which route answers a request, and how: HEAD like GET without the body, the methods of an address, its parameters;
JSON with an ETag, not at all if the client has it, and compressed if it is large."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import Message, Receive, Scope, Send

from tenuto.server.json_io import refuse_unknown_parameters

if TYPE_CHECKING:
    from tenuto.server.openapi import Operation

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
# How long a path is whose last parameter may hold slashes.
_ANY: Final = -1
_READS: Final = ("GET", "HEAD")
# Smaller answers take no longer as they are: compressing costs a tenth of a millisecond, as long as making them.
_COMPRESSED_FROM: Final = 8 * 1024
# Longer answers are compressed in a thread, so that other requests need not wait; these take half a millisecond.
_COMPRESSED_AT_ONCE: Final = 64 * 1024
# Level 6 makes messages a fifth smaller and takes four times as long.
_LEVEL: Final = 1
_WEIGHT_0: Final = re.compile(r"\s*q=0(\.0*)?\s*", re.IGNORECASE)
_JSON: Final = b"application/json"


class ApiRoute(Route):
    """A route of one method; one for GET answers HEAD as well.

    Its JSON is sent as `represent` says. Errors of the endpoint are left to the application.
    """

    def __init__(self, method: str, path: str, endpoint: Endpoint, tag: str, operation: Operation | None) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.method = method
        self.tag = tag
        self.operation = operation
        self._endpoint = endpoint

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        operation = self.operation
        if operation is not None:
            if operation.without_query and scope["query_string"]:
                refuse_unknown_parameters(request.query_params, ())
            response = await self._endpoint(request)
            # Streams are sent as they come.
            if type(response) is Response:
                response = await represent(request, response)
        else:
            response = await self._endpoint(request)
        if scope["method"] == "HEAD":
            await _send_head(response, scope, receive, send)
        else:
            await response(scope, receive, send)


async def represent(request: Request, response: Response) -> Response:
    """The response as this client gets it. Answers that are no JSON stay as they are."""
    headers = response.raw_headers
    if (b"content-type", _JSON) not in headers:
        return response
    body = bytes(response.body)
    if response.status_code == 200 and request.method in _READS:
        tag = _tag(headers, body)
        wanted = request.headers.get("if-none-match")
        if wanted is not None and _is_among(tag, wanted):
            return Response(status_code=304, headers={"ETag": tag, "Vary": "Accept-Encoding"})
        headers[:] = [each for each in headers if each[0] != b"etag"]
        headers.append((b"etag", tag.encode()))
    if len(body) < _COMPRESSED_FROM:
        return response
    headers.append((b"vary", b"Accept-Encoding"))
    if accepts_gzip(request):
        if len(body) <= _COMPRESSED_AT_ONCE:
            packed = gzip.compress(body, _LEVEL, mtime=0)
        else:
            packed = await asyncio.to_thread(gzip.compress, body, _LEVEL, mtime=0)
        headers[:] = [each for each in headers if each[0] != b"content-length"]
        headers += [(b"content-length", b"%d" % len(packed)), (b"content-encoding", b"gzip")]
        response.body = packed
    return response


def _tag(headers: Sequence[tuple[bytes, bytes]], body: bytes) -> str:
    """The ETag of an answer. A version alone says too little: what stands beside the record changes without it."""
    digest = blake2b(body, digest_size=8).hexdigest()
    for name, value in headers:
        if name == b"etag":
            return f'{value[:-1].decode()}-{digest}"'
    return f'W/"{digest}"'


def _is_among(tag: str, wanted: str) -> bool:
    """Whether a client names the tag, by the weak comparison of If-None-Match."""
    return wanted.strip() == "*" or tag.removeprefix("W/") in [
        each.strip().removeprefix("W/") for each in wanted.split(",")
    ]


def accepts_gzip(request: Request) -> bool:
    """Whether the client names gzip, and not with the weight 0, which refuses it."""
    for coding in request.headers.get("accept-encoding", "").split(","):
        name, _, weight = coding.partition(";")
        if name.strip().lower() == "gzip":
            return _WEIGHT_0.fullmatch(weight) is None
    return False


async def _send_head(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the head of a response alone. A stream is told that its client is gone, so that it ends."""

    async def send_head(message: Message) -> None:
        await send(message)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        raise ClientDisconnect

    try:
        await response(scope, receive, send_head)
    except ClientDisconnect:
        return


class IndexedRouter(Router):
    """A router that looks at the few routes of an address' first two segments and its length, and at no others.

    The first route that fits counts, as in any router of Starlette. Where none has the method, the error names the
    methods of all that fit.
    """

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        super().__init__(routes, redirect_slashes=False)
        self._by_address: dict[tuple[str, int], list[Route]] = {}
        for route in routes:
            assert isinstance(route, Route)
            self._by_address.setdefault(_address(route), []).append(route)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().app(scope, receive, send)
            return
        allowed: set[str] = set()
        path: str = scope["path"]
        _, first, *rest = path.split("/", 3) if path.startswith("/") else ("", "")
        both, length = f"{first}/{rest[0]}" if rest else first, path.count("/")
        for key in ((both, length), (first, length), ("", length), (both, _ANY), (first, _ANY), ("", _ANY)):
            for route in self._by_address.get(key, ()):
                match, found = route.matches(scope)
                if match is Match.NONE:
                    continue
                if match is Match.FULL:
                    scope["route"] = route
                    scope.update(found)
                    await route.handle(scope, receive, send)
                    return
                scope.setdefault("route", route)  # For the metrics, which count by route.
                allowed |= route.methods or set()
        if allowed:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
        raise HTTPException(404)


def _address(route: Route) -> tuple[str, int]:
    """The segments that a path begins with, at most two and none with a parameter, and how many it has."""
    first: list[str] = []
    for segment in route.path.split("/")[1:3]:
        if "{" in segment:
            break
        first.append(segment)
    return "/".join(first), _ANY if ":path}" in route.path else route.path.count("/")
