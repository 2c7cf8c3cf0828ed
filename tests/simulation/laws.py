"""What must hold of every story, whatever went wrong in it. The laws know nothing of the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tenuto.model import Message, Role
from tenuto.model.attachment import content_digest, shown_in
from tenuto.model.scope import session_key
from tenuto.model.stored import Part
from tenuto.model.turn import JOURNALED_AFTER
from tenuto.stores.encoding import Undecodable
from tests.simulation.clients import REPLY_TOKENS, SCOPE, content_of
from tests.simulation.plan import FRESH
from tests.simulation.world import World

Law = Callable[[World], Iterator[str]]


def log_of(world: World, session: str) -> tuple[Message, ...]:
    """What is stored of a session."""
    key = session_key(SCOPE, session)
    stored = world.server.table.load(key, 10_000)
    if stored is None:
        return ()
    record = world.codec.decode_record(stored, session, tail=10_000)
    assert record is not None
    return record.tail


def is_append_only(world: World, session: str) -> bool:
    """Whether nothing of a session is ever removed, nor the row lost that created it: the later ones have no place."""
    return session.startswith(("plain", "shared", FRESH)) and session not in world.orphaned


def stored_once(world: World) -> Iterator[str]:
    """What was acknowledged is there once, what was not at most once, and nothing that no client said."""
    for session in world.sessions:
        counts = Counter(message.id for message in log_of(world, session))
        for name, times in counts.items():
            if times > 1:
                yield f"{name} is stored {times} times"
            if name not in world.said or world.said[name].session != session:
                yield f"{name} is foreign in {session}"
        for said in world.said.values() if is_append_only(world, session) else ():
            if said.session == session and said.acked < float("inf") and not counts[said.id] and not said.torn:
                yield f"{said.id} was acknowledged and is lost"


def in_order(world: World) -> Iterator[str]:
    """What was acknowledged before something else was sent comes before it. What an edit removed may be sent again."""
    for session in world.sessions:
        if session.startswith("edited"):
            continue
        log = [world.said[message.id] for message in log_of(world, session) if message.id in world.said]
        first_acked = float("inf")
        for said in reversed(log):
            if first_acked < said.sent:
                yield f"{said.id} stands before a message that was acknowledged before it was sent"
            if not said.torn:  # Else it was lost, and sent again later.
                first_acked = min(first_acked, said.acked)


def pairs_stay_together(world: World) -> Iterator[str]:
    """Between the question and the answer of a turn that ran once there is no other turn's question, unless a mark says
    where it belongs. A cap may have evicted the question."""
    torn = {said.op for said in world.said.values() if said.torn}
    turns = {op.id: op.attempts for op in world.operations if op.reply and op.id not in torn}
    for session in world.sessions:
        running: str | None = None
        log = log_of(world, session)
        evicted = set(turns) - {message.id.removesuffix(".q0") for message in log}
        for message in log:
            op, _, part = message.id.rpartition(".")
            if JOURNALED_AFTER in message.metadata:
                continue
            if part == "q0" and op in turns:
                running = op
            elif message.role is Role.ASSISTANT and turns.get(op) == 1 and op not in evicted and running != op:
                yield f"the answer of {op} does not follow its question"


def totals_are_exact(world: World) -> Iterator[str]:
    """Numbers, counts and sums are those of the log."""
    for session in world.sessions:
        stored = world.server.table.load(session_key(SCOPE, session), 10_000)
        if stored is None:
            continue
        record = world.codec.decode_record(stored, session, tail=10_000)
        assert record is not None
        log = record.tail
        seqs = [message.seq for message in log]
        if seqs != sorted(set(seqs)) or record.session.messages != len(log):
            yield f"{session} counts {record.session.messages} messages and has {seqs}"
        if session.startswith("capped") and len(log) > 8:
            yield f"{session} has {len(log)} messages"
        if is_append_only(world, session):
            tokens = sum(REPLY_TOKENS if message.role is Role.ASSISTANT else message.tokens for message in log)
            if record.head.tokens != tokens:
                yield f"{session} counts {record.head.tokens} tokens, not {tokens}"


def reads_are_whole(world: World) -> Iterator[str]:
    """A page of everything is of one moment, and shows what was acknowledged before it was asked for."""
    for reading in world.readings:
        page = reading.page
        if len(page.messages) != page.session.messages:
            yield f"{reading.session} was read with {len(page.messages)} of {page.session.messages} messages"
        shown = {message.id for message in page.messages}
        if is_append_only(world, reading.session):
            missing = [
                said.id
                for said in world.said.values()
                if said.session == reading.session
                and said.acked < reading.asked
                and said.id not in shown
                and not said.torn
            ]
            if missing:
                yield f"{reading.session} was read at {reading.asked:.3f} without {missing}"


def everything_goes_on(world: World) -> Iterator[str]:
    """After the faults every session takes a turn, no call waits for ever, and nothing failed or was damaged unseen."""
    yield from world.stuck
    yield from world.loop.failures
    torn = sum(aside.reason == "torn" for aside in world.folder.aside)
    if torn != world.torn:
        yield f"{torn} torn rows are counted, not {world.torn}"


def entries_belong(world: World) -> Iterator[str]:
    """The store holds no entry that its head does not count, but for evicted messages to be removed together."""
    for session in world.sessions:
        key = session_key(SCOPE, session)
        stored = world.server.table.load(key, 10_000)
        if stored is None:
            continue
        record = world.codec.decode_record(stored, session, tail=10_000)
        assert record is not None
        numbers = [entry.number for entry in world.server.table.page(key, Part.MESSAGES, 0, 10**9, 10**6).entries]
        strays = [number for number in numbers if number >= record.first_seq]
        if strays != [message.seq for message in record.tail]:
            yield f"{session} has stray entries"


def attachments_are_shown(world: World) -> Iterator[str]:
    """What the messages show is stored, as it was sent, and nothing else."""
    for session in world.sessions:
        key = session_key(SCOPE, session)
        stored = world.server.table.load(key, 10_000)
        if stored is None:
            continue
        record = world.codec.decode_record(stored, session, tail=10_000)
        assert record is not None
        shown = dict[str, list[int]]()
        for message in record.tail:
            content = content_of(message.id)
            if [*shown_in(message.parts)] != ([] if content is None else [content.id]):
                yield f"{message.id} does not show what it was sent with"
            if content is not None:
                shown.setdefault(content.id, []).append(message.seq)
        if {one.id: [*one.seqs] for one in record.profile.attachments} != shown:
            yield f"{session} counts other attachments than its messages show"
        numbers = {one.number: one for one in record.profile.attachments}
        entries = world.server.table.page(key, Part.ATTACHMENTS, 0, 10**9, 10**6).entries
        if [entry.number for entry in entries] != sorted(numbers):
            yield f"{session} has stray attachments"
        for entry in entries:
            one = numbers[entry.number]
            if content_digest(SCOPE, world.codec.decode_content(entry, one).data) != one.id:
                yield f"{session} has other bytes under an attachment's number"


LAWS: dict[str, Law] = {
    "stored once": stored_once,
    "in order": in_order,
    "pairs": pairs_stay_together,
    "totals": totals_are_exact,
    "reads": reads_are_whole,
    "goes on": everything_goes_on,
    "entries": entries_belong,
    "attachments": attachments_are_shown,
}


def broken_law(world: World) -> tuple[str, str] | None:
    """The first law that a story breaks, and how."""
    for name, law in LAWS.items():
        try:
            for offence in law(world):
                return name, offence
        except Undecodable as error:
            return "entries", f"a stored record is damaged: {error}"
    return None
