"""Whether the process that holds a lease is gone, asked of real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto import process_identity
from tenuto.errors import SessionBusy, Unavailable
from tenuto.model import AppendResult, FinishTurn, OpenTurn
from tenuto.process_identity import is_holder_gone, with_holder
from tests.doubles import FlatMemoryStore
from tests.samples import ANN
from tests.timeouts import LONG
from tests.unit.sessions.memory_sessions import MemorySessions, turn_request

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are told by /proc; without it leases only expire"
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    program = "from tenuto.process_identity import with_holder; print(with_holder('t'), flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


def held(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@needs_proc
def test_a_killed_process_is_gone_and_a_frozen_one_is_not(child: subprocess.Popen[str]) -> None:
    turn = held(child)
    running = is_holder_gone(turn)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    frozen = is_holder_gone(turn)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    unreaped = is_holder_gone(turn)
    child.wait()

    assert (running, frozen, unreaped, is_holder_gone(turn)) == (False, False, True, True)


@needs_proc
def test_a_later_process_of_the_same_pid_is_not_the_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    now = process_identity._current(os.getpid())
    assert now is not None
    with monkeypatch.context() as earlier:
        earlier.setattr(process_identity, "_current", lambda pid: now._replace(started=now.started - 1))
        turn = with_holder("t")

    assert is_holder_gone(turn)
    assert not is_holder_gone(with_holder("t"))


@needs_proc
def test_a_process_of_another_machine_is_never_known_to_be_gone(
    child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, now = held(child), process_identity._current(os.getpid())
    assert now is not None
    child.kill()
    child.wait()

    monkeypatch.setattr(process_identity, "_current", lambda pid: now._replace(machine=b"another"))

    assert not is_holder_gone(turn)
    assert not any(map(is_holder_gone, ("", "t", "t.", "t.no number", "t.-1", "t." + "f" * 99)))


@needs_proc
def test_a_hidden_process_is_not_taken_for_gone(
    child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    turn = held(child)
    assert with_holder("t") != "t"
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    hidden = is_holder_gone(turn)
    child.kill()
    child.wait()

    assert (hidden, is_holder_gone(turn)) == (False, True)


def test_without_proc_a_turn_names_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = with_holder("t")
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    monkeypatch.setattr(process_identity, "_current", process_identity._current.__wrapped__)

    assert with_holder("t") == "t"
    assert not is_holder_gone(named)


@needs_proc
async def test_only_a_turn_that_its_process_runs_ends_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that a client finishes outlives the server that began it."""
    sessions = MemorySessions().sessions()
    clients = await sessions.begin(ANN, turn_request("one"))
    own = await sessions.begin(ANN, turn_request("two", renews=True))
    monkeypatch.setattr(process_identity, "_is_running", lambda pid, started: False)

    after = await sessions.begin(ANN, turn_request("three", own.session.id))

    assert [message.text for message in after.window] == ["two", "three"]
    with pytest.raises(SessionBusy):
        await sessions.begin(ANN, turn_request("three", clients.session.id))


class Full(FlatMemoryStore):
    """A store that releases nothing."""

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        raise Unavailable("session store")


async def test_a_lease_that_cannot_be_released_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = MemorySessions(Full()).sessions()
    own = await sessions.begin(ANN, turn_request("one", renews=True))
    monkeypatch.setattr(process_identity, "_is_running", lambda pid, started: False)

    async with asyncio.timeout(LONG):
        with pytest.raises(SessionBusy):
            await sessions.begin(ANN, turn_request("two", own.session.id))
