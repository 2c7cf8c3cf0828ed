"""The conversation of a turn for a program that calls its own model: what an assistant's prompt would show of it."""

from __future__ import annotations

from msgspec.structs import replace

from tenuto.context.assembly import assemble, inputs_from_turn, last_words
from tenuto.context.compression import LogTail
from tenuto.context.tokens import TokenCounter
from tenuto.model.message import Message, text_part
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import LayoutName, PromptPolicy, Reason
from tenuto.model.turn import OpenTurn


def fit_window(
    turn: OpenTurn, policy: PromptPolicy, context: ContextPolicy, counter: TokenCounter, most: int
) -> OpenTurn:
    """The turn with its summary, and a window without what that covers, what is stale and what the budget cuts.

    Messages and parts that only the caller's model can read stay. The window has at most so many messages; if that is
    less than the policy loads, it begins with the first of them.
    """
    log = LogTail(turn.window)
    talk = log.talk
    counted = [message if message.tokens else _with_recurring_count(message, counter) for message in talk]
    inputs = inputs_from_turn(turn, "", talk=counted, summary=log.summary(turn.context_start))
    if most < context.loaded_messages and inputs.history:
        inputs = replace(inputs, window_start=max(inputs.window_start, inputs.history[0].seq))
    prompt = assemble(inputs, replace(policy, layout=LayoutName.CHAT), context, counter)
    shown = {one.message_id: one.parts for one in prompt.messages}
    foreign = {entry.first for entry in prompt.manifest.entries if entry.reason is Reason.NOT_SHOWN}
    window = [
        message
        if message.seq in foreign or shown[message.id] is message.parts
        else replace(message, parts=shown[message.id])
        for message in talk
        if message.id in shown or message.seq in foreign
    ]
    asked, question = turn.user_messages or last_words(talk), prompt.messages[-1].text
    if question != inputs.question:
        asked = (replace(asked[-1], parts=(text_part(question),)),)
    window = sorted((*window, *asked), key=lambda message: message.seq)
    # Beside it there is no system message: the caller has its own.
    summary = next((one.parts[-1]["text"] for one in prompt.messages[:-1] if one.message_id is None), "")
    return replace(turn, window=tuple(window[-most:]), summary=summary)


def _with_recurring_count(message: Message, counter: TokenCounter) -> Message:
    """A plain message with its count. Programs seldom store counts, and the same messages come with every turn."""
    if len(message.parts) != 1 or message.parts[0]["type"] != "text":
        return message
    return replace(message, tokens=counter.count_recurring(message.text))
