"""How well and how fast recall finds turns: `python -m bench.recall`, or `make eval-recall`.

The data folder holds sets of labelled histories (`locomo.json`, `memorybank_zh.json` and the like): a list of stores,
each with `turns` and `questions`, whose `gold` are the ids of the turns that hold the answer. They are not part of the
project. For each question: R@k, the share of its gold turns among the first k; nDCG@10 with binary gains; dup@10, the
share of the first ten that nearly repeat one above. Questions of the category `adversarial` have no answer in their
history and are left out, and so is, which is said, a set whose gold are sessions (`realmem.json`, say). `--dups N`
adds N restatements of every gold turn and of as many others; a restatement counts as its original, once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.recall_scale import FULL, QUICK, measure_scale
from tenuto.recall.evaluation import EvaluationStore, encode, has_encoder
from tenuto.recall.lexical import LexicalIndex

FOLDER_VARIABLE: Final = "TENUTO_RECALL_DATA"
_DEPTHS: Final = (5, 10, 20)
_COLUMNS: Final = ("R@5", "R@10", "R@20", "nDCG@10", "dup@10", "p50 ms", "p95 ms", "cpu ms", "add ms")
_CHINESE: Final = re.compile(r"[\u3400-\u9fff]")
_RESTATED: Final = (
    ("As I said before, {}", "就像我之前说过的，{}"),
    ("Just to repeat, {}", "再说一遍：{}"),
    ("{} I think I mentioned that.", "{} 这个我提过吧。"),
)
Turn = Mapping[str, Any]


class Store(Protocol):
    """The history of one user."""

    def add(self, turns: Sequence[Turn]) -> None:
        """Index turns, oldest first."""

    def search(self, query: str, k: int) -> list[str]:
        """Ids of at most `k` turns, best first."""
        ...


class PlainBm25:
    """Turns as they are, ranked by BM25."""

    def add(self, turns: Sequence[Turn]) -> None:
        """Index turns, all at once."""
        self._ids = [turn["id"] for turn in turns]
        self._index = LexicalIndex(turn["text"] for turn in turns)

    def search(self, query: str, k: int) -> list[str]:
        """Those that share a term with the query."""
        return [self._ids[hit.position] for hit in self._index.search(query, k)]


class PlainCosine:
    """Turns as they are, ranked by the cosine of their vectors."""

    def add(self, turns: Sequence[Turn]) -> None:
        """Embed turns, all at once."""
        self._ids = [turn["id"] for turn in turns]
        vectors = np.asarray(encode([turn["text"] for turn in turns]), np.float32)
        self._vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def search(self, query: str, k: int) -> list[str]:
        """The nearest ones."""
        order = np.argsort(-(self._vectors @ np.asarray(encode([query])[0], np.float32)), kind="stable")
        return [self._ids[place] for place in order[:k]]


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help=f"the folder of the sets (else the variable {FOLDER_VARIABLE})")
    parser.add_argument("--sets", help="names of sets, separated by commas (else all)")
    parser.add_argument("--dups", type=int, default=0, metavar="N", help="restate turns so many times")
    parser.add_argument("--scale", choices=("quick", "full"), help="time made-up memories of large owners instead")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="with --scale: an interpreter that has mem0")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if args.scale:
        measure_scale(console, FULL if args.scale == "full" else QUICK, args.peers)
        return
    folder = args.data or (Path(os.environ[FOLDER_VARIABLE]) if os.environ.get(FOLDER_VARIABLE) else None)
    if folder is None or not folder.is_dir():
        console.print(f"No recall data: name its folder with --data or {FOLDER_VARIABLE}. Nothing was measured.")
        return
    figures = {}
    for path in sorted(folder.glob("*.json")):
        if args.sets and path.stem not in args.sets.split(","):
            continue
        stores = json.loads(path.read_text(encoding="utf-8"))
        if not any(map(_scored_questions, stores)):
            console.print(f"{path.stem}: no question names the turns that hold its answer; it was left out.")
            continue
        figures[path.stem] = {name: evaluate(make, stores, args.dups) for name, make in _systems().items()}
        console.print(_table(path.stem, figures[path.stem]))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


def evaluate(make: Callable[[], Store], stores: Sequence[Mapping[str, Any]], dups: int = 0) -> dict[str, float]:
    """The figures of one system over the stores of one set."""
    scores: list[dict[str, float]] = []
    waits: list[float] = []
    added = cpu = 0.0
    count = 0
    for kept in stores:
        questions = _scored_questions(kept)
        turns = list(_restate(kept, questions, dups))
        texts = {turn["id"]: _trigrams(turn["text"]) for turn in turns}
        store = make()
        started = process_time()
        store.add(turns)
        added += process_time() - started
        count += len(turns)
        for question in questions:
            started, began = process_time(), perf_counter()
            found = store.search(question["q"], max(_DEPTHS))
            cpu += process_time() - started
            waits.append((perf_counter() - began) * 1000)
            scores.append(_score(found, set(question["gold"]), texts))
    figures = {key: round(statistics.fmean(score[key] for score in scores), 4) for key in scores[0]}
    waits.sort()
    figures["p50 ms"] = round(statistics.median(waits), 2)
    figures["p95 ms"] = round(waits[int(len(waits) * 0.95)], 2)
    figures["cpu ms"] = round(cpu * 1000 / len(waits), 2)
    figures["add ms"] = round(added * 1000 / count, 2)
    return figures


def _scored_questions(kept: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [question for question in kept["questions"] if question["cat"] != "adversarial" and question["gold"]]


def _systems() -> dict[str, Callable[[], Store]]:
    systems: dict[str, Callable[[], Store]] = {
        "plain BM25": PlainBm25,
        "tenuto, words alone": lambda: EvaluationStore(meaning=False),
    }
    if has_encoder():
        systems |= {"plain cosine": PlainCosine, "tenuto": EvaluationStore}
    return systems


def _score(found: Sequence[str], gold: set[str], texts: Mapping[str, set[str]]) -> dict[str, float]:
    originals = [turn.partition("~")[0] for turn in found]
    scores = {f"R@{depth}": len(gold & set(originals[:depth])) / len(gold) for depth in _DEPTHS}
    first = {turn: place for place, turn in reversed(list(enumerate(originals[:10]))) if turn in gold}
    ideal = sum(1 / math.log2(place + 2) for place in range(min(10, len(gold))))
    scores["nDCG@10"] = sum(1 / math.log2(place + 2) for place in first.values()) / ideal
    top = [texts[turn] for turn in found[:10]]
    repeated = sum(any(_alike(text, above) for above in top[:place]) for place, text in enumerate(top))
    scores["dup@10"] = repeated / max(1, len(top))
    return scores


def _restate(kept: Mapping[str, Any], questions: Sequence[Mapping[str, Any]], dups: int) -> Iterator[Turn]:
    turns: list[Turn] = kept["turns"]
    yield from turns
    gold = {turn for question in questions for turn in question["gold"]}
    others = [turn["id"] for turn in turns if turn["id"] not in gold]
    chosen = gold | set(random.Random(kept["id"]).sample(others, min(len(gold), len(others))))
    last = turns[-1]
    for again in range(dups):
        for turn in turns:
            if turn["id"] in chosen:
                form = _RESTATED[again % len(_RESTATED)][bool(_CHINESE.search(turn["text"]))]
                where = {"session": last["session"] + 1 + again, "time": last["time"]}
                yield {**turn, **where, "id": f"{turn['id']}~{again}", "text": form.format(turn["text"])}


def _trigrams(text: str) -> set[str]:
    folded = re.sub(r"\s+", " ", text.lower())
    return {folded[place : place + 3] for place in range(max(1, len(folded) - 2))}


def _alike(one: set[str], other: set[str]) -> bool:
    return len(one & other) >= 0.6 * max(1, len(one | other))


def _table(title: str, figures: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("system")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for name, row in figures.items():
        table.add_row(name, *(f"{row[column]:.3f}" if "@" in column else f"{row[column]:.2f}" for column in _COLUMNS))
    return table


if __name__ == "__main__":
    main()
