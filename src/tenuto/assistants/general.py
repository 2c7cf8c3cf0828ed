"""The assistant for anything: no tools of its own, only the conversation."""

from __future__ import annotations

from tenuto.assistants.assistant import Assistant
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language, PromptPolicy


def general_assistant(policies: Preset | None = None, prompt: PromptPolicy | None = None) -> Assistant:
    """`general`, under the `platform` preset unless told otherwise."""
    return Assistant(
        name="general",
        titles={Language.ENGLISH: "General", Language.CHINESE: "通用助手"},
        about={
            Language.ENGLISH: "Talks about anything, and keeps to what was said before.",
            Language.CHINESE: "什么都可以聊，并记得之前说过的话。",
        },
        system={
            Language.ENGLISH: (
                "You are a helpful assistant. Answer in the language of the question, to the point. "
                "Earlier parts of the conversation may be given as a summary: rely on it, but do not mention it. "
                "Say so when you do not know."
            ),
            Language.CHINESE: (
                "你是一位乐于助人的助手。用提问所用的语言回答，简明扼要。"
                "较早的对话可能以摘要形式给出：可以依据它，但不要提及它。不知道时请如实说明。"
            ),
        },
        policies=policies or preset("platform"),
        prompt=prompt or PromptPolicy(),
    )
