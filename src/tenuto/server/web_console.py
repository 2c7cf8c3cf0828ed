"""What people see in a browser: the console at `/`, its files under `/console/`, and the page of routes."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tenuto.model.values import JsonObject
from tenuto.server.auth import service
from tenuto.server.console_files import SWAGGER_FILES, ConsoleFile, load_files
from tenuto.server.json_io import JSON
from tenuto.server.openapi import Router, document

routes = Router()

_NOWHERE: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# Only our own files, and no string ever becomes markup or script, whatever a script of ours would try.
_CONSOLE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    f"{_NOWHERE}; require-trusted-types-for 'script'; trusted-types 'none'"
)
_WEIGHT_0: Final = re.compile(r"\s*q=0(\.0*)?\s*", re.IGNORECASE)
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1.2rem; }
h1 { font-weight: 600; letter-spacing: -.02em; margin-bottom: .2rem; }
p.lead { opacity: .75; margin-top: 0; }
pre, code { font-family: ui-monospace, monospace; font-size: .9rem; }
pre { padding: 1rem; border: 1px solid color-mix(in srgb, currentColor 22%, transparent); border-radius: .5rem;
  overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
td { padding: .3rem .8rem .3rem 0; vertical-align: top; }
.routes td:first-child { font-weight: 600; }
body:has(#explorer) { max-width: 72rem; }
#explorer { background: white; color-scheme: light; border-radius: .5rem; padding: .1rem 0 1rem; }
"""
_STYLE_HASH: Final = f"'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"
_PLAIN_POLICY: Final = f"default-src 'none'; style-src {_STYLE_HASH}; img-src 'self'; {_NOWHERE}"
# Swagger UI writes markup of its own, so trusted types are not asked for; it gets nothing but our files and routes.
_EXPLORER_POLICY: Final = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {_STYLE_HASH}; connect-src 'self'; "
    f"img-src 'self' data:; {_NOWHERE}"
)
_EXPLORER: Final = """<link rel="stylesheet" href="console/swagger-ui.css"><div id="explorer"></div>
<script src="console/swagger-ui-bundle.js"></script><script src="console/explorer.js"></script>"""
_CODE: Final = re.compile("`([^`]+)`")


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
    if _accepts_gzip(request):
        return Response(file.gzipped, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.kind)
    return Response(file.body, headers=headers, media_type=file.kind)


def _accepts_gzip(request: Request) -> bool:
    """Whether the client names gzip, and not with the weight 0, which refuses it."""
    for coding in request.headers.get("accept-encoding", "").split(","):
        name, _, weight = coding.partition(";")
        if name.strip().lower() == "gzip":
            return _WEIGHT_0.fullmatch(weight) is None
    return False


@routes.get("/openapi.json")
async def openapi_document(request: Request) -> Response:
    """The OpenAPI document."""
    return Response(msgspec.json.encode(document(request.app)), media_type=JSON)


@routes.get("/docs")
async def routes_page(request: Request) -> Response:
    """A first step, and all routes: Swagger UI where it is installed, else a list."""
    explorable = SWAGGER_FILES[0] in load_files()
    return _html_page(
        "tenuto: routes",
        f"""<h1>Routes</h1>
<p class="lead">Everything about bodies and answers stands in <a href="openapi.json">openapi.json</a>, which any
OpenAPI tool reads.</p>
{await _first_step(request)}
{_EXPLORER if explorable else _routes_table(document(request.app))}""",
        _EXPLORER_POLICY if explorable else _PLAIN_POLICY,
    )


def _as_code(quoted: re.Match[str]) -> str:
    return f"<code>{quoted[1]}</code>"


def _routes_table(api: JsonObject) -> str:
    rows = [
        f"<tr><td>{escape(method.upper())}</td><td><code>{escape(path)}</code></td>"
        f"<td>{_CODE.sub(_as_code, escape(operation['description']))}</td></tr>"
        for path, operations in api["paths"].items()
        for method, operation in operations.items()
    ]
    return f'<table class="routes">{"".join(rows)}</table>'


async def _first_step(request: Request) -> str:
    base = str(request.base_url).rstrip("/")
    is_open = await service(request).gate.is_open()
    key = "" if is_open else ' -H "Authorization: Bearer $TENUTO_KEY"'
    first = f'curl {base}/v1/chat{key} -d \'{{"message": "Hello!"}}\''
    way_in = (
        "No API key is needed: requests from this machine are let in, as tenant <code>local</code> unless they name "
        "another. The first <code>tenuto keys create</code> closes the door."
        if is_open
        else "Requests need an API key or a token."
    )
    return f"""<p>{way_in} Begin a conversation, then see it again, also after a restart:</p>
<pre>{escape(first)}
{escape(f"curl {base}/v1/sessions{key}")}</pre>
<p>In a browser: <a href="./">the console</a>. For those who run it: <a href="healthz">health</a>,
<a href="readyz">readiness</a>, <a href="metrics">metrics</a>.</p>"""


def _html_page(title: str, body: str, policy: str) -> Response:
    html = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="console/icon.svg">'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"})
