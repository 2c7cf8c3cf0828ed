"""Laws of compression: whatever is said, at all times every message is raw in the log or covered."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, example, given, note, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.context import TokenCounter, assemble, prompt_token_limit
from tenuto.context.compression import compression_due, conversation_in, find_summary, outliving, summary_limits
from tenuto.context.tool_pairs import drop_unpaired_tools
from tenuto.errors import ModelFailed, TurnLost, VersionConflict
from tenuto.model import (
    AppendResult,
    Draft,
    FinishTurn,
    Message,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Retention,
    Role,
    Scope,
    Session,
    Truncation,
    text_part,
    tool_call,
    tool_result,
)
from tenuto.model.generation import TurnSnapshot
from tenuto.model.message import is_summary
from tenuto.model.parameters import AnswerSchema
from tenuto.model.policy import ContextPolicy, Preset, SessionPolicy
from tenuto.model.prompt import Language, PromptInputs, PromptPolicy
from tenuto.ports import Store
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import AppendRequest, EventEmitter, Sessions, TurnRequest
from tenuto.upkeep import Upkeep
from tests.backends import sqlite_engine
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ANN, HEAD, SENT_AT, fresh

pytestmark = pytest.mark.requirement("T12", "E13", "U4", "U6")


COUNTER = TokenCounter()
MARK = re.compile(r"word\d+x")
FILLING = ("we talk about the house rules. ", "关于家训的内容，孝悌为本。", "x")

Opened = Callable[[FakeClock], AbstractAsyncContextManager[Store]]


@dataclass(frozen=True)
class Plan:
    """What a session lives through: its policies, and steps of `(what, number)`."""

    cap: int | None
    over: int | None
    ratio: float | None
    budget: int
    model: str
    patience: int
    meddling: str
    steps: list[tuple[str, int]]


plans = st.builds(
    Plan,
    cap=st.sampled_from([14, 24, 60, 500, None]),
    over=st.sampled_from([30, 12, None]),
    ratio=st.sampled_from([0.7, 0.3]),
    budget=st.sampled_from([600, 2000, 8000]),
    model=st.sampled_from(["none", "good", "fails", "garbage"]),
    patience=st.sampled_from([0, 1, 3, 8]),
    meddling=st.sampled_from(["", "", "while the model thinks", "in the last moment"]),
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                ["turn"] * 14
                + ["unfinished", "slow turn", "tools", "drain", "drain", "reset", "truncate", "truncate", "restart"]
                + ["go back", "go back"]
            ),
            st.integers(0, 10_000),
        ),
        min_size=1,
        max_size=30,
    ),
)


async def model_that(life: Life, text: str) -> str:
    """A small model that answers, fails, or talks of something else; meanwhile the conversation goes on."""
    await life.pass_time()
    await life.meddle("while the model thinks")
    match life.plan.model:
        case "fails":
            raise ModelFailed("small")
        case "garbage":
            return "Lorem ipsum dolor sit amet consectetur " * 50
        case _:
            return "We talk about the house rules. " + " ".join(MARK.findall(text)[:5])


class Watched(Sessions):
    """Sessions where somebody may take words back just before a summary of them is stored."""

    meddle: Callable[[], Awaitable[None]] | None = None

    async def append(self, scope: Scope, session_id: str, request: AppendRequest) -> AppendResult:
        if self.meddle is not None and is_summary(request.messages[0]):
            await self.meddle()
        return await super().append(scope, session_id, request)


@dataclass
class Life:
    """A session, what was said in it by number, and what must still be found."""

    plan: Plan
    sessions: Sessions
    id: str = field(default_factory=lambda: fresh("talk"))
    said: dict[int, Message] = field(default_factory=dict)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    cuts: list[tuple[int, int]] = field(default_factory=list)
    cuts_begun: int = 0
    cuts_under_way: int = 0
    marks: int = 0
    upkeep: list[Upkeep] = field(init=False)

    def __post_init__(self) -> None:
        self.upkeep = [self.opened(), self.opened()]

    def opened(self) -> Upkeep:
        """What follows the turns, in one process."""

        async def small(
            scope: Scope, instructions: str, text: str, tokens: int, schema: AnswerSchema | None = None
        ) -> str:
            return await model_that(self, text)

        return Upkeep(
            sessions=self.sessions,
            redaction=UpkeepRedaction(NO_REDACTION),
            sweep_every=timedelta(minutes=5),
            model=None if self.plan.model == "none" else small,
        )

    @property
    def policies(self) -> Preset:
        context = ContextPolicy(
            compress_at=self.plan.ratio, compress_over=self.plan.over, keep_verbatim=min(20, (self.plan.over or 30) - 4)
        )
        return Preset(sessions=self.sessions.policy, context=context)

    @property
    def prompt(self) -> PromptPolicy:
        return PromptPolicy(budget=self.plan.budget, reply_tokens=100)

    def words(self, role: Role, number: int) -> Draft:
        self.marks += 1
        text = f"word{self.marks}x " + FILLING[number % 3] * [1, 3, 5, 40, 400][number % 5]
        return COUNTER.with_count(Draft(id=fresh("m"), role=role, sent_at=SENT_AT, parts=(text_part(text),)))

    def reply(self, number: int) -> tuple[Draft, ...]:
        drafts: list[Draft] = []
        for step in range(number % 4):
            call = tool_call(f"call-{step}", "search", {"query": "rules " * (number % 50)})
            result = tool_result(f"call-{step}", {"hits": [{"name": "rule " * (number % 400)}]})
            drafts += [
                Draft(id=fresh("m"), role=role, sent_at=SENT_AT, parts=(part,))
                for role, part in ((Role.ASSISTANT, call), (Role.TOOL, result))
            ]
        return (*drafts, self.words(Role.ASSISTANT, number // 7))

    # What happens

    async def do(self, what: str, number: int) -> None:
        match what:
            case "turn":
                await self.finish(await self.begin(number), number)
            case "unfinished":
                turn = await self.begin(number)
                with contextlib.suppress(TurnLost):
                    await self.sessions.finish(turn, FinishTurn(abandoned=True))
            case "slow turn":
                turn = await self.begin(number)
                await self.drain()
                await self.finish(turn, number)
            case "tools":
                await self.tools()
            case "drain":
                await self.drain()
            case "restart":
                await self.upkeep[0].drain(timedelta(0))
                self.upkeep[0] = self.opened()
            case "reset" | "truncate":
                await self.take_back(what, number)
            case "go back":
                await self.go_back(number)
        await asyncio.sleep(0)

    async def begin(self, number: int) -> OpenTurn:
        words = tuple(self.words(Role.USER, number + place) for place in range(1 + number % 2))
        turn = await self.sessions.begin(ANN, TurnRequest(user_messages=words, session_id=self.id, window=100))
        self.note(turn.user_messages)
        return turn

    async def finish(self, turn: OpenTurn, number: int) -> None:
        reply = self.reply(number)
        summary = find_summary(turn.window, turn.session.window_start)
        await self.upkeep[0].after_turn.secure(
            self.snapshot(turn.session), through=summary.through if summary else 0, adding=len(reply)
        )
        try:
            done = await self.sessions.finish(turn, FinishTurn(reply=reply))
        except TurnLost:
            return
        self.note(done.messages)
        for upkeep in self.upkeep[: 1 + number % 2]:
            upkeep.after_turn.follow(self.snapshot(done.session, (*turn.window, *done.messages) if number % 3 else ()))

    async def tools(self) -> None:
        """Calls and results that a client appends one by one; without turns nothing keeps them from the stored cap."""
        if self.plan.cap is None or self.plan.cap >= 500:
            for role, part in ((Role.ASSISTANT, tool_call("a", "f", {})), (Role.TOOL, tool_result("a", 1))):
                draft = Draft(id=fresh("m"), role=role, sent_at=SENT_AT, parts=(part,))
                self.note((await self.sessions.append(ANN, self.id, AppendRequest(messages=(draft,)))).messages)

    async def meddle(self, when: str) -> None:
        self.marks += 1
        if self.plan.meddling == when and self.marks % 3 == 0:
            if self.marks % 2:
                await self.go_back(self.marks)
            else:
                await self.take_back("reset" if self.marks % 5 == 0 else "truncate", self.marks * 7)

    async def take_back(self, what: str, number: int) -> None:
        with self.cutting():
            await self._take_back(what, number)

    @contextlib.contextmanager
    def cutting(self) -> Iterator[None]:
        """What is cut is noted once the store has answered."""
        self.cuts_begun += 1
        self.cuts_under_way += 1
        try:
            yield
        finally:
            self.cuts_under_way -= 1

    async def _take_back(self, what: str, number: int) -> None:
        look = await self.log()
        await self.pass_time()
        if what == "reset":
            await self.cut(look, None)
        else:
            await self.cut(look, look.messages[number % len(look.messages)].seq if look.messages else 0)

    async def cut(self, look: MessagePage, after: int | None) -> None:
        """Reset, or truncate after a number that a look at the log gave; talk may have gone on since that look."""
        if after is None:
            session, after = await self.sessions.reset(ANN, self.id), 0
        else:
            session = await self.sessions.truncate(ANN, self.id, Truncation(after=after))
        self.cuts.append((after, session.last_seq))
        gone = [message for message in (*look.messages, *self.said.values()) if message.seq > after]
        self.forget(gone)
        # A summary goes with what stood before it when it was written. Where the stored cap had taken messages that
        # only it covered, they are gone with it: the one way to lose words is to ask for words to be lost.
        raw = self.held_at(session, look)
        self.said = {seq: message for seq, message in self.said.items() if seq <= after and seq in raw}

    async def go_back(self, number: int) -> None:
        """Cut as chat does for an answer made anew: behind a user's words, sparing the summaries of what stays."""
        with self.cutting():
            await self._go_back(number)

    async def _go_back(self, number: int) -> None:
        look = await self.log()
        await self.pass_time()
        asked = [message.seq for message in look.messages if message.role is Role.USER]
        if not asked:
            return
        after = asked[-1 - number % min(len(asked), 3)]
        sparing, version = outliving(look.messages, after), look.session.version
        try:
            session = await self.sessions.truncate(
                ANN, self.id, Truncation(after=after, if_version=version, keep_seqs=sparing)
            )
        except VersionConflict:
            return
        self.cuts.append((after, session.last_seq))
        self.forget(message for message in look.messages if message.seq > after)
        self.said = {seq: message for seq, message in self.said.items() if seq <= after}
        summary = find_summary(look.messages, look.session.window_start)
        if summary is not None and summary.through > after:
            # It told of what was taken back, and went with it.
            raw = self.held_at(session, look)
            self.said = {seq: message for seq, message in self.said.items() if seq in raw}

    def held_at(self, session: Session, look: MessagePage) -> set[int]:
        """What the stored cap had left when a cut came: of what was looked at, and of all that got a number since."""
        known = [message.seq for message in look.messages]
        known += range(look.session.last_seq + 1, session.last_seq + 1)
        return set(known[-self.plan.cap :] if self.plan.cap is not None else known)

    def forget(self, messages: Iterable[Message]) -> None:
        self.forgotten |= {mark for message in messages for mark in MARK.findall(message.text)}

    async def pass_time(self) -> None:
        """Let others go first, as often as the plan says."""
        for _ in range(self.plan.patience):
            await asyncio.sleep(0)

    async def drain(self) -> None:
        for upkeep in self.upkeep:
            await upkeep.drain()

    def snapshot(self, session: Session, loaded: tuple[Message, ...] = ()) -> TurnSnapshot:
        return TurnSnapshot(
            scope=ANN,
            session=session,
            assistant="general",
            language=Language.ENGLISH,
            policies=self.policies,
            prompt=self.prompt,
            question="",
            log_tail=loaded,
        )

    def note(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            # What was stored may be taken back before its caller hears of it.
            if any(after < message.seq <= last for after, last in self.cuts):
                self.forget([message])
                continue
            self.said[message.seq] = message
            if message.role is Role.TOOL:
                call = max(seq for seq in self.said if seq < message.seq)
                self.pairs.append((call, message.seq))

    async def log(self) -> MessagePage:
        return await self.sessions.messages(ANN, self.id, Page(limit=10_000))

    # What must hold

    async def settled_log(self) -> MessagePage:
        """The log between two cuts: one that was made and is not noted yet would look like a loss."""
        while True:
            begun, page = self.cuts_begun, await self.log()
            if not self.cuts_under_way and self.cuts_begun == begun:
                return page
            await asyncio.sleep(0)

    async def check(self) -> None:
        page = await self.settled_log()
        session, log = page.session, page.messages
        summary = find_summary(log, session.window_start)
        through = summary.through if summary is not None else 0
        raw = {message.seq for message in log}
        lost = [seq for seq in self.said if seq not in raw and seq > through and seq >= session.window_start]
        assert lost == [], f"neither raw nor covered: {lost}, covered up to {through}"
        if summary is not None:
            self.check_summary(summary.text, summary.tokens)
        self.check_pairs(through)
        self.check_prompt(session, log)
        self.check_reach(log, session, through)

    def check_summary(self, text: str, tokens: int) -> None:
        limits = summary_limits(self.prompt, self.policies.context, COUNTER)
        assert tokens == COUNTER.count(text) <= limits.tokens
        assert not self.forgotten & set(MARK.findall(text)), "a summary tells what was taken back"

    def check_pairs(self, through: int) -> None:
        """A call and its result are both covered, or neither is."""
        for call, result in self.pairs:
            if result in self.said:
                assert (call <= through) == (result <= through)

    def check_prompt(self, session: Session, log: tuple[Message, ...]) -> None:
        summary = find_summary(log, session.window_start)
        materials = PromptInputs(
            question="and now?",
            summary=summary.text if summary else "",
            summarized_through=summary.through if summary else 0,
            window_start=session.window_start,
            history=conversation_in(log),
        )
        manifest = assemble(materials, self.prompt, self.policies.context, COUNTER).manifest
        assert manifest.total <= prompt_token_limit(self.prompt, COUNTER)

    def check_reach(self, log: tuple[Message, ...], session: Session, through: int) -> None:
        """However little of the log is loaded, no summary is believed that tells more or what was taken back."""
        for start in range(len(log)):
            found = find_summary(log[start:], session.window_start)
            if found is not None:
                assert found.through <= through
                self.check_summary(found.text, found.tokens)


@asynccontextmanager
async def born(plan: Plan, opened: Opened) -> AsyncIterator[Life]:
    clock = FakeClock()
    async with opened(clock) as store:
        policy = SessionPolicy(retention=Retention(max_messages=plan.cap))
        sessions = Watched(store=store.sessions, upkeep=store.upkeep, policy=policy, events=EventEmitter(clock=clock))
        life = Life(plan, sessions)
        sessions.meddle = lambda: life.meddle("in the last moment")
        await sessions.create(ANN, NewSession(), life.id)
        yield life


async def live(plan: Plan, opened: Opened) -> None:
    note(repr(plan))
    async with born(plan, opened) as life:
        for what, number in plan.steps:
            await life.do(what, number)
            await life.check()
        await life.drain()
        await life.check()
        await at_rest(life)


async def at_rest(life: Life) -> None:
    """Nothing is made anew while nothing changes."""
    life.plan = dataclasses.replace(life.plan, meddling="")
    before = await life.log()
    for upkeep in life.upkeep:
        upkeep.after_turn.follow(life.snapshot(before.session))
    await life.drain()
    once = await life.log()
    for upkeep in life.upkeep:
        upkeep.after_turn.follow(life.snapshot(once.session))
    await life.drain()
    assert (await life.log()).messages == once.messages


@asynccontextmanager
async def memory(clock: FakeClock) -> AsyncIterator[Store]:
    yield MemoryStore(clock=clock)


@asynccontextmanager
async def sqlite(clock: FakeClock) -> AsyncIterator[Store]:
    with TemporaryDirectory() as folder:
        async with sqlite_engine(Path(folder) / "talk.db", clock) as store:
            yield store


# Where a cut may lie, by itself

kinds = st.sampled_from(["user", "assistant", "call", "result", "other result", "item"])


@pytest.mark.requirement("U4")
@settings(max_examples=300)
@given(
    st.lists(st.tuples(kinds, st.sampled_from([0, 0, 0, 1])), min_size=8, max_size=60),
    st.sampled_from([None, 20, 40]),
    st.sampled_from([2, 6, 20]),
)
def test_a_cut_leaves_every_call_with_its_results(entries: list[tuple[str, int]], cap: int | None, keep: int) -> None:
    """Also where results come as turns of their own, and where the stored cap cuts a long turn apart."""
    log, turn = [], 1
    for seq, (kind, step) in enumerate(entries, 1):
        turn += step
        log.append(entry_of(kind, seq, turn))
    session = replace(HEAD, retention=Retention(max_messages=cap), last_seq=len(log), turns=turn)
    context = ContextPolicy(compress_at=0.9, compress_over=keep + 1, keep_verbatim=keep)

    found = compression_due(session, log, COUNTER, PromptPolicy(), context)

    if found is not None:
        cut = len(found.cover)
        assert list(found.cover) == log[:cut]
        assert 0 < cut < len(log)
        assert len(paired_parts(log[:cut])) + len(paired_parts(log[cut:])) == len(paired_parts(log))


def paired_parts(messages: list[Message]) -> list[Any]:
    """The tool parts that providers accept: calls with their results."""
    return [
        part
        for parts in drop_unpaired_tools(messages)
        for part in parts
        if part["type"] in ("tool_call", "tool_result")
    ]


def entry_of(kind: str, seq: int, turn: int) -> Message:
    roles = {"user": Role.USER, "item": Role.ITEM, "result": Role.TOOL, "other result": Role.TOOL}
    parts = {
        "call": (tool_call("a", "f", {}), tool_call("b", "f", {})),
        "result": (tool_result("a", "found"),),
        "other result": (tool_result("b", "found"),),
        "item": ({"type": "reasoning"},),
    }
    role = roles.get(kind, Role.ASSISTANT)
    words = (text_part("words"),)
    return Message(id=f"m{seq}", role=role, sent_at=SENT_AT, parts=parts.get(kind, words), seq=seq, turn=turn)


# A turn begins between somebody's look at the log and the truncation that came of it.
OVERTAKEN = Plan(
    cap=14,
    over=30,
    ratio=0.7,
    budget=600,
    model="none",
    patience=0,
    meddling="in the last moment",
    steps=[("turn", 0), ("turn", 1), ("turn", 0), ("turn", 26), ("turn", 0)],
)

# The summary made room for stands between the last question and its answer, and alone covers the first message.
ANEW = dataclasses.replace(
    OVERTAKEN, meddling="", steps=[("turn", 0), ("turn", 0), ("turn", 1), ("turn", 1), ("go back", 0)]
)

# Explaining a failure means tracing every line of every example, which takes ten times as long as the examples do.
QUICKLY = [phase for phase in Phase if phase is not Phase.explain]


@settings(max_examples=60, phases=QUICKLY)
@given(plans)
@example(OVERTAKEN)
@example(dataclasses.replace(OVERTAKEN, patience=3))
@example(ANEW)
def test_every_message_is_raw_or_covered_at_all_times(plan: Plan) -> None:
    asyncio.run(live(plan, memory))


@settings(max_examples=8, phases=QUICKLY)
@given(plans)
@example(OVERTAKEN)
@example(dataclasses.replace(OVERTAKEN, patience=3))
@example(ANEW)
def test_every_message_is_raw_or_covered_on_disk_too(plan: Plan) -> None:
    asyncio.run(live(plan, sqlite))


@pytest.mark.parametrize("opened", [memory, sqlite])
@pytest.mark.parametrize("place", [0, 1, 2, 5])
def test_a_truncation_loses_only_what_the_cap_had_taken_before_it(opened: Opened, place: int) -> None:
    """It takes summaries along that tell what it takes back; every message that was raw by then must still be so."""
    asyncio.run(overtaken(opened, place))


async def overtaken(opened: Opened, place: int) -> None:
    async with born(dataclasses.replace(OVERTAKEN, meddling=""), opened) as life:
        for what, number in OVERTAKEN.steps[:-1]:
            await life.do(what, number)
            await life.drain()
        look = await life.log()
        turn = await life.begin(1)
        chosen = look.messages[place].seq

        await life.cut(look, chosen)

        await life.check()
        slid_out = len(turn.user_messages)
        kept = [message.seq for message in look.messages[slid_out : place + 1]]
        assert [message.seq for message in (await life.log()).messages] == kept
        assert sorted(life.said) == kept
