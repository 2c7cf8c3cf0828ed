"""Assistants: personas with prompt, tools and policy."""

from tenuto.assistants.assistant import Assistant, in_language
from tenuto.assistants.registry import Assistants

__all__ = ["Assistant", "Assistants", "in_language"]
