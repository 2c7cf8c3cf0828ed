"""`python -m bench.known_history`: what a turn costs the server where an app sends a chat that it sent before.

Two chats take turns, one of 10 and one of 1,000 messages; both grow by what is said. The figure is processor time of a
request, without the client's part, and its target is that the long chat costs at most 2 ms more.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from statistics import median
from time import process_time
from typing import Any, Final

import httpx
import msgspec

from tenuto.app import open_app
from tenuto.llm import ScriptedModel
from tenuto.server import create_app
from tenuto.settings import Settings

_LENGTHS: Final = (10, 1000)
_BLOCKS, _TURNS = 4, 15
_MORE: Final = 2.0


@dataclass
class _Chat:
    http: httpx.AsyncClient
    messages: list[dict[str, Any]]
    headers: dict[str, str]
    taken: list[float] = field(default_factory=list)

    async def ask(self) -> None:
        """A turn, as an app takes it: with all that it shows."""
        self.messages.append({"role": "user", "content": f"Question {len(self.messages)}"})
        body = msgspec.json.encode({"messages": self.messages})
        began = process_time()
        response = await self.http.post("/v1/chat/completions", headers=self.headers, content=body)
        self.taken.append((process_time() - began) * 1000)
        response.raise_for_status()
        self.messages.append({"role": "assistant", "content": response.json()["choices"][0]["message"]["content"]})


async def measure() -> dict[int, float]:
    """Milliseconds of a turn by the length of its chat: the best block's median, since others use the machine."""
    settings = Settings(store="memory://", apps="open-webui", model="scripted", summarizer_model="offline")
    models = {"scripted": ScriptedModel("A short answer.")}
    async with open_app(settings, models=models, run_upkeep=False) as tenuto:
        app = create_app(settings, opened=tenuto)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8765")
        async with app.router.lifespan_context(app), client as http:
            chats = {length: _chat(http, length) for length in _LENGTHS}
            for chat in chats.values():
                await chat.ask()
                await chat.ask()
            best = dict.fromkeys(_LENGTHS, float("inf"))
            for _ in range(_BLOCKS):
                for length, chat in chats.items():
                    chat.taken.clear()
                    for _ in range(_TURNS):
                        await chat.ask()
                    best[length] = min(best[length], median(chat.taken))
    return best


def _chat(http: httpx.AsyncClient, length: int) -> _Chat:
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": f"Message {place} of a long chat"} for place in range(length)]
    headers = {"X-OpenWebUI-Chat-Id": str(length), "Content-Type": "application/json"}
    return _Chat(http, messages, headers)


def main() -> None:
    """Measure and print."""
    short, long = (best := asyncio.run(measure()))[_LENGTHS[0]], best[_LENGTHS[1]]
    print(f"{_LENGTHS[0]} messages {short:.2f} ms, {_LENGTHS[1]} messages {long:.2f} ms: {long - short:+.2f} ms")
    print("met" if long - short <= _MORE else "missed", f"(at most {_MORE:+.1f} ms)")


if __name__ == "__main__":
    main()
