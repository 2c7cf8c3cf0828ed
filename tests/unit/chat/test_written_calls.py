"""Calls of tools that models write as text: what is a call, what the user reads, and when."""

from __future__ import annotations

import json

import pytest

from tenuto.chat.written_calls import WrittenCalls
from tenuto.model.generation import UNREADABLE

NAMES = ("look", "look_up")
Q = {"q": "门 {1}"}
ARGS = json.dumps(Q, ensure_ascii=False)
COMPACT = ARGS.replace(": ", ":")
CALL = f'{{"name": "look", "arguments": {ARGS}}}'


def split(text: str, step: int) -> tuple[str, list[tuple[str, object]]]:
    written = WrittenCalls(NAMES)
    said = [written.feed(text[place : place + step]) for place in range(0, len(text), step)]
    said.append(written.flush())
    return "".join(said), [(call.name, call.arguments) for call in written.calls]


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"[TOOL_CALLS] [{CALL}]",
        f"<|python_tag|>{CALL}",
        f'{{"name": "look", "parameters": {ARGS}}}',
        f'{{"tool": "look", "input": {ARGS}}}',
        f'{{"action": "look", "action_input": {ARGS}}}',
        f'{{"arguments": {ARGS}, "name": "look"}}',
        f'{{"type": "function", "function": {CALL}}}',
        f'{{"tool_calls": [{{"id": "1", "type": "function", "function": {CALL}}}]}}',
        json.dumps({"name": "look", "arguments": ARGS}),
        f"{CALL}}}",
    ],
)
def test_an_answer_that_is_an_object_with_the_name_of_an_offered_tool_is_its_call(text: str, step: int) -> None:
    assert split(text, step) == ("", [("look", Q)])


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "No tool is needed, [see](a) `this` <b>one</b>, 1 < 2.",
        '```json\n{"name": "Ann", "arguments": {}}\n```',
        '{"city": "Paris", "name": "look"}',
        '{"name": "look", "colour": "red"}',
        '{"type": "object", "properties": {"name": {}}}',
        "```python\nd = {'name': 'look'}\nf(){ return }\n```",
        "```````` {",
        '{"na',
        '{"arguments": {"a": ',
    ],
)
def test_all_else_is_text(text: str, step: int) -> None:
    assert split(text, step) == (text, [])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"name": "look_up", "arguments": {"q": "cut o', "look_up"),
        ('```json\n{"name": "look", "arguments": {q: 1}}\n```', "look"),
        ('{"name": "look", "arguments": "the gate"}', "look"),
        ('{"name": "look", "arguments": {"q": NaN}}', "look"),
    ],
)
def test_a_call_that_cannot_be_read_is_refused_by_the_tool_and_read_by_no_user(text: str, name: str) -> None:
    said, [(called, arguments)] = split(text, 3)

    assert (said, called) == ("", name)
    assert isinstance(arguments, dict)
    assert list(arguments) == [UNREADABLE]


def test_text_that_can_be_no_call_is_not_held_back() -> None:
    written = WrittenCalls(NAMES)

    assert [written.feed(piece) for piece in ("Hi ", '{"', "na", 'me": "l', 'a", ', "x")] == [
        *("Hi ", "", "", "", '{"name": "la", '),
        "x",
    ]
    assert WrittenCalls(()).feed(CALL) == CALL


@pytest.mark.parametrize(
    "code",
    [
        '```ts\nconst a = {"type": T};\n```\n',
        'd = {"id": user_id, "n": 1}\n',
        'print({"input": x})\n',
        '{"arguments": {"a": "}", b: 1}}',
        '{"id": ' + "[" * 10_000 + "}",
    ],
)
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_code_that_is_no_json_holds_back_nothing_behind_it(code: str, step: int) -> None:
    written = WrittenCalls(NAMES)

    said = "".join([written.feed(code[place : place + step]) for place in range(0, len(code), step)])

    assert (said + written.feed("and more"), written.flush(), written.calls) == (f"{code}and more", "", [])


@pytest.mark.parametrize("mark", ["`", "[", "<", "<|"])
def test_of_a_row_of_marks_little_is_held_back(mark: str) -> None:
    written, row = WrittenCalls(NAMES), mark * 1_000

    said = "".join(written.feed(letter) for letter in row)

    assert len(row) - len(said) < 100
    assert written.feed(CALL) == ""


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    ("text", "read", "arguments"),
    [
        # What follows a call is the output that the model made up.
        (f"```json\n{CALL}\n```\nThe gate is open.", "", [Q]),
        (f'{CALL} {{"colour": "red"}}', "", [Q]),
        (f"\n{CALL}\n<|eot_id|>", "\n", [Q]),
        (f"I look.\n\n```json\n{CALL}\n```\n", "I look.\n\n", [Q]),
        (f"I look. <tool_call>{CALL}</tool_call>", "I look. ", [Q]),
        # Between text it may be an example.
        (f"It is called so:\n```json\n{CALL}\n```\nTry it!", "It is called so:\n", [{UNREADABLE: COMPACT}]),
        (f"Either {CALL} or {CALL}", "Either ", [{UNREADABLE: COMPACT}] * 2),
    ],
)
def test_a_call_beside_text_is_never_read_and_between_text_refused(
    text: str, read: str, arguments: list[object], step: int
) -> None:
    assert split(text, step) == (read, [("look", given) for given in arguments])


OTHER = '{"name": "look_up", "arguments": {}}'


@pytest.mark.parametrize(
    "text", [f"[{CALL}, {OTHER}]", f"{CALL}\n{OTHER}", f"<tool_call>{CALL}</tool_call>\n<tool_call>{OTHER}</tool_call>"]
)
def test_several_calls_are_all_made(text: str) -> None:
    assert split(text, 5) == ("", [("look", Q), ("look_up", {})])


def test_of_several_calls_one_that_is_cut_off_is_refused() -> None:
    said, calls = split(f"[{CALL}, {OTHER[:-4]}", 5)

    assert (said, [name for name, _ in calls]) == ("", ["look", "look_up"])
    assert calls[1][1] == {UNREADABLE: OTHER[:-4]}
