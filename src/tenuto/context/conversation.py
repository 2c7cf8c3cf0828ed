"""The conversation of a turn for a program that calls its own model: what an assistant's prompt would show of it."""

from __future__ import annotations

from msgspec.structs import replace

from tenuto.context.assembly import assemble, inputs_from_turn, last_words
from tenuto.context.compression import LogTail
from tenuto.context.tokens import TokenCounter
from tenuto.model.message import text_part
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
    inputs = inputs_from_turn(turn, "", talk=log.talk, summary=log.summary(turn.context_start))
    if most < context.loaded_messages and inputs.history:
        inputs = replace(inputs, window_start=max(inputs.window_start, inputs.history[0].seq))
    prompt = assemble(inputs, replace(policy, layout=LayoutName.CHAT), context, counter)
    shown = {one.message_id: one.parts for one in prompt.messages}
    foreign = {entry.first for entry in prompt.manifest.entries if entry.reason is Reason.NOT_SHOWN}
    window = [
        message if message.seq in foreign else replace(message, parts=shown[message.id])
        for message in inputs.history
        if message.id in shown or message.seq in foreign
    ]
    asked, question = turn.user_messages or last_words(log.talk), prompt.messages[-1].text
    if question != inputs.question:
        asked = (replace(asked[-1], parts=(text_part(question),)),)
    window = sorted((*window, *asked), key=lambda message: message.seq)
    # Beside it there is no system message: the caller has its own.
    summary = next((one.parts[-1]["text"] for one in prompt.messages[:-1] if one.message_id is None), "")
    return replace(turn, window=tuple(window[-most:]), summary=summary)
