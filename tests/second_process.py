"""The other process of two-process tests: opens a store behind an L1 and carries out orders from standard input."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from tenuto.app import open_app
from tenuto.errors import TenutoError
from tenuto.model import Changes, Draft, Page, Role, Scope, Usage
from tenuto.sessions import AppendRequest, Sessions
from tenuto.settings import Settings
from tests.samples import says
from tests.timeouts import lengthen_store_timeouts


async def _append(sessions: Sessions, scope: Scope, order: dict[str, Any]) -> dict[str, Any]:
    async def work(worker: int) -> None:
        for turn in range(order["turns"]):
            name = f"{order['mark']}{worker}.{turn}"
            drafts: tuple[Draft, ...] = (says(name + "?"), says(name + "!", Role.ASSISTANT))
            request = AppendRequest(messages=drafts, usage=Usage(tokens=3, cost_nanos=5))
            await sessions.append(scope, order["id"], request)

    async with asyncio.TaskGroup() as group:
        for worker in range(order["workers"]):
            group.create_task(work(worker))
        if order.get("rename"):
            group.create_task(sessions.patch(scope, order["id"], Changes(title=order["rename"])))
    return {}


async def _read(sessions: Sessions, scope: Scope, order: dict[str, Any]) -> dict[str, Any]:
    head = await sessions.get(scope, order["id"])
    page = await sessions.messages(scope, order["id"], Page(limit=1000))
    return {
        "texts": [message.text for message in page.messages],
        "title": head.title,
        "tokens": page.session.tokens,
        "cost_nanos": page.session.cost_nanos,
    }


async def _carry_out(sessions: Sessions, order: dict[str, Any]) -> dict[str, Any]:
    scope = Scope(tenant=order.get("tenant", "acme"), user=order.get("user", "ann"))
    match order["do"]:
        case "create":
            session, _ = await sessions.create(scope, None, order["id"])
            return {"id": session.id}
        case "append":
            return await _append(sessions, scope, order)
        case "delete":
            await sessions.delete(scope, order["id"])
            return {}
        case "read":
            return await _read(sessions, scope, order)
    raise AssertionError(order)


async def _answered(sessions: Sessions, order: dict[str, Any]) -> dict[str, Any]:
    try:
        return await _carry_out(sessions, order)
    except TenutoError as error:
        return {"error": error.code}
    except ExceptionGroup as error:
        first = error.exceptions[0]
        return {"error": getattr(first, "code", repr(first))}


async def main(url: str) -> None:
    """Answer one order after the other, until the input ends."""
    loop = asyncio.get_running_loop()
    async with open_app(Settings(store=url), run_upkeep=False) as app:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            sys.stdout.write(json.dumps(await _answered(app.sessions, json.loads(line))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    lengthen_store_timeouts()
    asyncio.run(main(sys.argv[1]))
