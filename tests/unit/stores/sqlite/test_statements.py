"""What a turn asks the file: little, the same at any length, and never what the writer has just written itself."""

from __future__ import annotations

from tenuto.model import IdempotencyKey, Truncation, TurnState
from tenuto.stores.sqlite import SqliteStore
from tests.peek import sqlite_db
from tests.samples import ANN, begin, closing, talk


def listen(store: SqliteStore) -> list[str]:
    """The first two words of every statement that the writer runs from now on."""
    heard: list[str] = []
    sqlite_db(store).set_trace_callback(lambda sql: heard.append(" ".join(sql.split()[:2])))
    return heard


async def keyed_turn(store: SqliteStore, key: str) -> TurnState:
    turn = await begin(store, ANN, "s", "hello", idempotency_key=IdempotencyKey(key=key, fingerprint="f"))
    if turn.state is not TurnState.FINISHED:
        await store.sessions.finish_turn(turn, closing("hi"))
    return turn.state


async def test_a_turn_costs_four_statements_beside_its_two_commits(store: SqliteStore) -> None:
    await talk(store, ANN, "s", "hello", "hi")
    heard = listen(store)

    await talk(store, ANN, "s", "hello", "hi")

    commit = ["BEGIN IMMEDIATE", "PRAGMA data_version", "INSERT INTO", "UPDATE session", "INSERT INTO", "COMMIT"]
    assert heard == commit * 2


async def test_a_new_key_is_known_to_be_new_without_asking(store: SqliteStore) -> None:
    await keyed_turn(store, "first")
    heard = listen(store)

    for n in range(40):
        assert await keyed_turn(store, f"k{n}") is TurnState.OPENED

    assert not [statement for statement in heard if statement.startswith("SELECT")]


async def test_a_key_of_any_age_is_known_again(store: SqliteStore) -> None:
    """Whether it waits in the session's row, is held in memory too, or stands in the table alone."""
    keys = [f"k{n}" for n in range(300)]
    for place, key in enumerate(keys):
        assert await keyed_turn(store, key) is TurnState.OPENED
        assert await keyed_turn(store, keys[place // 2]) is TurnState.FINISHED

    assert {await keyed_turn(store, key) for key in keys} == {TurnState.FINISHED}


async def test_a_reset_lets_keys_be_used_anew(store: SqliteStore) -> None:
    keys = [f"k{n}" for n in range(20)]
    for key in keys:
        await keyed_turn(store, key)

    await store.sessions.reset(ANN, "s")

    assert [await keyed_turn(store, key) for key in keys] == [TurnState.OPENED] * 20
    assert [await keyed_turn(store, key) for key in keys] == [TurnState.FINISHED] * 20


async def test_a_truncation_lets_the_keys_of_its_messages_be_used_anew(store: SqliteStore) -> None:
    keys = [f"k{n}" for n in range(30)]
    for key in keys:
        await keyed_turn(store, key)

    await store.sessions.truncate(ANN, "s", Truncation(after=20))

    assert [await keyed_turn(store, key) for key in keys] == [TurnState.FINISHED] * 10 + [TurnState.OPENED] * 20
    assert [await keyed_turn(store, key) for key in keys] == [TurnState.FINISHED] * 30
