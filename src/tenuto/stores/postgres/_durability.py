"""How safely the server keeps what it acknowledged, by its own settings."""

from __future__ import annotations

from tenuto.model.store_reports import DurabilityFinding
from tenuto.stores.postgres._client import Link


async def assurances(link: Link) -> tuple[DurabilityFinding, ...]:
    """What the server promises to this role. Raises `Unavailable`."""
    row = await link.row("SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS waits")
    says = f"fsync {row['fsync']}, synchronous_commit {row['waits']}"
    if row["fsync"] != "on":
        return (_finding(says, "a power cut may ruin the whole database; set fsync on"),)
    if row["waits"] == "off":
        return (
            _finding(says, "a crash of the server may take the last turns; set synchronous_commit on to keep them"),
        )
    return (_finding(f"{says}: what was acknowledged has reached the disk"),)


def _finding(says: str, advice: str | None = None) -> DurabilityFinding:
    return DurabilityFinding(about="durability", says=says, advice=advice)
