"""Tools that OpenAI runs by itself, and their items, between Pydantic AI's model of the Responses API and ours.

Pydantic AI reads these items into parts of its own and writes others from them, without outputs and whatever it does
not know. So the items of an answer are taken from the stream as they pass, and put back into a request as they came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, cast

from msgspec.structs import replace
from openai.types import responses
from pydantic_ai.messages import NativeToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.settings import ModelSettings

from tenuto.errors import Invalid
from tenuto.llm.openai_models import VerbatimResponsesModel, same_model
from tenuto.model.generation import NONE, ModelEvent, ModelRequest, ProviderItem
from tenuto.model.prompt import PromptMessage
from tenuto.model.provider_items import (
    ITEM_TYPES,
    PROVIDER,
    item_of_part,
    may_return_item,
    provider_part,
    shift_annotation,
)
from tenuto.model.reasoning import REASONING, may_return
from tenuto.model.values import Json, JsonObject, check_json, make_storable

_OPENAI: Final = "openai"
# The setting that carries what a request collects from its stream.
_COLLECTED: Final = "tenuto_items"
# Marks the place of an item in a request that Pydantic AI writes.
_PLACED: Final = "tenuto_item"
# What a request may ask to be added to the items, as settings of Pydantic AI.
_INCLUDE: Final = {
    "web_search_call.action.sources": "openai_include_web_search_sources",
    "file_search_call.results": "openai_include_file_search_results",
    "code_interpreter_call.outputs": "openai_include_code_execution_outputs",
}


class ItemCollector:
    """The items of an answer and what its text cites, as far as they have come."""

    def __init__(self) -> None:
        self.made = False
        """Whether there are any."""
        self.annotations: list[JsonObject] = []
        self._events: list[ProviderItem] = []
        self._text_length = 0

    def take(self) -> list[ModelEvent]:
        """What has come since the last time."""
        events: list[ModelEvent] = [*self._events]
        self._events.clear()
        return events

    def read(self, event: responses.ResponseStreamEvent) -> None:
        """Note what an event of the stream says of them."""
        if isinstance(event, responses.ResponseOutputItemAddedEvent | responses.ResponseOutputItemDoneEvent):
            done = isinstance(event, responses.ResponseOutputItemDoneEvent)
            if event.item.type in ITEM_TYPES:
                self.made = True
                self._events.append(ProviderItem(part=_part_of(event.item.to_dict(mode="json")), done=done))
            elif done and isinstance(event.item, responses.ResponseOutputMessage):
                self._read_message(event.item)

    def _read_message(self, item: responses.ResponseOutputMessage) -> None:
        """Add what a message cites; its places are those in all text of the answer."""
        for content in item.content:
            if not isinstance(content, responses.ResponseOutputText):
                continue
            for annotation in content.annotations:
                cited = _storable(annotation.to_dict(mode="json"))
                self.annotations.append(shift_annotation(cited, self._text_length))
            self._text_length += len(content.text or "")


class ItemsModel(VerbatimResponsesModel):
    """Pydantic AI's model of the Responses API, with the items of tools that OpenAI runs as they are."""

    async def _map_messages(self, *args: Any, **given: Any) -> Any:
        instructions, items = await super()._map_messages(*args, **given)
        return instructions, [_placed(cast(JsonObject, item)) for item in items]

    async def _process_streamed_response(self, response: Any, model_settings: Any, *args: Any, **given: Any) -> Any:
        collected = model_settings.get(_COLLECTED)
        if collected is not None:
            response = _Tapped(response, collected)
        return await super()._process_streamed_response(response, model_settings, *args, **given)


class _Tapped:
    """A provider's stream, which notes the items that pass."""

    def __init__(self, source: Any, items: ItemCollector) -> None:
        self._source = source
        self._items = items

    async def __aiter__(self) -> AsyncIterator[responses.ResponseStreamEvent]:
        async for event in self._source:
            self._items.read(event)
            yield event

    async def close(self) -> None:
        """Close the stream."""
        await self._source.close()


def with_items(model: Model) -> Model:
    """The model with the items of OpenAI's own tools, where it is OpenAI's Responses API."""
    if type(model) is VerbatimResponsesModel and model.system == _OPENAI:
        return same_model(ItemsModel, model)
    return model


def runs_tools(model: Model) -> bool:
    """Whether the model's provider runs tools that a request describes."""
    return isinstance(model, ItemsModel)


def returning_items(model: Model, messages: Sequence[PromptMessage]) -> tuple[Sequence[PromptMessage], int]:
    """The prompt with the items that go back to this model's provider, and how many others it goes without."""
    if not any(part["type"] in ITEM_TYPES for message in messages for part in message.parts):
        return messages, 0
    kept = [replace(message, parts=tuple(_returning(model, message.parts))) for message in messages]
    return kept, sum(map(_count_items, messages)) - sum(map(_count_items, kept))


def _returning(model: Model, parts: Sequence[JsonObject]) -> list[JsonObject]:
    """OpenAI refuses an item without the thought before it, and a thought without what it led to."""
    if not runs_tools(model):
        return [part for part in parts if part["type"] not in ITEM_TYPES]
    kept: list[JsonObject] = []
    lacks_thought = False
    for part in parts:
        if part["type"] == REASONING:
            lacks_thought = not (may_return(part) and part[PROVIDER] == _OPENAI)
        elif part["type"] in ITEM_TYPES and (lacks_thought or not may_return_item(part) or part[PROVIDER] != _OPENAI):
            while kept and kept[-1]["type"] == REASONING:
                kept.pop()
            continue
        kept.append(part)
    return kept


def _count_items(message: PromptMessage) -> int:
    return sum(part["type"] in ITEM_TYPES for part in message.parts)


def to_native_part(part: JsonObject) -> NativeToolCallPart:
    """A part that stands where the item is to stand in the request; `ItemsModel` puts the item there."""
    return NativeToolCallPart(
        tool_name=WebSearchTool.kind,
        tool_call_id=part["id"],
        id=part["id"],
        args={_PLACED: _input_item(part)},
        provider_name=part[PROVIDER],
    )


def add_provider_tools(settings: ModelSettings, request: ModelRequest) -> ItemCollector:
    """Add what the request says of tools that the provider runs; gives what collects their items."""
    wanted, items = request.provider_tools, ItemCollector()
    more = cast(dict[str, Any], settings)
    more[_COLLECTED] = items
    if wanted.tools:
        more["openai_native_tools"] = list(wanted.tools)
        more.update({_INCLUDE[name]: True for name in wanted.include if name in _INCLUDE})
        if request.tool_choice == NONE or wanted.choice is not None:
            choice = NONE if request.tool_choice == NONE else wanted.choice
            more.pop("tool_choice", None)
            more["extra_body"] = {**more.get("extra_body", {}), "tool_choice": choice}
    return items


def _input_item(part: JsonObject) -> JsonObject:
    """The item as requests may have it: of a search, OpenAI takes neither what it found nor fields that are null."""
    item = item_of_part(part)
    action = item.get("action")
    if isinstance(action, dict):
        sent = {name: value for name, value in action.items() if name != "sources" and value is not None}
        return {**item, "action": sent}
    return item


def _placed(item: JsonObject) -> JsonObject:
    action = item.get("action")
    return action[_PLACED] if isinstance(action, dict) and _PLACED in action else item


def _part_of(item: JsonObject) -> JsonObject:
    return provider_part(_storable(item), _OPENAI)


def _storable(value: JsonObject) -> JsonObject:
    """An object of a provider as every store keeps it."""
    try:
        check_json(value, "an item")
    except Invalid:
        cleaned = _clean(value)
        assert isinstance(cleaned, dict)
        return cleaned
    return value


def _clean(value: Json) -> Json:
    if isinstance(value, str):
        return make_storable(value)
    if isinstance(value, dict):
        return {make_storable(name): _clean(inner) for name, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list) else value
