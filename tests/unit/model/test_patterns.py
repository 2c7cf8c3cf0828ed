"""Patterns are compiled by their first use, and are then what `re.compile` gives."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tenuto.model.patterns import lazy_pattern


def test_a_lazy_pattern_does_what_a_compiled_one_does() -> None:
    lazy, compiled = lazy_pattern("(?P<a>B)+", re.IGNORECASE), re.compile("(?P<a>B)+", re.IGNORECASE)

    for _ in range(2):
        assert [found.span() for found in lazy.finditer("abba b")] == [(1, 3), (5, 6)]
        assert lazy.sub("x", "abba") == compiled.sub("x", "abba")
        assert (lazy.pattern, lazy.flags) == (compiled.pattern, compiled.flags)
    with pytest.raises(AttributeError):
        _ = lazy.unknown  # type: ignore[attr-defined]


def test_a_text_without_private_data_compiles_few_rules() -> None:
    program = """
import re, sys
from tenuto.model import patterns
from tenuto.privacy.rules.detector import redact
made = []
patterns.re = type("Counting", (), {"compile": staticmethod(lambda *a: made.append(a) or re.compile(*a))})
assert redact("Hello, how are you today?") == "Hello, how are you today?"
few = len(made)
assert redact("ann.lee@example.com") == "[REDACTED_EMAIL]"
print(few, len(made))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    few, more = map(int, done.stdout.split())

    assert few < 20
    assert few < more
