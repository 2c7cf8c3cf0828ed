"""Assistants: personas with prompt, tools and policy."""

from tenuto.assistants.assistant import Assistant, Missing, in_language
from tenuto.assistants.registry import AssistantRegistry

__all__ = ["Assistant", "AssistantRegistry", "Missing", "in_language"]
