"""Events of tasks are sent to a webhook: signed, in order, at least once, whatever dies in between."""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.errors import InvalidSetting
from tenuto.model.task import NewTask
from tenuto.settings import Settings
from tenuto.tasks.agents import AgentContext
from tests.engines import plan_of, wait_for_end, wait_for_step
from tests.timeouts import LONG

SECRET = "whsec_" + b64encode(b"0123456789abcdef01234567").decode()
PLAN = plan_of({"id": "ask", "human_input": "Which one?"}, {"id": "write", "agent": "writer", "after": ["ask"]})


class Receiver:
    """A real address: it keeps what it accepted, after refusing as often as it was told to."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.refuse = [503, 429]
        self.url = ""
        self.finished = threading.Event()

    def receive(self, headers: dict[str, str], body: bytes) -> int:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = hmac.digest(b64decode(SECRET.removeprefix("whsec_")), signed, sha256)
        if headers["webhook-signature"] != f"v1,{b64encode(expected).decode()}":
            return 400
        if self.refuse:
            return self.refuse.pop()
        self.events.append(json.loads(body))
        self.ids.append(headers["webhook-id"])
        if self.types[-1] == "task.finished":
            self.finished.set()
        return 204

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


@contextmanager
def receiver() -> Iterator[Receiver]:
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(kept.receive({name.lower(): value for name, value in self.headers.items()}, body))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}/hook"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()


async def write(ctx: AgentContext) -> str:
    return f"about {await ctx.board.read('ask')}"


async def test_every_event_arrives_signed_and_in_order_also_after_a_restart(tmp_path: Path) -> None:
    with receiver() as kept:
        settings: dict[str, Any] = {"task_webhook": kept.url, "task_webhook_secret": SECRET}
        async with tenuto.open(f"sqlite:///{tmp_path / 'a.db'}", **settings) as app:
            app.agents.register("writer", write)
            ann, engine = app.scope(user="ann"), await app.engine()
            task = await engine.submit(ann, NewTask(type="t", goal="a secret goal"), PLAN)
            await wait_for_step(app.tasks, ann, task.id, "ask", "waiting")
        async with tenuto.open(f"sqlite:///{tmp_path / 'a.db'}", **settings) as app:
            app.agents.register("writer", write)
            engine = await app.engine()
            await engine.answer(ann, task.id, "ask", "the second")
            await wait_for_end(app.tasks, ann, task.id)
            told = [event.type for event in await app.tasks.events(ann, task.id)]
            assert await asyncio.to_thread(kept.finished.wait, LONG)

    # What was sent when the process closed may have come twice, each time under the same id.
    first = {name: event for event, name in reversed(list(zip(kept.types, kept.ids, strict=True)))}
    assert list(reversed(first.values())) == told
    assert kept.types[-1] == "task.finished"
    assert kept.events[0]["data"]["task_id"] == task.id
    assert kept.events[0]["data"]["user_id"] == "ann"
    assert "secret goal" not in json.dumps(kept.events)
    assert "second" not in json.dumps(kept.events)


async def test_what_is_refused_for_good_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    with receiver() as kept:
        kept.refuse = [410]
        async with tenuto.open(
            f"sqlite:///{tmp_path / 'a.db'}", task_webhook=kept.url, task_webhook_secret=SECRET
        ) as app:
            app.agents.register("writer", write)
            ann, engine = app.scope(user="ann"), await app.engine()
            await engine.submit(ann, NewTask(type="t"), plan_of({"id": "write", "agent": "writer"}))
            assert await asyncio.to_thread(kept.finished.wait, LONG)
    assert "task.opened" not in kept.types


@pytest.mark.parametrize(
    ("url", "secret", "named"),
    [
        ("ftp://host/x", SECRET, "task_webhook:"),
        ("http://127.0.0.1:99999/", SECRET, "task_webhook:"),
        ("http://exa mple/", SECRET, "task_webhook:"),
        ("https://host/x", "short", "task_webhook_secret:"),
        ("file:///etc/hosts", SECRET, "task_webhook:"),
        ("https://host/x", None, "task_webhook: needs task_webhook_secret"),
        ("https://host/x", "", "task_webhook: needs task_webhook_secret"),
        ("https://host/x", "whsec_not base64 at all", "task_webhook_secret:"),
    ],
)
def test_a_wrong_setting_stops_the_start_by_name(url: str, secret: str | None, named: str) -> None:
    with pytest.raises(InvalidSetting, match=named):
        Settings(task_webhook=url, task_webhook_secret=secret)
