"""Token counts of texts and messages, exact and offline, and truncation to a number of tokens.

A message is counted once, when it is written (`TokenCounter.with_count`), and its count is stored with it. A reader
uses the stored count unless it is impossible for the text; only then, or without a count, the text is counted again,
and the count remembered. Entry points for messages from outside therefore add missing counts and raise those that are
too low (`TokenCounter.correct_counts`).

A truncated text keeps its beginning and its end, with a mark between them that says how much is missing. No cut splits
a grapheme cluster (a family emoji, a flag, a letter with its accents).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from math import ceil
from typing import Final, NamedTuple, TypeVar

import msgspec

from tenuto.context.media import media_price
from tenuto.context.wording import WORDING, language_of
from tenuto.errors import InvalidSetting
from tenuto.model.attachment import MEDIA_PARTS, SHOWING_PARTS, iter_media_parts, map_media
from tenuto.model.graphemes import boundary_after, boundary_before
from tenuto.model.media import LEFT_OUT, count_left_out, placeholder
from tenuto.model.message import Draft, Role, readable_part
from tenuto.model.patterns import lazy_pattern
from tenuto.model.prompt import PromptPolicy
from tenuto.model.provider_items import ITEM_TYPES, is_provider_item, item_of_part
from tenuto.model.reasoning import REASONING, is_reasoning
from tenuto.model.values import Json, JsonObject, to_text

DEFAULT_ENCODING: Final = "o200k_base"
ENCODINGS: Final = ("o200k_base", "cl100k_base")
ESTIMATE: Final = "estimate"

# What chat formats add: role and separators around each message, the opening of the reply, the frame of a tool part.
MESSAGE_TOKENS: Final = 4
REPLY_TOKENS: Final = 3
TOOL_TOKENS: Final = 8
# Its provider alone knows how long an encrypted thought is: the ciphertext's share, on the safe side.
_SEALED_CHARACTERS_A_TOKEN: Final = 6

# Natural text has 1 to 7 characters to a token, and no character has more than 4 bytes, each at most one token.
MOST_CHARACTERS_A_TOKEN: Final = 7
MOST_TOKENS_A_CHARACTER: Final = 4
# How many texts that come again turn after turn are remembered.
_MOST_RECURRING: Final = 16_384

_O200K: Final = ("gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-6", "gpt-oss", "chatgpt-4o", "o1", "o3", "o4")
_CL100K: Final = ("gpt-4", "gpt-3.5", "gpt-35", "text-embedding")

# Tokenizers we do not have: how many of theirs one token of ours may be, on the safe side. cl100k needs 1.04 times as
# many tokens as o200k for English and 1.65 for Chinese; a deployment on such a model sets its encoding instead.
_MARGIN_CL100K: Final = 1.7
_MARGIN_CLAUDE: Final = 1.5
_MARGIN_OTHERS: Final = 1.25
# The estimate falls short of the exact count by a sixth at worst.
_MARGIN_ESTIMATE: Final = 1.2

_ITEM: Final = Role.ITEM
# Runs that a vocabulary joins (letters, digits, blanks), and everything else sign by sign.
_RUNS: Final = lazy_pattern(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<digits>[0-9]+)"
    r"|(?P<blank>[ \t]+)"
    r"|(?P<lines>[\r\n]+)"
    r"|(?P<alphabet>[\u00a0-\u052f]+)"
    r"|(?P<han>[\u3000-\u9fff\uac00-\ud7a3\uff00-\uffef])"
    r"|(?P<sign>[\x00-\x7f])"
    r"|(?P<rare>.)",
    re.DOTALL,
)
_SHORT_WORD: Final = 5

D = TypeVar("D", bound=Draft)


class EncodingFit(NamedTuple):
    """The encoding to count in for a model, and the safety factor for it."""

    encoding: str
    margin: float


@lru_cache(maxsize=256)
def encoding_for(model: str, encoding: str = DEFAULT_ENCODING) -> EncodingFit:
    """How to count for a model, given by name with or without its provider (`openai:gpt-4o`).

    Counts are stored in one encoding per deployment. A model with that encoding is counted exactly; for others a margin
    is applied. Of several models in a chain the largest margin decides.
    """
    if "," in model:
        return max((encoding_for(one.strip(), encoding) for one in model.split(",")), key=lambda fit: fit[1])
    name = model.rpartition(":")[2] if model.count(":") == 1 and not model.startswith("ollama:") else model
    name = name.rpartition("/")[2].lower()
    if name == "offline":
        # It reads no tokens: its prompt is counted for the manifest only.
        return EncodingFit(encoding, 1.0)
    if name.startswith(_O200K):
        return EncodingFit(encoding, 1.0 if encoding == "o200k_base" else _MARGIN_OTHERS)
    if name.startswith(_CL100K):
        return EncodingFit(encoding, 1.0 if encoding == "cl100k_base" else _MARGIN_CL100K)
    return EncodingFit(encoding, _MARGIN_CLAUDE if "claude" in name else _MARGIN_OTHERS)


class TokenCounter:
    """Counts in one encoding; `exact` tells whether its vocabulary is installed.

    `margin` is for a model with another tokenizer: it shrinks the budget and leaves counts unchanged. Pictures, sounds
    and files are counted by the rule of the `model`, without a name by an estimate.
    """

    def __init__(self, encoding: str = DEFAULT_ENCODING, margin: float = 1.0, model: str = "") -> None:
        if encoding not in (*ENCODINGS, ESTIMATE):
            raise InvalidSetting("encoding", f"there is no {encoding!r}; available: {', '.join(ENCODINGS)}")
        if margin < 1:
            raise InvalidSetting("margin", "must be at least 1")
        self._requested_encoding = encoding
        self._margin = margin
        self._model = model

    @cached_property
    def exact(self) -> bool:
        """Whether counts are exact for the requested encoding."""
        return _counting(self._requested_encoding).exact

    @cached_property
    def encoding(self) -> str:
        """The encoding of the counts, or `estimate`."""
        return self._requested_encoding if self.exact else ESTIMATE

    @cached_property
    def margin(self) -> float:
        """The factor by which the budget shrinks, for a tokenizer or a vocabulary that is not installed."""
        return self._margin if self.exact else self._margin * _MARGIN_ESTIMATE

    def preload(self) -> None:
        """Load the vocabulary now (about 0.1 s), so that the first turn does not wait for it."""
        _counting(self._requested_encoding)

    def count(self, text: str) -> int:
        """The tokens of a text; special tokens' names count as the plain text they are."""
        try:
            return _counting(self._requested_encoding).count(text)
        except UnicodeEncodeError:
            return _counting(self._requested_encoding).count(text.encode(errors="replace").decode())

    def count_fixed(self, text: str) -> int:
        """The tokens of a system prompt, heading or label, cached. Not for user text."""
        return _count_fixed(self._requested_encoding, text)

    def count_recurring(self, text: str) -> int:
        """The tokens of a text that comes again turn after turn, such as a summary; cached by a digest."""
        counts, digest = (
            _recurring_counts(self._requested_encoding),
            blake2b(text.encode(errors="replace"), digest_size=16).digest(),
        )
        tokens = counts.get(digest)
        if tokens is None:
            if len(counts) >= _MOST_RECURRING:
                counts.clear()
            tokens = counts[digest] = self.count(text)
        return tokens

    def count_part(self, part: JsonObject) -> int:
        """The tokens of one part of a message; parts that no model receives count 0."""
        match part["type"]:
            case "text":
                return self.count(part["text"])
            case "tool_call":
                return TOOL_TOKENS + self.count(str(part.get("name", ""))) + self.count(to_text(part.get("arguments")))
            case "tool_result":
                return TOOL_TOKENS + self.count(output_text(part.get("output"))) + self.count_media((part,))
            case "reasoning" if is_reasoning(part):
                return self.count(part["text"]) + len(str(part.get("encrypted", ""))) // _SEALED_CHARACTERS_A_TOKEN
            case kind if kind in MEDIA_PARTS:
                return self.count_media((part,))
            case kind if kind in ITEM_TYPES and is_provider_item(part):
                return TOOL_TOKENS + self.count(to_text(item_of_part(part)))
            case _:
                readable = readable_part(part)
                return 0 if readable is part else self.count_part(readable)

    def media_tokens(self, part: JsonObject) -> int:
        """The tokens of a picture, a sound or a file; its price is the model's own, which the margin is for."""
        return ceil(media_price(self._model)(part) / self.margin)

    def count_media(self, parts: Sequence[JsonObject]) -> int:
        """The tokens of the pictures, sounds and files of a message."""
        return sum([self.media_tokens(part) for part in iter_media_parts(parts)])

    def count_parts(self, parts: Sequence[JsonObject]) -> int:
        """The tokens of a message's parts together."""
        return sum(map(self.count_part, parts))

    def count_text(self, text: str, stored: int) -> int:
        """The tokens of a text with a stored count: as stored if that can be true, else counted."""
        plausible = stored and len(text) <= stored * MOST_CHARACTERS_A_TOKEN
        return stored if plausible and stored <= len(text) * MOST_TOKENS_A_CHARACTER else self.count(text)

    def count_message(self, draft: Draft) -> int:
        """A message's tokens without its frame: as stored if that can be true, else counted."""
        stored, parts = draft.tokens, draft.parts
        if len(parts) == 1 and parts[0]["type"] == "text":
            text = parts[0]["text"]
            plausible = stored and len(text) <= stored * MOST_CHARACTERS_A_TOKEN
            return stored if plausible and stored <= len(text) * MOST_TOKENS_A_CHARACTER else self.count_recurring(text)
        if media := self.count_media(parts):
            # Their price depends on the model, so the stored count does as well.
            return media + sum(map(self._count_words, parts))
        if stored:
            characters = sum(map(_part_characters, parts))
            most = characters * MOST_TOKENS_A_CHARACTER + TOOL_TOKENS * len(parts)
            if characters <= stored * MOST_CHARACTERS_A_TOKEN and stored <= most:
                return stored
        return self.count_parts(parts)

    def count_plain(self, drafts: Sequence[Draft]) -> list[int] | None:
        """The tokens of each message, as `count_message` counts one; `None` where one is more than a text."""
        counts: list[int] = []
        for draft in drafts:
            stored, parts = draft.tokens, draft.parts
            if len(parts) != 1 or parts[0]["type"] != "text" or draft.role is _ITEM:
                return None
            # Written out: every message of every turn passes here, and nearly all have their count.
            length = len(parts[0]["text"])
            plausible = stored and length <= stored * MOST_CHARACTERS_A_TOKEN
            plausible = plausible and stored <= length * MOST_TOKENS_A_CHARACTER
            counts.append(stored if plausible else self.count_message(draft))
        return counts

    def _count_words(self, part: JsonObject) -> int:
        if part["type"] == "text":
            return self.count_recurring(part["text"])
        return self.count_part(part) - self.count_media((part,))

    def with_count(self, draft: D) -> D:
        """The message with its count, for storing. A count that can be true is left alone."""
        return msgspec.structs.replace(draft, tokens=self.count_message(draft))

    def correct_counts(self, drafts: Sequence[D]) -> tuple[D, ...]:
        """Messages from clients, with counts that are missing or too low raised to our own: the budget relies on them.

        A higher count harms no other session.
        """
        ours = [self.count_parts(draft.parts) for draft in drafts]
        return tuple(
            draft if draft.tokens >= tokens else msgspec.structs.replace(draft, tokens=tokens)
            for draft, tokens in zip(drafts, ours, strict=True)
        )


@lru_cache(maxsize=256)
def prompt_token_limit(policy: PromptPolicy, counter: TokenCounter) -> int:
    """The tokens a prompt may have, as the counter counts them."""
    return int((policy.budget_tokens - policy.reply_tokens) / counter.margin)


@lru_cache(maxsize=256)
def fit_prompt(policy: PromptPolicy, context_window: int | None, most: int) -> PromptPolicy:
    """The policy as it fits a model (`PromptPolicy.fit_model`), made once for each context window."""
    return policy.fit_model(context_window, most)


@lru_cache(maxsize=256)
def counter_for(model: str) -> TokenCounter:
    """Counts for a model, given by name; made once, with the limits of prompts that are counted by it."""
    return TokenCounter(*encoding_for(model), model)


def output_text(output: Json, *, placeholders: bool = True) -> str:
    """The text of a tool's output, without the pictures, sounds and files in it."""
    if not isinstance(output, list) or not any(_is_media(one) or _is_placeholder(one) for one in output):
        return to_text(output)
    texts = [one for one in output if not _is_media(one) and (placeholders or not _is_placeholder(one))]
    return "\n".join(map(_item_text, texts))


def _is_media(item: Json) -> bool:
    return isinstance(item, dict) and item.get("type") in MEDIA_PARTS


def _is_placeholder(item: Json) -> bool:
    return isinstance(item, dict) and LEFT_OUT in item


def _item_text(item: Json) -> str:
    text = readable_part(item).get("text") if isinstance(item, dict) and isinstance(item.get("type"), str) else None
    return text if isinstance(text, str) else to_text(item)


def _part_characters(part: JsonObject) -> int:
    kind = part["type"]
    if kind == "text":
        return len(str(part["text"]))
    match kind:
        case "tool_call":
            return len(str(part.get("name", ""))) + len(to_text(part.get("arguments")))
        case "tool_result":
            return len(output_text(part.get("output")))
        case "reasoning" if is_reasoning(part):
            return len(part["text"]) + len(str(part.get("encrypted", "")))
        case kind if kind in ITEM_TYPES and is_provider_item(part):
            return len(to_text(item_of_part(part)))
        case _:
            readable = readable_part(part)
            return 0 if readable is part else _part_characters(readable)


class _Tokenizer(NamedTuple):
    count: Callable[[str], int]
    exact: bool


@cache
def _counting(encoding: str) -> _Tokenizer:
    for load in (_rs_bpe, _bpe_openai):
        try:
            if encoding != ESTIMATE:
                return _Tokenizer(load(encoding), True)
        except ImportError:
            continue
    return _Tokenizer(estimate, False)


def _rs_bpe(encoding: str) -> Callable[[str], int]:
    tokenizer = getattr(importlib.import_module("rs_bpe.bpe").openai, encoding)()
    count: Callable[[str], int] = tokenizer.count
    return count


def _bpe_openai(encoding: str) -> Callable[[str], int]:
    # Slower to start than rs-bpe, but with wheels for Pythons that the other does not know.
    tokenizer = importlib.import_module("bpe_openai").get_encoding(encoding)
    return lambda text: len(tokenizer.encode_ordinary(text))


@cache
def _recurring_counts(encoding: str) -> dict[bytes, int]:
    """Counts made in this encoding; empty at first."""
    return {}


@lru_cache(maxsize=512)
def _count_fixed(encoding: str, text: str) -> int:
    return _counting(encoding).count(text)


def estimate(text: str) -> int:
    """An upper estimate of a text's tokens by script, without any vocabulary.

    Measured against o200k on conversations in English and Chinese it is 1.3 times the exact count in the mean and below
    it in one message of two hundred, by 15 % at worst, which the counter's margin covers.
    """
    return sum(_run_tokens(match.lastgroup, match.group()) for match in _RUNS.finditer(text))


def _run_tokens(kind: str | None, run: str) -> int:
    length = len(run)
    match kind:
        case "word":
            return 1 if length <= _SHORT_WORD else (length + 3) // 4
        case "digits":
            return (length + 2) // 3
        case "blank":
            # One blank belongs to the word after it.
            return 0 if length == 1 else 1 + length // 16
        case "lines":
            return 1 + length // 8
        case "alphabet":
            return (length + 1) // 2
        case "rare":
            return min(3, len(run.encode(errors="replace")))
        case _:
            return 1


Measure = Callable[[str], int]

_HEAD_SHARE: Final = 0.7
_TRIES: Final = 12


def truncate_text(text: str, limit: int, measure: Measure, size: int | None = None) -> str:
    """The text within `limit` as `measure` counts it (tokens, or characters), marked where something is missing.

    Where not even the mark has room the answer is an ellipsis, or nothing. `size` is the text's measure, if known.
    """
    uncut = measure(text) if size is None else size
    if uncut <= limit:
        return text
    mark = _omission_note(text, uncut, measure)
    share = max(0, limit - measure(mark)) / uncut
    for _ in range(_TRIES):
        shorter = _head_and_tail(text, share, mark)
        used = measure(shorter)
        if used <= limit and len(shorter) < len(text):
            return shorter
        share *= min(0.9, limit / used)
    return next((short for short in (mark, "…") if measure(short) <= limit and len(short) < len(text)), "")


def _omission_note(text: str, size: int, measure: Measure) -> str:
    wording = WORDING[language_of(text)]
    return wording.cut.format(size=size, unit=wording.characters if measure is len else wording.tokens)


def level(sizes: Sequence[int], limit: int) -> int:
    """The greatest height at which all sizes, cut down to it, together stay within the limit."""
    left = limit
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return max(0, share)
        left -= size
    return max(sizes, default=0)


def truncate_parts(parts: Sequence[JsonObject], limit: int, counter: TokenCounter) -> tuple[JsonObject, ...]:
    """A message's parts within so many tokens, the longest cut first. Tool calls and results stay pairs. Thoughts
    and items of a provider, which cannot be cut, go.

    A picture, a sound or a file cannot be cut: where there is no room for all of them, there are placeholders.
    """
    parts = [part for part in parts if part["type"] != REASONING and part["type"] not in ITEM_TYPES]
    media = counter.count_media([part for part in parts if part["type"] in MEDIA_PARTS])
    if media > limit:
        parts, media = [_as_placeholder(part) if part["type"] in MEDIA_PARTS else part for part in parts], 0
    limit -= media
    sizes = [0 if part["type"] in MEDIA_PARTS else counter.count_part(part) for part in parts]
    height = level(sizes, limit)
    return tuple(
        part if size <= height else _truncate_part(part, height, counter.count_part, size)
        for part, size in zip(parts, sizes, strict=True)
    )


def truncate_characters(parts: Sequence[JsonObject], limit: int) -> tuple[JsonObject, ...]:
    """A message's texts within so many characters; tool parts are not counted as talk."""
    sizes = [len(part["text"]) if part["type"] == "text" else 0 for part in parts]
    height = level(sizes, limit)
    return tuple(
        part if size <= height else {**part, "text": truncate_text(part["text"], height, len)}
        for part, size in zip(parts, sizes, strict=True)
    )


def _as_placeholder(part: JsonObject) -> JsonObject:
    return placeholder(part, language_of(str(part.get("name", ""))))


def _truncate_part(part: JsonObject, limit: int, measure: Callable[[JsonObject], int], size: int) -> JsonObject:
    if part["type"] in SHOWING_PARTS and isinstance(part.get("output"), list):
        shown = map_media((part,), _as_placeholder)[0]
        if count_left_out((shown,)):
            part = {**shown, "output": output_text(shown["output"]), LEFT_OUT: part["type"]}
    return _with_body(part, truncate_text(_part_body(part), limit, lambda text: measure(_with_body(part, text)), size))


def _with_body(part: JsonObject, body: str) -> JsonObject:
    """The part with another body."""
    match part["type"]:
        case "text":
            return {**part, "text": body}
        case "input_text" | "output_text":
            return {**part, "text": body}
        case "tool_call":
            # Arguments stay a JSON object, which providers insist on.
            return {**part, "arguments": {"cut": body} if body else {}}
        case "function_call":
            return {**part, "arguments": to_text({"cut": body} if body else {})}
        case "tool_result" | "function_call_output":
            return {**part, "output": body}
        case _:
            return part


def _part_body(part: JsonObject) -> str:
    match part["type"]:
        case "text" | "input_text" | "output_text":
            text: str = part["text"]
            return text
        case "tool_call" | "function_call":
            return to_text(part.get("arguments"))
        case "tool_result" | "function_call_output":
            return output_text(part.get("output"))
        case _:
            return ""


def _head_and_tail(text: str, share: float, mark: str) -> str:
    length = int(len(text) * share)
    head = boundary_before(text, int(length * _HEAD_SHARE))
    tail = boundary_after(text, len(text) - (length - int(length * _HEAD_SHARE)))
    return f"{text[:head]}{mark}{text[tail:]}"
