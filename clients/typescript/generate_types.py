"""Writes `src/types.ts`: the bodies and answers of the client's routes, as the server's OpenAPI document has them.

Run it after a change of these routes: `python clients/typescript/generate_types.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tenuto.server import create_app
from tenuto.server.openapi import document
from tenuto.settings import Settings

PATH: Final = Path(__file__).parent / "src" / "types.ts"
_TAGS: Final = {"chat", "turns", "messages", "sessions", "memories", "tasks"}
# Not in the bodies and answers of any route: what an error says, and the events of a stream.
_ALSO: Final = ("Problem", "NewMessage", "TaskEventView")
# Senders' own fields stand beside ours.
_OPEN: Final = ("NewMessage", "MessageView", "Part")
_PLAIN: Final = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_HEAD: Final = "// Written by generate_types.py out of the server's OpenAPI document; do not edit.\n"


def render_types() -> str:
    """The file."""
    api = document(create_app(Settings(store="memory://")))
    schemas: dict[str, Any] = api["components"]["schemas"]
    routes = [each for path in api["paths"].values() for each in path.values() if set(each["tags"]) & _TAGS]
    wanted = {*_ALSO, *(name for route in routes for name in _names(route))}
    known: set[str] = set()
    while wanted:
        known |= wanted
        wanted = {name for one in wanted for name in _names(schemas[one])} - known
    return _HEAD + "".join(_declaration(name, schemas[name]) for name in sorted(known, key=_type_name))


def _names(value: Any) -> set[str]:
    """The schemas that a piece of the document refers to."""
    if isinstance(value, list):
        return {name for item in value for name in _names(item)}
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"].rpartition("/")[2]} if "/schemas/" in str(value.get("$ref")) else set()
    return own | {name for key, item in value.items() if key != "example" for name in _names(item)}


def _type_name(name: str) -> str:
    """Types of one name in two rooms are told apart by the room."""
    _, *rooms, last = name.split(".") if "." in name else ("", name)
    return (rooms[0].capitalize() if rooms else "") + last


def _declaration(name: str, schema: dict[str, Any]) -> str:
    about = " ".join(str(schema.get("description", "")).split())
    comment = f"\n/** {about} */\n" if about else "\n"
    if "properties" not in schema:
        return f"{comment}export type {_type_name(name)} = {_type(schema)};\n"
    fields = [
        f"  {field}{'' if field in schema.get('required', ()) else '?'}: {_type(kind)};\n"
        for field, kind in schema["properties"].items()
    ]
    more = ["  [field: string]: unknown;\n"] if name in _OPEN else []
    return f"{comment}export interface {_type_name(name)} {{\n{''.join([*fields, *more])}}}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _type_name(schema["$ref"].rpartition("/")[2])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " | ".join(dict.fromkeys(map(_type, choices)))
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": each}) for each in kind)
    if kind == "array":
        item = _type(schema.get("items") or {})
        return f"({item})[]" if " | " in item else f"{item}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"
    return _PLAIN.get(str(kind), "unknown")


if __name__ == "__main__":
    PATH.write_text(render_types())
