"""Tests that run in forks are each run once, and none of them is lost with its process."""

from __future__ import annotations

from pathlib import Path
from subprocess import PIPE

from tests.warm_start import open_program

TOP = Path(__file__).parents[2]
TESTS = """
import os, signal, sys, time, warnings
from pathlib import Path
import pytest

@pytest.fixture(autouse=True)
def noted(request, tmp_path):
    with Path(__file__).with_name("ran").open("a") as ran:
        ran.write(f"{os.getpid()} {request.node.name} {tmp_path}\\n")

@pytest.mark.parametrize("number", range(30))
def test_one_of_many(number):
    time.sleep(0.01)

def test_one_that_fails(file=sys.stdout):
    print("in", "vain", file=file)
    os.system("echo aloud")
    raise AssertionError("no luck")

def test_one_that_warns():
    warnings.warn("mind the gap")

def test_one_whose_process_is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def test_one_after_it():
    pass
"""


def test_each_runs_once_and_a_killed_process_fails_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    args = ["-m", "pytest", "--disable-plugin-autoload", "-p", "tests.forks", "-p", "no:cacheprovider", "--forks", "3"]
    with open_program(*args, str(tmp_path), cwd=TOP, stdout=PIPE, stderr=PIPE, text=True) as process:
        said, complaints = process.communicate(timeout=120)

    assert process.returncode == 1, complaints
    assert "2 failed, 32 passed, " in said
    assert "no luck" in said
    assert said.count("in vain\naloud\n") == 1
    assert said.count("UserWarning: mind the gap") == 1
    assert "the process that ran it ended with -9" in said
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert len(ran) == len({name for _, name, _ in ran}) == 34
    # Three from the beginning, and one in place of the killed one.
    assert len({pid for pid, _, _ in ran}) in (3, 4)
    assert len({folder for _, _, folder in ran}) == len(ran)
