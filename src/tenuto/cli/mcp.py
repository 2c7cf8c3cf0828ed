"""`tenuto mcp`: the tools for one MCP client, on standard input and output."""

from __future__ import annotations

import asyncio

from tenuto.app import open_app
from tenuto.cli.options import LOCAL, Site, StoreUrl, Tenant, User, caller
from tenuto.cli.running import for_one_person, make_folder, naming_store
from tenuto.errors import ExtraMissing
from tenuto.model import Scope
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.settings import Settings, read_settings
from tenuto.wiring.privacy import open_policies


def mcp(tenant: Tenant = LOCAL, site: Site = "", user: User = None, store: StoreUrl = None) -> None:
    """Serve sessions and memories to an MCP client.

    The client starts this command and speaks on its standard input and output; logs go to standard error.
    """
    scope, settings = caller(tenant, site, user), for_one_person(read_settings(store=store))
    make_folder(settings)
    # Loaded here: lines look like those of servers, and no other may reach the client.
    from tenuto.server.logs import configure_logging

    configure_logging(settings.log_level, LogRedactor(lambda: open_policies(settings)))
    with naming_store(settings):
        asyncio.run(_serve(settings, scope))


async def _serve(settings: Settings, scope: Scope) -> None:
    try:
        from tenuto.server.mcp.service import serve_stdio
    except ModuleNotFoundError as absent:
        raise ExtraMissing("protocol MCP", "mcp") from absent
    async with open_app(settings) as app:
        await serve_stdio(app, scope)
