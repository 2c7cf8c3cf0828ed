"""Ends servers whose test process is gone.

Runs as a program of its own. Each line on its input is `+<pid>`, `-<pid>` or `/<folder>`; the end
of input means that the test process has ended, in whatever way, and everything still on the list
goes. A pipe works from any thread and on every system, which a parent-death signal does not.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys


def main() -> None:
    """Read the list until the test process is gone, then clear it."""
    alive: set[int] = set()
    folders: list[str] = []
    for line in sys.stdin:
        entry = line.rstrip("\n")
        if entry.startswith("+"):
            alive.add(int(entry[1:]))
        elif entry.startswith("-"):
            alive.discard(int(entry[1:]))
        else:
            folders.append(entry)
    for pid in alive:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
