"""Thoughts as items of the Responses API, and back: their text as a summary, the rest in `encrypted_content`.

Clients hand an item back as it came, where nothing is stored or the conversation is their own. Its `encrypted_content`
is not secret, but of use to the provider alone: with the text it makes the thought that the provider signed.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tenuto.model.reasoning import REASONING, REDACTED, WITHHELD, is_reasoning, shown_text
from tenuto.model.values import Json, JsonObject, check_json
from tenuto.sessions.ids import derived_id

_SEALED: Final = "tenuto.reasoning."
# The provider whose own items a client may bring, from a conversation that began elsewhere.
_OPENAI: Final = "openai"
_OPENAIS: Final = "rs_"
_LENGTH: Final = "length"


def reasoning_item(name: str, number: int, part: JsonObject, status: str = "completed") -> JsonObject:
    """A thought as an item, known by the trace or the message that it belongs to, and its number in it."""
    item = begun_reasoning_item(name, number)
    return {**item, "summary": summary_of(shown_text(part)), "encrypted_content": seal(part), "status": status}


def begun_reasoning_item(name: str, number: int) -> JsonObject:
    """The item of a thought that begins."""
    return {"id": derived_id(_OPENAIS, name, str(number)), "type": REASONING, "summary": [], "status": "in_progress"}


def summary_of(text: str) -> list[JsonObject]:
    """The summary of an item."""
    return [{"type": "summary_text", "text": text}] if text else []


def seal(part: JsonObject) -> str:
    """What an item has of a thought besides the text, which a thought that is withheld has for no reader."""
    kept = {name: value for name, value in part.items() if name not in ("type", "text")} | {_LENGTH: len(part["text"])}
    if part.get(WITHHELD):
        kept.pop("details", None)
    return _SEALED + urlsafe_b64encode(msgspec.json.encode(kept)).decode()


def part_of_item(item: JsonObject) -> JsonObject | None:
    """The thought in an item that a client brings: one of ours, or OpenAI's own; `None` if it is neither."""
    sealed, summary = item.get("encrypted_content"), item.get("summary")
    if item.get("type") != REASONING or not isinstance(sealed, str) or not sealed:
        return None
    text = "".join(_texts(summary)) if isinstance(summary, list) else ""
    if is_sealed(sealed):
        part = unseal(sealed, text)
    elif isinstance(item.get("id"), str):
        made = {"encrypted": sealed, "id": item["id"], "provider": _OPENAI, "model": ""}
        part = {"type": REASONING, "text": text, **made}
    else:
        part = None
    return part if part is not None and is_reasoning(part) else None


def is_sealed(proof: str) -> bool:
    """Whether `seal` made it."""
    return proof.startswith(_SEALED)


def unseal(sealed: str, text: str) -> JsonObject | None:
    """The thought of this text that was sealed; `None` if it is none."""
    try:
        kept = msgspec.json.decode(urlsafe_b64decode(sealed.removeprefix(_SEALED)), type=dict[str, Json])
        check_json(kept, "encrypted_content")
    except ValueError:
        return None
    if kept.pop(_LENGTH, len(text)) != len(text):
        # The client changed the text, or may not see it: the provider would refuse the signature.
        kept[REDACTED] = True
    return {**kept, "type": REASONING, "text": text}


def _texts(summary: Sequence[Json]) -> Iterator[str]:
    for part in summary:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
