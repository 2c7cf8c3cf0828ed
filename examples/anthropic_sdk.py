"""The Anthropic SDK on tenuto: a changed base URL, and a header makes talk durable. Needs `anthropic`, and no key."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from anthropic import Anthropic
from anthropic.types import MessageParam


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


def main(folder: str) -> None:
    named = {"Tenuto-Session": "pets"}
    with tenuto_server(folder) as address, Anthropic(base_url=address, api_key="none is needed yet") as client:
        talk: list[MessageParam] = [{"role": "user", "content": "My cat is called Tom."}]
        answer = client.messages.create(model="general", max_tokens=500, messages=talk, extra_headers=named)
        talk += [answer.to_param(), {"role": "user", "content": "What is my cat called?"}]
        with client.messages.stream(model="general", max_tokens=500, messages=talk, extra_headers=named) as stream:
            for text in stream.text_stream:
                print(text, end="", flush=True)
            print()

        # The talk is a session, which any other interface shows.
        stored = client.get("/v1/sessions/pets/messages", cast_to=dict[str, list[dict[str, str]]])
        for message in stored["messages"]:
            print(f"{message['role']}: {message['text']}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(folder)
