"""Every JavaScript and TypeScript snippet of the docs runs as it stands, against a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.journeys.http_service import http_service
from tests.npm_clients import install_clients, run_node
from tests.servers.loopback import serving

TOP = Path(__file__).parents[2]
BLOCK = re.compile(r"^```([jt]s)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SNIPPETS = [
    pytest.param(language, text, id=f"{page.name}:{number}")
    for page in [*TOP.glob("*.md"), *sorted((TOP / "docs").rglob("*.md"))]
    for number, (language, text) in enumerate(re.findall(BLOCK, page.read_text()))
]
# What the packages are called here; without React, `useChat` is the same chat with a state of its own.
MODULES = {
    "@tenuto/client": str(TOP / "clients" / "typescript" / "src" / "index.ts"),
    "@ai-sdk/react": "./page_chat.mjs",
}


@pytest.mark.parametrize(("language", "snippet"), SNIPPETS)
async def test_a_snippet_runs_and_leaves_a_turn(language: str, snippet: str, request: pytest.FixtureRequest) -> None:
    place = await install_clients()
    program = place / f"{request.node.callspec.id.replace(':', '-')}.m{language}"
    async with http_service(locked=True) as service, serving(service.app) as base:
        ann = await service.key(user="ann")
        here = {"https://tenuto.example": base, "tnt_…": ann["Authorization"].removeprefix("Bearer "), **MODULES}
        program.write_text(re.sub("|".join(map(re.escape, here)), lambda match: here[match[0]], snippet))
        await run_node(program.name, cwd=place)
        sessions = (await service.http.get("/v1/sessions", headers=ann)).json()["sessions"]

    assert [session["turns"] > 0 for session in sessions] == [True]
