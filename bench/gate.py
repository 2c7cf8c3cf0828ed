"""`python -m bench.gate`: how often the gate is right about a question, by words and by meaning.

The threshold is chosen on every other talk and counted on the rest, and on talks that were written afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Final, TypeAlias

from rich.console import Console
from rich.table import Table

from tenuto.context import cosine, points_back, term_coverage
from tenuto.llm import ModelConnection
from tenuto.llm.embedding import LOCAL, open_embedder
from tests.gate_questions import Question, questions_by_talk

Scores: TypeAlias = dict[Question, float]
_STEPS: Final = [step / 100 for step in range(1, 61)]


def by_words(questions: Iterable[Question]) -> Scores:
    """The share of the question's terms that the best text holds."""
    return {one: term_coverage(one.text, one.talk) for one in questions}


async def by_meaning(questions: Sequence[Question], embedder: str) -> Scores:
    """How near the two nearest texts lie."""
    texts = list(dict.fromkeys(text for one in questions for text in (one.text, *one.talk)))
    async with open_embedder(embedder, ModelConnection()) as embed:
        assert embed is not None
        await embed.embed(["Hello."])  # The weights are loaded.
        started = perf_counter()
        vectors = dict(zip(texts, await embed.embed(texts), strict=True))
    Console().print(f"{len(texts)} texts in {perf_counter() - started:.1f} s")
    return {one: _near(vectors[one.text], [vectors[text] for text in one.talk]) for one in questions}


def _near(question: Sequence[float], talk: Sequence[Sequence[float]]) -> float:
    nearest = sorted(cosine(question, talk), reverse=True)[:2]
    return sum(nearest) / len(nearest)


def right(questions: Sequence[Question], opens: Callable[[Question], bool]) -> float:
    """The share of questions about which the gate is right."""
    return sum(opens(one) is one.related for one in questions) / len(questions)


def gate(scores: Scores, threshold: float) -> Callable[[Question], bool]:
    """The gate as it stands: what points back passes, the rest is compared."""
    return lambda one: points_back(one.text) or scores[one] >= threshold


def main() -> None:
    """Choose, count, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__)
    parser.add_argument("--embedder", default=LOCAL, help="local, or a provider:model")
    args = parser.parse_args()
    sets = {"en": questions_by_talk("en"), "zh": questions_by_talk("zh")}
    chosen_on = [one for each in sets.values() for talk in each[::2] for one in talk]
    halves = {name: [one for talk in each[1::2] for one in talk] for name, each in sets.items()}
    held_out = {
        **halves,
        "both": [*halves["en"], *halves["zh"]],
        "fresh": [q for talk in questions_by_talk("fresh") for q in talk],
    }
    everything = [*chosen_on, *held_out["both"], *held_out["fresh"]]
    table = Table("gate", "threshold", "chosen on", *held_out, "related kept", "others left out", title="right, of all")
    meaning = asyncio.run(by_meaning(everything, args.embedder))
    for name, scores in (("words", by_words(everything)), ("meaning", meaning)):
        best = max(_STEPS, key=lambda step: right(chosen_on, gate(scores, step)))
        for threshold in dict.fromkeys((best, 0.15 if name == "words" else 0.22)):
            table.add_row(*_row(name, gate(scores, threshold), threshold, chosen_on, held_out))
    Console().print(table)


def _row(
    name: str,
    opens: Callable[[Question], bool],
    threshold: float,
    chosen_on: Sequence[Question],
    held_out: dict[str, list[Question]],
) -> list[str]:
    unseen = [*held_out["both"], *held_out["fresh"]]
    kept = right([one for one in unseen if one.related], opens)
    left_out = right([one for one in unseen if not one.related], opens)
    shares = [right(chosen_on, opens), *(right(each, opens) for each in held_out.values()), kept, left_out]
    return [name, f"{threshold:.2f}", *(f"{share:.0%}" for share in shares)]


if __name__ == "__main__":
    main()
