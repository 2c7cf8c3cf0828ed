"""The conversation of a turn for a program that calls its own model: what an assistant's prompt would show of it."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenuto.context.assembly import assemble, inputs_from_turn, last_words, prompt_token_limit
from tenuto.context.compression import LogTail
from tenuto.context.tokens import MESSAGE_TOKENS, TokenCounter
from tenuto.model.message import Role, text_part
from tenuto.model.policy import ContextPolicy
from tenuto.model.prompt import LayoutName, PromptPolicy, Reason
from tenuto.model.turn import OpenTurn

# More than the frame of a layout takes.
_MARGIN: Final = 64


def fit_window(
    turn: OpenTurn, policy: PromptPolicy, context: ContextPolicy, counter: TokenCounter, most: int
) -> OpenTurn:
    """The turn with its summary, and a window without what that covers, what is stale and what the budget cuts.

    Messages and parts that only the caller's model can read stay. The window has at most so many messages; if that is
    less than the policy loads, it begins with the first of them.
    """
    if _fits_whole(turn, policy, context, counter):
        return turn
    log = LogTail(turn.window)
    talk = log.talk
    inputs = inputs_from_turn(turn, "", talk=talk, summary=log.summary(turn.context_start))
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


def _fits_whole(turn: OpenTurn, policy: PromptPolicy, context: ContextPolicy, counter: TokenCounter) -> bool:
    """Whether everything is plain talk well within the limits, as in most turns: then there is nothing to assemble."""
    if (context.window_messages, context.window_turns, context.window_characters) != (None, None, None):
        return False
    left = prompt_token_limit(policy, counter) - _MARGIN
    cap = policy.message_tokens or left // 4
    for message in turn.window:
        if message.role is Role.ITEM or len(message.parts) != 1 or message.parts[0]["type"] != "text":
            return False
        tokens = counter.count_message(message)
        left -= tokens + MESSAGE_TOKENS
        if tokens > cap or left < 0:
            return False
    return turn.window[0].seq >= turn.context_start
