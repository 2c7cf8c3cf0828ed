"""One program on two installations: a store in this process, and a server that this script starts.

Run it with `python examples/connect.py`; it needs `tenuto[client]` and no key of a model.
"""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import tenuto
from tenuto.client import TenutoApi


async def plan_a_trip(t: TenutoApi) -> None:
    """A turn with a model of our own, then a question to the server's assistant."""
    ann = t.scope(user="ann")
    turn = await t.begin(ann, "My train to Lisbon leaves at 7:40.", idempotency_key="question-1")
    await t.finish(turn, "Noted.", tokens=12)
    reply = await t.ask(ann, "When does my train leave?", session_id=turn.session.id)
    print(f"  {reply.text}")
    for message in (await t.sessions.messages(ann, turn.session.id)).messages:
        print(f"  {message.seq} {message.role}: {message.text}")
    try:
        await t.sessions.get(t.scope(user="bob"), turn.session.id)
    except tenuto.NotFound as error:
        print(f"  for bob: {error}")


@asynccontextmanager
async def server(folder: str) -> AsyncIterator[str]:
    """The address of a server on a free port, as long as the block runs."""
    command = ["-m", "tenuto", "serve", "--port", "0", "--store", f"sqlite:///{Path(folder, 'server.db')}"]
    quiet = {**os.environ, "TENUTO_EMBEDDER": "none"}
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE, env=quiet)
    assert process.stderr is not None
    try:
        async for line in process.stderr:
            if found := re.search(rb"listening on (http://[\w.:]+)", line):
                yield found[1].decode()
                break
    finally:
        process.terminate()
        await process.communicate()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print("in this process")
        async with tenuto.open(f"sqlite:///{Path(folder, 'own.db')}") as t:
            await plan_a_trip(t)
        print("on a server")
        async with server(folder) as url, tenuto.connect(url) as client:
            await plan_a_trip(client)


asyncio.run(main())
