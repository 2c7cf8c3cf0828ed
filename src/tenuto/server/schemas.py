"""The types of bodies and answers as JSON schemas that other people's generators of clients read.

`fields.toml` beside this file describes the fields. What JSON Schema says and a generator would make a wrong type of is
said here in another way, with the same meaning.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from tenuto.model.values import JsonObject
from tenuto.server import requests
from tenuto.server.problems import ERROR_CODES

_REF: Final = "#/components/schemas/{name}"
# Fields of the sender stand beside ours, and facts beside a problem.
_OPEN: Final = ("NewMessage", "MessageView", "Part", "Problem")

# msgspec says of times only that they are strings. Beside these, their names end with `_at`.
_TIMES: Final = ("at", "timestamp", "lease_until", "since", "until", "valid_until")
# A message has words; an object with `messages` is read as a batch.
_HAS_WORDS: Final[JsonObject] = {
    "if": {
        "anyOf": [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
            for name in ("text", "content", "parts")
        ],
        "not": {"required": ["messages"], "properties": {"messages": {}}},
    },
    # Nothing else: some tools know no `false` for a schema.
    "else": {"not": {}},
}
_PART: Final[JsonObject] = {
    "title": "Part",
    "description": "A part of a message: `text`, `tool_call`, `tool_result`, or another type, which is kept unchanged.",
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string", "pattern": "^[^\\u0000]*$"}},
    "if": {"properties": {"type": {"const": "text"}}},
    "then": {"required": ["text"], "properties": {"text": {"type": "string", "pattern": "^[^\\u0000]*$"}}},
}
_ERROR_CODE: Final[JsonObject] = {
    "title": "ErrorCode",
    "description": "What went wrong. Codes are stable; later versions may add some.",
    "type": "string",
    "enum": sorted({code for codes in ERROR_CODES.values() for code in codes}),
}
# A message, or the request for another answer to the last one; to go back, one names the session.
_MESSAGE_OR_ANOTHER_ANSWER: Final[JsonObject] = {
    "if": {"required": ["regenerate"], "properties": {"regenerate": {"const": True}}},
    "then": {
        "required": ["session_id"],
        "properties": {"message": {"const": ""}, "edit": {"type": "null"}, "session_id": {"type": "string"}},
    },
    "else": {
        # Said by `not`, since some tools take the `properties` of a branch for all that the object may have. A message
        # that is absent is refused by it as well.
        "not": {"properties": {"message": {"not": {"pattern": requests.SAID}}}},
        "if": {"required": ["edit"], "properties": {"edit": {"type": "integer"}}},
        "then": {"required": ["session_id"], "properties": {"session_id": {"type": "string"}}},
    },
}


def schema_ref(kind: type[Any]) -> JsonObject:
    """A reference to a type's schema."""
    return {"$ref": _REF.format(name=kind.__name__)}


def query_parameters(kind: type[Any]) -> list[JsonObject]:
    """A type that reads the query, as the document's parameters."""
    (_,), parts = msgspec.json.schema_components([kind], ref_template=_REF)
    schema = parts[kind.__name__]
    found = []
    for name, part in schema["properties"].items():
        own = _alone(part, parts)
        about = own.pop("description", None) or describe_field(kind.__name__, name)
        required = name in schema.get("required", ())
        found.append({"name": name, "in": "query", "required": required, "description": about, "schema": own})
    return found


def _alone(schema: JsonObject, parts: JsonObject) -> JsonObject:
    """A parameter's schema: one that may be left out is never null, and what it refers to is in no other schema."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
    merged = {**(kinds[0] if kinds else {}), **rest}
    referred = dict(parts[merged.pop("$ref").rpartition("/")[2]]) if "$ref" in merged else {}
    for name in ("title", "description"):
        referred.pop(name, None)
    return {**_plain(referred), **_plain(merged)}


@cache
def _descriptions() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(files(__package__).joinpath("fields.toml").read_text("utf-8"))


def describe_field(kind: str, name: str) -> str:
    """What `fields.toml` says of a type's field, or of each field of that name; empty if nothing."""
    descriptions = _descriptions()
    return descriptions.get(kind, {}).get(name) or descriptions["any"].get(name, "")


def component_schemas(kinds: Sequence[type[Any]]) -> JsonObject:
    """The schemas of all types, by name."""
    schemas: JsonObject = msgspec.json.schema_components(kinds, ref_template=_REF)[1]
    schemas = _with_descriptions(schemas | {"Part": _PART, "ErrorCode": _ERROR_CODE})
    # msgspec reads decimals from numbers as well, but describes them as strings alone.
    schemas["UsageBody"]["properties"]["cost_usd"]["type"] = ["string", "number"]
    schemas["Problem"]["properties"]["code"] = {
        "$ref": _REF.format(name="ErrorCode"),
        "description": describe_field("Problem", "code"),
    }
    schemas["NewMessage"] |= _HAS_WORDS
    schemas["ChatBody"] |= _MESSAGE_OR_ANOTHER_ANSWER
    schemas["ChangeTask"] |= {
        "if": {"properties": {"status": {"const": "running"}}},
        "then": {"properties": {"result": {"type": "null"}}},
    }
    return schemas


def answer_schema(kind: type[Any]) -> JsonObject:
    """The schema of a type with those that it refers to, for a document of its own."""
    schemas = _with_descriptions(msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")[1])
    own: JsonObject = schemas.pop(kind.__name__)
    return {**own, "$defs": schemas} if schemas else own


def _with_descriptions(schemas: JsonObject) -> JsonObject:
    for name, schema in schemas.items():
        for field, part in schema.get("properties", {}).items():
            schema["properties"][field] = _describe(name, field, part)
        if name in _OPEN:
            schema["additionalProperties"] = True
        schemas[name] = _plain(schema)
    return schemas


def _describe(kind: str, field: str, schema: JsonObject) -> JsonObject:
    """A field with its description. A default stands there: as a keyword, it would make generators demand the field."""
    schema = dict(schema)
    default = schema.pop("default", None)
    about = schema.pop("description", "") or _described_inside(schema) or describe_field(kind, field)
    if default not in (None, False, "", [], {}) and not isinstance(default, dict):
        about = f"{about} Default: `{msgspec.json.encode(default).decode()}`.".strip()
    if field.endswith("_at") or field in _TIMES:
        choices: list[JsonObject] = schema.get("anyOf", [])
        for choice in [schema, *choices]:
            if choice.get("type") == "string":
                choice["format"] = "date-time"
    return {"description": about, **schema} if about else schema


def _described_inside(schema: JsonObject) -> str:
    """The description of the one kind of value that a field has, if it may be null as well."""
    for choice in schema.get("anyOf", ()):
        if isinstance(choice, dict) and "description" in choice:
            about: str = choice.pop("description")
            return about
    return ""


def _plain(schema: Any) -> Any:
    """The same schema with what generators ask for: objects say that they are free, lists what they hold."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: {field: _plain(part) for field, part in value.items()} if name == "properties" else _plain(value)
        for name, value in schema.items()
        # Beside a reference, the kind is that of what it refers to.
        if not (name == "type" and "$ref" in schema)
    }
    kinds = plain.get("type", ())
    if "object" in kinds and not {"properties", "additionalProperties"} & plain.keys():
        plain["additionalProperties"] = True
    if kinds == "array":
        plain.setdefault("items", {})
    if all(isinstance(value, str) for value in plain.get("enum", [None])):
        plain.setdefault("type", "string")
    return plain
