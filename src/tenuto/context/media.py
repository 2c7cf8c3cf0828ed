"""Pictures, sounds and files in a prompt: what each takes of the budget, and which of them stay.

The prices are the providers' published rules where there are such; elsewhere they are estimates on the safe side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from tenuto.model.attachment import AUDIO, IMAGE, iter_media_parts, map_media, media_type_of
from tenuto.model.media import placeholder
from tenuto.model.message import Message, Role
from tenuto.model.prompt import LayoutName, PromptInputs
from tenuto.model.values import Json, JsonObject

Price: TypeAlias = Callable[[JsonObject], int]
"""The tokens of a picture, a sound or a file as the model's own tokenizer counts them."""

# OpenAI's tiles: the picture is scaled into a square, then its shorter side down, and cut into tiles.
_SQUARE: Final = 2048
_SHORTER_SIDE: Final = 768
_TILE: Final = 512
_MOST_TILES: Final = 8
# OpenAI's patches.
_PATCH: Final = 32
_LOW_PATCHES: Final = 256
# Anthropic's rule: pixels a token.
_PIXELS: Final = 750
# Where neither the rule nor the size of a picture is known.
_UNKNOWN_PICTURE: Final = 1_600
_MOST_UNKNOWN: Final = 4_784
# Gemini 3 at its usual resolution.
_GEMINI_PICTURE: Final = 1_120
# A page is read as text and as a picture.
_PAGE: Final = 2_500
_PAGE_BYTES: Final = 50_000
_TEXT_BYTES: Final = 3
# 32 tokens a second, of speech at 64 kbit/s, or uncompressed at 16 kHz.
_SOUND_BYTES: Final = 250
_WAVE_BYTES: Final = 1_000
_WAVES: Final = ("audio/wav", "audio/x-wav", "audio/wave")
_UNKNOWN_SOUND: Final = 2_000

# What one request may hold: providers refuse more, and it is held in memory while the model answers.
_MOST_BYTES: Final = 20 * 1024 * 1024
_MOST_PARTS: Final = 100
MEDIA_SHARE: Final = 0.5
"""The part of the prompt that pictures, sounds and files of the history may take together with the question's."""
_SHOWING: Final = (Role.USER, Role.TOOL)


class _Tiles(NamedTuple):
    base: int
    tile: int


class _Patches(NamedTuple):
    multiplier: float
    most: int = 1_536
    most_high: int = 1_536


class _Area(NamedTuple):
    longest_side: int
    most: int


_Rule: TypeAlias = _Tiles | _Patches | _Area
# By how a model's name begins, the first that fits; the small ones of a family by how it ends.
_SMALL: Final[dict[str, _Rule]] = {
    "o4-mini": _Patches(1.72),
    "gpt-4o-mini": _Tiles(2_833, 5_667),
    "mini": _Patches(1.62),
    "nano": _Patches(2.46),
}
_FAMILIES: Final[tuple[tuple[tuple[str, ...], _Rule], ...]] = (
    (("gpt-4o", "chatgpt-4o", "gpt-4.1", "gpt-4.5", "gpt-4"), _Tiles(85, 170)),
    (("o1", "o3", "o4"), _Tiles(75, 150)),
    (("gpt-5.", "gpt-6"), _Patches(1.2, 10_000, 2_500)),
    (("gpt-5",), _Tiles(70, 140)),
    (("claude-3", "claude-haiku-4", "claude-sonnet-4", "claude-opus-4-1", "claude-opus-4-5"), _Area(1_568, 1_640)),
    (("claude",), _Area(2_576, 4_784)),
)


@lru_cache(maxsize=256)
def media_price(model: str) -> Price:
    """The price for a model, given by name with or without its provider; of several in a chain the highest."""
    if "," in model:
        prices = [media_price(one.strip()) for one in model.split(",")]
        return lambda part: max(price(part) for price in prices)
    name = model.rpartition(":")[2].rpartition("/")[2].lower()
    rule = _rule_for(name)

    def price(part: JsonObject) -> int:
        if part["type"] == IMAGE:
            return _picture(part, rule, name)
        return _sound(part) if part["type"] == AUDIO else _file(part)

    return price


def _rule_for(name: str) -> _Rule | None:
    family = next((rule for starts, rule in _FAMILIES if name.startswith(starts)), None)
    if family is None or isinstance(family, _Area):
        return family
    small: _Rule | None = next((rule for word, rule in _SMALL.items() if word in name), None)
    return small or family


def _picture(part: JsonObject, rule: _Rule | None, name: str) -> int:
    width, height = _side(part.get("width")), _side(part.get("height"))
    detail = part.get("detail")
    match rule:
        case _Tiles(base=base, tile=tile):
            return base if detail == "low" else base + tile * _tiles(width, height)
        case _Patches(multiplier=multiplier):
            most = rule.most_high if detail == "high" else _LOW_PATCHES if detail == "low" else rule.most
            known = ceil(width / _PATCH) * ceil(height / _PATCH) if width and height else min(most, rule.most_high)
            return ceil(min(known, most) * multiplier)
        case _Area(longest_side=longest, most=most):
            if not (width and height):
                return most
            scale = min(1.0, longest / max(width, height))
            return min(most, ceil(width * scale * height * scale / _PIXELS))
        case _:
            if "gemini" in name:
                return _GEMINI_PICTURE
            return min(_MOST_UNKNOWN, ceil(width * height / _PIXELS)) if width and height else _UNKNOWN_PICTURE


def _side(value: Json) -> int:
    return value if type(value) is int and value > 0 else 0


def _tiles(width: int, height: int) -> int:
    if not (width and height):
        return _MOST_TILES
    scale = min(1.0, _SQUARE / max(width, height))
    scale = min(scale, _SHORTER_SIDE / min(width, height))
    return ceil(width * scale / _TILE) * ceil(height * scale / _TILE)


def _sound(part: JsonObject) -> int:
    size = _side(part.get("size"))
    return ceil(size / (_WAVE_BYTES if media_type_of(part) in _WAVES else _SOUND_BYTES)) or _UNKNOWN_SOUND


def _file(part: JsonObject) -> int:
    size, pages = _side(part.get("size")), _side(part.get("pages"))
    if media_type_of(part).startswith("text/"):
        return ceil(size / _TEXT_BYTES)
    return _PAGE * (pages or ceil(size / _PAGE_BYTES) or 1)


@dataclass(slots=True)
class _Allowance:
    """What pictures, sounds and files may still take."""

    tokens: int
    bytes: int = _MOST_BYTES
    parts: int = _MOST_PARTS

    def take(self, part: JsonObject, tokens: int) -> bool:
        size = _side(part.get("size"))
        if tokens > self.tokens or size > self.bytes or not self.parts:
            return False
        self.tokens, self.bytes, self.parts = self.tokens - tokens, self.bytes - size, self.parts - 1
        return True


def fit_media(
    inputs: PromptInputs, layout: LayoutName, price: Price, count: Callable[[Message], int], left: int
) -> PromptInputs:
    """The inputs with placeholders for what the model does not take, and what `left` tokens have no room for.

    The question's come first, then the newest of the history, whose messages are counted. In a layout of one text the
    history shows none.
    """
    language, takes = inputs.language, inputs.media.takes
    allowance = _Allowance(left)

    def change(part: JsonObject) -> JsonObject:
        return part if takes(part) and allowance.take(part, price(part)) else placeholder(part, language)

    question_parts = map_media(inputs.question_parts, change)
    allowance.tokens -= int((1 - MEDIA_SHARE) * left)
    shows = layout is LayoutName.CHAT
    history: list[Message] = []
    for message in reversed(inputs.history):
        if not any(True for _ in iter_media_parts(message.parts)):
            history.append(message)
        elif shows and message.role in _SHOWING:
            history.append(_with_parts(message, map_media(message.parts, change), count))
        else:
            hidden = map_media(message.parts, lambda part: placeholder(part, language))
            history.append(_with_parts(message, hidden, count))
    return replace(inputs, question_parts=question_parts, history=tuple(reversed(history)))


def _with_parts(message: Message, parts: Sequence[JsonObject], count: Callable[[Message], int]) -> Message:
    message = replace(message, parts=tuple(parts), tokens=0)
    return replace(message, tokens=count(message))
