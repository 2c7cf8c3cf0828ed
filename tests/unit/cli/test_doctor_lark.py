"""`tenuto doctor lark` says in a sentence what an app lacks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from typer.testing import CliRunner

from tenuto.cli import program
from tests.lark_platform import start_lark_platform
from tests.servers.loopback import serving

pytestmark = pytest.mark.usefixtures("own_environment")
APP = {"TENUTO_LARK_APP_ID": "cli_1", "TENUTO_LARK_APP_SECRET": "a-secret", "TENUTO_LARK_ENCRYPT_KEY": "a-key"}


async def examined(**env: str) -> tuple[int, dict[str, tuple[str, str]], str]:
    """The exit code, status and sentence of each finding, and all that was printed."""

    def run() -> Any:
        return CliRunner().invoke(program, ["doctor", "lark", "--json"], env={**APP, **env}, catch_exceptions=False)

    result = await asyncio.to_thread(run)
    found = json.loads(result.stdout)["checks"]
    return result.exit_code, {one["name"]: (one["status"], one["message"]) for one in found}, result.stdout


@pytest.mark.requirement("D22")
async def test_an_app_that_works_is_well_and_a_wrong_one_is_explained() -> None:
    """Callbacks, credentials, the bot and the address; no secret is printed."""
    async with start_lark_platform() as platform:
        app = {
            "TENUTO_LARK_APP_ID": platform.app.app_id,
            "TENUTO_LARK_APP_SECRET": platform.app.app_secret,
            "TENUTO_LARK_DOMAIN": platform.url,
        }
        code, found, printed = await examined(**app)
        assert (code, [status for status, _ in found.values()]) == (0, ["ok"] * 3)
        assert "ou_bot" in found[f"{platform.app.app_id} bot"][1]
        assert platform.app.app_secret not in printed

        code, found, _ = await examined(**app, TENUTO_LARK_ENCRYPT_KEY="", TENUTO_LARK_VERIFICATION_TOKEN="v")
        assert (code, found[f"{platform.app.app_id} events"][0]) == (0, "warning")
        code, found, printed = await examined(**app | {"TENUTO_LARK_APP_SECRET": "guessed-secret"})
        assert (code, "10014" in found[f"{platform.app.app_id} credentials"][1]) == (1, True)
        assert "guessed" not in printed


@pytest.mark.requirement("D22")
async def test_what_is_missing_is_named() -> None:
    """An address that does not answer, an app without a bot, half a configuration and none at all."""
    code, found, _ = await examined(TENUTO_LARK_DOMAIN="http://127.0.0.1:1")
    assert (code, "does not answer" in found["cli_1 credentials"][1]) == (1, True)
    code, found, _ = await examined(TENUTO_LARK_APP_SECRET="")
    assert (code, "lark_app_secret: is missing" in found["settings"][1]) == (1, True)
    code, found, _ = await examined(**dict.fromkeys(APP, ""))
    assert (code, found["lark"]) == (1, ("error", "no app is configured"))

    answers = [
        {"code": 11205, "msg": "app do not have bot"},
        {"code": 0, "bot": {"open_id": "ou", "activate_status": 1}},
    ]

    async def answer(request: Request) -> JSONResponse:
        if "token" in request.url.path:
            return JSONResponse({"code": 0, "tenant_access_token": "t", "expire": 7200})
        return JSONResponse(answers.pop(0))

    async with serving(Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])) as url:
        for why in ("the app has no bot (code 11205)", "the bot is not enabled for this company (status 1)"):
            code, found, _ = await examined(TENUTO_LARK_DOMAIN=url)
            assert (code, found["cli_1 bot"]) == (1, ("error", why))
