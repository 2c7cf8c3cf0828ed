"""Pseudonyms: numbered placeholders in stored texts, and their sealed values in a separate record.

A session has one record: for each placeholder the sealed value, and a keyed digest to find the placeholder of a value
again. The record, which is the last copy of the values, is deleted with the session. A placeholder is valid in its own
session only, and only if we put it there: typed ones are neutralized on their way in.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import retry_on_conflict, update_state
from tenuto.errors import DecryptionFailed, SessionNotFound
from tenuto.model import Scope, Session, StateEntry
from tenuto.model.privacy import VAULT, data_key_id
from tenuto.model.scope import site_scope
from tenuto.model.values import Value
from tenuto.ports import Cipher, Ciphers, Place, SessionStore, StateStore
from tenuto.privacy.placeholders import PSEUDONYM
from tenuto.privacy.spellings import normalize_spelling

# Placeholders of one session. Further values are redacted: a record is read and written as a whole.
_MOST: Final = 2000
_PAGE: Final = 100
_log = logging.getLogger(__name__)


class _SealedValue(Value, frozen=True, kw_only=True):
    digest: str
    sealed: str


class _VaultRecord(Value, frozen=True, kw_only=True):
    """The vault of a session, by placeholder without brackets, and the last number of each name.

    It belongs to one incarnation: a later session with the same id does not see it.
    """

    incarnation: str
    held: dict[str, _SealedValue] = {}
    numbers: dict[str, int] = {}


class Vault:
    """The values behind the placeholders of every session."""

    def __init__(self, *, state: StateStore, sessions: SessionStore, ciphers: Ciphers) -> None:
        self._state = state
        self._sessions = sessions
        self._ciphers = ciphers

    async def digest_key(self, scope: Scope, trace_id: str, *, create: bool = False) -> bytes:
        """The key of the digests in a trace, derived from the tenant's keys; `create` makes them if there are none.

        Raises:
            DecryptionFailed: the tenant's keys cannot be read, or are gone.
        """
        scope, ciphers = site_scope(scope), self._ciphers
        cipher = await (
            ciphers.cipher_for_sealing(scope) if create else ciphers.cipher_for_opening(scope, refresh=True)
        )
        return bytes.fromhex(cipher.digest(b"", ("trace", trace_id)))

    async def allot(self, session: Session, values: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """A placeholder for each name and value; equal values of a session share one, also across processes.

        If the session was deleted meanwhile, or its vault is full, values get none and are redacted.
        """
        scope, place = site_scope(session.scope), _associated_data(session)
        cipher = await self._ciphers.cipher_for_sealing(scope)
        digests = {one: _value_digest(cipher, *one, place) for one in values}

        async def attempt() -> dict[tuple[str, str], str]:
            entry = await self._state.read_state(scope, VAULT, session.id)
            record = _decode_record(entry, session)
            if entry is not None and record is None and not await self._is_current(session):
                return {}
            known = record or _VaultRecord(incarnation=session.incarnation)
            marks, grown = _assign(known, digests, cipher, place)
            if grown is not None:
                version = 0 if entry is None else entry.version
                await self._state.write_state(scope, VAULT, session.id, msgspec.to_builtins(grown), version)
            return marks

        return await retry_on_conflict(attempt)

    async def values(self, session: Session) -> dict[str, str]:
        """The placeholders of a session with their values."""
        scope = site_scope(session.scope)
        record = _decode_record(await self._state.read_state(scope, VAULT, session.id), session)
        if record is None:
            return {}
        try:
            return _open_values(record.held, await self._ciphers.cipher_for_opening(scope), _associated_data(session))
        except DecryptionFailed:
            # Another process may have just created a new data key.
            return _open_values(
                record.held, await self._ciphers.cipher_for_opening(scope, refresh=True), _associated_data(session)
            )

    async def copy(self, session: Session, fork: Session) -> None:
        """Give a fork the values of the placeholders it inherited."""
        values = await self.values(session)
        if not values:
            return
        scope, place = site_scope(fork.scope), _associated_data(fork)
        cipher = await self._ciphers.cipher_for_sealing(scope)
        held, numbers = dict[str, _SealedValue](), dict[str, int]()
        for mark, value in values.items():
            name, _, number = mark[1:-1].rpartition("_")
            held[mark[1:-1]] = _seal_value(cipher, name, value, place)
            numbers[name] = max(numbers.get(name, 0), int(number))
        record = _VaultRecord(incarnation=fork.incarnation, held=held, numbers=numbers)
        await self._state.write_state(scope, VAULT, fork.id, msgspec.to_builtins(record))

    async def marks(self, session: Session) -> frozenset[str]:
        """The valid placeholders of a session."""
        record = _decode_record(await self._state.read_state(site_scope(session.scope), VAULT, session.id), session)
        return frozenset(f"[{mark}]" for mark in record.held) if record is not None else frozenset()

    async def size(self, scope: Scope, session_id: str) -> int:
        """How many values are stored for a session id, even if the session is gone; 0 for a damaged record."""
        entry = await self._state.read_state(site_scope(scope), VAULT, session_id)
        try:
            return len(msgspec.convert(entry.value, _VaultRecord).held) if entry is not None else 0
        except msgspec.ValidationError:
            return 0

    async def retain(self, session: Session, texts: Iterable[str], among: frozenset[str]) -> int:
        """Delete the values of those placeholders in `among` that do not occur in the texts; returns how many.

        Their numbers are not reused.
        """
        used = {mark[0] for text in texts for mark in PSEUDONYM.finditer(text)}
        lost = {mark[1:-1] for mark in among - used}
        if not lost:
            return 0

        def drop_lost(record: _VaultRecord | None) -> _VaultRecord | None:
            if record is None:
                return None
            return replace(record, held={mark: one for mark, one in record.held.items() if mark not in lost})

        decode = partial(_decode_record, session=session)
        made = await update_state(self._state, site_scope(session.scope), VAULT, session.id, decode, drop_lost)
        return len(made.before.held) - len(made.after.held) if made.before is not None and made.after is not None else 0

    async def delete_values(self, scope: Scope, session_id: str) -> bool:
        """Remove a session's values; returns whether there were any."""
        return await self._state.delete_state(site_scope(scope), VAULT, session_id)

    async def delete_if_session_gone(self, session: Session) -> None:
        """Remove the values of a session that was deleted before its messages could be stored."""
        record = _decode_record(await self._state.read_state(site_scope(session.scope), VAULT, session.id), session)
        if record is not None and not await self._is_current(session):
            await self.delete_values(session.scope, session.id)

    async def forget_orphans(self, scope: Scope) -> int:
        """Remove a site's values of deleted sessions, as a crash may leave them; returns the number of sessions."""
        scope, total = site_scope(scope), 0
        async for entry in self._iter_entries(scope):
            if not await self._has_session(scope, entry):
                total += await self.delete_values(scope, entry.key)
        return total

    async def reseal(self, scope: Scope) -> tuple[int, int]:
        """Seal a site's values again with the data key in use; returns how many sessions had values under an older key,
        and how many have values that do not open, which are left."""
        scope, resealed, unopened = site_scope(scope), 0, 0
        await self._ciphers.cipher_for_opening(scope, refresh=True)
        cipher = await self._ciphers.cipher_for_sealing(scope)
        async for entry in self._iter_entries(scope):
            change = partial(_reseal_values, session_id=entry.key, cipher=cipher)
            try:
                made = await update_state(self._state, scope, VAULT, entry.key, _decode_any, change)
            except (DecryptionFailed, msgspec.ValidationError):
                unopened += 1
            else:
                resealed += made.changed
        return resealed, unopened

    async def _iter_entries(self, scope: Scope) -> AsyncIterator[StateEntry]:
        """The records of a site."""
        after = ""
        while entries := await self._state.list_state(scope, VAULT, after, _PAGE):
            for entry in entries:
                yield entry
            after = entries[-1].key

    async def _has_session(self, scope: Scope, entry: StateEntry) -> bool:
        try:
            session = await self._sessions.get(scope, entry.key)
        except SessionNotFound:
            return False
        return _decode_record(entry, session) is not None

    async def _is_current(self, session: Session) -> bool:
        try:
            return (await self._sessions.get(session.scope, session.id)).incarnation == session.incarnation
        except SessionNotFound:
            return False


def _decode_record(entry: StateEntry | None, session: Session) -> _VaultRecord | None:
    """The session's record; `None` if there is none, or it belongs to an earlier session with the same id."""
    record = _decode_any(entry)
    return record if record is not None and record.incarnation == session.incarnation else None


def _decode_any(entry: StateEntry | None) -> _VaultRecord | None:
    return msgspec.convert(entry.value, _VaultRecord) if entry is not None else None


def _reseal_values(record: _VaultRecord | None, *, session_id: str, cipher: Cipher) -> _VaultRecord | None:
    """The record under the key in use; `None` if it is."""
    if record is None:
        return None
    place = ("vault", session_id, record.incarnation)
    key = data_key_id(cipher.seal(b"", place))
    held = {
        mark: one if data_key_id(one.sealed) == key else replace(one, sealed=_reseal_text(one.sealed, cipher, place))
        for mark, one in record.held.items()
    }
    return None if held == record.held else replace(record, held=held)


def _reseal_text(sealed: str, cipher: Cipher, place: Place) -> str:
    return cipher.seal(cipher.open(sealed, place), place)


def _assign(
    record: _VaultRecord, digests: Mapping[tuple[str, str], str], cipher: Cipher, place: Place
) -> tuple[dict[tuple[str, str], str], _VaultRecord | None]:
    """The placeholders, and the record to store for them; `None` if it needs no change."""
    known = {one.digest: mark for mark, one in record.held.items()}
    held, numbers = dict(record.held), dict(record.numbers)
    marks: dict[tuple[str, str], str] = {}
    for (name, value), digest in digests.items():
        mark = known.get(digest)
        if mark is None and len(held) >= _MOST:
            _log.warning("a session's vault is full: further values are redacted")
            continue
        if mark is None:
            numbers[name] = numbers.get(name, 0) + 1
            mark = known[digest] = f"{name}_{numbers[name]}"
            held[mark] = _seal_value(cipher, name, value, place)
        marks[name, value] = f"[{mark}]"
    grown = len(held) > len(record.held)
    return marks, replace(record, held=held, numbers=numbers) if grown else None


def _open_values(held: Mapping[str, _SealedValue], cipher: Cipher, place: Place) -> dict[str, str]:
    return {f"[{mark}]": cipher.open(one.sealed, place).decode() for mark, one in held.items()}


def _seal_value(cipher: Cipher, name: str, value: str, place: Place) -> _SealedValue:
    return _SealedValue(digest=_value_digest(cipher, name, value, place), sealed=cipher.seal(value.encode(), place))


def _value_digest(cipher: Cipher, name: str, value: str, place: Place) -> str:
    return cipher.digest(f"{name}\0{normalize_spelling(name, value)}".encode(), place)


def _associated_data(session: Session) -> Place:
    return ("vault", session.id, session.incarnation)
