"""Bars: nothing is left out, nothing is drawn longer than it is, and without colours letters tell."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.cli.bars import bars, budget_bar, cells, stretches, timeline
from tenuto.cli.trace_view import show_manifest
from tenuto.model.prompt import Disposition, Kind, LayoutName, Manifest, ManifestEntry, Reason

AMOUNTS = st.lists(st.one_of(st.just(0.0), st.floats(0.001, 1e7)), max_size=12)


def manifest(*tokens: tuple[Kind, int], budget: int = 1000, reply: int = 200, margin: float = 1.0) -> Manifest:
    entries = tuple(
        ManifestEntry(kind=kind, disposition=Disposition.KEPT, reason=Reason.FITS, tokens=count, uncut_tokens=count)
        for kind, count in tokens
    )
    return Manifest(
        entries=entries,
        total=sum(entry.tokens for entry in entries),
        prompt_limit=int((budget - reply) / margin),
        budget=budget,
        reply_tokens=reply,
        encoding="o200k_base",
        exact=True,
        margin=margin,
        layout=LayoutName.CHAT,
    )


@given(AMOUNTS, st.integers(1, 200))
def test_a_bar_is_as_wide_as_it_should_be_and_shows_whatever_there_is(amounts: list[float], width: int) -> None:
    found = cells(amounts, width)

    some = [amount for amount in amounts if amount > 0]
    assert sum(found) == (width if some else 0)
    assert all(cell == 0 for amount, cell in zip(amounts, found, strict=True) if amount == 0)
    if len(some) <= width:
        assert all(cell >= 1 for amount, cell in zip(amounts, found, strict=True) if amount > 0)


@given(AMOUNTS, st.integers(12, 200))
def test_what_is_more_is_never_drawn_shorter(amounts: list[float], width: int) -> None:
    by_amount = sorted(zip(amounts, cells(amounts, width), strict=True))

    # Remainders are given out one by one, so that equal amounts may differ by a cell.
    assert all(left <= right + 1 for (_, left), (_, right) in pairwise(by_amount))


@given(st.integers(0, 700), st.integers(0, 90), st.sampled_from([1.0, 1.25, 1.5]))
def test_the_parts_of_a_budget_add_up_to_it(system: int, question: int, margin: float) -> None:
    shown = manifest((Kind.SYSTEM, int(system / margin)), (Kind.QUESTION, int(question / margin)), margin=margin)

    assert sum(part.amount for part in stretches(shown)) == pytest.approx(shown.budget)
    assert shown.total <= shown.prompt_limit


def test_kinds_are_one_stretch_each_in_the_prompts_order() -> None:
    shown = manifest((Kind.SYSTEM, 100), (Kind.MESSAGE, 50), (Kind.MESSAGE, 150), (Kind.EVIDENCE, 0), (Kind.FRAME, 10))

    assert [(part.name, part.amount) for part in stretches(shown)] == [
        ("system", 100), ("message", 200), ("frame", 10), ("free", 490), ("reply", 200)
    ]  # fmt: skip


def test_without_colours_letters_tell_the_parts_apart() -> None:
    bar, legend = budget_bar(manifest((Kind.SYSTEM, 400), (Kind.QUESTION, 100)), width=20, coloured=False).splitlines()

    assert re.fullmatch(r"\[s{8}q{2}\.{6}r{4}\]", bar)
    assert legend == "s system 400  q question 100  . free 300  r reply 200"


def test_with_colours_each_part_has_its_own() -> None:
    bar = budget_bar(manifest((Kind.SYSTEM, 400), (Kind.QUESTION, 100)), width=20, coloured=True).splitlines()[0]

    assert re.findall(r"\x1b\[(\d+)m +", bar) == ["44", "102", "100"]


def test_steps_follow_each_other() -> None:
    lines = timeline({"begin": 5.0, "model": 90.0, "finish": 5.0}, width=20)

    assert lines == [
        "begin   █                            5.0 ms",
        "model    ██████████████████         90.0 ms",
        "finish                     █         5.0 ms",
    ]


def test_a_turn_without_a_model_has_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    show_manifest(None)

    assert "No model was called" in capsys.readouterr().out


def test_the_list_names_kind_fate_reason_tokens_and_which_one(capsys: pytest.CaptureFixture[str]) -> None:
    shown = manifest((Kind.SYSTEM, 54))
    cut = ManifestEntry(
        kind=Kind.MESSAGE,
        disposition=Disposition.CUT,
        reason=Reason.MESSAGE_CAP,
        tokens=20,
        uncut_tokens=90,
        first=3,
        last=3,
    )
    gone = ManifestEntry(
        kind=Kind.MESSAGE, disposition=Disposition.DROPPED, reason=Reason.OVER_BUDGET, first=1, last=2, count=2
    )

    show_manifest(Manifest(**{**{name: getattr(shown, name) for name in shown.__struct_fields__},
                              "entries": (*shown.entries, gone, cut)}))  # fmt: skip

    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert rows == [
        ["KIND", "DISPOSITION", "REASON", "TOKENS", "WHAT"],
        ["system", "kept", "fits", "54"],
        ["message", "dropped", "over_budget", "0", "#1", "to", "#2"],
        ["message", "cut", "message_cap", "20", "#3,", "of", "90", "tokens"],
    ]


@given(st.lists(st.integers(0, 10**9), max_size=12))
def test_the_greatest_amount_has_the_longest_bar_and_none_is_lost(amounts: list[int]) -> None:
    lengths = [len(bar) for bar in bars(amounts, width=20)]

    assert max(lengths, default=0) == (20 if any(amounts) else 0)
    assert [length > 0 for length in lengths] == [amount > 0 for amount in amounts]
