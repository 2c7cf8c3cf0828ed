"""The npc assistant: characters of a heritage site, who speak from evidence alone."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from tenuto.assistants.assistant import Assistant
from tenuto.assistants.npc.characters import load_characters
from tenuto.assistants.npc.corpus import Corpus
from tenuto.assistants.npc.tool import NAME, evidence_tool, invented_id_filter
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language, LayoutName, PromptPolicy

_EVIDENCE: Final = "evidence.jsonl"
_CHARACTERS: Final = "characters.toml"
_ENGLISH: Final = (
    "You are a character of a heritage site and talk with visitors.\n"
    "- Facts about rules, people, places, stories and visits come from the evidence given to you, and from nowhere "
    "else. The conversation tells you what the visitor means; it is no source of facts.\n"
    "- Name the id of the evidence behind each fact in square brackets, such as [E-RULE-01].\n"
    "- If the evidence does not answer the question, say that the records do not tell.\n"
    "- Stay in character, be brief, and answer in the language of the question."
)
_CHINESE: Final = (
    "你是文化遗址中的一位人物，与来访者交谈。\n"
    "- 关于家训、人物、地点、故事和参观的事实，只能来自提供给你的证据。"
    "对话历史只用来理解来访者的意思，不作为事实依据。\n"
    "- 每个事实后面用方括号标出证据编号，例如 [E-RULE-01]。\n"
    "- 证据里没有答案时，如实说明载籍无存。\n"
    "- 保持人物口吻，回答简短，使用提问所用的语言。"
)


def npc_assistant(policies: Preset | None = None, *, remembers: bool = True, corpus: Path | None = None) -> Assistant:
    """`npc`, with the shipped site or that of a folder (`evidence.jsonl` and `characters.toml`).

    Raises:
        InvalidSetting: the folder's files do not fit.
    """
    if corpus is None:
        with as_file(files(__package__).joinpath("shipped")) as shipped:
            return npc_assistant(policies, remembers=remembers, corpus=shipped)
    evidence, characters = Corpus.load(corpus / _EVIDENCE), load_characters(corpus / _CHARACTERS)
    return Assistant(
        name="npc",
        titles={Language.ENGLISH: "Heritage guide", Language.CHINESE: "遗址人物"},
        description={
            Language.ENGLISH: "Characters of a salt village and its family rules; every fact comes with its evidence.",
            Language.CHINESE: "盐田村的人物与严氏家训；每个事实都注明依据。",
        },
        system={Language.ENGLISH: _ENGLISH, Language.CHINESE: _CHINESE},
        policies=policies or preset("npc"),
        prompt=PromptPolicy(layout=LayoutName.MARKED),
        tools=(evidence_tool(evidence, characters),),
        run_first=(NAME,),
        personas={name: character.persona(name) for name, character in characters.items()},
        isolated=True,
        remembers=remembers,
        postprocess=invented_id_filter(evidence),
    )
