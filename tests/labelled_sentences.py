"""Sentences with their private values marked, and the score of a detector on them.

A line of `tests/data/pii/*.txt` is a sentence in which «TYPE|value» marks a value; `\\n` stands for a line break, and
lines that begin with `# ` are headings. The rule of scoring: a find is right when its type is, it covers the value, and
it goes no further than what may be left or taken: the name before a secret, the country code, closing punctuation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tenuto.privacy import Span

FOLDER: Final = Path(__file__).parent / "data" / "pii"
CORE: Final = ("EMAIL", "PHONE", "CARD", "SSN", "CN_ID", "PASSPORT", "IP", "API_KEY", "SECRET")
COMMON_SETS: Final = (
    "english",
    "chinese",
    "other_languages",
    "no_private_data",
    "more_english",
    "after_first_rules",
    "secrets_and_keys",
    "false_positive_classes",
    "boundary_cases",
    "chat_messages",
    "export_formats",
    "blind_author",
    "camel_case_labels",
    "written_apart",
)
_MARKED: Final = re.compile("«([A-Z_]+)\\|([^»]*)»")
_EDGES: Final = frozenset(" \t\n\"'`()[]{}<>“”‘’「」『』（）【】.,;:!?。，；：！？、")
_SAME: Final = {"API_KEY": "SECRET"}
_REACH: Final = {"API_KEY": (64, 0), "SECRET": (64, 0), "PHONE": (5, 1)}
"""How much before and after the value may be taken as well."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A value and where it stands."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A text and everything private in it."""

    text: str
    truths: tuple[Truth, ...]


def sentences(*names: str) -> list[Sentence]:
    """The sentences of these files, which stand in `tests/data/pii`."""
    lines = [line for name in names for line in (FOLDER / f"{name}.txt").read_text().splitlines()]
    return [parsed(line) for line in lines if line and not line.startswith("# ")]


def parsed(line: str) -> Sentence:
    """A line as a sentence."""
    line = line.replace("\\n", "\n")
    text, at, truths = "", 0, []
    for match in _MARKED.finditer(line):
        text += line[at : match.start()]
        truths.append(Truth(start=len(text), end=len(text) + len(match[2]), type=match[1]))
        text += match[2]
        at = match.end()
    return Sentence(text=text + line[at:], truths=tuple(truths))


def fits(span: Span, truth: Truth, text: str) -> bool:
    """Whether `span` is right about `truth`. Keys and secrets are accepted for each other."""
    if _SAME.get(span.type, span.type) != _SAME.get(truth.type, truth.type):
        return False
    start, end = span.start, span.end
    first, last = truth.start, truth.end
    while first < last and text[first] in _EDGES:
        first += 1
    while last > first and text[last - 1] in _EDGES:
        last -= 1
    before, after = _REACH.get(truth.type, (0, 0))
    while start < end and start < truth.start - before and text[start] in _EDGES:
        start += 1
    while end > start and end > truth.end + after and text[end - 1] in _EDGES:
        end -= 1
    return truth.start - before <= start <= first and last <= end <= truth.end + after


@dataclass
class Score:
    """What a detector found, missed, and took for something; `wrongs` says where, for the reader of a failure."""

    right: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    clean: int = 0
    damaged: int = 0
    leaked: int = 0
    wrongs: list[str] = field(default_factory=list)

    def f1(self, *types: str) -> float:
        """The balance of finding all and finding nothing else."""
        names = types or CORE
        right, missed, false = (sum(counts[name] for name in names) for counts in (self.right, self.missed, self.false))
        return 2 * right / max(1, 2 * right + missed + false)

    @property
    def leaks(self) -> float:
        """The share of values of which some part stays in the text."""
        return self.leaked / max(1, sum(self.right.values()) + sum(self.missed.values()))

    @property
    def damage(self) -> float:
        """The share of clean sentences in which something was taken for private."""
        return self.damaged / max(1, self.clean)

    def add(self, sentence: Sentence, spans: Iterable[Span]) -> None:
        """Count one sentence."""
        left = [span for span in spans if span.type in CORE]
        everything = list(left)
        for truth in sentence.truths:
            match = next((span for span in left if fits(span, truth, sentence.text)), None)
            if match is not None:
                left.remove(match)
                self.right[truth.type] += 1
                continue
            self.missed[truth.type] += 1
            self.leaked += not any(span.start <= truth.start and truth.end <= span.end for span in everything)
            self.wrongs.append(f"missed {truth.type} in {sentence.text!r}")
        for span in left:
            self.false[span.type] += 1
            self.wrongs.append(f"false {span.type} {sentence.text[span.start : span.end]!r} in {sentence.text!r}")
        self.clean += not sentence.truths
        self.damaged += not sentence.truths and bool(left)


def score(texts: Iterable[Sentence], detect: Callable[[str], list[Span]]) -> Score:
    """The score of `detect` on `texts`."""
    result = Score()
    for sentence in texts:
        result.add(sentence, detect(sentence.text))
    return result


__all__ = ["CORE", "Score", "Sentence", "Truth", "parsed", "score", "sentences"]
