"""The OpenAPI document reads well and has nothing that other people's generators stumble over.

Each rule names what breaks without it: openapi-python-client, openapi-typescript, datamodel-codegen, Spectral, Redocly.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.routing import Route

from tenuto.server import create_app, requests, schemas, task_requests
from tenuto.server.openai import conversations, responses
from tenuto.server.openapi import document
from tenuto.settings import Settings

DOCUMENT = document(create_app(Settings(store="memory://")))
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}

QUERIES = {
    name: set(kind.__struct_fields__)
    for module in (requests, task_requests, conversations, responses)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}


def _schemas(value: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of the document and its place; examples are none."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _schemas(item, f"{place}/{number}")
    elif isinstance(value, dict):
        yield place, value
        for name, item in value.items():
            if name not in ("example", "examples", "const", "enum"):
                yield from _schemas(item, f"{place}/{name}")


EVERYWHERE = list(_schemas(DOCUMENT))


def test_names_of_schemas_are_names_of_types() -> None:
    """datamodel-codegen makes a module of each dot, and no file of modules."""
    assert [name for name in SCHEMAS if not re.fullmatch("[A-Za-z][A-Za-z0-9]*", name)] == []


def test_no_field_of_a_body_has_a_default() -> None:
    """openapi-typescript demands a field that has one."""
    assert [place for place, schema in _schemas(SCHEMAS) if "default" in schema and "/properties/" in place] == []


def test_free_objects_say_so() -> None:
    """openapi-typescript makes `Record<string, never>` of others."""
    closed = [
        place
        for place, schema in EVERYWHERE
        if "object" in (schema.get("type") or ()) and not {"properties", "additionalProperties"} & schema.keys()
    ]
    assert closed == []


def test_lists_say_what_they_hold() -> None:
    """openapi-python-client leaves the whole type out, and Spectral finds an error."""
    assert [place for place, schema in EVERYWHERE if schema.get("type") == "array" and "items" not in schema] == []


def test_no_choice_has_constants_without_a_type() -> None:
    """openapi-python-client writes Python that does not parse."""
    assert [place for place, schema in EVERYWHERE if {"oneOf", "allOf"} & schema.keys()] == []
    assert [place for place, schema in EVERYWHERE if "enum" in schema and "type" not in schema] == []


def test_every_content_has_a_schema() -> None:
    """Generated clients know nothing of an answer without one; event streams are text."""
    contents = [
        (place, schema)
        for place, schema in EVERYWHERE
        if re.search(r"^/(paths|components/responses)/.*/content/[^/]+/[^/]+$", place)
    ]
    assert len(contents) > 100
    assert [place for place, content in contents if "schema" not in content] == []


def test_tags_servers_and_licence_are_named() -> None:
    """Spectral and Redocly ask for them."""
    used = {tag for operation in OPERATIONS.values() for tag in operation["tags"]}
    assert {tag["name"] for tag in DOCUMENT["tags"]} == used
    assert DOCUMENT["servers"]
    assert DOCUMENT["info"]["license"]["identifier"] == "Apache-2.0"
    assert DOCUMENT["info"]["contact"]["name"]


def test_identifiers_of_operations_are_unique() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(names) == len(set(names))


def test_every_component_is_used() -> None:
    """Redocly and Spectral report others."""
    used = {schema["$ref"] for _, schema in EVERYWHERE if "$ref" in schema}
    groups = ("schemas", "responses", "parameters", "headers")
    named = {f"#/components/{group}/{name}" for group in groups for name in DOCUMENT["components"][group]}
    assert named - used == set()
    assert {ref for ref in used if ref.startswith("#/components/")} - named == set()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_a_short_summary_and_a_failure(name: str) -> None:
    operation = OPERATIONS[name]
    assert 0 < len(operation["summary"]) <= 72
    assert operation["summary"][0].isupper()
    assert not operation["summary"].endswith(".")
    assert operation["description"].endswith((".", "`"))
    assert any(status.startswith("4") for status in operation["responses"])


def test_every_field_and_parameter_is_described() -> None:
    fields = [
        (f"{name}.{field}", part) for name in SCHEMAS for field, part in SCHEMAS[name].get("properties", {}).items()
    ]
    named = [
        (f"{name} {each['name']}", each)
        for name in OPERATIONS
        for each in OPERATIONS[name]["parameters"]
        if "name" in each
    ]
    undescribed = [place for place, part in [*fields, *named] if not part.get("description")]
    assert undescribed == [], "describe them in server/fields.toml, or by a docstring"


def test_every_description_of_a_field_is_used() -> None:
    told = tomllib.loads(Path(schemas.__file__).with_name("fields.toml").read_text())
    kinds = {**{name: set(schema.get("properties", ())) for name, schema in SCHEMAS.items()}, **QUERIES}
    every = {field for fields in kinds.values() for field in fields}
    assert [
        f"{kind}.{field}" for kind in told.keys() - {"any"} for field in told[kind] if field not in kinds[kind]
    ] == []
    assert [field for field in told["any"] if field not in every] == []


def test_every_route_that_is_served_is_in_the_document_or_named_by_it() -> None:
    about = DOCUMENT["info"]["description"]
    app = create_app(Settings(store="memory://", lark_app_id="cli_1", lark_app_secret="s", lark_verification_token="t"))
    served = {
        (method, route.path_format)
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    served = {
        (method, path.replace("{name}", "") if "console" in path else path)
        for method, path in served
        if method != "HEAD"
    }
    described = {tuple(name.split()) for name in OPERATIONS}

    assert len(served) > 120
    assert [path for method, path in served - described if f"`{path}`" not in about] == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_declares_the_parameters_of_its_path(name: str) -> None:
    """Spectral's `path-params`."""
    declared = [each["name"] for each in OPERATIONS[name]["parameters"] if each.get("in") == "path"]
    assert sorted(declared) == sorted(re.findall(r"\{(\w+)\}", name))


def test_no_text_has_the_code_of_a_requirement() -> None:
    texts = [schema["description"] for _, schema in EVERYWHERE if isinstance(schema.get("description"), str)]
    assert len(texts) > 1000
    assert [text for text in texts if re.search(r"\([A-Z]\d{1,2}(, [A-Z]\d{1,2})*\)", text)] == []
