"""Callers of a server that accepts JSON web tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from tests.journeys.door import bearer

SECRET = "a secret that is long enough for HS256, at least"


def token(user: str, **claims: Any) -> dict[str, str]:
    claims = {"tenant_id": "acme", "sub": user, "exp": datetime.now(UTC) + timedelta(minutes=5), **claims}
    return bearer(jwt.encode(claims, SECRET, "HS256"))
