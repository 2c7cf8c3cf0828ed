"""Tools that a model's provider runs itself, and what it did with them: items beside the text of an answer.

A part is the item as it came, with the `provider` that made it: no other one is sent it. `redacted` says that the
privacy policy changed it, so that it is no longer what the provider knows by its `id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tenuto.model.reasoning import REDACTED, is_reasoning
from tenuto.model.values import Json, JsonObject, Value

PROVIDER: Final = "provider"
ANNOTATIONS: Final = "annotations"
"""What the text of an answer cites, in its part."""
TOOL_TYPES: Final = ("web_search", "file_search", "code_interpreter", "mcp")
"""How the types of tools begin that a provider runs by itself; newer ones have a date behind them."""
ITEM_TYPES: Final = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools"}
)
"""The types of parts that say what a provider did."""
_START: Final = "start_index"
_PLACES: Final = (_START, "end_index")
# What only we know of an item.
_OURS: Final = frozenset({PROVIDER, REDACTED})


class ProviderTools(Value, frozen=True, kw_only=True):
    """Tools that the provider runs, as a request describes them, and what it says of them.

    A `choice` that is not `None` is the request's own, between these and its functions. `include` names what the
    provider adds to its items. The first of the tools is the one at `place` of the request's.
    """

    tools: tuple[JsonObject, ...] = ()
    choice: Json = None
    include: tuple[str, ...] = ()
    place: int = 0


NO_PROVIDER_TOOLS: Final = ProviderTools()


def is_provider_item(part: JsonObject) -> bool:
    """Whether a part is an item of a provider in our form; entries of other APIs may have the same type."""
    return part["type"] in ITEM_TYPES and isinstance(part.get("id"), str) and isinstance(part.get(PROVIDER), str)


def may_return_item(part: JsonObject) -> bool:
    """Whether an item may go back to the provider that made it: it is as it came."""
    return is_provider_item(part) and not part.get(REDACTED)


def mark_without_thought(parts: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The parts with items marked as changed whose thought is: the provider takes neither without the other."""
    marked: list[JsonObject] = []
    lacks_thought = False
    for part in parts:
        if is_reasoning(part):
            lacks_thought = bool(part.get(REDACTED))
        marked.append({**part, REDACTED: True} if lacks_thought and is_provider_item(part) else part)
    return tuple(marked)


def provider_part(item: JsonObject, provider: str) -> JsonObject:
    """The part of an item."""
    return {**item, PROVIDER: provider}


def item_of_part(part: JsonObject) -> JsonObject:
    """The item as its provider made it, as far as the privacy policy left it so."""
    return {name: value for name, value in part.items() if name not in _OURS}


def with_annotations(parts: Iterable[JsonObject], annotations: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The parts of an answer with what its text cites, each where it stands; one without a place at the text's end."""
    placed = list(parts)
    texts = [place for place, part in enumerate(placed) if part["type"] == "text"]
    begin = 0
    left = list(annotations)
    for place in texts:
        end = begin + len(placed[place]["text"])
        here = [one for one in left if place == texts[-1] or one.get(_START, end) < end]
        if here:
            placed[place] = {**placed[place], ANNOTATIONS: [shift_annotation(one, -begin) for one in here]}
        left, begin = [one for one in left if one not in here], end
    return tuple(placed)


def annotations_in(parts: Iterable[JsonObject]) -> list[JsonObject]:
    """What the text of an answer cites, with places in the whole text."""
    annotations: list[JsonObject] = []
    begin = 0
    for part in parts:
        if part["type"] == "text":
            annotations += [shift_annotation(one, begin) for one in part.get(ANNOTATIONS, ())]
            begin += len(part["text"])
    return annotations


def shift_annotation(annotation: JsonObject, by: int) -> JsonObject:
    """A citation whose text stands so many characters further on."""
    moved = {name: annotation[name] + by for name in _PLACES if type(annotation.get(name)) is int}
    return {**annotation, **moved}
