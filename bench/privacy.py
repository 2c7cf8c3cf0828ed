"""`python -m bench.privacy`: the detector beside the documents' seven expressions, and what hostile text costs it."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import random
import re
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tenuto.privacy import RedactionStream, detect

# The documents' expressions, in their order, as Go reads them: ASCII classes and ASCII word borders.
SEVEN: Final = tuple(
    (re.compile(pattern, re.ASCII), f"[REDACTED_{name}]")
    for name, pattern in (
        ("EMAIL", r"(?i)[a-z0-9._%+\-]+@[a-z0-9.\-]+\.[a-z]{2,}"),
        ("PHONE", r"(?i)(\+?\d[\d\s\-()]{8,}\d)"),
        ("SSN", r"\b\d{3}-\d{2}-\d{4}\b"),
        ("CC", r"\b(?:\d{4}[-\s]?){3}\d{4}\b"),
        ("IP", r"\b(?:\d{1,3}\.){3}\d{1,3}\b"),
        ("API_KEY", r"(?i)(api[_-]?key|token)[\s:=]+[\w-]{20,}"),
        ("SECRET", r"(?i)(password|secret|pwd)[\s:=]+\S{8,}"),
    )
)
HOSTILE: Final = {
    "digits": "7",
    "digits and spaces": "1 ",
    "digits and dots": "1.",
    "fours": "4111 ",
    "one long word": "a",
    "at signs": "a@",
    "addresses": "a@a.",
    "names of secrets": "password is ",
    "assignments": "password=",
    "short assignments": "key=",
    "colons after names": "password:",
    "prefixes of keys": "sk-",
    "webhooks": "hook",
    "colons": "1:",
    "unfinished marks": "[REDACTED_",
    "invisible": "1\u200b",
    "key blocks": "-----BEGIN RSA PRIVATE KEY-----",
    "密码": "密码",
    "slashes": "a/!",
    "fields": 'password" { ',
    "mails beyond Latin": "给用@例.",
    "single digits": "1 3 8 0 0 1 3 8 0 0 0\n",
}
SIZES: Final = (10_000, 40_000, 160_000)


def seven(text: str) -> str:
    """What the documents do."""
    for pattern, mark in SEVEN:
        text = pattern.sub(mark, text)
    return text


def messages(count: int, seed: int = 11) -> list[str]:
    """Chat as it is written: prose in English and Chinese, code, JSON and logs; every sixth holds something private."""
    dice = random.Random(seed)
    return [_message(dice) for _ in range(count)]


_PROSE: Final = """the quick report about our garden was late because nobody could find key figures in time and then
    we talked with Mary who said that prices would rise again next spring while shipping takes longer than planned so
    please check whether these numbers are right before Friday or tell me what you need from my side thanks"""
_ENGLISH: Final = _PROSE.split()
_CHINESE: Final = (
    "今天的会议改到下午三点请大家准时参加如果有问题可以随时联系我们会尽快处理"
    "这个需求已经排期下周上线测试同学注意一下边界情况谢谢"
)
_PRIVATE: Final = (
    "mail me at ann.lee@example.com",
    "my phone is +1 202-555-0143",
    "手机13800138000",
    "card 4242 4242 4242 4242",
    "server 203.0.113.9 is down",
    "password: Maple-77!",
)


def _message(dice: random.Random) -> str:
    kind = dice.choices(("english", "chinese", "code", "json", "log"), (40, 25, 15, 10, 10))[0]
    text = "".join(_WRITERS[kind](dice))
    if dice.random() < 1 / 6:
        text += "\n" + dice.choice(_PRIVATE)
    return text


def _english(dice: random.Random) -> Iterator[str]:
    for _ in range(dice.randrange(4, 9)):
        words = dice.choices(_ENGLISH, k=dice.randrange(8, 18))
        yield " ".join(words).capitalize() + dice.choice((". ", "? ", ", see item 3. ", " (about 20 of them). "))


def _chinese(dice: random.Random) -> Iterator[str]:
    for _ in range(dice.randrange(12, 26)):
        start = dice.randrange(len(_CHINESE) - 20)
        yield _CHINESE[start : start + dice.randrange(8, 20)] + dice.choice(("，", "。", "：", "（第2版）。"))


def _code(dice: random.Random) -> Iterator[str]:
    for number in range(dice.randrange(8, 16)):
        name = dice.choice(_ENGLISH)
        yield f"    {name}_{number} = compute_{name}(items[{number}:], limit={dice.randrange(100)})  # {name}\n"


def _json(dice: random.Random) -> Iterator[str]:
    for number in range(dice.randrange(6, 12)):
        yield f'{{"id": {dice.randrange(10**6)}, "name": "{dice.choice(_ENGLISH)}", "score": {dice.random():.6f}}},\n'
        yield f'{{"at": "2026-03-{number + 10}T10:00:{number:02}Z"}},\n'


def _log(dice: random.Random) -> Iterator[str]:
    for number in range(dice.randrange(5, 10)):
        yield f"2026-03-04 12:00:{number:02},{dice.randrange(1000):03} "
        yield f"INFO worker-{number} done in {dice.random():.3f} s\n"


_WRITERS: Final[dict[str, Callable[[random.Random], Iterator[str]]]] = {
    "english": _english,
    "chinese": _chinese,
    "code": _code,
    "json": _json,
    "log": _log,
}


def _stream(text: str) -> None:
    stream = RedactionStream()
    for start in range(0, len(text), 12):
        stream.feed(text[start : start + 12])
    stream.flush()


def _presidio() -> Callable[[str], object] | None:
    """Presidio's own recognisers of the types we share, called one by one.

    The engine around them would load a language model first, and that is not what is compared here.
    """
    if importlib.util.find_spec("presidio_analyzer") is None:
        return None
    # Else it looks for a newer list of domains in the network, with the clock running.
    domains: Any = importlib.import_module("tldextract.tldextract")
    domains.TLD_EXTRACTOR = domains.TLDExtract(suffix_list_urls=(), cache_dir=None)
    shelf = importlib.import_module("presidio_analyzer.predefined_recognizers")
    names = ("EmailRecognizer", "PhoneRecognizer", "CreditCardRecognizer", "UsSsnRecognizer", "IpRecognizer")
    recognisers = [getattr(shelf, name)() for name in (*names, "IbanRecognizer")]

    def analyse(text: str) -> None:
        for recogniser in recognisers:
            recogniser.analyze(text, recogniser.supported_entities, None)

    return analyse


def speeds(texts: list[str], rounds: int) -> dict[str, tuple[float, float]]:
    """Characters a second of CPU for each contender, and how often that is the speed of the seven.

    They take turns, so that a busy machine slows all of them, and medians over the rounds count.
    """
    contenders: dict[str, Callable[[str], object]] = {"seven expressions": seven, "detect": detect, "stream": _stream}
    presidio = _presidio()
    if presidio is not None:
        contenders["Presidio, patterns only"] = presidio
    costs = [_round(contenders, texts) for _ in range(rounds)]
    return {
        name: (
            1 / median(cost[name] for cost in costs),
            median(cost["seven expressions"] / cost[name] for cost in costs),
        )
        for name in contenders
    }


def _round(contenders: dict[str, Callable[[str], object]], texts: list[str]) -> dict[str, float]:
    """Seconds of CPU a character."""
    costs = {}
    for name, work in contenders.items():
        part = texts[: len(texts) // 40] if name.startswith("Presidio") else texts
        started = process_time()
        for text in part:
            work(text)
        costs[name] = (process_time() - started) / sum(map(len, part))
    return costs


def growth(unit: str) -> tuple[float, float]:
    """The exponent with which the cost of `unit` repeated grows, and megabytes a second at the longest."""
    costs = []
    for size in SIZES:
        text = (unit * (size // len(unit) + 1))[:size]
        started = process_time()
        detect(text)
        costs.append(max(process_time() - started, 1e-6))
    return math.log(costs[-1] / costs[0]) / math.log(SIZES[-1] / SIZES[0]), SIZES[-1] / costs[-1] / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.privacy", description=__doc__)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    console = Console(width=100)
    texts = messages(args.messages)
    found = speeds(texts, args.rounds)
    table = Table("contender", "million characters/s", "against the seven")
    for name, (speed, ratio) in found.items():
        table.add_row(name, f"{speed / 1e6:.2f}", f"{ratio:.2f}x")
    console.print(f"{len(texts)} messages of {sum(map(len, texts)) // len(texts)} characters on average")
    console.print(table)
    if "Presidio, patterns only" not in found:
        console.print("Presidio is not installed here; `pip install presidio-analyzer` beside tenuto adds it.")
    hostile = Table("hostile text", "grows with n to the power of", "million characters/s")
    for name, unit in HOSTILE.items():
        exponent, speed = growth(unit)
        hostile.add_row(name, f"{exponent:.2f}", f"{speed:.2f}")
    console.print(hostile)


if __name__ == "__main__":
    main()
