"""How a JSON answer is sent: with an ETag, not at all if the client has it, compressed if it is large."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_READS: Final = ("GET", "HEAD")
# Smaller answers take no longer as they are: compressing costs a tenth of a millisecond, as long as making them.
_COMPRESSED_FROM: Final = 8 * 1024
# Longer answers are compressed in a thread, so that other requests need not wait; these take half a millisecond.
_COMPRESSED_AT_ONCE: Final = 64 * 1024
# Level 6 makes messages a fifth smaller and takes four times as long.
_LEVEL: Final = 1
_WEIGHT_0: Final = re.compile(r"\s*q=0(\.0*)?\s*", re.IGNORECASE)
_JSON: Final = b"application/json"


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
