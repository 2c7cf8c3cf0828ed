"""Requirement codes of tests: `--requirement A7` runs the tests of one, `--requirements` counts the tests of each."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import pytest

_CODE: Final = re.compile(r"[A-Z]\d{1,2}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--requirement", action="append", default=[], metavar="CODE", help="run the tests of CODE alone")
    parser.addoption("--requirements", action="store_true", help="count the tests of each code, and run nothing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(config.option.requirement)
    if not wanted:
        return
    selected = [item for item in items if wanted & codes_of(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = selected


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Where `--requirements` is given, print the counts in place of a run."""
    if not session.config.option.requirements:
        return None
    counts = Counter(code for item in session.items for code in codes_of(item))
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    reporter.write_line("")
    for code in sorted(counts, key=lambda code: (code[0], int(code[1:]))):
        reporter.write_line(f"{code:<4}{counts[code]:>6}")
    return True


def codes_of(item: pytest.Item) -> set[str]:
    """The codes of a test, its class and its module."""
    codes = {code for mark in item.iter_markers("requirement") for code in mark.args}
    if unknown := {code for code in codes if not _CODE.fullmatch(code)}:
        raise pytest.UsageError(f"{item.nodeid}: a requirement is a letter and a number, not {sorted(unknown)}")
    return codes
