"""What goes into a log comes out of it unchanged, whatever framework it belongs to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from tenuto.model import AppendBatch, Changes, Draft, FinishTurn, NewSession, Page, Role, tool_call, tool_result
from tenuto.model.values import JsonObject
from tenuto.ports import Store
from tests.samples import ANN, ODD_VALUES, batch, begin, fresh, says, texts

pytestmark = pytest.mark.requirement("T19")


async def test_foreign_items_come_back_as_they_went_in(store: Store) -> None:
    """Opaque items of other frameworks: unknown types and unknown fields, down to int and float."""
    items: list[JsonObject] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA=="},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": 1.0}', "status": "completed"},
        {"type": "hosted_tool_of_next_year", "values": ODD_VALUES},
    ]
    drafts = tuple(
        Draft(
            id=fresh("item"),
            role=Role.ITEM,
            sent_at=datetime(2026, 1, 1, tzinfo=UTC),
            parts=(item,),
            metadata={"n": 1.0},
            extra={"phase": "final", "odd": ODD_VALUES},
        )
        for item in items
    )
    await store.sessions.append(ANN, "s", AppendBatch(id="b", messages=drafts, create=NewSession()))

    page = await store.sessions.messages(ANN, "s", Page())

    assert [repr(message.parts[0]) for message in page.messages] == [repr(item) for item in items]
    assert repr(page.messages[0].extra) == repr(drafts[0].extra)
    assert repr(page.messages[0].metadata) == repr(drafts[0].metadata)
    assert [message.role for message in page.messages] == [Role.ITEM] * 3


@pytest.mark.requirement("A4")
async def test_every_field_of_a_message_comes_back(store: Store) -> None:
    draft = Draft(
        id="m:1/*",
        role=Role.TOOL,
        sent_at=datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC),
        parts=(tool_call("c1", "search", {"q": "x", "n": 3}), tool_result("c1", [1, 2.5, None])),
        speaker="agent 7",
        persona="npc",
        parent="m:0",
        tokens=12_345,
        metadata={"k": "v"},
        extra={"unknown": [1]},
    )
    await store.sessions.append(ANN, "s", AppendBatch(id="b", messages=(draft,), create=NewSession()))

    stored = (await store.sessions.messages(ANN, "s", Page())).messages[0]

    assert {name: getattr(stored, name) for name in Draft.__struct_fields__} == {
        name: getattr(draft, name) for name in Draft.__struct_fields__
    }
    assert (stored.seq, stored.turn) == (1, 1)


async def test_an_instant_keeps_its_meaning_in_any_time_zone(store: Store) -> None:
    sent_at = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=timezone(timedelta(hours=8)))
    await store.sessions.append(ANN, "s", batch(messages=(says("hello", sent_at=sent_at),)))

    stored = (await store.sessions.messages(ANN, "s", Page())).messages[0]

    assert stored.sent_at == sent_at


async def test_values_of_a_head_come_back_as_they_went_in(store: Store, subtests: pytest.Subtests) -> None:
    values = {f"v{place}": value for place, value in enumerate(ODD_VALUES) if value is not None}
    values |= {"odd *:{}'\" name\n": "x", "": "empty name"}
    for field in ("context", "attributes", "metadata"):
        with subtests.test(field):
            await store.sessions.append(ANN, field, AppendBatch(id="b", create=NewSession()))

            await store.sessions.patch(ANN, field, msgspec.convert({field: values}, Changes))

            stored = getattr(await store.sessions.get(ANN, field), field)
            assert {name: repr(value) for name, value in stored.items()} == {n: repr(v) for n, v in values.items()}


async def test_a_megabyte_comes_back(store: Store) -> None:
    text = "长" * 350_000
    await store.sessions.append(ANN, "s", batch(text))

    assert await texts(store, ANN, "s") == [text]


async def test_a_stored_message_appended_again_gets_a_new_place(store: Store) -> None:
    first = await store.sessions.append(ANN, "s", batch(messages=(says("one"), says("two"))))

    again = await store.sessions.append(ANN, "t", AppendBatch(id="b", messages=first.messages[1:], create=NewSession()))

    assert [(message.seq, message.turn, message.text) for message in again.messages] == [(1, 1, "two")]
    assert (await store.sessions.messages(ANN, "t", Page())).messages == again.messages
    beside = await store.sessions.append(ANN, "s", AppendBatch(id="c", messages=first.messages))
    assert [(message.seq, message.turn, message.text) for message in beside.messages] == [(3, 2, "one"), (4, 2, "two")]
    assert (await store.sessions.messages(ANN, "s", Page())).messages == (*first.messages, *beside.messages)


async def test_what_a_sender_alters_afterwards_is_not_what_was_said(store: Store) -> None:
    """In no later window and on no page: the words may stay in memory, but not in their sender's hands."""
    part: JsonObject = {"type": "text", "text": "as said", "notes": [{"deep": 1}]}
    fields: dict[str, JsonObject] = {"metadata": {"a": [1]}, "extra": {"b": {"c": 1}}}

    def draft(role: Role) -> Draft:
        part.update(text="as said", notes=[{"deep": 1}])
        fields.update(metadata={"a": [1]}, extra={"b": {"c": 1}})
        return says("", role, parts=(part,), **fields)

    def alter() -> None:
        part["text"], part["notes"][0]["deep"] = "altered", 2
        fields["metadata"]["a"].append(2)
        fields["extra"]["b"]["c"] = 2

    turn = await begin(store, ANN, "s", user_messages=(draft(Role.USER),))
    alter()
    await store.sessions.finish_turn(turn, FinishTurn(reply=(draft(Role.ASSISTANT),)))
    alter()

    window = (await begin(store, ANN, "s", "next")).window
    page = (await store.sessions.messages(ANN, "s", Page())).messages

    for messages in (window, page):
        assert [message.parts for message in messages[:2]] == [
            ({"type": "text", "text": "as said", "notes": [{"deep": 1}]},)
        ] * 2
        assert [(m.metadata, m.extra) for m in messages[:2]] == [({"a": [1]}, {"b": {"c": 1}})] * 2
