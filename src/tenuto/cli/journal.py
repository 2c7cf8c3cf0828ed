"""`tenuto journal`: the turns in this machine's journal that the store can never take."""

from __future__ import annotations

import msgspec
import typer

from tenuto.cli.options import AsJson, StoreUrl
from tenuto.cli.terminal import age, moment, pluralize, show_json, show_table
from tenuto.errors import Invalid, Unavailable
from tenuto.ports import utc_now
from tenuto.settings import read_settings
from tenuto.stores.copy_reports import describe_site
from tenuto.stores.engine.journal_files import count_journal, list_quarantined
from tenuto.stores.factory import is_network_store
from tenuto.wiring.stores import journal_folder


def journal(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the turns in this machine's journal that the store refused for good."""
    settings = read_settings(store=store)
    if not is_network_store(settings.store):
        raise Invalid("only a store on a server has a journal")
    folder = journal_folder(settings)
    counts, turns = count_journal(folder), list_quarantined(folder)
    if counts.unreadable:
        raise Unavailable("journal", f"in {folder} cannot be read")
    if as_json:
        entries = [
            {**msgspec.to_builtins(turn), "tenant": turn.site.tenant, "site": turn.site.site or None} for turn in turns
        ]
        show_json({"folder": str(folder), "waiting": counts.waiting, "quarantined": entries})
        return
    typer.echo(f"{folder}: {pluralize(counts.waiting, 'turn')} waiting, {counts.quarantined} quarantined")
    if turns:
        now = utc_now()
        rows = [
            (
                describe_site(turn.site.tenant, turn.site.site),
                turn.session_id,
                moment(turn.at),
                turn.reason,
                age(turn.quarantined_at, now),
            )
            for turn in turns
        ]
        show_table(("SITE", "SESSION", "ACCEPTED", "REASON", "SINCE"), rows, flexible="REASON", ids="SESSION")
        typer.echo("They are deleted after 30 days, or with an erasure of their user.")
