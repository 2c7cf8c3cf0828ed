"""The npc assistant: characters of a heritage site, their evidence, and how they keep to it."""

from tenuto.assistants.npc.assistant import npc_assistant
from tenuto.assistants.npc.characters import Character
from tenuto.assistants.npc.corpus import Corpus, Evidence
from tenuto.assistants.npc.tool import PolicyMode, cited, evidence_tool

__all__ = ["Character", "Corpus", "Evidence", "PolicyMode", "cited", "evidence_tool", "npc_assistant"]
