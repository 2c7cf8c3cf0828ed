"""A store of any number of sessions: users who really talked, stored again under other names by the bulk port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Final, TypeVar

from msgspec.structs import replace

import tenuto
from bench.ours import InstantModel
from bench.workload import Words
from tenuto.app import Tenuto
from tenuto.model import Scope
from tenuto.model.memory import MEMORIES, MemoryKind
from tenuto.model.records import StatePlace, StoredSession, StoredState
from tenuto.model.scope import owner_key, site_key, state_key
from tenuto.ports import Backend
from tenuto.stores.factory import open_store

TENANT: Final = "bench"
SESSIONS_PER_USER: Final = 20
MEMORIES_PER_SESSION: Final = 2
_SHORTEST: Final = 200
_LENGTHS: Final = 201
_USERS: Final = 2
_AT_ONCE: Final = 4
_PAGE: Final = 200
_STATE_PAGE: Final = 1000
# Sessions were last used within 25 days, in no order; the default retention is 30.
_SPREAD: Final = 25 * 86_400
_STRIDE: Final = 7919
_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class SampleUser:
    """All that is stored of one user."""

    sessions: Sequence[StoredSession]
    state: Sequence[StoredState]


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
    store = await open_store(url)
    try:
        return await _read_users(store)
    finally:
        await store.close()


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


async def _read_users(store: Backend) -> list[SampleUser]:
    keys = [head.key async for page in store.bulk.iter_heads() for head in page]
    sessions = list((await store.bulk.read_sessions(keys)).values())
    state = [record async for page in store.bulk.iter_state() for record in page]
    return [
        SampleUser(
            sorted((one for one in sessions if one.head.session.scope == scope), key=lambda one: one.head.session.id),
            [one for one in state if one.scope is not None and owner_key(one.scope) == owner_key(scope)],
        )
        for scope in map(user_scope, range(_USERS))
    ]


def describe_sample(users: Sequence[SampleUser]) -> dict[str, float]:
    """How many messages, traces and memories a session has, and how many bytes of JSON they are, on average."""
    sessions = [session for user in users for session in user.sessions]
    messages = [len(message.body) for session in sessions for message in session.messages]
    traces = [len(trace.body) for session in sessions for trace in session.traces]
    memories = sum(record.namespace == MEMORIES for user in users for record in user.state)
    return {
        "messages": len(messages) / len(sessions),
        "message_bytes": round(sum(messages) / len(messages)),
        "traces": len(traces) / len(sessions),
        "trace_bytes": round(sum(traces) / len(traces)),
        "memories": memories / len(sessions),
    }


async def fill(store: Backend, users: Sequence[SampleUser], first: int, end: int) -> None:
    """Store the sessions from `first` up to `end`, and the state of their users."""
    await _write(store.bulk.write_sessions, _sessions(users, first, end), _PAGE)
    numbers = range(first // SESSIONS_PER_USER, end // SESSIONS_PER_USER)
    await _write(store.bulk.write_state, (one for number in numbers for one in _state(users, number)), _STATE_PAGE)


async def _write(write: Callable[[Sequence[_Record]], Awaitable[None]], records: Iterator[_Record], page: int) -> None:
    """Write all records, some pages at a time."""

    async def take_pages() -> None:
        while some := list(islice(records, page)):
            await write(some)

    await asyncio.gather(*(take_pages() for _ in range(_AT_ONCE)))


def _sessions(users: Sequence[SampleUser], first: int, end: int) -> Iterator[StoredSession]:
    for number in range(first, end):
        user, place = divmod(number, SESSIONS_PER_USER)
        like = users[user % len(users)].sessions[place]
        old, earlier = like.head.session, timedelta(seconds=number * _STRIDE % _SPREAD)
        session = replace(
            old,
            id=session_id(number),
            scope=user_scope(user),
            title=f"{old.title} {number}",
            created_at=old.created_at - earlier,
            updated_at=old.updated_at - earlier,
            expires_at=old.expires_at and old.expires_at - earlier,
        )
        yield replace(like, head=replace(like.head, session=session))


def _state(users: Sequence[SampleUser], number: int) -> Iterator[StoredState]:
    scope = user_scope(number)
    space, owner = site_key(scope), owner_key(scope)
    for like in users[number % len(users)].state:
        drawer = state_key(scope, like.namespace or "")
        yield replace(like, place=StatePlace(space, owner, drawer, like.place.key), scope=scope)
