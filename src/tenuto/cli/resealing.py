"""Rewriting what is stored with the keys in use, or plain, for `tenuto privacy rotate --reseal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import typer

from tenuto.app import Tenuto
from tenuto.cli.terminal import advancing, pluralize, visible
from tenuto.errors import InvalidSetting, Unavailable
from tenuto.model.values import JsonObject
from tenuto.ports import utc_now
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.wiring.privacy import open_ciphers

# Walking over all records is rare, and this is loaded with every command.
if TYPE_CHECKING:
    from tenuto.stores.engine.resealing import ResealReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Resealed:
    """The records that were rewritten, and of placeholders the sessions whose values were, or do not open."""

    sealing: bool
    records: ResealReport
    vaults: int
    unopened_vaults: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing was left that should have been rewritten."""
        return self.records.is_complete and not self.unopened_vaults

    def view(self) -> JsonObject:
        """The counts as JSON."""
        counts: JsonObject = msgspec.to_builtins(self.records)
        return {**counts, "vaults": self.vaults, "unopened_vaults": self.unopened_vaults, "sealing": self.sealing}


async def reseal_records(app: Tenuto, *, quiet: bool) -> Resealed:
    """Rewrite all records as a server with these settings would write them now, and seal vaults with the keys in use.

    Raises:
        Conflict: another process is doing the same.
        InvalidSetting: there is no key.
    """
    from tenuto.stores.engine.resealing import Resealer

    sealing, state, vault = app.settings.encryption, app.stores.plain_state, app.redactor.vault
    ciphers = open_ciphers(app.settings, state, utc_now)
    if ciphers is None or vault is None:
        raise InvalidSetting("privacy_key", "is needed to rewrite records: set it, or privacy_key_file")
    codecs = SealedCodecs(ciphers, sealing=sealing)
    with advancing(None, "Encrypting records" if sealing else "Decrypting records", quiet=quiet) as on_progress:
        resealer = Resealer(app.stores.backend, state=state, codecs=codecs, on_progress=on_progress)
        report = await resealer.run()
        if report.written:
            await _compact(app)
    vault_counts = [await vault.reseal(site) async for site in app.privacy.list_sites()]
    return Resealed(
        sealing=sealing,
        records=report,
        vaults=sum([count for count, _ in vault_counts]),
        unopened_vaults=sum([failures for _, failures in vault_counts]),
    )


async def _compact(app: Tenuto) -> None:
    """Remove the bytes of what was rewritten, as far as the store can."""
    try:
        compaction = await app.store.upkeep.compact()
    except Unavailable:
        typer.echo("Bytes of the old records remain for now: the store is busy. Run the command again.", err=True)
    else:
        if compaction.remaining_reason:
            typer.echo(f"Bytes of the old records may remain: {compaction.remaining_reason}.", err=True)


def print_reseal_report(result: Resealed) -> None:
    """Say what was rewritten, and what could not be."""
    report = result.records
    state = "all text is encrypted with the keys in use" if result.sealing else "all text is stored plain"
    done = f": {state}" if report.is_complete else ""
    again = " (this continued an earlier run)" if report.resumed else ""
    typer.echo(f"{report.written:,} of {pluralize(report.records, 'record')} rewritten{again}{done}.")
    typer.echo(f"Placeholders of {pluralize(result.vaults, 'session')} encrypted again.")
    for site, why in report.failures.items():
        typer.echo(visible(f"decryption_failed: {site}: {why}"), err=True)
    for count, what in (
        (report.unopened, "could not be decrypted"),
        (report.unreadable, "are damaged"),
        (report.unknown, "are of a site that nothing else is known of"),
        (result.unopened_vaults, "hold placeholders that could not be decrypted"),
    ):
        if count:
            typer.echo(f"{pluralize(count, 'record')} {what}, and stay as they are.", err=True)
