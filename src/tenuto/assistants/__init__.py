"""Assistants: personas with prompt, tools and policy."""

from tenuto.assistants.assistant import Assistant, AssistantRegistry, Missing, in_language

__all__ = ["Assistant", "AssistantRegistry", "Missing", "in_language"]
