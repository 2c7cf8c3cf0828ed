"""The prompt of a turn, whose budget includes the tools that it offers."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tenuto.assistants import Assistant
from tenuto.chat.offered_tools import OfferedTools
from tenuto.chat.request import ChatRequest
from tenuto.context import TokenCounter, assemble
from tenuto.errors import Invalid, InvalidSetting
from tenuto.model.prompt import (
    Disposition,
    Kind,
    LayoutName,
    ManifestEntry,
    Prompt,
    PromptInputs,
    PromptPolicy,
    Reason,
    digest_text,
)


def prompt_policy(request: ChatRequest, assistant: Assistant, offers: OfferedTools, question: str) -> PromptPolicy:
    """The assistant's, as far as the request leaves it: only one of the layouts shows tools."""
    policy, asked = assistant.prompt, request.reply_tokens
    if asked is not None and asked < policy.reply_tokens:
        policy = replace(policy, reply_tokens=asked)
    if policy.layout is not LayoutName.CHAT and (offers.callers or not question):
        policy = replace(policy, layout=LayoutName.CHAT)
    return policy


def check_room(request: ChatRequest, assistant: Assistant, empty: PromptInputs, counter: TokenCounter) -> None:
    """Refuse tools and instructions that fill the prompt, before anything is stored: with them, `empty` must fit.

    Raises:
        Invalid: beside the request's tools and instructions there is no room for a question.
    """
    offers = OfferedTools.of(request, assistant.tools)
    assemble_with_tools(empty, prompt_policy(request, assistant, offers, empty.question), assistant, offers, counter)


def assemble_with_tools(
    inputs: PromptInputs,
    policy: PromptPolicy,
    assistant: Assistant,
    offers: OfferedTools,
    counter: TokenCounter,
    digest_key: bytes = b"",
) -> Prompt:
    """The prompt; the specifications of the tools are part of the budget and of the manifest.

    Raises:
        Invalid: the request's tools or instructions leave no room for a question.
    """
    context = assistant.policies.context
    own = [msgspec.json.encode(tool.spec).decode() for tool in offers.own]
    callers = [msgspec.json.encode(spec).decode() for spec in offers.callers]
    tools = sum(map(counter.count_fixed, own)) + sum(map(counter.count_recurring, callers))
    if not tools:
        return assemble(inputs, policy, context, counter, digest_key)
    try:
        within = replace(policy, reply_tokens=policy.reply_tokens + math.ceil(tools * counter.margin))
        prompt = assemble(inputs, within, context, counter, digest_key)
    except InvalidSetting:
        if not offers.callers:
            raise
        why = f"{tools} tokens leave no room for a question in a prompt of {policy.budget - policy.reply_tokens}"
        raise Invalid(f"tools: {why}") from None
    manifest = prompt.manifest
    entry = ManifestEntry(
        kind=Kind.TOOLS,
        disposition=Disposition.KEPT,
        reason=Reason.ALWAYS,
        tokens=tools,
        uncut_tokens=tools,
        # The caller's are not stored: there is nothing to compare them with.
        digest="" if callers else digest_text("\n".join(own), digest_key),
    )
    manifest = replace(
        manifest,
        entries=(*manifest.entries, entry),
        total=manifest.total + tools,
        prompt_limit=manifest.prompt_limit + tools,
        reply_tokens=policy.reply_tokens,
    )
    return replace(prompt, manifest=manifest)
