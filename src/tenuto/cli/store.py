"""`tenuto stats` and `tenuto sweep`: what the store holds, and the removal of what has expired."""

from __future__ import annotations

import typer

from tenuto.app import Tenuto
from tenuto.cli.options import LOCAL, AsJson, Site, StoreUrl, Tenant, User, caller
from tenuto.cli.running import run_command
from tenuto.cli.terminal import pluralize, show_facts, show_json
from tenuto.sessions.views import StatsView


def stats(
    tenant: Tenant = LOCAL, site: Site = "", user: User = None, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    """Count sessions, messages, tokens and cost."""
    scope = caller(tenant, site, user)
    held = StatsView.of(run_command(lambda app: app.sessions.stats(scope), store=store, read_only=True))
    if as_json:
        show_json(held)
    else:
        counts = [(name, f"{getattr(held, name):,}") for name in ("sessions", "messages", "tokens")]
        show_facts([*counts, ("cost", f"{held.cost_usd} USD")])


def sweep(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Delete what has expired, in all tenants, now."""

    async def sweep_all(app: Tenuto) -> tuple[int, int, int]:
        return await app.upkeep.sweep(), await app.upkeep.sweep_tasks(), await app.upkeep.sweep_usage()

    sessions, tasks, usage = run_command(sweep_all, store=store)
    if as_json:
        show_json({"swept": sessions, "tasks": tasks, "usage": usage})
    else:
        typer.echo(f"{pluralize(sessions, 'expired session')} and {pluralize(tasks, 'expired task')} removed.")
