"""The npc assistant: characters of a heritage site, their evidence, and how they keep to it."""

from tenuto.assistants.npc.characters import Character
from tenuto.assistants.npc.corpus import Corpus, Evidence
from tenuto.assistants.npc.guide import npc_assistant
from tenuto.assistants.npc.telling import cited
from tenuto.assistants.npc.tool import PolicyMode, RetrieveEvidence

__all__ = ["Character", "Corpus", "Evidence", "PolicyMode", "RetrieveEvidence", "cited", "npc_assistant"]
