"""Writes the routes in `reference/http.md` out of the server's OpenAPI document, between two marks.

Run it after a change of a route: `python docs/generate_routes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tenuto.server import create_app
from tenuto.server.openapi import document
from tenuto.settings import Settings

PAGE: Final = Path(__file__).parent / "reference" / "http.md"
_FROM: Final = "<!-- Written by docs/generate_routes.py up to the next mark; do not edit. -->\n"
_TO: Final = "<!-- Written by people again. -->\n"
# The page that explains the routes of a tag.
_PAGES: Final = {
    "chat": "../how-to/chat.md",
    "turns": "#a-turn-over-http",
    "messages": "#messages",
    "sessions": "../ideas/sessions.md",
    "memories": "../how-to/memories.md#http",
    "tasks": "../how-to/tasks.md#http",
    "analytics": "../how-to/analytics.md",
    "export and import": "#export-and-import",
    "privacy": "../how-to/privacy-policies.md#over-http",
    "keys": "../how-to/access.md#over-http",
    "people": "../how-to/people.md",
    "npc": "../how-to/npc.md",
    "goods": "../how-to/goods.md",
    "web streams": "../how-to/web-streams.md",
    "openai": "../how-to/openai.md",
    "anthropic": "../how-to/anthropic.md",
    "mcp": "../how-to/mcp.md",
    "a2a": "../how-to/a2a.md",
    "health": "../how-to/health.md",
}


def render_page(page: str) -> str:
    """The page with the routes of the server."""
    before, _, rest = page.partition(_FROM)
    return f"{before}{_FROM}{''.join(_tables())}\n{_TO}{rest.partition(_TO)[2]}"


def _tables() -> Iterator[str]:
    api = document(create_app(Settings(store="memory://")))
    for tag in api["tags"]:
        name = tag["name"]
        yield f"\n[{name[0].upper()}{name[1:]}]({_PAGES[name]}): {tag['description']}\n"
        yield "\n| route | purpose |\n|---|---|\n"
        for path, operations in api["paths"].items():
            for method, operation in operations.items():
                if operation["tags"] == [name]:
                    yield f"| `{method.upper()} {path}` | {operation['summary']} |\n"


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text()))
