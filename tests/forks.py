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
    # Made before there are forks, so that the folders of the forks lie in it and are removed with it.
    _temp_folders(session.config).getbasetemp()
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
    waiting: deque[int]
    given: deque[int] = field(default_factory=deque)
    """Tests that it was given and has not finished: the one that is running, and the one after it."""


class _Forks:
    """The process that has collected: hands out tests and receives their reports."""

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
                for connection in wait(list(self._forks)):
                    assert isinstance(connection, Connection)
                    try:
                        self._handle_message(connection, self._forks[connection])
                    except (EOFError, ConnectionError):
                        self._handle_exit(connection)
        finally:
            # After Ctrl-C, or when we fail: a fork that nobody listens to ends.
            for connection, fork in self._forks.items():
                connection.close()
                os.waitpid(fork.pid, 0)

    def _fork(self, number: int, part: deque[int]) -> None:
        connection, child_end = Pipe()
        pid = os.fork()
        if pid == 0:
            for other in (connection, *self._forks):
                other.close()
            _run_fork(self._session, child_end, number, len(self._parts))
        child_end.close()
        self._forks[connection] = _Fork(pid, number, part)

    def _handle_message(self, connection: Connection, fork: _Fork) -> None:
        kind, payload = connection.recv()
        if kind == "next":
            fork.given.append(self._next(fork.waiting))
            connection.send(fork.given[-1])
        elif kind == "done":
            item = self._session.items[fork.given.popleft()]
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif kind == "report":
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=payload)
            self._hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            text, file, row, when, nodeid = payload
            said = warnings.WarningMessage(UserWarning(text), UserWarning, file, row)
            self._hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": said, "when": when, "nodeid": nodeid, "location": None}
            )
        else:
            raise RuntimeError(f"a fork failed outside its tests:\n{payload}")

    def _next(self, waiting: deque[int]) -> int:
        if self._session.shouldfail or self._session.shouldstop:
            return _NOTHING_LEFT
        if not waiting:
            waiting.extend(self._steal())
        return waiting.popleft() if waiting else _NOTHING_LEFT

    def _steal(self) -> list[int]:
        """Half of what the busiest has waiting, from where a file begins if there is such a place."""
        busiest = max(self._parts, key=len)
        files = [self._session.items[test].path for test in busiest]
        half = len(files) // 2
        first = next((place for place in range(max(half, 1), len(files)) if files[place] != files[place - 1]), half)
        return [busiest.pop() for _ in range(len(files) - first)][::-1]

    def _handle_exit(self, connection: Connection) -> None:
        """Once a fork has ended: after all its tests, or in the middle of one, which has failed then."""
        fork = self._forks.pop(connection)
        connection.close()
        _, status = os.waitpid(fork.pid, 0)
        left = [test for test in fork.given if test != _NOTHING_LEFT]
        if not left:
            return
        item = self._session.items[left[0]]
        said = f"the process that ran it ended with {os.waitstatus_to_exitcode(status)}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
        self._hook.pytest_runtest_logreport(report=report)
        fork.waiting.extendleft(left[1:])
        self._fork(fork.number, fork.waiting)


class _Reporter:
    """Stands where the terminal's reporter stood: tells the process above, and prints nothing."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        # Who writes to the terminal directly, as a test that hangs does with its stacks, asks for this.
        self._tw = config.get_terminal_writer()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        payload = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", payload))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        if when != "runtest":
            # The process above has heard of it already.
            return
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        payload = text, warning_message.filename, warning_message.lineno, when, nodeid
        self._connection.send(("warning", payload))


def _run_fork(session: pytest.Session, connection: Connection, number: int, count: int) -> None:
    """Run what the process above hands out, and end as an interpreter does."""
    # What was to be cleared away before is for the process above.
    atexit._clear()
    try:
        _isolate(session.config, connection, number, count)
        try:
            _run_tests(session, connection)
        finally:
            session._setupstate.teardown_exact(None)
    except (KeyboardInterrupt, EOFError, ConnectionError):
        code = 1
    except BaseException:
        code = 1
        connection.send(("failure", traceback.format_exc()))
    else:
        code = 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code)


def _isolate(config: pytest.Config, connection: Connection, number: int, count: int) -> None:
    """Share no file, folder or port with other forks."""
    os.environ |= {"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": str(count)}
    os.environ["XDG_STATE_HOME"] = str(new_folder("state"))
    _capture_apart(config.pluginmanager.getplugin("capturemanager"))
    reporter = _Reporter(config, connection)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(reporter, "terminalreporter")
    folders = _temp_folders(config)
    folders._basetemp = folders.getbasetemp() / f"fork-{os.getpid()}"
    folders._basetemp.mkdir(mode=0o700)


def _capture_apart(manager: Any) -> None:
    """Put a file of our own under what tests print; the objects stay, since functions have them as defaults."""
    for stream in (manager._global_capturing.out, manager._global_capturing.err):
        if isinstance(stream, FDCapture):
            with tempfile.TemporaryFile() as file:
                os.dup2(file.fileno(), stream.tmpfile.fileno(), inheritable=False)
                os.dup2(file.fileno(), stream.targetfd)


def _temp_folders(config: Any) -> Any:
    return config._tmp_path_factory


def _run_tests(session: pytest.Session, connection: Connection) -> None:
    item, following = _request_test(session, connection), None
    while item is not None:
        # One test ahead, so that fixtures which the next test needs as well stay open.
        following = _request_test(session, connection)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        connection.send(("done", None))
        item = following


def _request_test(session: pytest.Session, connection: Connection) -> pytest.Item | None:
    connection.send(("next", None))
    number = connection.recv()
    return None if number == _NOTHING_LEFT else session.items[number]
