"""The page of rules: every example is found by the rule that it stands under, and every rule has one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import tenuto
from tenuto.privacy.rules.detector import find_once
from tenuto.privacy.rules.families import FAMILIES, ON_REQUEST_FAMILY
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.span import PiiRule

pytestmark = pytest.mark.requirement("A26")

SOURCE: Final = Path(tenuto.__file__).parent
PAGE: Final = (SOURCE.parents[1] / "docs/reference/privacy-rules.md").read_text()
BY_NAME: Final = {family.name.lower(): family for family in (*FAMILIES, ON_REQUEST_FAMILY)}
ROW: Final = re.compile(r"\| [^|\n]+ \| `((?:[^`\\]|\\.)+)` \| `([A-Z0-9_]+)` \|")


class Example(NamedTuple):
    """A row of the page."""

    family: str
    text: str
    rule: str


def examples() -> list[Example]:
    sections = re.split(r"(?m)^## ", PAGE)[1:]
    return [
        Example(section.partition("\n")[0].lower(), row[1].replace(r"\|", "|").replace(r"\n", "\n"), row[2])
        for section in sections
        for row in ROW.finditer(section)
    ]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.text)
def test_an_example_is_found_by_the_rule_it_stands_under(example: Example) -> None:
    before, value, after = re.split("[«»]", example.text)
    view = FoldedText(before + value + after)

    found, _ = find_once(view, [BY_NAME[example.family]])

    assert [(span.rule, view.source[span.start : span.end]) for span in found] == [(example.rule, value)]


def test_every_rule_and_every_family_has_an_example() -> None:
    assert {example.rule for example in examples()} == set(PiiRule)
    assert [*dict.fromkeys(example.family for example in examples())] == [*BY_NAME]
    assert len(examples()) == PAGE.count("\n| ") - PAGE.count("\n| found by |")


def test_every_file_of_the_rules_is_named() -> None:
    rules = SOURCE / "privacy/rules"
    files = {path.relative_to(rules).as_posix() for path in [*rules.glob("[a-z]*.py"), *rules.glob("tables/*.toml")]}

    assert set(re.findall(r"`([a-z_/]+\.(?:py|toml))`", PAGE)) == files
