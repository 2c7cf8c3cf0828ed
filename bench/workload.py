"""What everybody is asked to store, and the loop that asks.

Only the standard library is used here, since other projects run this in environments that lack our dependencies.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final, Literal, Protocol, cast

WINDOW: Final = 20
SHORTEST: Final = 200
LONGEST: Final = 600

Operation = Literal["append", "load", "cycle", "ask"]
OPERATIONS: Final[tuple[Operation, ...]] = ("append", "load", "cycle")
# The length of a history that has no messages yet: each slice takes turns in new sessions, so many in each.
YOUNG: Final = 0
YOUNG_TURNS: Final = 14
# Histories of asks differ in length by so many turns, so that their compressions do not fall into one slice.
PHASES: Final = 16

_ENGLISH: Final = (
    "Could you tell me which of the two routes is open on Sundays?",
    "The parcel left the depot at noon and should be with you by Thursday.",
    "I would rather keep the old tariff until the contract ends in March.",
    "There are three rooms left, and the one on the courtyard is the quietest.",
    "Please compare both drafts and mark every sentence that changed.",
    "According to the catalogue the vase was found in 1923, near the river gate.",
    "If the light blinks twice, hold the button for five seconds and try again.",
    "My flight was moved to the evening, so dinner has to wait until nine.",
)
_CHINESE: Final = (
    "请问这款耳机支持同时连接两台设备吗？",
    "您的订单已经出库，预计后天下午送达。",
    "我想把会议改到下周三上午，大家方便吗？",
    "这件青铜器出土于城南的一处窖藏，年代约为西周晚期。",
    "如果合同里没有写明期限，任何一方都可以提前一个月通知终止。",
    "麻烦再核对一次发票抬头和税号，谢谢。",
    "展厅二楼的导览每小时一场，最后一场是下午四点。",
    "上次说的那个方案我又想了想，还是分两步走比较稳妥。",
)

_THINGS: Final = ("cello", "bicycle", "greenhouse", "typewriter", "canoe", "telescope", "loom", "accordion", "kiln")
_PLACES: Final = ("Lisbon", "Bergen", "Kyoto", "Quebec", "Tartu", "Valencia", "Graz", "Galway", "Cusco")


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer, of 200 to 600 characters each, in English or Chinese; `number` makes ids unique."""

    number: int
    user: str
    assistant: str


def statement(number: int) -> str:
    """A new statement of somebody about themselves, of 40 to 120 characters; most in English."""
    dice = random.Random(number)
    thing, place = f"{dice.choice(_THINGS)} number {number}", f"{dice.choice(_PLACES)} {dice.randint(1, 999)}"
    if number % 4 == 0:
        day = dice.choice("一二三四五六")
        return (
            f"我在{place}附近租了一间工作室，每逢星期{day}都会去那里整理第{number}批旧照片和信件，然后一个人走路回家。"
        )
    rest = dice.choice(("", " and I go there with my sister on most weekends", " since my old one broke in spring"))
    return f"I bought a {thing} near {place}{rest}."


class Words:
    """An endless supply of turns, the same for everybody."""

    def __init__(self, seed: int = 2026) -> None:
        dice = random.Random(seed)
        self._texts = [_text(dice, _CHINESE if place % 2 else _ENGLISH) for place in range(256)]
        self._number = 0

    def turn(self) -> Turn:
        """The next one. Question and answer are in one language."""
        self._number += 1
        place = 4 * self._number + self._number % 2
        return Turn(self._number, self._texts[place % 256], self._texts[(place + 2) % 256])


def _text(dice: random.Random, sentences: Sequence[str]) -> str:
    length = dice.randint(SHORTEST, LONGEST)
    text = ""
    while len(text) < length:
        text += dice.choice(sentences) + " "
    return text[:length]


class Contender(Protocol):
    """Someone who stores conversations. Each method is one whole action, in the way that party would write it."""

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        """Make the session with these turns in it, as fast as possible; this is not measured."""
        ...

    async def append(self, session: str, turn: Turn) -> None:
        """Store a question and its answer."""
        ...

    async def load(self, session: str) -> int:
        """Fetch the newest 20 messages and tell how many came."""
        ...

    async def cycle(self, session: str, turn: Turn) -> int:
        """Fetch the newest 20, store the question, then the answer; tell how many came."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


class Asker(Contender, Protocol):
    """A contender with a model that answers at once."""

    async def ask(self, session: str, turn: Turn) -> None:
        """One whole turn."""
        ...

    async def settle(self) -> None:
        """Wait for the work that turns leave behind; it belongs to their cost."""
        ...


@dataclass(frozen=True, slots=True)
class Measured:
    """One slice of time: how many operations ended in it, and how long a usual one took."""

    operations: int
    errors: int
    seconds: float
    p50: float
    length: float
    """How many messages the sessions held on average, halfway through."""
    cpu: float
    """Processor seconds of the contender's process, all threads."""

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds

    @property
    def rate_of_cpu(self) -> float:
        """Operations per processor second."""
        return self.operations / self.cpu

    def as_dict(self) -> dict[str, Any]:
        """For the wire between the processes."""
        return asdict(self)


class Pool:
    """Sessions of about one length. They are used in turn, so that they grow little and alike."""

    def __init__(self, contender: Contender, prefix: str, count: int, history: int) -> None:
        self.sessions: Final = [f"{prefix}-{history}-{place}" for place in range(count)]
        self.history: Final = history
        self._contender = contender
        self._prefix = prefix
        self._messages = 0
        self._next = 0

    async def fill(self, words: Words, phases: int = 1, side_by_side: int = 4) -> None:
        """Store the history, and see that a load finds it. With `phases` the lengths differ around the one asked."""
        if self.history == YOUNG:
            return
        waiting = list(enumerate(self.sessions))

        async def worker() -> None:
            while waiting:
                place, session = waiting.pop()
                turns = self.history // 2 + place % phases - phases // 2
                await self._contender.seed(session, [words.turn() for _ in range(turns)])

        await asyncio.gather(*(worker() for _ in range(side_by_side)))
        found = await self._contender.load(self.sessions[0])
        if found != min(WINDOW, self.history):
            raise RuntimeError(f"a load found {found} messages after {self.history} were stored")

    async def measure(self, what: Operation, words: Words, at_once: int, seconds: float, at_most: int) -> Measured:
        """Keep `at_once` operations going, each on a session of its own, until the time or the count is over."""
        act = self._act(what, words)
        before = self._messages
        took: list[float] = []
        errors = 0
        started, cpu = perf_counter(), process_time()
        deadline = started + seconds
        # Each task walks through its own share of the sessions, and goes on where the last slice stopped.
        share = max(1, len(self.sessions) // at_once)
        # Appended messages are no turns: where there are enough sessions, turns are measured in others.
        first = 0
        if share > 1 and what != "ask":
            share //= 2
            first = share * at_once if what == "append" else 0

        async def worker(place: int) -> None:
            nonlocal errors
            step = self._next
            begun = perf_counter()
            while begun < deadline and len(took) + errors < at_most:
                session = self._session(first + place, at_once, step, share)
                step += 1
                try:
                    await act(session)
                except Exception:
                    # A "database is locked" of somebody is a result, not the end of the run.
                    errors += 1
                    begun = perf_counter()
                else:
                    ended = perf_counter()
                    took.append(ended - begun)
                    begun = ended

        await asyncio.gather(*(worker(place) for place in range(at_once)))
        if what == "ask":
            await cast(Asker, self._contender).settle()
        spent, cpu = perf_counter() - started, process_time() - cpu
        self._next += len(took) // at_once + 1
        halfway = (before + self._messages) / 2 / max(1, len(self.sessions))
        return Measured(len(took), errors, spent, median(took) if took else spent, self.history + halfway, cpu)

    def _session(self, place: int, at_once: int, step: int, share: int) -> str:
        if self.history == YOUNG:
            return f"{self._prefix}-young-{self._next}-{place + at_once * ((step - self._next) // YOUNG_TURNS)}"
        return self.sessions[(place + at_once * (step % share)) % len(self.sessions)]

    def _act(self, what: Operation, words: Words) -> Callable[[str], Awaitable[object]]:
        contender = self._contender

        async def append(session: str) -> None:
            await contender.append(session, words.turn())
            self._messages += 2

        async def cycle(session: str) -> None:
            await contender.cycle(session, words.turn())
            self._messages += 2

        async def ask(session: str) -> None:
            await cast(Asker, contender).ask(session, words.turn())
            self._messages += 2

        return {"append": append, "load": contender.load, "cycle": cycle, "ask": ask}[what]
