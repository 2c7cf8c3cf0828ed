"""A platform of one's own, through the server: POST /webhook/{name}/messages, and the reply to its address."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenuto.llm import Echo, ScriptedModel
from tenuto.model.signature import read_signing_key, signed_headers
from tenuto.ports import utc_now
from tests.journeys.http_service import http_service, playing
from tests.servers.loopback import serving
from tests.timeouts import LONG

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.requirement("D1", "D3", "T14")
async def test_a_signed_message_is_answered_at_the_reply_address_and_others_are_refused(tmp_path: Path) -> None:
    """The route exists where the file names the app."""
    replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def take(request: Request) -> Response:
        await replies.put(await request.json())
        return Response(status_code=204)

    body = json.dumps({"id": "m-1", "chat": "c-1", "sender": "u-1", "text": "hello"}).encode()
    async with serving(Starlette(routes=[Route("/replies", take, methods=["POST"])])) as platform:
        file = tmp_path / "channels.toml"
        lines = ['[[webhook]]\nname = "shop"\ntenant = "acme"\nassistant = "helper"', f'secret = "{SECRET}"']
        file.write_text("\n".join([*lines, f'reply_url = "{platform}/replies"\n']))
        async with http_service(**playing(ScriptedModel(Echo())), channels=str(file)) as service:
            signed = signed_headers(read_signing_key(SECRET, "secret"), "evt-1", utc_now(), body)
            statuses = [
                (await service.http.post(f"/webhook/{name}/messages", content=body, headers=headers)).status_code
                for name, headers in (
                    ("shop", signed),
                    ("shop", signed),
                    ("shop", {**signed, "webhook-id": "evt-2"}),
                    ("shop", {}),
                    ("other", signed),
                )
            ]
            assert statuses == [200, 200, 401, 401, 401]
            reply = await asyncio.wait_for(replies.get(), LONG)
            assert (reply["in_reply_to"], reply["text"]) == ("m-1", "hello")
            assert (await service.http.post("/lark/events", content=body)).status_code == 404
    assert replies.empty()
