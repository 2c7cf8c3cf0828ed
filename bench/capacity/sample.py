"""A store of any number of sessions: users who really talked, whose records are stored again under other names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Final

from msgspec.structs import replace

import tenuto
from bench.ours import InstantModel
from bench.workload import Words
from tenuto.app import Tenuto
from tenuto.model import Scope
from tenuto.model.memory import MEMORIES, MemoryKind
from tenuto.model.scope import owner_key, session_key, state_key
from tenuto.model.stored import Kind, Part, RecordChange
from tenuto.ports import RecordStore
from tenuto.stores.encoding import to_micros
from tenuto.stores.engine.codec import PLAIN
from tenuto.stores.engine.state import record_key
from tenuto.stores.engine.whole_records import WholeRecord, iter_pages, read_whole
from tenuto.stores.factory import open_records

TENANT: Final = "bench"
SESSIONS_PER_USER: Final = 20
MEMORIES_PER_SESSION: Final = 2
_SHORTEST: Final = 200
_LENGTHS: Final = 201
_USERS: Final = 2
_AT_ONCE: Final = 500
# Sessions were last used within 25 days, in no order; the default retention is 30.
_SPREAD: Final = 25 * 86_400
_STRIDE: Final = 7919


@dataclass(frozen=True, slots=True)
class SampleUser:
    """All that is stored of one user."""

    sessions: Sequence[WholeRecord]
    state: Sequence[WholeRecord]


def user_scope(number: int) -> Scope:
    """The scope of a user of the filled store."""
    return Scope(tenant=TENANT, user=f"user-{number}")


def session_id(number: int) -> str:
    """The id of a session of the filled store, which belongs to the user `number // SESSIONS_PER_USER`."""
    return f"session-{number:09d}"


async def sample_users(url: str, messages: int) -> list[SampleUser]:
    """Users who talked through `tenuto.open` with its defaults, so that heads, traces and memories are real ones."""
    model, words = InstantModel(), Words()
    async with tenuto.open(url, model=model.name, models={model.name: model}) as app:
        for number in range(_USERS):
            await _talk(app, user_scope(number), words, messages)
        await app.upkeep.drain()
    records = await open_records(url)
    try:
        return await _read_users(records)
    finally:
        await records.close()


async def _talk(app: Tenuto, scope: Scope, words: Words, messages: int) -> None:
    memories = await app.memories()
    for place in range(SESSIONS_PER_USER):
        session = None
        for _ in range(messages // 2):
            turn = words.turn()
            length = _SHORTEST + turn.number * 37 % _LENGTHS
            session = (await app.ask(scope, turn.user[:length], session_id=session)).session_id
        for number in range(MEMORIES_PER_SESSION):
            text = f"{place}.{number} {words.turn().user[:80]}"
            await memories.add(scope, text, kind=MemoryKind.FACT)


async def _read_users(records: RecordStore) -> list[SampleUser]:
    found = [one async for page in iter_pages(records) for one in page if one.index.scope is not None]
    whole = [one for one in await read_whole(records, found) if isinstance(one, WholeRecord)]
    whole.sort(key=lambda one: one.found.index.name)

    def of_user(number: int, kind: Kind) -> list[WholeRecord]:
        owner = owner_key(user_scope(number))
        return [one for one in whole if (one.found.index.owner, one.found.index.kind) == (owner, kind)]

    return [SampleUser(of_user(number, Kind.SESSION), of_user(number, Kind.VALUE)) for number in range(_USERS)]


def describe_sample(users: Sequence[SampleUser]) -> dict[str, float]:
    """How many messages, traces and memories a session has, and how many bytes they are stored in, on average."""
    sessions = [session for user in users for session in user.sessions]
    entries = [entry for session in sessions for entry in session.entries]
    messages = [len(entry.body) for entry in entries if entry.part is Part.MESSAGES]
    traces = [len(entry.body) for entry in entries if entry.part is Part.TRACES]
    memories = sum(value.found.index.namespace == MEMORIES for user in users for value in user.state)
    return {
        "messages": len(messages) / len(sessions),
        "message_bytes": round(sum(messages) / len(messages)),
        "traces": len(traces) / len(sessions),
        "trace_bytes": round(sum(traces) / len(traces)),
        "memories": memories / len(sessions),
    }


async def fill(records: RecordStore, users: Sequence[SampleUser], first: int, end: int) -> None:
    """Store the sessions from `first` up to `end`, and the state of their users."""
    await _write(records, _sessions(users, first, end))
    numbers = range(first // SESSIONS_PER_USER, end // SESSIONS_PER_USER)
    await _write(records, (one for number in numbers for one in _state(users, number)))


async def _write(records: RecordStore, changes: Iterator[RecordChange]) -> None:
    """Commit all changes, some at a time."""
    while some := list(islice(changes, _AT_ONCE)):
        for refused in await asyncio.gather(*(records.commit((change,)) for change in some)):
            assert refused is None


def _sessions(users: Sequence[SampleUser], first: int, end: int) -> Iterator[RecordChange]:
    for number in range(first, end):
        user, place = divmod(number, SESSIONS_PER_USER)
        like, scope, new_id = users[user % len(users)].sessions[place], user_scope(user), session_id(number)
        stored, index = like.found.record, like.found.index
        head, profile = PLAIN.decode_head(stored.head, index.name), PLAIN.decode_profile(stored.profile, index.name)
        earlier, title = timedelta(seconds=number * _STRIDE % _SPREAD), f"{profile.title} {number}"
        head = replace(
            head,
            updated_at=head.updated_at - earlier,
            listed_at=head.listed_at and head.listed_at - earlier,
            expires_at=head.expires_at and head.expires_at - earlier,
        )
        profile = replace(profile, id=new_id, scope=scope, title=title, created_at=profile.created_at - earlier)
        moved = to_micros(head.listed_at or head.updated_at)
        yield RecordChange(
            key=session_key(scope, new_id),
            if_revision=0,
            revision=stored.revision,
            head=PLAIN.encode_head(head, new_id),
            profile=PLAIN.encode_profile(profile),
            deadline=None if head.expires_at is None else to_micros(head.expires_at),
            index=replace(
                index, owner=owner_key(scope), scope=scope, listed_at=moved, title=title.casefold(), name=new_id
            ),
            totals=like.found.totals,
            puts=like.entries,
        )


def _state(users: Sequence[SampleUser], number: int) -> Iterator[RecordChange]:
    scope = user_scope(number)
    for like in users[number % len(users)].state:
        index = like.found.index
        yield RecordChange(
            key=record_key(scope, index.namespace, index.name),
            if_revision=0,
            revision=like.found.record.revision,
            head=like.found.record.head,
            deadline=None,
            index=replace(index, owner=owner_key(scope), scope=scope, drawer=state_key(scope, index.namespace)),
        )
