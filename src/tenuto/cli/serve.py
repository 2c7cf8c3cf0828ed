"""`tenuto serve`: the HTTP server."""

from __future__ import annotations

from typing import Annotated

import typer

from tenuto.cli.options import StoreUrl
from tenuto.cli.running import make_folder, naming_store
from tenuto.settings import read_settings


def serve(
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, metavar="N", help="Port to listen on; 0 picks a free one."),
    ] = None,
    store: StoreUrl = None,
) -> None:
    """Serve sessions over HTTP until stopped."""
    settings = read_settings(store=store, host=host, port=port)
    make_folder(settings)
    # Only this command pays for the web framework.
    from tenuto.server import serve as serve_http

    with naming_store(settings):
        serve_http(settings)
