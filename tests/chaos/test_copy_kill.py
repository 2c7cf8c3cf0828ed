"""SIGKILL in the middle of a copy: run again, it ends as if nothing had happened (T19)."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tenuto.stores.comparison import Comparer
from tenuto.stores.copier import Copier
from tenuto.stores.copy_reports import CopyPolicy
from tenuto.stores.sqlite import SqliteStore
from tests.samples import ANN, batch
from tests.warm_start import open_program

SESSIONS = 300
# It stops where it is when it has said how far it is: the kill comes at no later point.
COPIER = """
import asyncio, sys, time
from tenuto.stores.copier import Copier
from tenuto.stores.copy_reports import CopyPolicy
from tenuto.stores.factory import open_store

def tell(messages):
    if messages:
        print(messages, flush=True)
        time.sleep(600)

async def main():
    source, target = [await open_store(url) for url in sys.argv[1:]]
    await Copier(source, target, name="a", policy=CopyPolicy(), on_progress=tell).copy()

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
    source = await SqliteStore.open(tmp_path / "a.db")
    for number in range(SESSIONS):
        await source.sessions.append(ANN, f"s{number}", batch("q", "a"))
        await source.state.write_state(ANN, "prefs", f"k{number}", number)
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in "ab"]

    copied = _copy_until_killed(urls)
    target = await SqliteStore.open(tmp_path / "b.db")
    rest = await Copier(source, target, name="a", policy=CopyPolicy()).copy()
    compared = await Comparer(source, target).compare()

    assert 0 < copied < SESSIONS
    assert (rest.sessions, rest.unchanged, rest.state) == (SESSIONS - copied, copied, SESSIONS)
    assert compared.different == 0
    await source.close()
    await target.close()
