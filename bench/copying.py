"""`python -m bench.copying`: how fast `tenuto copy` is between each two backends, and that nothing differs after it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from itertools import product
from random import Random
from time import perf_counter

from rich.console import Console
from rich.table import Table

from bench import contenders
from bench.grounds import ground, machine, working_folder
from tenuto.model import AppendBatch, IdempotencyKey, NewSession, Scope
from tenuto.model.stored import Action, RecordChange
from tenuto.ports import RecordStore
from tenuto.stores.copy_reports import CopyPolicy
from tenuto.stores.engine import Engine
from tenuto.stores.engine.comparing import RecordComparer
from tenuto.stores.engine.copying import RecordCopier
from tenuto.stores.factory import open_records
from tests.samples import answers, says

_AT_ONCE = 100
_TEXT = "What time does the museum open on a public holiday, and is there a guided tour in the afternoon? " * 2


async def _fill(records: RecordStore, sessions: int, messages: int) -> None:
    """Sessions of twenty users of two tenants, as a server would have stored them."""
    drafts = tuple((says if place % 2 == 0 else answers)(_TEXT) for place in range(messages))

    async def add(number: int) -> None:
        scope = Scope(tenant=f"tenant-{number % 2}", user=f"user-{number % 20}")
        batch = AppendBatch(
            id=f"b{number}",
            messages=drafts,
            create=NewSession(title=f"Session {number}", metadata={"assistant": "general"}),
            idempotency_key=IdempotencyKey(key=f"k{number}", fingerprint="f"),
        )
        await engine.sessions.append(scope, f"session-{number}", batch)
        await engine.state.write_state(scope, "memories", f"m{number}", {"text": _TEXT, "at": number})

    async with Engine(records, chance=Random(1)) as engine:
        for first in range(0, sessions, _AT_ONCE):
            await asyncio.gather(*(add(number) for number in range(first, min(first + _AT_ONCE, sessions))))


async def _clear(records: RecordStore) -> None:
    """Empty a store for the next copy."""
    while page := await records.scan(b"", _AT_ONCE):
        stored = [found.record for found in page]
        removals = [RecordChange(key=one.key, if_revision=one.revision, action=Action.REMOVE) for one in stored]
        await asyncio.gather(*(records.commit((removal,)) for removal in removals))


async def _measure(source: RecordStore, target: RecordStore) -> tuple[float, float, float, int]:
    """Seconds of a copy, of a second pass and of the verification, and how many records differ."""
    times = []
    for number in range(2):
        began = perf_counter()
        await RecordCopier(source, target, name="bench", policy=CopyPolicy(), chance=Random(number)).copy()
        times.append(perf_counter() - began)
    began = perf_counter()
    compared = await RecordComparer(source, target).compare()
    return times[0], times[1], perf_counter() - began, compared.different


async def _run(urls: Mapping[contenders.Backend, tuple[str, str]], sessions: int, messages: int) -> Table:
    table = Table("from", "to", "messages/s", "copy s", "second pass s", "verify s", "different")
    async with AsyncExitStack() as stack:
        sources = {name: await open_records(url) for name, (url, _) in urls.items()}
        targets = {name: await open_records(url) for name, (_, url) in urls.items()}
        for records in (*sources.values(), *targets.values()):
            stack.push_async_callback(records.close)
        for records in sources.values():
            await _fill(records, sessions, messages)
        for here, there in product(sources, targets):
            copied, again, verified, different = await _measure(sources[here], targets[there])
            speed = f"{sessions * messages / copied:,.0f}"
            table.add_row(here, there, speed, *(f"{took:.1f}" for took in (copied, again, verified)), str(different))
            Console(stderr=True).print(f"[dim]{here} to {there}: {speed} messages a second")
            await _clear(targets[there])
    return table


def main() -> None:
    """Start the servers, fill one store of each backend, copy each into each."""
    parser = argparse.ArgumentParser(prog="python -m bench.copying", description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=20, help="in each session")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder(None))
        grounds = [stack.enter_context(ground(backend, folder)) for backend in contenders.BACKENDS]
        urls = {one.backend: (one.new_url(), one.new_url()) for one in grounds}
        table = asyncio.run(_run(urls, args.sessions, args.messages))
        table.title = f"{args.sessions:,} sessions of {args.messages} messages. {machine(folder)}"
        Console().print(table)


if __name__ == "__main__":
    main()
