"""Which users of a tenant's site are one person, who has linked them, and how they are parted again.

A person is stored once for each of its identities, and all of these records change in one step: it is found with one
read, and no process sees half a person. Data stays with the identity that brought it, so linking moves nothing.
"""

from __future__ import annotations

import hmac
import secrets
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import REMOVE, Removal, retry_on_conflict, update_state
from tenuto.errors import IdentityNotFound, Invalid, LinkCodeRefused, PersonFull, StateCorrupt, TooManyLinkCodes
from tenuto.lru_cache import LruCache
from tenuto.model import Scope, StateChange, StateEntry
from tenuto.model.scope import SYSTEM, owner_scope, site_key, site_scope, user_digest
from tenuto.model.values import JsonObject, Value, check_id
from tenuto.ports import Clock, StateStore

MOST_IDENTITIES: Final = 20
KNOWN_FOR: Final = timedelta(seconds=5)
"""How long another process may go on with what it knows of a site's people."""
WRONG_CODES: Final = 5
"""Codes that a user may try before one of them is right, in the lifetime of a code."""
_NAMESPACE: Final = "people"
# Its version counts the changes of a site's people; while there were none, no user is looked up.
_CHANGES: Final = "changes"
_CODE_KEY: Final = "code-key"
# Without letters that look like digits: 32 characters, of which ten are 50 bits.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CODE_LENGTH: Final = 10
_LOOKALIKES: Final = str.maketrans("OIL", "011", "- ")
_SITES: Final = 1_000
_USERS: Final = 10_000


class LinkedBy(StrEnum):
    """What linked an identity: an admin, a claim of a verified token, or a code that the person has carried over."""

    ADMIN = "admin"
    CLAIM = "claim"
    CODE = "code"


class PersonNews(StrEnum):
    """What an identity has not been told yet, since it happened elsewhere."""

    LINKED = "linked"
    UNLINKED = "unlinked"


class Identity(Value, frozen=True, kw_only=True):
    """A user as which a person is known, when and how it was linked, and by whom."""

    user: str
    linked_at: datetime
    how: LinkedBy
    by: str


class Person(Value, frozen=True, kw_only=True):
    """Several users of a site who are one person."""

    id: str
    identities: tuple[Identity, ...]

    @property
    def users(self) -> tuple[str, ...]:
        """The users, in the order in which they were linked."""
        return tuple([one.user for one in self.identities])


class LinkCode(NamedTuple):
    """A code that links the user who types it with the one to whom it was shown."""

    text: str
    expires_at: datetime


class _IdentityRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a user: its person, and the keys of its claim and of the code that it was shown last.

    One that was `parted` is not linked again by the claim that had linked it.
    """

    person: Person | None = None
    news: PersonNews | None = None
    claim: str = ""
    parted: bool = False
    code: str = ""
    tries: int = 0
    tries_until: datetime | None = None


class _CodeRecord(msgspec.Struct, frozen=True):
    """A code that was shown, under its keyed digest."""

    user: str
    expires_at: datetime


class _Stored(NamedTuple):
    record: _IdentityRecord
    version: int


class _Other(NamedTuple):
    """The user whom a change is about beside the scope's, and the code that it uses up."""

    user: str
    spent: StateChange | None = None


class _KnownSite(NamedTuple):
    """What this process knows of a site's people, as of a number of changes."""

    version: int
    checked_at: datetime
    people: LruCache[str, tuple[Person | None, PersonNews | None]]


_T = TypeVar("_T")
_NOTHING: Final = _IdentityRecord()
_Records: TypeAlias = Mapping[str, _IdentityRecord]
_FindOther: TypeAlias = Callable[[], Awaitable[_Other]]
# Notes who linked or parted whom before it is stored: scope, what happens, by whom, about whom.
NoteChange: TypeAlias = Callable[[Scope, PersonNews, str, JsonObject], Awaitable[None]]


class People:
    """The people of every site. Callers check permissions; a scope is that of a user, not of a chat or a visitor."""

    def __init__(self, *, state: StateStore, note: NoteChange, clock: Clock, code_life: timedelta) -> None:
        self._state = state
        self._note = note
        self._clock = clock
        self.code_life = code_life
        self._sites = LruCache[bytes, _KnownSite](_SITES)
        self._code_key: bytes | None = None

    # Read

    async def find(self, scope: Scope) -> Person | None:
        """The person of the scope's user, `None` if it is not linked.

        A change by another process is noticed within `KNOWN_FOR`. Of a site without people only that is read, once in
        this time.
        """
        known = await self._known(scope)
        return None if known is None else known[0]

    async def scopes_of(self, scope: Scope) -> tuple[Scope, ...]:
        """The owner of the scope's data, then the person's other identities. A chat is no person."""
        person = await self.find(scope)
        others = () if person is None else [user for user in person.users if user != scope.user]
        return (owner_scope(scope), *(Scope(tenant=scope.tenant, site=scope.site, user=user) for user in others))

    async def members(self, scope: Scope) -> tuple[str, ...]:
        """The scope's user and all whom it is linked with, as it is stored now."""
        own = _user_of(scope)
        ((record, _),) = await self._read(site_scope(scope), [own])
        return (own,) if record.person is None else record.person.users

    async def take_news(self, scope: Scope) -> PersonNews | None:
        """What happened to the user's person at another door, if it was not told yet."""
        known = await self._known(scope)
        if known is None or known[1] is None:
            return None
        before = await self._change_record(scope, _user_of(scope), lambda record: replace(record, news=None))
        return before.news

    # Link and part

    async def link(
        self, scope: Scope, user: str, *, by: str, how: LinkedBy = LinkedBy.ADMIN, informed: str | None = None
    ) -> Person:
        """Make the scope's user and another one the same person, with all whom either is linked with.

        All but the user `informed` get the news.

        Raises:
            Invalid: the scope has no user, or that one.
            PersonFull: together they would be more than `MOST_IDENTITIES`.
        """
        own = _user_of(scope)
        if check_id(user, "the user id") == own:
            raise Invalid("a user can be linked with another one only, not with itself")

        async def find_other() -> _Other:
            return _Other(user)

        return await self._join(scope, find_other, how, by, informed)

    async def unlink(
        self, scope: Scope, user: str | None = None, *, by: str, informed: str | None = None
    ) -> Person | None:
        """Part an identity of the scope's person, by default the scope's user, from the others; returns who is left.

        Raises:
            IdentityNotFound: the scope's user is not linked with it.
        """
        own = _user_of(scope)
        leaving = own if user is None else user

        def part(records: _Records) -> _Records:
            person = records[own].person
            if person is None or leaving not in person.users:
                raise IdentityNotFound
            left = tuple([one for one in person.identities if one.user != leaving])
            remaining = replace(person, identities=left) if len(left) > 1 else None
            others = {one.user: replace(records[one.user], person=remaining) for one in left}
            return {**others, leaving: replace(records[leaving], person=None, parted=True)}

        async def find_other() -> _Other:
            return _Other(leaving)

        after = await self._regroup(scope, find_other, part, PersonNews.UNLINKED, by, informed)
        return next((record.person for record in after.values() if record.person is not None), None)

    async def claim(self, scope: Scope, claim: str) -> None:
        """Link the scope's user with those whose verified tokens make the same claim, and part it from others first.

        A user who was unlinked since stays so until the claim changes.

        Raises:
            PersonFull: as `link` says.
        """
        own, site = _user_of(scope), site_scope(scope)
        key = f"claim:{user_digest(scope.tenant, claim)}"
        ((record, _),) = await self._read(site, [own])
        if record.claim == key:
            return
        if record.claim:
            await self._change_claim(scope, record.claim, lambda users: [one for one in users if one != own])
            if record.person is not None:
                await self.unlink(scope, by=LinkedBy.CLAIM)
        users = await self._change_claim(scope, key, lambda users: [*users, *({own}.difference(users))])
        stored = zip(users, await self._read(site, users), strict=True)
        same = [user for user, (other, _) in stored if user != own and other.claim in ("", key) and not other.parted]
        if same:
            await self.link(scope, same[0], how=LinkedBy.CLAIM, by=LinkedBy.CLAIM)
        # Last: after a crash in between, the next request does all of it again.
        await self._change_record(scope, own, lambda record: replace(record, claim=key, parted=False))

    async def erase(self, scope: Scope) -> int:
        """Remove what is stored of the scope's person, all identities in one step; returns how many were linked."""
        own, site = _user_of(scope), site_scope(scope)
        members = await self.members(scope)
        for record, _ in await self._read(site, members):
            if record.claim:
                await self._change_claim(
                    scope, record.claim, lambda users: [one for one in users if one not in members]
                )

        async def attempt() -> int:
            stored = await self._read_group(site, [own])
            keys = [_user_key(scope, user) for user in stored]
            keys += [record.code for record, _ in stored.values() if record.code]
            removals = [StateChange(key=key, removes=True) for key in keys]
            await self._state.change_states(site, _NAMESPACE, [*removals, StateChange(key=_CHANGES)])
            self._sites.pop(site_key(site))
            return len(stored) if len(stored) > 1 else 0

        return await retry_on_conflict(attempt)

    # Codes

    async def show_code(self, scope: Scope) -> LinkCode:
        """A new code for the scope's user, in place of the one before. It works once, within its lifetime."""
        own, site = _user_of(scope), site_scope(scope)
        letters = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LENGTH))
        key = await self._code_place(site, letters)
        shown = _CodeRecord(user=own, expires_at=self._clock() + self.code_life)

        async def attempt() -> None:
            ((record, version),) = await self._read(site, [own])
            changes = [
                _to_change(scope, own, replace(record, code=key), version),
                StateChange(key=key, value=msgspec.to_builtins(shown)),
            ]
            if record.code:
                changes.append(StateChange(key=record.code, removes=True))
            await self._state.change_states(site, _NAMESPACE, changes)

        await retry_on_conflict(attempt)
        return LinkCode(f"{letters[: _CODE_LENGTH // 2]}-{letters[_CODE_LENGTH // 2 :]}", shown.expires_at)

    async def use_code(self, scope: Scope, text: str, *, by: str) -> Person:
        """Link the scope's user with the one to whom the code was shown.

        Raises:
            LinkCodeRefused: the code is wrong, used, too old, of another tenant or site, or of the same user.
            TooManyLinkCodes: too many were refused.
            PersonFull: as `link` says.
        """
        own, site = _user_of(scope), site_scope(scope)
        # Counted before it is compared: attempts at the same time count, too.
        await self._change_record(scope, own, self._count_try)
        key = await self._code_place(site, _normalize_code(text))
        shown: _CodeRecord | None = None

        async def find_other() -> _Other:
            nonlocal shown
            entry = await self._state.read_state(site, _NAMESPACE, key)
            if entry is None and shown is not None and shown.user in await self.members(scope):
                # The attempt before has linked them, and its answer was lost.
                return _Other(shown.user)
            shown = None if entry is None else _decode(entry, _CodeRecord)
            if entry is None or shown is None or shown.expires_at <= self._clock() or shown.user == own:
                raise LinkCodeRefused
            return _Other(shown.user, StateChange(key=key, removes=True, if_version=entry.version))

        person = await self._join(scope, find_other, LinkedBy.CODE, by, informed=own)
        await self._change_record(scope, own, lambda record: replace(record, tries=0, tries_until=None))
        return person

    def _count_try(self, record: _IdentityRecord) -> _IdentityRecord:
        now = self._clock()
        if record.tries_until is None or record.tries_until <= now:
            return replace(record, tries=1, tries_until=now + self.code_life)
        if record.tries >= WRONG_CODES:
            raise TooManyLinkCodes(record.tries_until - now)
        return replace(record, tries=record.tries + 1)

    async def _code_place(self, site: Scope, letters: str) -> str:
        """The key under which a code is stored: a digest keyed by a secret, for codes are short."""

        def create(key: bytes | None) -> str | None:
            return b64encode(secrets.token_bytes(32)).decode() if key is None else None

        if self._code_key is None:
            update = await update_state(self._state, SYSTEM, _NAMESPACE, _CODE_KEY, _decode_key, create)
            self._code_key = update.after
        assert self._code_key is not None
        return f"code:{hmac.digest(self._code_key, site_key(site) + letters.encode(), sha256).hex()}"

    # Changes

    async def _join(
        self, scope: Scope, find_other: _FindOther, how: LinkedBy, by: str, informed: str | None = None
    ) -> Person:
        def join(records: _Records) -> _Records:
            people = {record.person.id: record.person for record in records.values() if record.person is not None}
            linked = {one.user: one for person in people.values() for one in person.identities}
            now = self._clock()
            new = [Identity(user=user, linked_at=now, how=how, by=by) for user in records if user not in linked]
            identities = sorted([*linked.values(), *new], key=lambda one: (one.linked_at, one.user))
            if len(identities) > MOST_IDENTITIES:
                raise PersonFull(MOST_IDENTITIES)
            if len(people) == 1 and not new:
                return {}
            person = Person(id=min(people, default=secrets.token_hex(8)), identities=tuple(identities))
            return {user: replace(record, person=person, parted=False) for user, record in records.items()}

        person = (await self._regroup(scope, find_other, join, PersonNews.LINKED, by, informed))[_user_of(scope)].person
        assert person is not None
        return person

    async def _regroup(
        self,
        scope: Scope,
        find_other: _FindOther,
        change: Callable[[_Records], _Records],
        news: PersonNews,
        by: str,
        informed: str | None,
    ) -> _Records:
        """Change the people of the scope's user and of another one in one step; returns all their records.

        It is noted before it is stored, so that none is without its note. All but the user `informed` get the news.
        """
        own, site = _user_of(scope), site_scope(scope)
        noted = False

        async def attempt() -> _Records:
            nonlocal noted
            other = await find_other()
            stored = await self._read_group(site, [own, other.user])
            before = {user: record for user, (record, _) in stored.items()}
            changed = {
                user: record if user == informed else replace(record, news=news)
                for user, record in change(before).items()
            }
            changes = [_to_change(scope, user, record, stored[user].version) for user, record in changed.items()]
            if changed:
                changes.append(StateChange(key=_CHANGES))
                if not noted:
                    users = sorted({user_digest(scope.tenant, user) for user in (own, other.user)})
                    await self._note(site, news, by, {"user_digests": users, "identities": len(changed)})
                    noted = True
            if other.spent is not None:
                changes.append(other.spent)
            if changes:
                await self._state.change_states(site, _NAMESPACE, changes)
                self._sites.pop(site_key(site))
            return {**before, **changed}

        return await retry_on_conflict(attempt)

    async def _read_group(self, site: Scope, users: Sequence[str]) -> dict[str, _Stored]:
        """The records of users and of all whom they are linked with, at one moment."""
        stored: dict[str, _Stored] = {}
        wanted = dict.fromkeys(users)
        while wanted.keys() != stored.keys():
            stored = dict(zip(wanted, await self._read(site, list(wanted)), strict=True))
            people = [record.person for record, _ in stored.values() if record.person is not None]
            # Who was linked or parted between two reads is read again.
            wanted = dict.fromkeys([*users, *(user for person in people for user in person.users)])
        return stored

    async def _read(self, site: Scope, users: Sequence[str]) -> list[_Stored]:
        entries = await self._state.read_states(site, _NAMESPACE, [_user_key(site, user) for user in users])
        return [
            _Stored(_NOTHING, 0) if entry is None else _Stored(_decode(entry, _IdentityRecord), entry.version)
            for entry in entries
        ]

    async def _change_record(
        self, scope: Scope, user: str, change: Callable[[_IdentityRecord], _IdentityRecord]
    ) -> _IdentityRecord:
        """Change one record but for its person; returns what it was."""
        site = site_scope(scope)

        async def attempt() -> _IdentityRecord:
            ((record, version),) = await self._read(site, [user])
            new = change(record)
            if new != record:
                await self._state.change_states(site, _NAMESPACE, [_to_change(site, user, new, version)])
                self._sites.pop(site_key(site))
            return record

        return await retry_on_conflict(attempt)

    async def _change_claim(self, scope: Scope, key: str, change: Callable[[Sequence[str]], list[str]]) -> list[str]:
        """Change the users who make a claim, and return them."""

        def decode(entry: StateEntry | None) -> list[str]:
            return [] if entry is None else _decode(entry, list[str])

        def change_users(users: list[str]) -> list[str] | Removal | None:
            new = change(users)
            if len(new) > MOST_IDENTITIES:
                raise PersonFull(MOST_IDENTITIES)
            return None if new == users else new or REMOVE

        update = await update_state(self._state, site_scope(scope), _NAMESPACE, key, decode, change_users)
        return update.after

    async def _known(self, scope: Scope) -> tuple[Person | None, PersonNews | None] | None:
        """What this process knows of a user, read only where the site has people."""
        if scope.user is None or scope.chat is not None:
            return None
        site, now = site_scope(scope), self._clock()
        known = self._sites.get(site_key(site))
        if known is None or not timedelta(0) <= now - known.checked_at < KNOWN_FOR:
            entry = await self._state.read_state(site, _NAMESPACE, _CHANGES)
            version = 0 if entry is None else entry.version
            people = known.people if known is not None and known.version == version else LruCache(_USERS)
            self._sites.put(site_key(site), known := _KnownSite(version, now, people))
        if not known.version:
            return None
        found = known.people.get(scope.user)
        if found is None:
            ((record, _),) = await self._read(site, [scope.user])
            # A change in this process since then has dropped this copy already.
            known.people.put(scope.user, found := (record.person, record.news))
        return found


def _user_of(scope: Scope) -> str:
    if scope.user is None or scope.chat is not None:
        raise Invalid("identities are linked for a user: name one, and no chat")
    return scope.user


def _user_key(scope: Scope, user: str) -> str:
    return f"user:{user_digest(scope.tenant, user)}"


def _to_change(scope: Scope, user: str, record: _IdentityRecord, version: int) -> StateChange:
    key = _user_key(scope, user)
    if record == _NOTHING:
        return StateChange(key=key, removes=True, if_version=version)
    return StateChange(key=key, value=msgspec.to_builtins(record), if_version=version)


def _normalize_code(text: str) -> str:
    """A code as it was shown: people type spaces, small letters and letters that look like digits."""
    return unicodedata.normalize("NFKC", text).upper().translate(_LOOKALIKES)


def _decode_key(entry: StateEntry | None) -> bytes | None:
    return None if entry is None else b64decode(entry.value)


def _decode(entry: StateEntry, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(entry.value, kind)
    except msgspec.ValidationError:
        raise StateCorrupt("state value", "is no record of a person") from None
