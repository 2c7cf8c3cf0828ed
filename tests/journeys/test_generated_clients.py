"""What other people's generators make of the OpenAPI document talks to a server, unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec

from tenuto.llm import ScriptedModel
from tenuto.server.openapi import document
from tests.journeys.http_service import http_service, playing
from tests.npm_clients import install_clients, run_node
from tests.servers.loopback import serving

STRICT = ("--strict", "--noEmit", "--skipLibCheck", "--allowImportingTsExtensions", "--exactOptionalPropertyTypes")
MODULES = ("--module", "esnext", "--moduleResolution", "bundler", "--target", "es2023", "--lib", "es2023,dom")


async def test_a_client_of_openapi_typescript_compiles_and_talks(tmp_path: Path) -> None:
    packages = (await install_clients()) / "node_modules"
    (tmp_path / "node_modules").symlink_to(packages)
    shutil.copy(Path(__file__).parents[1] / "data" / "npm_clients" / "generated_client.ts", tmp_path)
    async with http_service(**playing(ScriptedModel("A boat.", "A red one."))) as service, serving(service.app) as base:
        (tmp_path / "api.json").write_bytes(msgspec.json.encode(document(service.app)))
        await run_node(packages / "openapi-typescript" / "bin" / "cli.js", "api.json", "-o", "api.ts", cwd=tmp_path)
        (tmp_path / "node.d.ts").write_text("declare const process: { argv: string[] };\n")
        compiler = packages / "typescript" / "bin" / "tsc"
        await run_node(compiler, *STRICT, *MODULES, "node.d.ts", "generated_client.ts", cwd=tmp_path)
        said = await run_node("generated_client.ts", base, "ann", cwd=tmp_path)

    assert json.loads(said) == {
        "texts": ["What is there?", "A boat.", "Mine."],
        "vip": True,
        "code": "session_not_found",
        "done": True,
    }
