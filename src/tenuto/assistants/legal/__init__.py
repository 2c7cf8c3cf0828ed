"""The legal assistant: a router, two experts and a decision agent, which work on each question as one task."""

from tenuto.assistants.legal.agents import NAME, AgentPrompt, AskModel, LegalAgents, StepContext, note_degraded
from tenuto.assistants.legal.assistant import legal_assistant
from tenuto.assistants.legal.library import Library
from tenuto.assistants.legal.plan import TASK_TYPE

__all__ = [
    "NAME",
    "TASK_TYPE",
    "AgentPrompt",
    "AskModel",
    "LegalAgents",
    "Library",
    "StepContext",
    "legal_assistant",
    "note_degraded",
]
