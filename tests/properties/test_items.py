"""The law of foreign entries: every JSON object becomes a message that can be stored, and comes back as it was."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.model import Draft, Role
from tenuto.model.message import check_drafts, is_summary
from tenuto.model.values import Json, JsonObject
from tenuto.sessions.items import draft_from_item, item_from_message
from tests.clock import START

words = st.sampled_from(["", "hello", "parts", "user", "tool", "developer", "assistant", "critic"])
types = st.sampled_from(
    ["message", "function_call", "function_call_output", "function", "text", "input_text", "tool_result", "summary"]
)
scalars = st.one_of(words, types, st.none(), st.booleans(), st.integers(-5, 5))
names = st.sampled_from(["call_id", "output", "name", "text", "item", "id"])
parts: st.SearchStrategy[Json] = st.one_of(
    st.fixed_dictionaries({"type": types}, optional={"text": scalars, "call_id": words, "output": scalars}),
    st.dictionaries(st.one_of(names, st.just("type")), scalars, max_size=3),
)
lists = st.lists(st.one_of(parts, scalars), max_size=3) | st.lists(parts, min_size=1, max_size=2)
items = st.fixed_dictionaries(
    {},
    optional={
        "type": types | scalars,
        "role": words | scalars,
        "content": scalars | lists | parts,
        "tool_calls": scalars | lists | st.just([{"type": "function", "id": "c"}]),
        "tool_call_id": words | scalars,
        "name": scalars | lists,
    },
)


@given(items)
def test_an_entry_comes_back_as_it_was(item: JsonObject) -> None:
    draft = draft_from_item(item, new_id=lambda: "m", now=START)

    check_drafts([draft])
    assert not is_summary(draft), "a foreign entry is no summary of ours"
    stored = msgspec.json.decode(msgspec.json.encode(draft), type=Draft)
    assert msgspec.json.encode(item_from_message(stored), order="sorted") == msgspec.json.encode(item, order="sorted")


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "21"}
TOOL_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SAID = {"type": "input_text", "text": "hi"}


@pytest.mark.parametrize(
    ("item", "role", "parts", "extra"),
    [
        ({"role": "user", "content": "hi"}, Role.USER, [{"type": "text", "text": "hi"}], {}),
        ({"type": "message", "role": "user", "content": [SAID]}, Role.USER, [SAID], {"type": "message"}),
        ({"role": "developer", "content": [SAID]}, Role.SYSTEM, [SAID], {"role": "developer"}),
        (CALL, Role.ASSISTANT, [CALL], {}),
        (OUTPUT, Role.TOOL, [OUTPUT], {}),
        (
            {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
            Role.ASSISTANT,
            [TOOL_CALL],
            {"content": None},
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": "21"},
            Role.TOOL,
            [{"type": "tool_result", "call_id": "c", "output": "21"}],
            {},
        ),
        ({"type": "reasoning", "summary": []}, Role.ITEM, [{"type": "reasoning", "summary": []}], {}),
    ],
)
def test_what_an_entry_says_has_its_place(item: JsonObject, role: Role, parts: list[Json], extra: JsonObject) -> None:
    draft = draft_from_item(item, new_id=lambda: "m", now=START)

    assert (draft.role, [*draft.parts], draft.extra) == (role, parts, extra)
