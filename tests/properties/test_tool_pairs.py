"""Laws of calls whose outputs come with a later turn: a prompt shows both or neither, and the newest ones always."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.context import TokenCounter, assemble
from tenuto.context.layout import join_unanswered
from tenuto.llm.pydantic_ai_messages import to_messages
from tenuto.model import Message, Role
from tenuto.model.message import INPUT, readable_messages
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import Prompt, PromptInputs, PromptPolicy
from tenuto.model.values import JsonObject
from tests.samples import stored

COUNTER = TokenCounter()
LONG = "a long output " * 400


def call(number: int) -> JsonObject:
    return {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": '{"what": "rain"}'}


def output(number: int, text: str = "wet") -> JsonObject:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": text}


class Log:
    """A conversation as the Responses API keeps it: every call and every output is an entry of its own."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def add(self, role: Role, turn: int, part: JsonObject | str) -> None:
        text, parts = (part, None) if isinstance(part, str) else ("", (part,))
        fields = {} if parts is None else {"parts": parts}
        metadata = {INPUT: True} if role is Role.TOOL else {}
        self.messages.append(
            stored(len(self.messages) + 1, text, role=role, turn=turn, metadata=metadata, tokens=0, **fields)
        )

    def add_exchange(self, turn: int, calls: int, text: str) -> None:
        """Calls that are made at once end one turn, and their outputs open the next."""
        first = len(self.messages)
        for number in range(calls):
            self.add(Role.ASSISTANT, turn, call(first + number))
        for number in range(calls):
            self.add(Role.TOOL, turn + 1, output(first + number, text))


def prompt_of(log: Log, budget: int, context: ContextPolicy, loaded: int, question: str = "") -> Prompt:
    history = readable_messages(log.messages[-loaded:])
    inputs = PromptInputs(question=question, history=history)
    return assemble(inputs, PromptPolicy(budget=budget, reply_tokens=0), context, COUNTER)


exchanges = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["wet", LONG])), min_size=1, max_size=5)
contexts = st.sampled_from([ContextPolicy(), ContextPolicy(window_messages=1), ContextPolicy(window_turns=1)])


@pytest.mark.requirement("T12")
@settings(deadline=None)
@given(st.lists(exchanges, min_size=1, max_size=4), contexts, st.sampled_from([400, 900, 8000]), st.integers(3, 40))
def test_a_prompt_shows_a_call_with_its_output_or_neither(
    talk: list[list[tuple[int, str]]], context: ContextPolicy, budget: int, loaded: int
) -> None:
    """Whatever is loaded, cut or left out; what the turn brings is shown, with its calls."""
    log, turn = Log(), 0
    for chain in talk:
        turn += 1
        log.add(Role.ASSISTANT, turn, "ready")
        log.add(Role.USER, turn, "is it wet?")
        for calls, text in chain:
            log.add_exchange(turn, calls, text)
            turn += 1

    messages = prompt_of(log, budget, context, loaded).messages

    shown = [part for message in messages for part in message.parts if part["type"] != "text"]
    assert pairs(shown) == {part["id"] for part in shown if part["type"] == "tool_call"}
    calls = talk[-1][-1][0]
    if loaded >= 2 * calls:
        newest = {part["call_id"] for message in log.messages[-calls:] for part in message.parts}
        assert newest <= pairs(shown)
        assert messages[-1].role is Role.TOOL


def pairs(parts: list[JsonObject]) -> set[str]:
    """The outputs that follow their calls; every output must."""
    called: set[str] = set()
    for part in parts:
        if part["type"] == "tool_call":
            called.add(part["id"])
        else:
            assert part["call_id"] in called
    return {part["call_id"] for part in parts if part["type"] == "tool_result"}


@pytest.mark.parametrize(("role", "kind"), [(None, ""), (Role.SYSTEM, "system-prompt"), (Role.USER, "")])
def test_calls_made_at_once_are_one_response_to_providers(role: Role | None, kind: str) -> None:
    """Outputs follow their calls, whatever the turn brings before them."""
    log = Log()
    log.add(Role.USER, 1, "is it wet?")
    log.add_exchange(1, 2, "wet")
    if role is not None:
        log.messages[3:] = [replace(one, seq=one.seq + 1) for one in log.messages[3:]]
        log.messages.insert(3, stored(4, "Be brief.", role=role, turn=2))

    prompt = prompt_of(log, 8000, ContextPolicy(), 9, "and tomorrow?")
    sent = to_messages(join_unanswered(prompt)[0])

    kinds = [[part.part_kind for part in message.parts] for message in sent]
    noted = [kind] if kind else []
    assert kinds == [["user-prompt"], ["tool-call", "tool-call"], ["tool-return"] * 2 + noted + ["user-prompt"]]
