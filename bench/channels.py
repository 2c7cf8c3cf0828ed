"""A bot under load, killed in the middle: 1,000 events over 50 chats, each delivered three times.

python -m bench.channels [--store URL] [--events N] [--chats N]

The platform is the imitated one of the tests, the server a process of its own. First 50 turns hang while more events
come in, which shows how fast they are acknowledged. Then all events come, the server is killed when a third is
answered, and another one goes on. Printed are acknowledgements, and how many events were answered once, more often, or
out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import httpx

from tests.lark_platform import Event, LarkPlatform, start_lark_platform

_ROOT: Final = Path(__file__).parents[1]
_ADDRESS: Final = re.compile(r"listening on (http://\S+:\d+)")
_SLOW_TURNS: Final = 50
_DELIVERIES: Final = 3
# Deliveries that are under way at once, as from a platform with some senders.
_SENDERS: Final = 16
_LONG: Final = 600.0
_ASSISTANT: Final = """
import asyncio

from tenuto.assistants import Assistant
from tenuto.model.generation import ToolOutput


async def respond(turn):
    await asyncio.sleep(10 if turn.question.startswith("slow") else 0)
    yield ToolOutput(output="", final_answer=f"You said: {turn.question}")


def assistant():
    return Assistant(name="clerk", respond=respond)
"""


@contextmanager
def _server(store: str, folder: Path, platform: LarkPlatform) -> Iterator[tuple[subprocess.Popen[str], str]]:
    app = platform.app
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")},
        "TENUTO_STORE": store,
        "TENUTO_PORT": "0",
        "TENUTO_JOURNAL": str(folder / "journal"),
        "TENUTO_ASSISTANTS": str(folder / "assistants"),
        "TENUTO_LARK_APP_ID": app.app_id,
        "TENUTO_LARK_APP_SECRET": app.app_secret,
        "TENUTO_LARK_ENCRYPT_KEY": app.encrypt_key or "",
        "TENUTO_LARK_VERIFICATION_TOKEN": app.verification_token,
        "TENUTO_LARK_DOMAIN": platform.url,
        "TENUTO_LARK_ASSISTANT": "clerk",
    }
    log = folder / "server.log"
    with log.open("a") as lines:
        command = [sys.executable, "-m", "tenuto", "serve"]
        with subprocess.Popen(command, cwd=_ROOT, env=environ, stderr=lines, text=True) as process:
            try:
                yield process, str(log)
            finally:
                process.kill()


async def _address(process: subprocess.Popen[str], log: str) -> str:
    while process.poll() is None:
        found = _ADDRESS.findall(await asyncio.to_thread(Path(log).read_text))
        if found:
            return f"{found[-1]}/lark/events"
        await asyncio.sleep(0.1)
    raise RuntimeError(f"the server ended: see {log}")


class _Flood:
    """Delivers events, each several times, to the server that runs at the moment."""

    def __init__(self, platform: LarkPlatform) -> None:
        self.platform = platform
        self.address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.acknowledged: list[float] = []

    async def deliver(self, event: Event) -> None:
        """Until it is acknowledged as often as that."""
        left = _DELIVERIES
        while left:
            try:
                delivered = await self.platform.deliver(event, await self.address)
            except httpx.TransportError:
                await asyncio.sleep(0.2)
                continue
            if delivered.status == httpx.codes.OK:
                self.acknowledged.append(delivered.seconds)
                left -= 1

    async def pour(self, chats: Sequence[Sequence[Event]]) -> None:
        """All events, those of a chat in order."""
        senders = asyncio.Semaphore(_SENDERS)

        async def one(events: Sequence[Event]) -> None:
            for event in events:
                async with senders:
                    await self.deliver(event)

        await asyncio.gather(*map(one, chats))


def _print_seconds(what: str, took: Sequence[float]) -> None:
    print(f"{what}: {len(took)}, p50 {median(took) * 1e3:.0f} ms, p99 {quantiles(took, n=100)[98] * 1e3:.0f} ms")


async def _measure_slow(flood: _Flood, platform: LarkPlatform) -> None:
    """Acknowledgements while turns hang in as many chats."""
    slow = [platform.say(platform.p2p(f"ou_slow{n}"), f"ou_slow{n}", "slow question") for n in range(_SLOW_TURNS)]
    for event in slow:
        await platform.deliver(event, await flood.address)
    flood.acknowledged.clear()
    quick = platform.p2p("ou_quick")
    await flood.pour([[platform.say(quick, "ou_quick", f"quick {n}") for n in range(40)]])
    _print_seconds(f"Acknowledged while {_SLOW_TURNS} turns run", flood.acknowledged)
    await asyncio.gather(*(platform.reply_to(event, seconds=_LONG) for event in slow))


async def _measure(store: str, folder: Path, events: int, chats: int) -> None:
    async with start_lark_platform() as platform:
        flood = _Flood(platform)
        people = [platform.p2p(f"ou_{n}") for n in range(chats)]
        said = [[platform.say(one, one.members[0], f"note {n}") for n in range(events // chats)] for one in people]
        with _server(store, folder, platform) as (first, log):
            flood.address.set_result(await _address(first, log))
            await _measure_slow(flood, platform)
            flood.acknowledged.clear()
            begun, before = perf_counter(), platform.requests["reply"]
            pouring = asyncio.create_task(flood.pour(said))
            await platform.until_requested("reply", before + events // 3, seconds=_LONG)
            flood.address = asyncio.get_running_loop().create_future()
            first.send_signal(signal.SIGKILL)
            await asyncio.to_thread(first.wait)
            await asyncio.to_thread(Path(log).unlink)
            with _server(store, folder, platform) as (second, log):
                flood.address.set_result(await _address(second, log))
                await pouring
                await asyncio.gather(*(platform.reply_to(each[-1], seconds=_LONG) for each in said))
                seconds = perf_counter() - begun
        _print_seconds("Acknowledged in all", flood.acknowledged)
        counts = [len(platform.replies(event)) for each in said for event in each]
        in_order = [
            [reply for event in each for reply in platform.replies(event)]
            == [one for one in chat.messages if one.by_bot]
            for chat, each in zip(people, said, strict=True)
        ]
        print(f"Answered once: {counts.count(1)} of {len(counts)}, not: {counts.count(0)}, more: {max(counts) - 1}")
        print(f"In order: {sum(in_order)} of {len(said)} chats, in {seconds:.0f} s with one SIGKILL")


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.channels", description=__doc__)
    parser.add_argument("--store", help="URL of the store (a SQLite file of its own)")
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--chats", type=int, default=50)
    args = parser.parse_args()
    with TemporaryDirectory(prefix="tenuto-bench-") as name:
        folder = Path(name)
        (folder / "assistants").mkdir()
        (folder / "assistants" / "clerk.py").write_text(_ASSISTANT)
        asyncio.run(_measure(args.store or f"sqlite:///{folder}/t.db", folder, args.events, args.chats))


if __name__ == "__main__":
    main()
