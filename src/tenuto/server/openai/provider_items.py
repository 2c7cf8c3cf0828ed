"""Tools that OpenAI runs by itself, as requests describe them, and their items in responses and in input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tenuto.errors import UnsupportedParameter
from tenuto.model.generation import AUTO
from tenuto.model.provider_items import ITEM_TYPES, NO_PROVIDER_TOOLS, TOOL_TYPES, ProviderTools, provider_part
from tenuto.model.values import JsonObject

FUNCTION: Final = "function"
_OPENAI: Final = "openai"
_INCLUDED: Final = ("web_search_call.action.sources", "file_search_call.results", "code_interpreter_call.outputs")
# Beginnings of what may be asked of these items.
_OF_ITEMS: Final = tuple(f"{kind}." for kind in ITEM_TYPES)
# What a tool has of its own server's credentials, which are stored nowhere and repeated to no client.
_SECRETS: Final = ("authorization", "headers")


def check_functions(tools: Sequence[JsonObject] | None) -> None:
    """Refuse tools that are no functions.

    Raises:
        UnsupportedParameter: the type of a tool is another one.
    """
    for place, tool in enumerate(tools or ()):
        if tool.get("type") != FUNCTION:
            raise UnsupportedParameter(f"tools[{place}].type", "chat completions have functions alone")


def provider_tools_of(
    tools: Sequence[JsonObject] | None, choice: str | JsonObject | None, include: Sequence[str] | None
) -> ProviderTools:
    """The tools of a request that the provider is to run, as they are described.

    Raises:
        UnsupportedParameter: a tool is neither a function nor one that runs there, or asks before it runs.
    """
    own = [(place, tool) for place, tool in enumerate(tools or ()) if tool.get("type") != FUNCTION]
    for place, tool in own:
        kind = tool.get("type")
        if not isinstance(kind, str) or not kind.startswith(TOOL_TYPES):
            known = ", ".join((FUNCTION, *TOOL_TYPES))
            raise UnsupportedParameter(f"tools[{place}].type", f"expected one of {known}")
        if kind == "mcp" and tool.get("require_approval") != "never":
            why = "must be 'never': approvals are not passed on"
            raise UnsupportedParameter(f"tools[{place}].require_approval", why)
    if not own:
        return NO_PROVIDER_TOOLS
    for place, name in enumerate(include or ()):
        if name.startswith(_OF_ITEMS) and name not in _INCLUDED:
            raise UnsupportedParameter(f"include[{place}]", f"expected one of {', '.join(_INCLUDED)}")
    return ProviderTools(
        tools=tuple([tool for _, tool in own]),
        choice=None if choice in (None, AUTO) else choice,
        include=tuple([name for name in include or () if name in _INCLUDED]),
        place=own[0][0],
    )


def repeated_tool(tool: JsonObject) -> JsonObject:
    """A tool as a response repeats it: a function with all its fields, and none with the credentials of its server."""
    if tool.get("type") == FUNCTION:
        return {"description": None, "parameters": None, "strict": True, **tool}
    return {name: value for name, value in tool.items() if name not in _SECRETS}


def provider_part_of_item(item: JsonObject) -> JsonObject | None:
    """What OpenAI did, in an item that a client brings; `None` if it is another item, or has no id to be known by."""
    if item.get("type") not in ITEM_TYPES or not isinstance(item.get("id"), str) or not item["id"]:
        return None
    return provider_part(item, _OPENAI)


class ItemEvents:
    """Which items of a response have started, at which places of its output, and which are done."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._done: set[str] = set()

    def begins(self, item: JsonObject) -> bool:
        """Whether the item is a new one."""
        return item["id"] not in self._places

    def events(self, item: JsonObject, place: int, *, done: bool) -> Iterator[tuple[str, JsonObject]]:
        """The events, with their fields, of an item that begins at a place, where it is new, or is done."""
        kind, begins = item["type"], self.begins(item)
        place = self._places.setdefault(item["id"], place)
        named = {"item_id": item["id"], "output_index": place}
        if begins:
            started = {**item, "status": "in_progress"} if "status" in item else item
            yield "response.output_item.added", {"output_index": place, "item": started}
            yield f"response.{kind}.in_progress", named
        if done and item["id"] not in self._done:
            self._done.add(item["id"])
            yield f"response.{kind}.completed", named
            yield "response.output_item.done", {"output_index": place, "item": item}
