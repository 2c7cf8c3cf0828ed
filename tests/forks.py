"""Runs the tests in several processes that collect them once: `pytest --forks 3`.

Importing the tests and everything under them takes longer than most of what they then do. So one process collects, and
those that run the tests are forks of it. Each begins with a part of its own, and takes over half of what another has
left when it is through. Test and report travel as pytest-xdist has them travel, which has every worker collect.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
import traceback
import warnings
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest
from _pytest.capture import FDCapture

from tests.servers.process import new_folder

_NOTHING_LEFT = -1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the tests in N forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Where pytest runs one test after the other."""
    number = min(session.config.option.forks, len(session.items))
    if not number or session.config.option.collectonly or session.testsfailed:
        return None
    # Made before there are forks, so that it holds what theirs hold, and goes with them.
    _folders(session.config).getbasetemp()
    _Forks(session, number).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


@dataclass
class _Fork:
    """A process that runs tests; a test goes by its place among all that were collected."""

    pid: int
    number: int
    ahead: deque[int]
    holds: deque[int] = field(default_factory=deque)
    """What it was given and has not run to its end: the test that is running, and the one after it."""


class _Forks:
    """The process that has collected: hands out tests, and is told how they went."""

    def __init__(self, session: pytest.Session, number: int) -> None:
        self._session = session
        self._hook = session.config.hook
        ends = [len(session.items) * part // number for part in range(number + 1)]
        self._parts = [deque(range(ends[part], ends[part + 1])) for part in range(number)]
        self._forks: dict[Connection, _Fork] = {}

    def run(self) -> None:
        for number, part in enumerate(self._parts):
            self._fork(number, part)
        try:
            while self._forks:
                for line in wait(list(self._forks)):
                    assert isinstance(line, Connection)
                    try:
                        self._answer(line, self._forks[line])
                    except (EOFError, ConnectionError):
                        self._bury(line)
        finally:
            # After Ctrl-C, or when we fail: a fork that nobody listens to ends.
            for line, fork in self._forks.items():
                line.close()
                os.waitpid(fork.pid, 0)

    def _fork(self, number: int, part: deque[int]) -> None:
        line, its_end = Pipe()
        pid = os.fork()
        if pid == 0:
            for other in (line, *self._forks):
                other.close()
            _be_fork(self._session, its_end, number, len(self._parts))
        its_end.close()
        self._forks[line] = _Fork(pid, number, part)

    def _answer(self, line: Connection, fork: _Fork) -> None:
        kind, told = line.recv()
        if kind == "next":
            fork.holds.append(self._next(fork.ahead))
            line.send(fork.holds[-1])
        elif kind == "done":
            item = self._session.items[fork.holds.popleft()]
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif kind == "report":
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=told)
            self._hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            text, file, row, when, nodeid = told
            said = warnings.WarningMessage(UserWarning(text), UserWarning, file, row)
            self._hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": said, "when": when, "nodeid": nodeid, "location": None}
            )
        else:
            raise RuntimeError(f"a fork failed outside its tests:\n{told}")

    def _next(self, ahead: deque[int]) -> int:
        if self._session.shouldfail or self._session.shouldstop:
            return _NOTHING_LEFT
        if not ahead:
            ahead.extend(self._take_over())
        return ahead.popleft() if ahead else _NOTHING_LEFT

    def _take_over(self) -> list[int]:
        """Half of what the busiest has ahead, from where a file begins if there is such a place."""
        busiest = max(self._parts, key=len)
        files = [self._session.items[test].path for test in busiest]
        half = len(files) // 2
        first = next((place for place in range(max(half, 1), len(files)) if files[place] != files[place - 1]), half)
        return [busiest.pop() for _ in range(len(files) - first)][::-1]

    def _bury(self, line: Connection) -> None:
        """Once a fork has ended: after all its tests, or in the middle of one, which has failed then."""
        fork = self._forks.pop(line)
        line.close()
        _, status = os.waitpid(fork.pid, 0)
        left = [test for test in fork.holds if test != _NOTHING_LEFT]
        if not left:
            return
        item = self._session.items[left[0]]
        said = f"the process that ran it ended with {os.waitstatus_to_exitcode(status)}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
        self._hook.pytest_runtest_logreport(report=report)
        fork.ahead.extendleft(left[1:])
        self._fork(fork.number, fork.ahead)


class _Reporter:
    """Stands where the terminal's reporter stood: tells the process above, and prints nothing."""

    def __init__(self, config: pytest.Config, line: Connection) -> None:
        self._config = config
        self._line = line
        # Who writes to the terminal directly, as a test that hangs does with its stacks, asks for this.
        self._tw = config.get_terminal_writer()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._line.send(("report", told))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        if when != "runtest":
            # The process above has heard of it already.
            return
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        told = text, warning_message.filename, warning_message.lineno, when, nodeid
        self._line.send(("warning", told))


def _be_fork(session: pytest.Session, line: Connection, number: int, count: int) -> None:
    """Run what the process above hands out, and end as an interpreter does."""
    # What was to be cleared away before is for the process above.
    atexit._clear()
    try:
        _stand_apart(session.config, line, number, count)
        try:
            _run_tests(session, line)
        finally:
            session._setupstate.teardown_exact(None)
    except (KeyboardInterrupt, EOFError, ConnectionError):
        code = 1
    except BaseException:
        code = 1
        line.send(("failure", traceback.format_exc()))
    else:
        code = 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code)


def _stand_apart(config: pytest.Config, line: Connection, number: int, count: int) -> None:
    """Share no file, folder or port with other forks."""
    os.environ |= {"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": str(count)}
    os.environ["XDG_STATE_HOME"] = str(new_folder("state"))
    _capture_apart(config.pluginmanager.getplugin("capturemanager"))
    reporter = _Reporter(config, line)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(reporter, "terminalreporter")
    folders = _folders(config)
    folders._basetemp = folders.getbasetemp() / f"fork-{os.getpid()}"
    folders._basetemp.mkdir(mode=0o700)


def _capture_apart(manager: Any) -> None:
    """Put a file of our own under what tests print; the objects stay, since functions have them as defaults."""
    for stream in (manager._global_capturing.out, manager._global_capturing.err):
        if isinstance(stream, FDCapture):
            with tempfile.TemporaryFile() as file:
                os.dup2(file.fileno(), stream.tmpfile.fileno(), inheritable=False)
                os.dup2(file.fileno(), stream.targetfd)


def _folders(config: Any) -> Any:
    return config._tmp_path_factory


def _run_tests(session: pytest.Session, line: Connection) -> None:
    item, following = _ask(session, line), None
    while item is not None:
        # One ahead: what the next test needs as well is left standing.
        following = _ask(session, line)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        line.send(("done", None))
        item = following


def _ask(session: pytest.Session, line: Connection) -> pytest.Item | None:
    line.send(("next", None))
    number = line.recv()
    return None if number == _NOTHING_LEFT else session.items[number]
