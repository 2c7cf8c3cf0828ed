"""Scans stored data for private values, and redacts those that the policy does not allow.

Values are counted by sink and type; the values themselves are not returned.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from tenuto.compare_and_set import retry_on_conflict, write_if_unchanged
from tenuto.errors import DecryptionFailed, MasterKeyMissing, SessionNotFound, StateCorrupt
from tenuto.model import Changes, Message, Page, Rewrite, Scope, Session, StateLocation
from tenuto.model.memory import MEMORIES, MEMORY_CHANGES, MEMORY_INDEX, MEMORY_LOG, VECTORS
from tenuto.model.message import SUMMARY, is_summary
from tenuto.model.privacy import Mode, Sink, state_sink
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject
from tenuto.ports import Clock, Store, utc_now
from tenuto.privacy.compliance.compaction import CompactionStatus
from tenuto.privacy.compliance.iteration import iter_sessions, iter_user_state
from tenuto.privacy.json_texts import Slot, slots
from tenuto.privacy.record_redaction import (
    draft_slots,
    redact_session_values,
    redact_state,
    redact_stored,
    redact_title,
    redact_trace,
    state_slots,
    trace_values,
)
from tenuto.privacy.redactor import Redactor

_log = logging.getLogger(__name__)
_MESSAGES: Final = 200
_TRACES: Final = 100
_INDEX_KEYS: Final = 10_000
_HEAD: Final = ("context", "attributes", "metadata")


@dataclass(slots=True)
class Report:
    """The state of a scan: values of each type in each sink, and how many the policy allows.

    `unreadable` counts sessions and state values that do not decrypt or are damaged. `orphaned_vaults` counts deleted
    sessions that had left vault values. `compaction` says whether the bytes of redacted values were cleared, and
    `remaining_reason` where some are left; both are unset without `fix`.
    """

    sessions: int = 0
    memories: int = 0
    texts: int = 0
    matches: dict[Sink, Counter[str]] = field(default_factory=dict)
    allowed_sinks: frozenset[Sink] = frozenset()
    fixed: int = 0
    orphaned_vaults: int = 0
    unreadable: int = 0
    compaction: CompactionStatus | None = None
    remaining_reason: str = ""

    def add(self, sink: Sink, names: Sequence[str]) -> None:
        """Count matches."""
        self.texts += 1
        if names:
            self.matches.setdefault(sink, Counter()).update(names)

    @property
    def records(self) -> int:
        """Sessions and state values that were scanned."""
        return self.sessions + self.memories

    @property
    def total(self) -> int:
        """Private values found."""
        return sum(sum(names.values()) for names in self.matches.values())

    @property
    def violations(self) -> int:
        """Values that the policy does not allow where they are."""
        return sum(sum(names.values()) for sink, names in self.matches.items() if sink not in self.allowed_sinks)


@dataclass(slots=True)
class ScanSummary:
    """The state of a scan of everything: a report for each tenant's site.

    Sites in `locked_sites` were not scanned to the end: their keys are missing.
    """

    sessions: int = 0
    memories: int = 0
    reports: dict[Scope, Report] = field(default_factory=dict)
    locked_sites: dict[Scope, DecryptionFailed] = field(default_factory=dict)
    compaction: CompactionStatus | None = None
    remaining_reason: str = ""

    @property
    def records(self) -> int:
        """Sessions and state values that were scanned."""
        return self.sessions + self.memories

    @property
    def texts(self) -> int:
        """Texts that were scanned."""
        return sum(report.texts for report in self.reports.values())

    @property
    def fixed(self) -> int:
        """Records that were changed."""
        return sum(report.fixed for report in self.reports.values())

    @property
    def unreadable(self) -> int:
        """Sessions and state values that could not be scanned."""
        return sum(report.unreadable for report in self.reports.values())

    @property
    def violations(self) -> int:
        """Values that the policy of their tenant does not allow where they are."""
        return sum(report.violations for report in self.reports.values())

    def matches_by_sink(self, *, violations_only: bool = False) -> dict[Sink, Counter[str]]:
        """Values of each type in each sink; with `violations_only`, only those that the tenant's policy does not
        allow."""
        total: dict[Sink, Counter[str]] = {}
        for report in self.reports.values():
            for sink, names in report.matches.items():
                if not (violations_only and sink in report.allowed_sinks):
                    total.setdefault(sink, Counter()).update(names)
        return total


class Scanner:
    """Scans every session of a tenant's site, and the state of its users and chats."""

    def __init__(self, *, store: Store, redactor: Redactor, clock: Clock = utc_now) -> None:
        self._store = store
        self._clock = clock
        self._redactor = redactor.in_threads()

    async def scan(self, scope: Scope, *, fix: bool = False) -> AsyncIterator[Report]:
        """Scan the site record by record and yield the growing report. With `fix`, apply the policy to each record."""
        kept = frozenset(sink for sink in Sink if self._redactor.mode(sink, scope) is Mode.KEEP)
        report = Report(allowed_sinks=kept)
        try:
            async for session in iter_sessions(self._store.sessions, scope):
                await _scan_readable(self._scan_session(scope, session, report, fix), f"session {session.id}", report)
                yield report
            async for location in iter_user_state(self._store.state, scope):
                await _scan_readable(self._scan_state(location, report, fix), "a remembered value", report)
                yield report
        except MasterKeyMissing:
            if report.fixed:
                yield report  # It counts what was fixed before the error.
            raise
        if fix and self._redactor.vault is not None:
            report.orphaned_vaults += await self._redactor.vault.forget_orphans(scope)
        yield report

    async def extent(self, scope: Scope) -> int:
        """How many sessions and state values there are to scan; the number may grow meanwhile."""
        remembered = sum([1 async for _ in iter_user_state(self._store.state, scope)])
        return (await self._store.upkeep.stats(scope)).sessions + remembered

    async def _scan_session(self, scope: Scope, session: Session, report: Report, fix: bool) -> None:
        report.add(Sink.TITLE, await self._redactor_of(session).names(scope, [Slot(session.title)]))
        for what in _HEAD:
            report.add(Sink.MESSAGE, await self._redactor.names(scope, slots(getattr(session, what))))
        if fix:
            await self._fix_head(scope, session, report)
        await self._scan_messages(scope, session, report, fix)
        await self._scan_traces(scope, session, report, fix)
        report.sessions += 1

    async def _scan_state(self, location: StateLocation, report: Report, fix: bool) -> None:
        """Count and fix the matches in a state value."""
        entry = await self._store.state.read_state(location.scope, location.namespace, location.key)
        if entry is None:
            return  # Deleted meanwhile.
        sink = state_sink(location.scope, location.namespace) or Sink.MEMORY
        report.add(sink, await self._redactor.names(location.scope, state_slots(location.key, entry.value)))
        report.memories += 1
        if fix:
            report.fixed += await retry_on_conflict(lambda: self._fix_state(sink, location))

    async def _fix_state(self, sink: Sink, location: StateLocation) -> bool:
        """Apply the policy to a state value; returns whether it changed."""
        state, scope = self._store.state, location.scope
        entry = await state.read_state(scope, location.namespace, location.key)
        if entry is None:
            return False
        redacted = await redact_state(self._redactor, sink, scope, location.key, entry.value)
        if redacted is entry.value:
            return False
        await state.write_state(scope, location.namespace, location.key, redacted, if_version=entry.version)
        if location.namespace == MEMORIES:
            # The vector is of the text as it was, which the stored index and copies of other processes have as well. A
            # log without its beginning makes them look at everything.
            await state.delete_state(scope, VECTORS, location.key)
            for key in await state.state_keys(scope, MEMORY_INDEX, limit=_INDEX_KEYS):
                await state.delete_state(scope, MEMORY_INDEX, key)
            await state.delete_state(scope, MEMORY_CHANGES, MEMORY_LOG)
        return True

    async def _scan_messages(self, scope: Scope, session: Session, report: Report, fix: bool) -> None:
        """Scan messages from the newest backwards: a summary comes after what it covers."""
        covered = 0
        before: int | None = None
        while True:
            query = Page(limit=_MESSAGES, before=before, touch=False)
            page = await self._store.sessions.messages(scope, session.id, query)
            for message in page.messages:
                covered = max(covered, _summarized_through(message))
            redacted = [
                await self._scan_message(scope, session, message, covered, report, fix) for message in page.messages
            ]
            changed = tuple(message for message in redacted if message is not None)
            if changed:
                await self._store.sessions.rewrite(scope, session.id, Rewrite(messages=changed))
                report.fixed += len(changed)
            if not page.more_before or not page.messages:
                return
            before = page.messages[0].seq

    async def _scan_message(
        self, scope: Scope, session: Session, message: Message, covered: int, report: Report, fix: bool
    ) -> Message | None:
        """Count the matches in a message; returns the redacted message if it differs."""
        sink = Sink.SUMMARY if is_summary(message) else self._message_sink(scope, message.seq <= covered)
        report.add(sink, await self._redactor.names(scope, draft_slots(message)))
        if not fix:
            return None
        redacted = await redact_stored(self._redactor, sink, scope, session, message, self._clock())
        return redacted if redacted is not message else None

    def _message_sink(self, scope: Scope, covered: bool) -> Sink:
        """Whose policy holds for a message: one that is kept when a summary covers it is a message like the others."""
        keeps_past = self._redactor.mode(Sink.PAST, scope) is Mode.KEEP
        return Sink.PAST if covered and not keeps_past else Sink.MESSAGE

    async def _scan_traces(self, scope: Scope, session: Session, report: Report, fix: bool) -> None:
        before: int | None = None
        redactor = self._redactor_of(session)
        while True:
            traces = await self._store.traces.traces(scope, session.id, _TRACES, before)
            changed: list[Trace] = []
            for trace in traces:
                report.add(Sink.TRACE, await redactor.names(scope, slots(trace_values(trace))))
                redacted = await redact_trace(redactor, scope, session, trace) if fix else trace
                if redacted is not trace:
                    changed.append(redacted)
            if changed:
                await self._store.sessions.rewrite(scope, session.id, Rewrite(traces=tuple(changed)))
                report.fixed += len(changed)
            if len(traces) < _TRACES:
                return
            before = traces[-1].number

    async def _fix_head(self, scope: Scope, session: Session, report: Report) -> None:
        """Apply the policy to a head; after a concurrent change, start again."""
        while True:
            values = [getattr(session, what) for what in _HEAD]
            if self._redactor.mode(Sink.MESSAGE, scope) is not Mode.KEEP:
                values = await redact_session_values(self._redactor, Sink.MESSAGE, scope, session, values)
            changes = _head_changes(session, values)
            retitled = await redact_title(self._redactor, session)
            if retitled.title is not UNSET:
                changes = replace(changes, title=retitled.title, metadata=changes.metadata | retitled.metadata)
            if changes == Changes(if_version=session.version):
                return
            if await write_if_unchanged(self._store.sessions.patch(scope, session.id, changes)) is not None:
                report.fixed += 1
                return
            session = await self._store.sessions.get(scope, session.id)

    def _redactor_of(self, session: Session) -> Redactor:
        return self._redactor.for_records(session.metadata)


async def _scan_readable(looking: Awaitable[None], what: str, report: Report) -> None:
    """Scan one record. One that does not decrypt is counted, and the scan goes on."""
    try:
        await looking
    except SessionNotFound:
        return  # Deleted meanwhile.
    except MasterKeyMissing:
        raise
    except (DecryptionFailed, StateCorrupt) as error:
        _log.warning("%s was not scanned: %s", what, error)
        report.unreadable += 1


def _head_changes(session: Session, values: Sequence[JsonObject]) -> Changes:
    """The changes that turn a head's values into these."""
    context, attributes, metadata = values
    return Changes(
        context=_merge_patch(session.context, context),
        attributes=_merge_patch(session.attributes, attributes),
        metadata=_merge_patch(session.metadata, metadata),
        if_version=session.version,
    )


def _merge_patch(before: JsonObject, after: JsonObject) -> JsonObject:
    """The merge patch between two objects: a missing key is removed."""
    gone: JsonObject = {name: None for name in before if name not in after}
    return gone | {name: value for name, value in after.items() if before.get(name) != value}


def _summarized_through(message: Message) -> int:
    """The last message that a summary covers; 0 for any other message."""
    if not is_summary(message):
        return 0
    places = [part.get("through") for part in message.parts if part["type"] == SUMMARY]
    return max((place for place in places if type(place) is int), default=0)
