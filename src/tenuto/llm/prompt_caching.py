"""What helps a provider to find the beginning of a prompt in its cache again: a mark at its end, and a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Final

from pydantic_ai.messages import CachePoint, InstructionPart, ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from tenuto.model.generation import ToolContext
from tenuto.model.message import Role
from tenuto.model.prompt import PromptMessage

_KEY_BYTES: Final = 16


def mark_stable_prefix(messages: Sequence[ModelMessage], answers: int) -> list[ModelMessage]:
    """The messages with a mark where the next turn's prompt ceases to be equal: behind so many answers.

    What stands behind it, memories beside the question, is not there in the next turn. Without an answer the prefix is
    the system prompt, which Pydantic AI marks itself.
    """
    marked = list(messages)
    for place, message in enumerate(marked[:-1]):
        answers -= isinstance(message, ModelResponse)
        if answers or not isinstance(message, ModelResponse):
            continue
        following = marked[place + 1]
        if isinstance(following, ModelRequest) and isinstance(part := following.parts[0], UserPromptPart):
            content = [part.content] if isinstance(part.content, str) else part.content
            part = dataclasses.replace(part, content=[CachePoint(), *content])
            marked[place + 1] = dataclasses.replace(following, parts=[part, *following.parts[1:]])
        break
    return marked


def changing_instructions(prompt: Sequence[PromptMessage]) -> list[InstructionPart]:
    """The system messages behind the first, which change sometimes: preferences and summary.

    As messages, Anthropic would get them in one text with the system prompt, which would lose its place in the cache
    with each of their changes.
    """
    leading = takewhile(lambda message: message.role is Role.SYSTEM, prompt)
    return [InstructionPart(content=message.text, dynamic=True) for message in list(leading)[1:]]


def cache_key(context: ToolContext | None) -> str | None:
    """The same for all prompts of a session, and unlike that of any other; it tells nothing of tenant, user or id.

    The key of the digest is a random value that a session gets when it begins.
    """
    if context is None or context.session is None:
        return None
    scope, session = context.scope, context.session
    name = "\0".join((scope.tenant, scope.site, session.id)).encode()
    return blake2b(name, key=session.incarnation.encode()[:64], digest_size=_KEY_BYTES).hexdigest()
