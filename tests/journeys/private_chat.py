"""A user who says something private over HTTP, and those who ask what became of it."""

from __future__ import annotations

import base64
from typing import Any

import httpx

from tenuto.model.privacy import Mode
from tests.journeys.http_service import HttpService, at
from tests.samples import CARD

MAIL = "ann.lee@example.com"
SAID = f"My mail is {MAIL}, my card is {CARD}."
KEY = base64.b64encode(b"k" * 32).decode()
PSEUDONYMS: dict[str, Any] = {"privacy_message": Mode.PSEUDONYM, "privacy_key": KEY}


async def ask(service: HttpService, who: dict[str, str], text: str = SAID, **body: object) -> dict[str, Any]:
    response = await service.http.post("/v1/chat", headers=who, json={"message": text, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def messages_of(service: HttpService, who: dict[str, str], session: str) -> list[dict[str, Any]]:
    page = (await service.http.get(at(session, "messages"), headers=who)).json()
    messages: list[dict[str, Any]] = page["messages"]
    return messages


async def reveal(service: HttpService, who: dict[str, str], session: str, *marks: str) -> httpx.Response:
    return await service.http.post(at(session, "reveal"), headers=who, json={"placeholders": list(marks)})
