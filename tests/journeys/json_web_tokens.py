"""Callers of a server that accepts JSON web tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from tests.journeys.http_service import bearer

JWT_SECRET = "a secret that is long enough for HS256, at least"


def jwt_header(user: str, **claims: Any) -> dict[str, str]:
    claims = {"tenant_id": "acme", "sub": user, "exp": datetime.now(UTC) + timedelta(minutes=5), **claims}
    return bearer(jwt.encode(claims, JWT_SECRET, "HS256"))
