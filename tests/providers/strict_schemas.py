"""What providers demand of a JSON schema that they promise to keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

# Combinations that OpenAI's strict mode does not know.
_FORBIDDEN: Final = ("allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else", "patternProperties")
# Bounds that Anthropic's structured outputs do not know.
_BOUNDS: Final = ("minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems")


def openai_strict_fault(schema: dict[str, Any]) -> str | None:
    """Why OpenAI's strict mode refuses a schema, or `None`."""
    if schema.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
    for path, part in _parts(schema):
        context = f"In context={path}, "
        if keyword := next((word for word in _FORBIDDEN if word in part), None):
            return f"{context}'{keyword}' is not permitted."
        if part.get("type") == "object" or "properties" in part:
            if part.get("additionalProperties") is not False:
                return f"{context}'additionalProperties' is required to be supplied and to be false."
            properties = part.get("properties", {})
            if missing := [name for name in properties if name not in part.get("required", [])]:
                return (
                    f"{context}'required' is required to be supplied and to be an array including every key in "
                    f"properties. Missing '{missing[0]}'."
                )
            if extra := [name for name in part.get("required", []) if name not in properties]:
                return f"{context}'required' is required to be supplied. Extra required key '{extra[0]}' supplied."
        if part.get("type") == "array" and "items" not in part:
            return f"{context}array schema missing items."
    return None


def anthropic_format_fault(schema: dict[str, Any]) -> str | None:
    """Why Anthropic's structured outputs refuse a schema, or `None`."""
    for _, part in _parts(schema):
        kind = part.get("type")
        if kind == "object" and part.get("additionalProperties") is not False:
            return "For 'object' type, 'additionalProperties' must be explicitly set to false"
        if bounds := [word for word in _BOUNDS if word in part]:
            return f"For '{kind}' type, properties {', '.join(bounds)} are not supported"
    return None


def _parts(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The schema and every one in it, each with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for group in ("properties", "$defs", "definitions"):
        for name, part in schema.get(group, {}).items():
            yield from _parts(part, (*path, group, name))
    yield from _parts(schema.get("items"), (*path, "items"))
    for group in ("anyOf", "prefixItems"):
        for index, part in enumerate(schema.get(group, [])):
            yield from _parts(part, (*path, group, str(index)))
