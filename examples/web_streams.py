"""What a page says to tenuto through the AI SDK (`useChat`) and AG-UI (`HttpAgent`), played in Python. Needs no key."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import httpx


@contextmanager
def tenuto_server(folder: str) -> Iterator[str]:
    """`tenuto serve` on a free port, as you would run it in a terminal; yields its address."""
    command = [sys.executable, "-m", "tenuto", "serve", "--store", f"sqlite:///{folder}/chat.db", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(told[1] for line in server.stderr if (told := re.search(r"listening on (http://[\w.:]+)", line)))
        finally:
            server.terminate()
            server.communicate()


def chunks(page: httpx.Client, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the stream brings, one chunk after the other."""
    with page.stream("POST", path, json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


def main(folder: str) -> None:
    with tenuto_server(folder) as address, httpx.Client(base_url=address) as page:
        # The AI SDK: the id of the chat is the session's, and a message keeps the id that the page gave it.
        said = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "My cat is called Tom."}]}
        for chunk in chunks(page, "/v1/ai-sdk/chat", {"id": "cats", "messages": [said]}):
            if chunk["type"] == "text-delta":
                print(chunk["delta"], end="")
        print()

        # A page that is loaded again has the messages, and joins the turn that runs: here none does.
        history = page.get("/v1/ai-sdk/chat/cats").json()["messages"]
        print(len(history), "messages;", page.get("/v1/ai-sdk/chat/cats/stream").status_code)

        # AG-UI goes on in the same session.
        question = {"id": "m2", "role": "user", "content": "What is my cat called?"}
        run = {"threadId": "cats", "runId": "r1", "messages": [question], "state": {"theme": "dark"}}
        for event in chunks(page, "/v1/ag-ui/general", run):
            print(event["type"], event.get("delta") or event.get("snapshot") or "")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(folder)
