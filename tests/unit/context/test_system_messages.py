"""System messages of a conversation: whole in the prompt, or the request is refused with its size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tenuto.context import TokenCounter, assemble
from tenuto.context.conversation import check_system_messages, fit_window
from tenuto.errors import InstructionsTooLong
from tenuto.model import Message, OpenTurn, Role, TurnState
from tenuto.model.message import tool_call, tool_result
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import Kind, PromptInputs, PromptPolicy
from tests.samples import ANN, HEAD, stored

pytestmark = pytest.mark.requirement("S4")

COUNTER = TokenCounter()
POLICY = PromptPolicy(budget=2000, reply_tokens=200)
GUIDE = "You guide visitors of the old town through its gardens. " * 60
SPEECH = "The gate stands open and the garden behind it is green. " * 120
LIMITS = {
    "tokens": ContextPolicy(),
    "characters": ContextPolicy(window_characters=900),
    "messages": ContextPolicy(window_messages=1),
}


def said(seq: int, text: str, role: Role = Role.USER) -> Message:
    """A message of the first turn."""
    return COUNTER.with_count(replace(stored(seq, text, role=role), turn=1))


def talk() -> tuple[Message, ...]:
    """A turn with a system message, a long speech and a tool's long output: more than the prompt has room for."""
    call = replace(said(3, ""), role=Role.ASSISTANT, parts=(tool_call("c", "look", {}),), tokens=0)
    output = replace(said(4, ""), role=Role.TOOL, parts=(tool_result("c", SPEECH),), tokens=0)
    return (said(1, GUIDE, Role.SYSTEM), said(2, SPEECH), call, output, said(5, "Green.", Role.ASSISTANT))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("input_start", [0, 1])
def test_a_system_message_is_whole_where_everything_else_is_cut(limit: str, input_start: int) -> None:
    inputs = PromptInputs(question="And now?", history=talk(), input_start=input_start)

    prompt = assemble(inputs, POLICY, LIMITS[limit], COUNTER)

    assert GUIDE in [message.text for message in prompt.messages]
    assert prompt.manifest.total <= prompt.manifest.prompt_limit
    assert SPEECH not in prompt.text


def test_a_long_question_leaves_room_for_the_system_message_it_comes_with() -> None:
    inputs = PromptInputs(question=SPEECH * 3, history=talk()[:1], input_start=1)

    prompt = assemble(inputs, POLICY, ContextPolicy(), COUNTER)

    assert prompt.messages[0].text == GUIDE
    assert prompt.cut


@pytest.mark.parametrize(("times", "kept"), [(1, 2), (30, 1)])
def test_system_messages_that_a_summary_covers_are_whole_or_the_cut_is_said(times: int, kept: int) -> None:
    older, newer = "Speak of gardens. " * times * 10, "Be short."
    inputs = PromptInputs(
        question="And now?", system="You are kind.", summary="They met.", covered_instructions=(older, newer)
    )

    prompt = assemble(inputs, POLICY, ContextPolicy(), COUNTER)

    assert [text in prompt.messages[0].text for text in (older, newer)] == [kept == 2, True]
    assert prompt.messages[0].text.startswith("You are kind.")
    assert prompt.cut == (kept == 1)
    assert prompt.manifest.total <= prompt.manifest.prompt_limit


def test_a_programs_own_model_gets_system_messages_whole() -> None:
    turn = OpenTurn(
        id="t", number=1, scope=ANN, session=HEAD, state=TurnState.OPENED, user_messages=talk()[:2], window=talk()[:2]
    )

    fitted = fit_window(turn, POLICY, ContextPolicy(), COUNTER, most=10)

    assert [message.text == GUIDE for message in fitted.window] == [True, False]
    assert fitted.cut == (turn.window[1].id,)


def refuse_for_an_assistant(large: Message) -> None:
    assemble(PromptInputs(question="Hi", history=(large,), input_start=1), POLICY, ContextPolicy(), COUNTER)


def refuse_for_a_programs_model(large: Message) -> None:
    check_system_messages((large,), POLICY, COUNTER)


@pytest.mark.parametrize("refuse", [refuse_for_an_assistant, refuse_for_a_programs_model])
def test_a_system_message_above_the_prompt_is_refused_with_both_sizes(refuse: Callable[[Message], None]) -> None:
    large = said(1, GUIDE * 4, Role.SYSTEM)

    with pytest.raises(
        InstructionsTooLong, match=r"^messages: [\d,]+ tokens .* room for 1,\d\d\d; .*budget"
    ) as refused:
        refuse(large)

    assert refused.value.tokens > refused.value.limit > 1000


@pytest.mark.parametrize(("role", "marked"), [(Role.SYSTEM, True), (Role.USER, False)])
def test_instructions_of_earlier_turns_do_not_leave_the_window_in_silence(role: Role, marked: bool) -> None:
    """The oldest turns leave it when it is full, as ever."""
    earlier = said(1, GUIDE[:1500], role)
    later = [replace(said(seq, SPEECH[:1400]), turn=seq) for seq in range(2, 8)]

    prompt = assemble(PromptInputs(question="And now?", history=(earlier, *later)), POLICY, ContextPolicy(), COUNTER)

    assert earlier.text not in [message.text for message in prompt.messages]
    assert prompt.cut is marked


def test_a_turns_own_input_is_cut_only_where_the_prompt_is_full() -> None:
    """The cap of a quarter is for what was said before."""
    own = said(1, SPEECH[:5000])
    inputs = PromptInputs(question="", history=(own,), input_start=1)

    prompt = assemble(inputs, POLICY, ContextPolicy(), COUNTER)

    assert (prompt.messages[0].text, prompt.cut) == (own.text, False)
    earlier = assemble(replace(inputs, question="And?", input_start=0), POLICY, ContextPolicy(), COUNTER)
    [entry] = [entry for entry in earlier.manifest.entries if entry.kind is Kind.MESSAGE]
    assert earlier.cut
    assert entry.tokens < entry.uncut_tokens
