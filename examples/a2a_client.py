"""An A2A client talks to an assistant: a context that remembers, a streamed answer, a task that is found again.

It starts a server of its own; no key is needed.
Run: pip install '.[a2a]' && python examples/a2a_client.py
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import get_artifact_text, new_text_message
from a2a.types import a2a_pb2 as proto


@contextmanager
def server(folder: str) -> Iterator[str]:
    """A server; it tells its address in its log."""
    command = [sys.executable, "-m", "tenuto", "serve", "--port", "0", "--store", f"sqlite:///{folder}/chat.db"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield next(found[0] for line in process.stderr if (found := re.search(r"http://\S+:\d+", line)))
        finally:
            process.kill()


def message(text: str, context_id: str = "") -> proto.SendMessageRequest:
    said = new_text_message(text, role=proto.ROLE_USER, context_id=context_id)
    return proto.SendMessageRequest(message=said)


async def main(url: str) -> None:
    async with httpx.AsyncClient(headers={"X-User-ID": "ann"}, timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        agent = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        print("agent:", card.name)

        async for event in agent.send_message(message("I live in Bologna with my two cats.")):
            if event.HasField("task"):
                context = event.task.context_id

        task_id = ""
        print("answer: ", end="")
        async for event in agent.send_message(message("Where do I live?", context)):
            if event.HasField("task"):
                task_id = event.task.id
            elif event.HasField("artifact_update"):
                print(get_artifact_text(event.artifact_update.artifact), end="", flush=True)

        found = await agent.get_task(proto.GetTaskRequest(id=task_id))
        print("\nstate:", proto.TaskState.Name(found.status.state))


with TemporaryDirectory() as folder, server(folder) as address:
    asyncio.run(main(address))
