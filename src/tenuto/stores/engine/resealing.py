"""Seals stored records again: under new data keys, from plain to sealed, and back.

A run walks over all records in order of their keys, and writes those anew that are not as they would be written now. It
notes in the store how far it is, so that one that ended early is resumed. Servers go on meanwhile: a record that they
change is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import write_if_unchanged
from tenuto.errors import Conflict, DecryptionFailed, Unavailable
from tenuto.model import Scope
from tenuto.model.privacy import ENCRYPTION_NAMESPACE, RESEALING_ENTRY, TENANTS_NAMESPACE, VAULT
from tenuto.model.scope import SYSTEM, site_key, site_scope
from tenuto.model.stored import Entry, FoundRecord, IndexColumns, Kind, Part, RecordChange, StoredRecord, WordChange
from tenuto.model.values import Value
from tenuto.ports import RecordStore, StateStore
from tenuto.stores.copy_reports import describe_site
from tenuto.stores.encoding import Undecodable
from tenuto.stores.engine.changes import anew_mark
from tenuto.stores.engine.codec import SEALED, Codec, content_place
from tenuto.stores.engine.listing import find_record
from tenuto.stores.engine.record import Profile
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import is_always_plain
from tenuto.stores.sealed_state import unmark_sealed

_RECORDS: Final = 100
_ENTRIES: Final = 500
_ATTEMPTS: Final = 50
_LAST: Final = 2**62
_NAMES: Final = {Part.TRACES: "trace", Part.KEYS: "keys"}
_PAGED: Final = (Part.MESSAGES, Part.TRACES)


class ResealReport(msgspec.Struct, kw_only=True):
    """What a run has done: records looked at, and those of them that were written anew.

    `vaults` were left: their values are sealed one by one (`Vault.reseal`).
    `unopened` counts records that do not open, with the reason by site in `failures`; `unreadable` damaged ones;
    `unknown` values of sites that have no session and no data keys of their tenant. `resumed` runs began where another
    ended; `restarts` counts how often a new data key made a run begin anew.
    """

    records: int = 0
    written: int = 0
    vaults: int = 0
    unopened: int = 0
    unreadable: int = 0
    unknown: int = 0
    failures: dict[str, str] = {}
    resumed: bool = False
    restarts: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether no record was left that should have been written."""
        return not (self.unopened or self.unreadable or self.unknown)


class _Marker(Value, frozen=True, kw_only=True):
    """How far a run is: all records up to a key, in hexadecimal, are done."""

    sealing: bool
    after: str = ""


class _Changed(Exception):
    """Another process has changed the record."""


class Resealer:
    """Writes the records anew as `codecs` write them: sealed with the keys in use, or plain.

    `state` is that below the encryption, where keys are.
    """

    def __init__(
        self,
        records: RecordStore,
        *,
        state: StateStore,
        codecs: SealedCodecs,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._records = records
        self._state = state
        self._codecs = codecs
        self._on_progress = on_progress
        self._report = ResealReport()
        self._sites: dict[bytes, Scope] = {}
        self._refreshed = set[bytes]()
        self._marker_version = 0

    async def run(self) -> ResealReport:
        """Go over all records.

        At the end of a complete run that made all plain, the store is no longer marked as one with sealed records.

        Raises:
            Conflict: another process is doing the same.
        """
        await self._find_sites()
        after = await self._note(await self._read_marker())
        self._report.resumed = bool(after)
        while page := await self._records.scan(after, _RECORDS):
            for found in page:
                await self._reseal(found)
            self._on_progress(self._report.records)
            after = await self._note(page[-1].record.key)
        await self._state.delete_state(SYSTEM, ENCRYPTION_NAMESPACE, RESEALING_ENTRY)
        if not self._codecs.sealing and self._report.is_complete:
            await unmark_sealed(self._state)
        return self._report

    async def _read_marker(self) -> bytes:
        """Where an earlier run to the same end has stopped."""
        entry = await self._state.read_state(SYSTEM, ENCRYPTION_NAMESPACE, RESEALING_ENTRY)
        if entry is None:
            return b""
        self._marker_version = entry.version
        marker = msgspec.convert(entry.value, _Marker)
        return bytes.fromhex(marker.after) if marker.sealing is self._codecs.sealing else b""

    async def _note(self, after: bytes) -> bytes:
        """Store how far the run is; returns where to go on: at the beginning if a data key was added meanwhile, since
        what was passed has an older one."""
        value = msgspec.to_builtins(_Marker(sealing=self._codecs.sealing, after=after.hex()))
        write = self._state.write_state(SYSTEM, ENCRYPTION_NAMESPACE, RESEALING_ENTRY, value, self._marker_version)
        written = await write_if_unchanged(write)
        if written is not None:
            self._marker_version = written.version
            return after
        if await self._state.read_state(SYSTEM, ENCRYPTION_NAMESPACE, RESEALING_ENTRY) is not None:
            raise Conflict("another process is sealing the records again: this run has ended")
        self._report.restarts += 1
        self._marker_version = 0
        self._refreshed.clear()
        return await self._note(b"")

    async def _find_sites(self) -> None:
        """Which site a space is: the columns of a tenant's own values do not name it."""
        self._sites[site_key(SYSTEM)] = SYSTEM
        after = ""
        while tenants := await self._state.state_keys(SYSTEM, TENANTS_NAMESPACE, after):
            after = tenants[-1]
            self._sites |= {site_key(scope): scope for scope in map(_tenant_scope, tenants)}
        space = b""
        while sites := await self._records.sites(space, _RECORDS):
            self._sites |= {site_key(scope): site_scope(scope) for scope in sites}
            space = site_key(sites[-1])

    # One record

    async def _reseal(self, found: FoundRecord) -> None:
        index = found.index
        self._report.records += 1
        site = self._sites.get(index.space) if index.scope is None else site_scope(index.scope)
        if index.kind is Kind.VALUE and index.namespace == VAULT:
            self._report.vaults += 1
            return
        if site is None:
            self._report.unknown += 1
            return
        if index.kind is Kind.VALUE and is_always_plain(site, index.namespace):
            return
        try:
            self._report.written += await self._try_often(site, found)
        except DecryptionFailed as error:
            self._report.unopened += 1
            self._report.failures[describe_site(site.tenant, site.site)] = str(error)
        except Undecodable:
            self._report.unreadable += 1

    async def _try_often(self, site: Scope, found: FoundRecord | None) -> bool:
        """Write a record anew if that is needed; again if others change it meanwhile. Returns whether it was."""
        codec = await self._codec(site)
        has_written = False
        for _ in range(_ATTEMPTS):
            if found is None:
                return has_written  # It was deleted.
            write = _Writer(self._records, codec, found, has_written=has_written)
            try:
                await (write.session() if found.index.kind is Kind.SESSION else write.value())
            except _Changed:
                has_written = write.has_written
                found = await find_record(self._records, found.record.key)
            else:
                return write.has_written
        raise Unavailable("record", "is being changed by others all the time")

    async def _codec(self, site: Scope) -> Codec:
        """The codec of a site, with keys that were read in this run."""
        space = site_key(site)
        codec = await self._codecs.load(site, writing=self._codecs.sealing, refresh=space not in self._refreshed)
        self._refreshed.add(space)
        return codec


class _Writer:
    """Writes one record anew, in as many commits as its log takes, or the rest of it after an earlier attempt.

    What is read is of any moment; a commit is made at the revision that was found, or that the last commit led to.
    """

    def __init__(self, records: RecordStore, codec: Codec, found: FoundRecord, *, has_written: bool) -> None:
        self._records = records
        self._codec = codec
        self._found = found
        self._revision = found.record.revision
        self._switches = False
        self.has_written = has_written

    async def value(self) -> None:
        """A value of the state."""
        index, body = self._found.index, self._found.record.head
        if not self._codec.writes_alike(body):
            place = ("value", index.drawer.hex(), index.name)
            await self._commit(self._codec.close(self._codec.open(body, place), place))

    async def session(self) -> None:
        """A session: first what lies beside the head, then the head, which tells copies that there is a change."""
        key, name, codec = self._found.record.key, self._found.index.name, self._codec
        stored = await self._records.load(key, 0)
        if stored is None:
            raise _Changed
        profile = codec.decode_profile(stored.profile, name)
        head = codec.decode_head(stored.head, name)
        for part in _PAGED:
            await self._reseal_entries(part, stored, profile)
        await self._reseal_attachments(stored, profile)
        beside = self._reclose(stored.entries, profile)
        self._note_switch((stored.head, stored.profile))
        if not (self.has_written or beside) and codec.writes_alike(stored.head) and codec.writes_alike(stored.profile):
            return
        await self._commit(
            codec.encode_head(replace(head, edition=head.edition + 1), name),
            profile=codec.encode_profile(profile),
            index=replace(self._found.index, title="" if codec.sealed else profile.title.casefold()),
            puts=beside,
        )

    async def _reseal_entries(self, part: Part, stored: StoredRecord, profile: Profile) -> None:
        first = 0
        while True:
            page = await self._records.page(stored.key, part, first, _LAST, _ENTRIES)
            puts = self._reclose(page.entries, profile)
            if puts:
                await self._commit(stored.head, puts=puts)
            if len(page.entries) < _ENTRIES:
                return
            first = page.entries[-1].number + 1

    async def _reseal_attachments(self, stored: StoredRecord, profile: Profile) -> None:
        """One at a time: they are large."""
        for one in profile.attachments:
            page = await self._records.page(stored.key, Part.ATTACHMENTS, one.number, one.number, 1)
            for entry in page.entries:
                if not self._codec.writes_alike(entry.body):
                    place = content_place(one.id)
                    body = self._codec.close(self._codec.open(entry.body, place), place)
                    await self._commit(stored.head, puts=(replace(entry, body=body),))

    def _reclose(self, entries: Sequence[Entry], profile: Profile) -> tuple[Entry, ...]:
        """The entries that would be written otherwise now."""
        self._note_switch([one.body for one in entries])
        return tuple([self._reclose_entry(one, profile) for one in entries if not self._codec.writes_alike(one.body)])

    def _note_switch(self, bodies: Iterable[bytes]) -> None:
        """Note whether any is sealed that shall be plain, or the other way round."""
        self._switches |= any((body[:1] == SEALED) is not self._codec.sealed for body in bodies)

    def _reclose_entry(self, entry: Entry, profile: Profile) -> Entry:
        codec, number = self._codec, str(entry.number)
        if entry.part is Part.MESSAGES:
            return replace(entry, body=codec.close(codec.open_message(entry, profile), ("message", profile.id, number)))
        place = ("producers", profile.id) if entry.part is Part.PRODUCERS else (_NAMES[entry.part], profile.id, number)
        return replace(entry, body=codec.close(codec.open(entry.body, place), place))

    async def _commit(
        self,
        head: bytes,
        *,
        profile: bytes | None = None,
        index: IndexColumns | None = None,
        puts: tuple[Entry, ...] = (),
    ) -> None:
        words = None
        if self._switches and self._found.index.kind is Kind.SESSION:
            # Digests of words are of another key: they go with the first body that is switched, and are made anew.
            self._switches, index = False, index or self._found.index
            words = WordChange(added=(anew_mark(index.space),), forgets=True)
        change = RecordChange(
            key=self._found.record.key,
            if_revision=self._revision,
            revision=self._revision + 1,
            head=head,
            profile=profile,
            index=index,
            words=words,
            totals=self._found.totals,
            puts=puts,
        )
        if await self._records.commit((change,)) is not None:
            raise _Changed
        self._revision += 1
        self.has_written = True


def _tenant_scope(tenant: str) -> Scope:
    return Scope(tenant=tenant)
