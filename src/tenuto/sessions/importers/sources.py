"""The stores that can be imported, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from tenuto.errors import Invalid
from tenuto.ports import utc_now
from tenuto.sessions.importers.chatgpt import read_chatgpt
from tenuto.sessions.importers.memory_stores import read_letta, read_mem0, read_zep
from tenuto.sessions.importers.records import Record
from tenuto.sessions.importers.sqlite_stores import read_langchain, read_langgraph, read_openai_agents

Reader: TypeAlias = Callable[[Path, datetime], Iterator[Record]]

SOURCES: Final[dict[str, Reader]] = {
    "openai-agents": read_openai_agents,
    "langchain": read_langchain,
    "langgraph": read_langgraph,
    "chatgpt": read_chatgpt,
    "mem0": read_mem0,
    "zep": read_zep,
    "letta": read_letta,
}


def read_source(source: str, path: Path | str) -> Iterator[Record]:
    """What a file of that store holds; records without a time get that of now.

    Raises:
        Invalid: there is no such source; or, when it is read, the file is none of that store.
    """
    if source not in SOURCES:
        raise Invalid(f"there is no such source; available: {', '.join(SOURCES)}")
    return SOURCES[source](Path(path), utc_now())
