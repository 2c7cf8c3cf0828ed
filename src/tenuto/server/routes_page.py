"""The page of routes: every operation of the OpenAPI document, to read and to try."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any, Final

from tenuto.model.values import JsonObject

_CODE: Final = re.compile("`([^`]+)`")
_TYPES: Final = {"integer": "whole number", "object": "object", "boolean": "true or false"}
_KEY: Final = """<form class="caller" hidden>
<label>API key <input name="key" type="password" autocomplete="off"></label>
<label>User <input name="user" autocomplete="off"></label></form>"""


def render_routes(api: JsonObject) -> str:
    """The operations by tag, folded, and the schemas that their bodies and answers refer to."""
    tags: dict[str, list[str]] = {}
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            tag = operation["tags"][0] if operation.get("tags") else "server"
            tags.setdefault(tag, []).append(_operation(api, method, path, operation))
    sections = [
        f'<section><h2 id="{_anchor(tag)}">{escape(tag)}</h2>{"".join(parts)}</section>' for tag, parts in tags.items()
    ]
    schemas = "".join(_schema(name, schema) for name, schema in sorted(api["components"]["schemas"].items()))
    places = " ".join(f'<a href="#{_anchor(tag)}">{escape(tag)}</a>' for tag in (*tags, "schemas"))
    return f"""<nav class="tags" aria-label="Groups of routes">{places}</nav>{_KEY}
{"".join(sections)}<section><h2 id="tag-schemas">schemas</h2>{schemas}</section>"""


def _operation(api: JsonObject, method: str, path: str, operation: JsonObject) -> str:
    name, said = escape(operation["operationId"]), _prose(operation["description"])
    brief = said.partition(". ")[0].rstrip(".")
    given = [_resolve(api, each) for each in operation.get("parameters", [])]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    fields = "".join(_parameter_row(each) for each in given)
    answers = "".join(_answer_row(api, code, answer) for code, answer in operation["responses"].items())
    return f"""<details class="route" id="{name}" data-method="{method}" data-path="{escape(path)}">
<summary><b>{method.upper()}</b> <code>{escape(path)}</code> <span>{brief}</span></summary>
<p>{said}</p>{_table("Parameters", fields)}{_body(body) if body else ""}{_table("Answers", answers)}
{_form(name, given, body)}</details>"""


def _anchor(tag: str) -> str:
    return f"tag-{escape(tag.replace(' ', '-'))}"


def _body(content: JsonObject) -> str:
    return f"<h3>Body</h3><p>{_type(content['schema'])}</p>"


def _form(name: str, given: list[JsonObject], body: JsonObject | None) -> str:
    """What is sent when one tries the route; it is hidden until a script can send it."""
    fields = [
        f'<label>{escape(each["name"])} <input name="{escape(each["name"])}" data-in="{each["in"]}"'
        f'{" required" if each.get("required") else ""} autocomplete="off"></label>'
        for each in given
        if each["in"] in ("path", "query")
    ]
    if body:
        example = escape(json.dumps(body.get("example", {}), ensure_ascii=False, indent=2))
        fields.append(f'<label>Body <textarea name="body" rows="6" spellcheck="false">{example}</textarea></label>')
    return f"""<form class="try" hidden aria-label="Try {name}">{"".join(fields)}<button>Send</button>
<output></output></form>"""


def _parameter_row(each: JsonObject) -> str:
    needed = "required, " if each.get("required") else ""
    return _row(each["name"], f"{needed}{each['in']}, {_type(each['schema'])}", each.get("description", ""))


def _answer_row(api: JsonObject, code: str, answer: JsonObject) -> str:
    found = _resolve(api, answer)
    kinds = found.get("content", {})
    typed = " or ".join(_type(kind["schema"]) if "schema" in kind else escape(name) for name, kind in kinds.items())
    return _row(code, typed, found.get("description", "").partition("\n")[0])


def _schema(name: str, schema: JsonObject) -> str:
    rows = "".join(
        _row(field, f"{'required, ' if field in schema.get('required', ()) else ''}{_type(kind)}", _said_of(kind))
        for field, kind in schema.get("properties", {}).items()
    )
    shape = _table("Fields", rows) if rows else f"<p>{_type(schema)}</p>"
    return f"""<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>
<p>{_prose(schema.get("description", ""))}</p>{shape}</details>"""


def _type(schema: Any) -> str:
    """A schema in a few words, with links to those that have a name."""
    return " or ".join(dict.fromkeys(_types(schema))) or "any value"


def _types(schema: JsonObject) -> Iterator[str]:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        yield f'<a href="#schema-{name}">{name}</a>'
    elif "enum" in schema:
        yield from (f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    elif "const" in schema:
        yield f"<code>{escape(str(schema['const']))}</code>"
    elif schema.get("type") == "array":
        yield f"list of {_type(schema.get('items', {}))}"
    elif "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        yield from (_TYPES.get(kind, escape(kind)) for kind in kinds)
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _types(part)


def _said_of(schema: JsonObject) -> str:
    parts = [schema, *schema.get("anyOf", ())]
    return next((part["description"] for part in parts if "description" in part), "")


def _resolve(api: JsonObject, part: JsonObject) -> JsonObject:
    if "$ref" not in part:
        return part
    _, _, group, name = part["$ref"].split("/")
    found: JsonObject = api["components"][group][name]
    return found


def _table(title: str, rows: str) -> str:
    return f'<h3>{title}</h3><div class="wide" tabindex="0"><table>{rows}</table></div>' if rows else ""


def _row(name: str, typed: str, said: str) -> str:
    return f'<tr><th scope="row"><code>{escape(name)}</code></th><td>{typed}</td><td>{_prose(said)}</td></tr>'


def _prose(text: str) -> str:
    return _CODE.sub(lambda quoted: f"<code>{quoted[1]}</code>", escape(text))
