"""A server process whose journal is replayed, and who asks it."""

from __future__ import annotations

import time

import jwt

from tests.journeys.http_service import bearer
from tests.journeys.server_process import WAIT, ServerProcess

SECRET = "a secret of at least thirty-two bytes"
WHO = bearer(jwt.encode({"tenant_id": "acme", "sub": "ann", "exp": 2**32}, SECRET, "HS256"))


def until_replayed(process: ServerProcess) -> None:
    """Until the store answers and nothing waits for it."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        ready = process.http.get("/readyz")
        if (
            ready.json()["status"] == "ready"
            and "tenuto_journal_waiting 0.0" in process.http.get("/metrics", headers=bearer(SECRET)).text
        ):
            return
        time.sleep(0.05)
    raise AssertionError("the journal was not replayed: " + "".join(process.log[-20:]))
