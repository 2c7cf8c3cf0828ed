"""The law of foreign entries: every JSON object becomes a message that can be stored, and comes back as it was."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenuto.model import Draft, Role
from tenuto.model.message import check_drafts, is_summary
from tenuto.model.values import Json, JsonObject
from tenuto.sessions.items import draft_from_item, item_from_message
from tests.clock import START

words = st.sampled_from(["", "hello", "parts", "user", "tool", "developer", "critic"])
types = st.sampled_from(
    ["message", "function_call", "function_call_output", "function", "text", "tool_call", "tool_result"]
)
scalars = st.one_of(words, types, st.none(), st.integers(-5, 5))
some_parts: st.SearchStrategy[JsonObject] = st.one_of(
    st.fixed_dictionaries({"type": types}, optional={"text": scalars, "call_id": words, "output": scalars}),
    st.fixed_dictionaries({}, optional={"type": scalars, "text": words, "id": words}),
)
lists = st.lists(some_parts, max_size=2) | st.lists(scalars, max_size=2)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "tool", "developer", "assistant"])},
    optional={
        "type": st.just("message"),
        "content": st.one_of(lists, scalars, some_parts),
        "tool_calls": st.one_of(st.just([{"type": "function", "id": "c"}]), lists, scalars),
        "tool_call_id": scalars,
        "name": words,
    },
)
others = st.fixed_dictionaries(
    {"type": st.one_of(types, scalars, st.just("summary"))}, optional={"role": words, "content": lists, "text": scalars}
)
items: st.SearchStrategy[JsonObject] = st.one_of(messages, others, some_parts)


@settings(max_examples=200, deadline=None)
@example({"role": "user", "content": [{"type": "text", "text": "hi"}]})
@example({"role": "tool", "content": [{"type": "function_call_output", "call_id": "c", "output": "21"}]})
@example({"role": "tool", "content": [{"type": "tool_result", "call_id": "c", "output": "21"}]})
@example({"role": "assistant", "content": [{"type": "function", "id": "c"}]})
@example({"role": "user", "content": "hi", "type": None})
@example({"type": "summary", "text": "They agreed.", "through": 3, "through_id": "m"})
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
        ({"role": "user", "content": [{"type": "tool_call"}]}, Role.USER, [], {"content": [{"type": "tool_call"}]}),
        ({"type": "reasoning", "summary": []}, Role.ITEM, [{"type": "reasoning", "summary": []}], {}),
    ],
)
def test_what_an_entry_says_has_its_place(item: JsonObject, role: Role, parts: list[Json], extra: JsonObject) -> None:
    draft = draft_from_item(item, new_id=lambda: "m", now=START)

    assert (draft.role, [*draft.parts], draft.extra) == (role, parts, extra)
