"""The OpenAI SDK on tenuto: a changed base URL, and conversations are durable. Needs `openai`, and no key."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from openai import OpenAI


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
    with tenuto_server(folder) as address, OpenAI(base_url=f"{address}/v1", api_key="none is needed yet") as client:
        conversation = client.conversations.create(metadata={"topic": "pets"})
        told = client.responses.create(model="general", input="My cat is called Tom.", conversation=conversation.id)
        answer = client.responses.create(model="general", input="What is my cat called?", conversation=conversation.id)
        print(answer.output_text)

        # What follows a response instead of the conversation is a branch: the conversation stays as it is.
        branch = client.responses.create(model="general", input="My cat is black.", previous_response_id=told.id)
        branch = client.responses.create(model="general", input="What is my cat?", previous_response_id=branch.id)
        print(branch.output_text)

        question = "And what is my cat called?"
        with client.responses.stream(model="general", input=question, conversation=conversation.id) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    print(event.delta, end="", flush=True)
            print()

        for item in client.conversations.items.list(conversation.id, order="asc"):
            if item.type == "message":
                print(f"{item.role}: {''.join(getattr(part, 'text', '') for part in item.content)}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(folder)
