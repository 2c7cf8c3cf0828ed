"""Laws of the rules of a session, without any server: what they leave alone, and what merging, retries, deltas and time
may not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.errors import SessionBusy, TenutoError
from tenuto.model import (
    AppendBatch,
    BeginTurn,
    Changes,
    Content,
    FinishTurn,
    NewSession,
    OpenTurn,
    Producer,
    Retention,
    Rewrite,
    Truncation,
    Usage,
    attachment_part,
    text_part,
)
from tenuto.model.attachment import content_digest, shown_in
from tenuto.model.scope import session_key
from tenuto.model.stored import Known, Part, StoredRecord
from tenuto.stores.engine import changes, rules
from tenuto.stores.engine.changes import build_change, known_of
from tenuto.stores.engine.codec import PLAIN, TornRecord
from tenuto.stores.engine.commands import Append
from tenuto.stores.engine.lane import with_messages
from tenuto.stores.engine.record import MessagesMissing, Record, Step
from tenuto.stores.engine.record_table import RecordTable
from tenuto.stores.engine.rules import keys
from tests.clock import START
from tests.samples import ANN, SENT_AT, answers, once, says

KEY = session_key(ANN, "s")
Command: TypeAlias = Callable[[Record | None, Any], Step[Any]]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that every history turns pages, forgets keys and evicts messages."""
    monkeypatch.setattr(keys, "IN_HEAD", 3)
    monkeypatch.setattr(keys, "PAGE", 2)
    monkeypatch.setattr(keys, "KEYS_REMEMBERED", 7)
    monkeypatch.setattr(changes, "EVICTION_BATCH", 3)


class Act(msgspec.Struct, frozen=True):
    """One command of a history, as plain data: the n-th is always the same command, so that it can be sent again."""

    kind: str
    number: int
    size: int
    keyed: bool


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "finish", "append", "append", "numbered", "patch", "truncate", "reset", "rewrite"]),
        st.integers(0, 4),
        st.booleans(),
    ),
    min_size=12,
    max_size=25,
).map(lambda acts: [Act(kind, number, size, keyed) for number, (kind, size, keyed) in enumerate(acts)])
CAPS = st.builds(
    Retention,
    idle=st.none() | st.just(timedelta(minutes=20)),
    max_messages=st.sampled_from([None, 4, 9]),
    max_turns=st.sampled_from([None, 2]),
)


def turn_of(number: int, incarnation: str) -> OpenTurn:
    return OpenTurn.named(ANN, "s", incarnation, f"turn{number}", number)


def drafts(act: Act) -> tuple[Any, ...]:
    """Messages of which some show a picture, and some the same one."""
    return tuple(
        (says if place % 2 == 0 else answers)(
            f"{act.number}.{place}", id=f"m{act.number}.{place}", **picture(act, place)
        )
        for place in range(act.size)
    )


def picture(act: Act, place: int) -> dict[str, Any]:
    number = (act.number + place) % 5
    if number > 2:
        return {}
    content = Content.of(ANN, bytes([number]), "image/png")
    return {"parts": (text_part("look"), attachment_part(content)), "contents": (content,)}


def command(act: Act, retention: Retention) -> Command:
    """The rule of an act. A finish ends the turn that runs; every fourth key is that of three acts before."""
    new = NewSession(retention=retention)
    guard = once(f"k{act.number - 3 * (act.number % 4 == 3)}", "f") if act.keyed else None
    match act.kind:
        case "begin":
            begin = BeginTurn(
                session_id="s",
                turn_id=f"turn{act.number}",
                user_messages=drafts(act),
                create=new,
                window=3,
                idempotency_key=guard,
            )
            return lambda record, now: rules.begin(record, ANN, begin, now)
        case "finish":
            finish = FinishTurn(reply=drafts(act), usage=Usage(tokens=act.size), abandoned=False)
            return lambda record, now: rules.finish(record, running_turn(record), finish, now)
        case "append":
            batch = AppendBatch(id=f"b{act.number}", messages=drafts(act), create=new, idempotency_key=guard)
            return lambda record, now: rules.append(record, ANN, "s", batch, now)
        case "numbered":
            numbered = AppendBatch(id=f"b{act.number}", messages=drafts(act), create=new, usage=Usage(tokens=1))
            return lambda record, now: rules.append(
                record, ANN, "s", replace(numbered, producer=Producer(id=f"p{act.size}", seq=1)), now
            )
        case "patch":
            patch = Changes(title=f"t{act.number}", context={"x": [act.number]}, window_start=act.size + 1)
            return lambda record, now: rules.patch(record, ANN, "s", patch, now)
        case "truncate":
            return lambda record, now: rules.truncate(record, ANN, "s", cut_of(record, act), now)
        case "reset":
            return lambda record, now: rules.reset(record, ANN, "s", (), now)
        case _:
            return lambda record, now: rules.rewrite(record, ANN, "s", rewrite_of(record, act), now)


def running_turn(record: Record | None) -> OpenTurn:
    if record is None or record.head.lease is None:
        return turn_of(999, "" if record is None else record.profile.incarnation)
    return OpenTurn.named(ANN, "s", record.profile.incarnation, record.head.lease.turn_id, record.head.turns)


def cut_of(record: Record | None, act: Act) -> Truncation:
    last = 0 if record is None else record.head.last_seq
    return Truncation(after=max(0, last - act.size), keep_seqs=(last,) if act.keyed else ())


def rewrite_of(record: Record | None, act: Act) -> Rewrite:
    tail = () if record is None else record.tail
    return Rewrite(messages=tuple(replace(message, metadata={"new": act.number}) for message in tail[: act.size]))


ALONE = ("truncate", "reset", "rewrite")


class Process:
    """A process over a table of records: it keeps what it saw last, and tries again when others came first."""

    def __init__(self, table: RecordTable, writer: int, tail: int = 64) -> None:
        self.table = table
        self.writer = writer
        self.tail = tail
        self.held: Record | None = None
        self.commits = 0
        self.conflicts = 0

    def run(self, commands: list[Command], now: Any) -> list[Any]:
        """Commit commands together; the answers, or what was refused."""
        while True:
            base = self.held
            ends, steps, after = self.apply(base, commands, now)
            if not steps:
                if base is self.held and self.refresh() is base:
                    return ends
                continue
            self.commits += 1
            revision = 100 if base is None else base.revision + 1
            after, change = build_change(
                KEY, base, after, steps, PLAIN, revision=revision, writer=(self.writer, self.commits)
            )
            if self.table.commit([change]) is None:
                self.held = after
                return ends
            self.conflicts += 1
            self.refresh()

    def apply(self, base: Record | None, commands: list[Command], now: Any) -> tuple[list[Any], list[Any], Any]:
        ends, steps, record = list[Any](), list[Step[Any]](), base
        for one in commands:
            try:
                step = self.fetching(one, record, now, merged=bool(steps))
            except TenutoError as error:
                ends.append(error.code)
                continue
            ends.append(step.answer)
            if step.changed:
                steps.append(step)
                record = step.record
        return ends, steps, record

    def fetching(self, one: Command, record: Record | None, now: Any, *, merged: bool) -> Step[Any]:
        while True:
            try:
                return one(record, now)
            except MessagesMissing as error:
                assert record is not None
                assert not merged, "only short tails miss messages, and they merge nothing"
                page = self.table.page(KEY, Part.MESSAGES, *error.span, 1000)
                record = with_messages(record, error.span, PLAIN.decode_messages(page.entries, record.profile))

    def refresh(self) -> Record | None:
        """Load what the process lacks; what it held stays the same object if nothing is new."""
        stored = self.table.load(KEY, self.tail, known_of(self.held))
        if stored is None:
            self.held = None
        elif self.held is None or stored.revision != self.held.revision:
            self.held = PLAIN.decode_record(stored, "s", self.held, tail=self.tail) or full(self.table, self.tail)
        return self.held


def full(table: RecordTable, tail: int = 64) -> Record | None:
    """The record as a process without any memory of it loads it."""
    stored = table.load(KEY, tail)
    return None if stored is None else PLAIN.decode_record(stored, "s", tail=tail)


def contents(table: RecordTable) -> dict[str, Any]:
    """What a table holds that callers can see: without revisions, and without evicted messages still to be removed."""
    record = full(table, 10_000)
    if record is None:
        return {}
    head = replace(record.head, writers=(), listed_at=None, stored_from=1)
    return {
        "head": msgspec.to_builtins(replace(head, edition=0)),
        "profile": record.profile,
        "log": record.tail,
        "keys": list(keys.all_writes(record)),
        "producers": record.producers,
        "traces": table.page(KEY, Part.TRACES, 0, 10**6, 1000).entries,
        "attachments": {
            one.id: table.page(KEY, Part.ATTACHMENTS, one.number, one.number, 1).entries[0].body
            for one in record.profile.attachments
        },
    }


def groups_of(acts: list[Act], sizes: Iterator[int]) -> list[list[Act]]:
    """The acts in commits of several; an edit of stored messages is alone, as in the engine."""
    groups, left = list[list[Act]](), list(acts)
    while left:
        group = [left.pop(0)]
        for _ in range(next(sizes)):
            if left and group[0].kind not in ALONE and left[0].kind not in ALONE:
                group.append(left.pop(0))
        groups.append(group)
    return groups


@given(acts=ACTS, retention=CAPS)
def test_a_rule_leaves_its_input_alone(acts: list[Act], retention: Retention) -> None:
    """A retry begins from the same record: what the first attempt did to it would be taken for stored."""
    record: Record | None = None
    for act in acts:
        before = repr(record)
        try:
            step = command(act, retention)(record, START)
        except TenutoError:
            assert repr(record) == before
            continue
        assert repr(record) == before
        record = step.record


@given(acts=ACTS, retention=CAPS, sizes=st.lists(st.integers(0, 5), min_size=25, max_size=25))
def test_merged_commands_are_stored_as_one_after_another(
    acts: list[Act], retention: Retention, sizes: list[int]
) -> None:
    """Entries of one commit must not take each other's place, and every answer is the same."""
    merged, single = Process(RecordTable(), 1), Process(RecordTable(), 1)
    for group in groups_of(acts, iter(sizes)):
        commands = [command(act, retention) for act in group]
        together = merged.run(commands, START)
        assert [end for one in commands for end in single.run([one], START)] == together
        merged.held = full(merged.table)

    assert contents(merged.table) == contents(single.table)


@given(acts=ACTS, retention=CAPS, luck=st.randoms(use_true_random=True), tail=st.sampled_from([2, 64]))
def test_what_a_process_holds_is_what_is_stored(acts: list[Act], retention: Retention, luck: Any, tail: int) -> None:
    """Three processes in turn, each with what it saw last and what a conflict tells it beyond that."""
    table = RecordTable()
    processes = [Process(table, writer, tail) for writer in range(3)]
    for act in acts:
        process = luck.choice(processes)
        process.run([command(act, retention)], START)

        record, whole = process.held, full(table, 10_000)
        assert (record is None) == (whole is None)
        if record is None or whole is None:
            continue
        assert (record.head, record.profile, record.producers) == (whole.head, whole.profile, whole.producers)
        assert record.pages == whole.pages
        assert record.tail == tuple(message for message in whole.tail if message.seq >= record.tail_from)


@given(acts=ACTS, luck=st.randoms(use_true_random=True))
def test_a_keyed_command_that_is_sent_again_is_stored_once(acts: list[Act], luck: Any) -> None:
    """Sent to two processes with different memories, in any order, before and after others' commands."""
    table = RecordTable()
    processes = [Process(table, writer) for writer in range(2)]
    stored = list[str]()
    for act in acts:
        if act.kind in ("append", "begin", "finish"):
            keyed = AppendBatch(
                id=f"b{act.number}", messages=drafts(act), create=NewSession(), idempotency_key=once(f"k{act.number}")
            )
            for process in luck.sample(processes, 2):
                process.run([Append(scope=ANN, session_id="s", batch=keyed).apply], START)
            stored += [message.id for message in keyed.messages]

    record = full(table, 10_000)
    assert [message.id for message in (record.tail if record else ())] == stored


@given(acts=ACTS, retention=CAPS, steps=st.lists(st.sampled_from([0, 30, 500, -20]), min_size=25, max_size=25))
def test_numbers_leases_totals_and_caps_hold_at_every_step(
    acts: list[Act], retention: Retention, steps: list[int]
) -> None:
    table, now = RecordTable(), START
    process = Process(table, 1)
    newest, version, incarnation = 0, 0, ""
    for act, step in zip(acts, steps, strict=False):
        now += timedelta(seconds=step)
        before = process.held
        end = process.run([command(act, retention)], now)[0]
        record = full(table, 10_000)
        if record is None:
            continue
        if record.profile.incarnation != incarnation:
            assert before is None or before.expired(now)
            newest, version, incarnation = 0, 0, record.profile.incarnation
        seqs = [message.seq for message in record.tail]
        assert seqs == sorted(set(seqs))
        assert len(seqs) == record.messages == record.session.messages
        assert record.head.last_seq >= newest
        assert record.head.version >= version
        newest, version = record.head.last_seq, record.head.version
        held = before.head.lease if before is not None and before.profile.incarnation == incarnation else None
        if act.kind == "begin" and held is not None and held.until > now and isinstance(end, OpenTurn):
            assert end.state == "finished", "a lease is taken over only when it has run out"
        assert retention.max_messages is None or record.messages <= retention.max_messages
        if retention.max_turns is not None and record.tail and act.kind not in ("truncate", "rewrite"):
            assert record.tail[0].turn > record.head.turns - retention.max_turns
        assert len(list(keys.all_writes(record))) <= 7


@given(acts=ACTS, retention=CAPS, sizes=st.lists(st.integers(0, 5), min_size=25, max_size=25))
def test_attachments_are_what_the_messages_show(acts: list[Act], retention: Retention, sizes: list[int]) -> None:
    """After any history, merged or not: each is stored under its number once, and no other bytes."""
    table = RecordTable()
    process = Process(table, 1)
    for group in groups_of(acts, iter(sizes)):
        process.run([command(act, retention) for act in group], START)
        process.held = full(table)
        record = full(table, 10_000)
        if record is None:
            continue
        shown = dict[str, tuple[int, ...]]()
        for message in record.tail:
            for attachment_id in shown_in(message.parts):
                shown[attachment_id] = (*shown.get(attachment_id, ()), message.seq)
        attachments = record.profile.attachments
        assert {one.id: one.seqs for one in attachments} == shown
        entries = table.page(KEY, Part.ATTACHMENTS, 0, 10**6, 1000).entries
        assert [entry.number for entry in entries] == sorted(one.number for one in attachments)
        for one in attachments:
            (entry,) = [entry for entry in entries if entry.number == one.number]
            assert content_digest(ANN, PLAIN.decode_content(entry, one).data) == one.id
        assert (record.totals.attachments, record.totals.attachment_bytes) == (len(shown), len(shown))


@given(acts=ACTS)
def test_a_load_that_mixes_two_moments_is_refused(acts: list[Act]) -> None:
    """A head with the messages of another revision must not become a record: sealing would be all that notices."""
    table = RecordTable()
    process = Process(table, 1)
    heads = list[StoredRecord]()
    for act in acts:
        process.run([command(act, Retention(max_messages=None))], START)
        stored = table.load(KEY, 10_000, Known())
        if stored is not None:
            heads.append(stored)
    for older, newer in pairwise(heads):
        first = PLAIN.decode_record(newer, "s", tail=10_000)
        assert first is not None
        numbers = [
            [entry.number for entry in one.messages if entry.number >= first.first_seq] for one in (older, newer)
        ]
        if numbers[0] != numbers[1]:
            with pytest.raises(TornRecord):
                PLAIN.decode_record(replace(newer, messages=older.messages), "s", tail=10_000)


def test_the_key_of_a_running_turn_is_not_forgotten() -> None:
    """However many keyed writes come before its end: a retry must find the answer, and not store the question again."""
    process = Process(RecordTable(), 1)
    question = BeginTurn(
        session_id="s",
        turn_id="turn",
        user_messages=(says("question"),),
        create=NewSession(),
        idempotency_key=once("asked"),
    )
    (turn,) = process.run([lambda record, now: rules.begin(record, ANN, question, now)], START)
    for number in range(40):
        noted = AppendBatch(id=f"b{number}", messages=(says("note"),), idempotency_key=once(f"k{number}"))
        process.run([Append(scope=ANN, session_id="s", batch=noted).apply], START)
    with pytest.raises(SessionBusy):
        rules.begin(process.held, ANN, replace(question, turn_id="other", idempotency_key=None), START)
    process.run([lambda record, now: rules.finish(record, turn, FinishTurn(reply=(answers("answer"),)), now)], START)

    (again,) = process.run([lambda record, now: rules.begin(record, ANN, question, now)], START)

    assert [message.text for message in again.reply] == ["answer"]
    assert again.reply[0].sent_at == SENT_AT
