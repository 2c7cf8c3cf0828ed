"""What copies and comparisons of stores are asked and tell: the words of `tenuto copy`."""

from __future__ import annotations

from typing import Final

import msgspec

from tenuto.model.task import TaskStatus
from tenuto.model.values import Value

COPIES: Final = "copies"
"""The namespace of the target's own state that says from where it is being filled, and with what."""
TASKS: Final = "tasks"
UNFINISHED: Final = frozenset({TaskStatus.PENDING.value, TaskStatus.RUNNING.value})
# What one write carries: enough to be quick, little enough for one short transaction.
SESSIONS_AT_ONCE: Final = 100
MESSAGES_AT_ONCE: Final = 4000
_NAMED: Final = 100
_MASK: Final = 2**128 - 1


class CopyPolicy(Value, frozen=True, kw_only=True):
    """How a target is filled.

    `merge` adds to a target that holds other data, `overwrite` replaces records that were changed there, `delete`
    removes what the source does not have, and `shrunk` does so even if that is most of it.
    """

    merge: bool = False
    overwrite: bool = False
    delete: bool = False
    shrunk: bool = False
    dry_run: bool = False


class CopyReport(msgspec.Struct, kw_only=True):
    """What a copy has done. `left` names the records that differ and were left, because no run of this copy wrote what
    the target holds, `quarantined` those that the source has set aside as damaged: they stay there. `changed` counts
    the records of the source that others changed during the run."""

    sessions: int = 0
    messages: int = 0
    state: int = 0
    unchanged: int = 0
    deleted: int = 0
    unreadable: int = 0
    unfinished_tasks: int = 0
    changed: int = 0
    left: list[str] = []
    quarantined: list[str] = []


class CopyMarker(Value, frozen=True, kw_only=True):
    """What the target says of a copy: its runs, whether the last one is `done`, and the most records of the source that
    a run has seen since one deleted."""

    merged: bool = False
    run: int = 1
    done: bool = False
    records: int = 0


class SiteSums(msgspec.Struct, kw_only=True):
    """What one side holds of a site; `digest` is that of all its records, in whatever order."""

    sessions: int = 0
    messages: int = 0
    traces: int = 0
    state: int = 0
    digest: int = 0

    def add_digest(self, digest: bytes) -> bytes:
        """Add the digest of a record; returns it."""
        self.digest = (self.digest + int.from_bytes(digest, "big")) & _MASK
        return digest


class Comparison(msgspec.Struct, kw_only=True):
    """Both sides by site, and the records that differ; at most a hundred are named, all are counted.

    Among them are the `unreadable` ones of the source, which have no name.
    """

    sites: dict[str, tuple[SiteSums, SiteSums]] = {}
    different: int = 0
    unreadable: int = 0
    named: list[str] = []

    def note(self, difference: str) -> None:
        """Count a difference."""
        self.different += 1
        if len(self.named) < _NAMED:
            self.named.append(difference)


def describe_site(tenant: str, site: str) -> str:
    """A tenant's site."""
    return f"{tenant}/{site}" if site else tenant
