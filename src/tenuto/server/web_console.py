"""What people see in a browser: the console at `/`, its files under `/console/`, and the page of routes."""

from __future__ import annotations

import gzip
from html import escape
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tenuto.server.auth import service
from tenuto.server.console_files import ConsoleFile, load_files
from tenuto.server.json_io import JSON
from tenuto.server.openapi import Router, document
from tenuto.server.routes_page import render_routes
from tenuto.server.routing import accepts_gzip

routes = Router()

_NOWHERE: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# Only our own files, and no string ever becomes markup or script, whatever a script of ours would try. Attachments are
# fetched with credentials, which an element sends none of: it shows their bytes as `blob:`.
_CONSOLE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    f"media-src blob:; {_NOWHERE}; require-trusted-types-for 'script'; trusted-types 'none'"
)
_ROUTES_POLICY: Final = (
    f"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; {_NOWHERE}; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


@routes.get("/")
async def console(request: Request) -> Response:
    """The console."""
    headers = {
        "Content-Security-Policy": _CONSOLE_POLICY,
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    return _respond(request, load_files()["index.html"], headers)


@routes.get("/console/{name:path}")
async def console_file(request: Request) -> Response:
    """A file of the console. Browsers keep one whose name has a hash; of others they ask whether it changed."""
    file = load_files().get(request.path_params["name"])
    if file is None:
        raise HTTPException(404)
    return _respond(request, file, {"Cross-Origin-Resource-Policy": "same-origin"})


def _respond(request: Request, file: ConsoleFile, headers: dict[str, str]) -> Response:
    cached = "public, max-age=31536000, immutable" if file.is_hashed else "no-cache"
    headers |= {"ETag": file.tag, "Cache-Control": cached, "Vary": "Accept-Encoding"}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request):
        return Response(file.gzipped, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.kind)
    return Response(file.body, headers=headers, media_type=file.kind)


@routes.get("/openapi.json")
async def openapi_document(request: Request) -> Response:
    """The OpenAPI document."""
    return Response(msgspec.json.encode(document(request.app)), media_type=JSON)


@routes.get("/docs")
async def routes_page(request: Request) -> Response:
    """A first step, and all routes, to read and to try."""
    body = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>tenuto: routes</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="console/icon.svg">
<link rel="stylesheet" href="console/css/base.css"><link rel="stylesheet" href="console/css/routes.css">
<script type="module" src="console/routes.js"></script></head><body class="routes"><main><h1>Routes</h1>
<p class="lead">Any OpenAPI tool reads <a href="openapi.json">openapi.json</a>, which this page is made of.</p>
{await _first_step(request)}
{_rendered_routes(request.app)}</main></body></html>"""
    headers = {"Content-Security-Policy": _ROUTES_POLICY, "Referrer-Policy": "no-referrer", "Vary": "Accept-Encoding"}
    if accepts_gzip(request):
        return HTMLResponse(gzip.compress(body.encode(), mtime=0), headers=headers | {"Content-Encoding": "gzip"})
    return HTMLResponse(body, headers=headers)


def _rendered_routes(app: Starlette) -> str:
    """The routes as HTML, made once: they do not change while the server runs."""
    if not hasattr(app.state, "rendered_routes"):
        app.state.rendered_routes = render_routes(document(app))
    html: str = app.state.rendered_routes
    return html


async def _first_step(request: Request) -> str:
    base = str(request.base_url).rstrip("/")
    is_open = await service(request).gate.is_open()
    key = "" if is_open else ' -H "Authorization: Bearer $TENUTO_KEY"'
    first = f'curl {base}/v1/chat{key} -d \'{{"message": "Hello!"}}\''
    way_in = (
        "No API key is needed: requests from this machine are accepted, as tenant <code>local</code> unless they name "
        "another. The first <code>tenuto keys create</code> ends that."
        if is_open
        else "Requests need an API key or a token."
    )
    return f"""<p class="first">{way_in} Begin a conversation, then see it again, also after a restart:</p>
<pre tabindex="0">{escape(first)}
{escape(f"curl {base}/v1/sessions{key}")}</pre>
<p class="first">In a browser: <a href="./">the console</a>. For operators: <a href="healthz">health</a>,
<a href="readyz">readiness</a>, <a href="metrics">metrics</a>.</p>"""
