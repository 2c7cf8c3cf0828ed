"""Two plain pages: what runs here and how to begin, and the list of routes. No script, nothing from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from tenuto.server.service import service

routes = APIRouter(include_in_schema=False)

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
td:first-child { font-weight: 600; }
"""
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@routes.get("/")
async def welcome(request: Request) -> Response:
    """What runs here, and how to begin."""
    here = service(request)
    base = str(request.base_url).rstrip("/")
    is_open = await here.gate.is_open()
    key = "" if is_open else ' -H "Authorization: Bearer $TENUTO_KEY"'
    first = f'curl -X POST {base}/v1/turns{key} -d \'{{"message": {{"role": "user", "text": "Hello!"}}}}\''
    way_in = (
        "No API key is needed: requests from this machine are let in, as tenant <code>local</code> unless they name "
        "another. The first <code>tenuto keys create</code> closes the door."
        if is_open
        else "Requests need an API key or a token."
    )
    return _page(
        "tenuto",
        f"""<h1>tenuto</h1>
<p class="lead">Conversations, held for their full value. Version {escape(version("tenuto"))}.</p>
<p>{way_in}</p>
<p>Begin a conversation:</p>
<pre>{escape(first)}</pre>
<p>Then see it again, also after a restart:</p>
<pre>{escape(f"curl {base}/v1/sessions{key}")}</pre>
<p><a href="/docs">All routes</a> · <a href="/openapi.json">OpenAPI</a> · <a href="/healthz">health</a> ·
<a href="/readyz">readiness</a> · <a href="/metrics">metrics</a></p>""",
    )


@routes.get("/docs")
async def routes_page(request: Request) -> Response:
    """All routes, from the OpenAPI document."""
    document = request.app.openapi()
    rows = [
        f"<tr><td>{escape(method.upper())}</td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(operation.get('description', operation.get('summary', '')))}</td></tr>"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    return _page(
        "tenuto: routes",
        f"""<h1>Routes</h1>
<p class="lead">Everything about bodies and answers stands in <a href="/openapi.json">/openapi.json</a>, which any
OpenAPI tool reads.</p>
<table>{"".join(rows)}</table>""",
    )


def _page(title: str, body: str) -> Response:
    html = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>{body}</body></html>'
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"})
