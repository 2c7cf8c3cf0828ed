"""An application whose model is scripted and whose policy redacts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import tenuto
from tenuto.app import Tenuto
from tenuto.assistants import Assistant
from tenuto.llm import ScriptedModel
from tenuto.llm.scripted import Script
from tenuto.model.policy import preset
from tenuto.model.prompt import Language
from tenuto.ports import Tool
from tests.redactors import MASTER_KEY

MAIL = "ann@example.com"


@asynccontextmanager
async def redacting_app(
    *scripts: Script, tool: Tool | None = None, **settings: Any
) -> AsyncIterator[tuple[Tenuto, ScriptedModel]]:
    model = ScriptedModel(*scripts, name="scripted")
    helper = Assistant(
        name="helper",
        system={Language.ENGLISH: "You help."},
        policies=preset("platform"),
        tools=(tool,) if tool is not None else (),
    )
    async with tenuto.open(
        "memory://",
        models={"scripted": model},
        assistants=[helper],
        model="scripted",
        assistant="helper",
        privacy_key=MASTER_KEY,
        **{"summarizer_model": "offline", **settings},
    ) as app:
        yield app, model


def prompt_of(model: ScriptedModel, place: int = -1) -> str:
    """The requests for turns, without those for titles."""
    turns = [asking for asking in model.requests if asking.tool_context is not None]
    return "\n".join(str(message.parts) for message in turns[place].messages)
