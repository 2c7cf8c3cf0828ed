"""Repeated memories are counted: the same letters, and nearly the same terms."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tenuto.model.memory import Memory, MemoryKind
from tenuto.upkeep.memory_audit import count_near, count_repeated

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def said(*texts: str, speaker: str = "") -> list[Memory]:
    return [
        Memory(id=f"{speaker}{number}", kind=MemoryKind.FACT, text=text, said_at=NOW, speaker=speaker)
        for number, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("texts", "repeated", "near"),
    [
        ((), 0, 0),
        (("I like tea.", "i  like TEA."), 1, 0),
        (("I keep nine brown hens and one goose.", "I keep nine brown hens and a goose!"), 0, 1),
        (("I keep nine brown hens.", "I play the cello in Genoa."), 0, 0),
        (("我住在博洛尼亚，养了两只猫。", "我住在博洛尼亚，养了两只猫！"), 1, 0),
        (("😀", "🙃"), 0, 0),
    ],
)
def test_repetition_is_counted(texts: tuple[str, ...], repeated: int, near: int) -> None:
    assert (count_repeated(said(*texts)), count_near(said(*texts))) == (repeated, near)


def test_two_people_who_say_the_same_do_not_repeat_each_other() -> None:
    both = said("I keep nine brown hens.", speaker="ann") + said("I keep nine brown hens.", speaker="bob")

    assert (count_repeated(both), count_near(both)) == (0, 0)
