"""Assistants: personas with prompt, tools and policy."""

from tenuto.assistants.assistant import Assistant, in_language
from tenuto.assistants.registry import AssistantRegistry

__all__ = ["Assistant", "AssistantRegistry", "in_language"]
