"""Pages of the site that are not files below `docs/`: the README and its neighbours, the examples, the HTTP routes.

A link between pages is written as a path in the repository, so that it also works where the repository is browsed;
here it becomes the path of the page.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tenuto.server import create_app
from tenuto.server.openapi import document
from tenuto.settings import Settings

_TOP: Final = Path(__file__).parents[1]
_CONSOLE: Final = _TOP / "src/tenuto/server/console"
_SHELVES: Final = {"Start": "start", "How-to": "how-to", "Ideas": "ideas", "Reference": "reference"}
_LINK: Final = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
_IMAGE: Final = re.compile(r'(<(?:img|source)\b[^>]*\s(?:src|srcset)=")([^":]+)(?=")')
_FILES: Final = {
    "README.md": "index.md",
    "README.zh-CN.md": "index.zh-CN.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "clients/typescript/README.md": "reference/typescript.md",
}
_PLACES: Final = {
    **_FILES,
    "examples": "examples.md",
    "deploy": "reference/deploy.md",
    "clients/typescript": "reference/typescript.md",
}
_LANGUAGES: Final = {"": "docker", ".yml": "yaml", ".yaml": "yaml", ".service": "ini", ".env": "sh", ".py": "python"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page that `nav` does not name at the end of its shelf."""
    named = set(re.findall(r"[\w/.-]+\.md", json.dumps(config.nav)))
    for shelf, folder in _SHELVES.items():
        found = sorted(f"{folder}/{path.name}" for path in (_TOP / "docs" / folder).glob("*.md"))
        pages = next(entry[shelf] for entry in config.nav or () if shelf in entry)
        pages += [page for page in found if page not in named]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of something else."""
    made = {site: (_TOP / path).read_text() for path, site in _FILES.items()}
    made |= {"examples.md": "".join(_examples()), "reference/routes.md": "".join(_routes())}
    made["reference/deploy.md"] = "".join(_deploy_files())
    made["stylesheets/icon.svg"] = (_CONSOLE / "icon.svg").read_text()
    # The console's first rule names its colours and letters.
    made["stylesheets/colours.css"] = (_CONSOLE / "css" / "base.css").read_text().partition("\n}\n")[0] + "\n}\n"
    for site, text in made.items():
        files.append(File.generated(config, site, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site, and pictures to its files."""
    site = page.file.src_uri
    written = next((path for path, made in _FILES.items() if made == site), f"docs/{site}")

    def lead(path: str, anchor: str = "") -> str | None:
        found = _place(posixpath.normpath(posixpath.join(posixpath.dirname(written), path)), anchor)
        return None if found is None else posixpath.relpath(found, posixpath.dirname(site) or ".")

    def link(match: re.Match[str]) -> str:
        found = lead(match[1], match[2] or "")
        return match[0] if found is None else f"]({found})"

    return _IMAGE.sub(lambda match: match[1] + (lead(match[2]) or match[2]), _LINK.sub(link, markdown))


def _place(path: str, anchor: str) -> str | None:
    """The page of a path in the repository."""
    if path.startswith("examples/"):
        return f"examples.md#{Path(path).stem}"
    if path.startswith("docs/"):
        return path.removeprefix("docs/") + anchor
    return _PLACES[path] + anchor if path in _PLACES else None


def _examples() -> Iterator[str]:
    yield "# Examples\n\nEach file is a complete program and needs no key; the tests run all of them.\n"
    for path in sorted((_TOP / "examples").glob("*.py")):
        text = path.read_text()
        code = text.split('"""\n', 1)[1].strip()
        yield f"\n## {path.stem.replace('_', ' ')} {{ #{path.stem} }}\n\n{ast.get_docstring(ast.parse(text))}\n"
        yield f'\n```python title="examples/{path.name}"\n{code}\n```\n'


def _deploy_files() -> Iterator[str]:
    yield "# Files of deploy\n\n[Deploy](../how-to/deploy.md) explains them.\n"
    for path in sorted((_TOP / "deploy").rglob("*")):
        if path.suffix in _LANGUAGES and path.is_file():
            yield f"\n## {path.relative_to(_TOP)}\n\n```{_LANGUAGES[path.suffix]}\n{path.read_text().strip()}\n```\n"


def _routes() -> Iterator[str]:
    """Every route of the OpenAPI document, by tag."""
    api = document(create_app(Settings(store="memory://")))
    yield "# HTTP routes in detail\n\nMade of the server's OpenAPI document, which `/openapi.json` serves. "
    yield "[HTTP](http.md) explains it.\n"
    by_tag: dict[str, list[tuple[str, str, Any]]] = {}
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    for tag, routes in sorted(by_tag.items()):
        yield f"\n## {tag}\n"
        for method, path, operation in routes:
            yield f"\n### `{method} {path}`\n\n{operation['description']}\n"
            yield from _request(api, operation)
            yield from _answers(api, operation)
    yield "\n## Types\n"
    for name, schema in sorted(api["components"]["schemas"].items(), key=lambda each: each[0]):
        yield f"\n### {name} {{ #{_anchor(name)} }}\n\n{schema.get('description', '')}\n"
        yield from _fields(api, schema, "type")


def _request(api: Any, operation: Any) -> Iterator[str]:
    named = [_resolve(api, each) for each in operation["parameters"]]
    rows = [(each["name"], each["in"], _kind(each["schema"]), each["required"], each["description"]) for each in named]
    # Headers that say for whom a request acts are those of every route.
    rows = [row for row in rows if not row[0].startswith("X-")]
    if rows:
        yield "\n| parameter | in | type | |\n|---|---|---|---|\n"
        for name, place, kind, required, about in rows:
            yield f"| `{name}`{'' if required else ' (optional)'} | {place} | {kind} | {about} |\n"
    for content in operation.get("requestBody", {}).get("content", {}).values():
        if "example" in content:
            yield f"\n```json\n{json.dumps(content['example'], indent=2, ensure_ascii=False)}\n```\n"
        yield from _fields(api, content["schema"], "body")


def _answers(api: Any, operation: Any) -> Iterator[str]:
    for status, answer in operation["responses"].items():
        if "$ref" in answer:
            continue
        yield f"\nAnswers {status}: {' '.join((answer['description'] or '').split())}\n"
        for media, content in answer.get("content", {}).items():
            if media == "application/json":
                yield from _fields(api, content["schema"], "answer")
            else:
                yield f"\nAs `{media}` too.\n"
    problems = [status for status, answer in operation["responses"].items() if "$ref" in answer]
    yield f"\nProblems: {', '.join(problems)}.\n" if problems else ""


def _fields(api: Any, schema: Any, title: str) -> Iterator[str]:
    schema = _resolve(api, schema)
    if schema.get("properties"):
        yield f"\n| field of the {title} | type | |\n|---|---|---|\n"
        for name, part in schema["properties"].items():
            required = name in schema.get("required", ())
            about = part.get("description", "")
            yield f"| `{name}`{'' if required else ' (optional)'} | {_kind(part)} | {about} |\n"


def _resolve(api: Any, part: Any) -> Any:
    while "$ref" in part:
        _, group, name = part["$ref"].removeprefix("#/").split("/")
        part = api["components"][group][name]
    return part


def _anchor(name: str) -> str:
    return f"type-{name.lower()}"


def _kind(schema: Any) -> str:
    """A type in a word or two."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
