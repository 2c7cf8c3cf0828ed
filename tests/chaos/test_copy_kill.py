"""SIGKILL in the middle of a copy: run again, it ends as if nothing had happened."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tenuto.ports import utc_now
from tests.backends import sqlite_engine
from tests.samples import ANN, batch
from tests.store_copies import compare_stores, copy_store
from tests.warm_start import open_program

pytestmark = pytest.mark.requirement("T19")


SESSIONS = 300
# It stops where it is when it has said how far it is: the kill comes at no later point.
COPIER = """
import asyncio, sys, time
from random import Random
from tenuto.stores.copy_reports import CopyPolicy
from tenuto.stores.engine.copying import RecordCopier
from tenuto.stores.factory import open_records

def tell(messages):
    if messages:
        print(messages, flush=True)
        time.sleep(600)

async def main():
    source, target = [await open_records(url) for url in sys.argv[1:]]
    copier = RecordCopier(
        source, target, name="source", policy=CopyPolicy(), chance=Random(1), on_progress=tell
    )
    await copier.copy()

asyncio.run(main())
"""


def _copy_until_killed(urls: list[str]) -> int:
    """The number of sessions that were copied before the process was killed."""
    copier = open_program("-c", COPIER, *urls, stdout=subprocess.PIPE)
    assert copier.stdout is not None
    copied = int(copier.stdout.readline()) // 2
    copier.kill()
    copier.stdout.close()
    assert copier.wait(30) == -signal.SIGKILL
    return copied


async def test_a_killed_copy_is_resumed_by_running_it_again(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in "ab"]
    async with sqlite_engine(tmp_path / "a.db") as source:
        for number in range(SESSIONS):
            await source.sessions.append(ANN, f"s{number}", batch("q", "a"))
            await source.state.write_state(ANN, "prefs", f"k{number}", number)

        copied = _copy_until_killed(urls)
        async with sqlite_engine(tmp_path / "b.db") as target:
            rest = await copy_store(source, target, utc_now)
            compared = await compare_stores(source, target, utc_now)

    assert 0 < copied < SESSIONS
    assert (rest.sessions, rest.sessions + rest.unchanged + rest.state) == (SESSIONS - copied, 2 * SESSIONS)
    assert compared.different == 0
