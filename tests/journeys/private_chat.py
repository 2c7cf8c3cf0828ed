"""A user who says something private over HTTP, and those who ask what became of it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import jwt

from tenuto.model.privacy import Mode
from tests.journeys.door import Door, at, bearer
from tests.samples import CARD

MAIL = "ann.lee@example.com"
SAID = f"My mail is {MAIL}, my card is {CARD}."
KEY = base64.b64encode(b"k" * 32).decode()
SECRET = "a secret that is long enough for HS256, at least"
PSEUDONYMS: dict[str, Any] = {"privacy_message": Mode.PSEUDONYM, "privacy_key": KEY}


async def ask(door: Door, who: dict[str, str], text: str = SAID, **body: object) -> dict[str, Any]:
    response = await door.http.post("/v1/chat", headers=who, json={"message": text, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def messages_of(door: Door, who: dict[str, str], session: str) -> list[dict[str, Any]]:
    page = (await door.http.get(at(session, "messages"), headers=who)).json()
    messages: list[dict[str, Any]] = page["messages"]
    return messages


async def reveal(door: Door, who: dict[str, str], session: str, *marks: str) -> httpx.Response:
    return await door.http.post(at(session, "reveal"), headers=who, json={"placeholders": list(marks)})


def token(user: str, **claims: Any) -> dict[str, str]:
    claims = {"tenant_id": "acme", "sub": user, "exp": datetime.now(UTC) + timedelta(minutes=5), **claims}
    return bearer(jwt.encode(claims, SECRET, "HS256"))
