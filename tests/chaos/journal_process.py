"""One of the processes that share a journal's folder: takes turns as orders from standard input say, many at a time."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import sys
import time
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from tenuto.errors import TenutoError
from tenuto.model import Page
from tenuto.model.turn import IdempotencyKey, TurnState
from tenuto.stores.engine import Engine
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.engine.journal_files import DiskFolder
from tenuto.stores.redis import RedisRecords
from tests import samples
from tests.samples import ANN, begin, closing, texts


async def carry_out(engine: Engine, order: dict[str, Any]) -> dict[str, Any]:
    """Take a turn, or tell what is stored or how the journal is."""
    assert engine.sessions.journal is not None
    match order["do"]:
        case "turn":
            key = IdempotencyKey(key=order["key"], fingerprint="f")
            question, answer = order["key"], order["key"] + "!"
            turn = await begin(
                engine, ANN, order["session"], question, idempotency_key=key, journaled=True, lease=timedelta(seconds=1)
            )
            journaled = turn.journaled
            if turn.state is not TurnState.FINISHED:
                journaled |= (await engine.sessions.finish_turn(turn, closing(answer))).journaled
            return {"journaled": journaled}
        case "read":
            await engine.sessions.messages(ANN, order["session"], Page())
            return {"texts": await texts(engine, ANN, order["session"])}
        case "status":
            status = engine.sessions.journal.status
            return {"away": status.away, "waiting": status.waiting, "quarantined": status.quarantined}
    raise AssertionError(order)


async def answer(engine: Engine, line: str) -> None:
    order = json.loads(line)
    try:
        told = await carry_out(engine, order)
    except TenutoError as error:
        told = {"error": error.code}
    sys.stdout.write(json.dumps({"n": order["n"], **told}) + "\n")
    sys.stdout.flush()


async def main(url: str, prefix: str, folder: Path) -> None:
    """Serve until the input ends."""
    loop = asyncio.get_running_loop()
    # The ids of messages and turns must differ from those of the other processes.
    samples._numbers = itertools.count(secrets.randbits(40))
    records = await RedisRecords.open(url, prefix=prefix, prepare=False)
    disk = await DiskFolder.open(folder)
    guarded = BreakerRecords(records, now=time.monotonic)
    engine = Engine(guarded, chance=Random(os.urandom(8)), folder=disk)
    assert engine.sessions.journal is not None
    async with engine, asyncio.TaskGroup() as group:
        running = group.create_task(engine.sessions.journal.run())
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            group.create_task(answer(engine, line))
        running.cancel()
    await disk.close()
    await guarded.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
