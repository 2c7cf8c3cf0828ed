"""Tasks, board keys and notes as they are stored.

State passes the privacy policy as a whole, which may replace a name that looks private by a placeholder. So agents are
identified by a digest, as numbers too small to look private; the name beside it is for display. Instants are whole
microseconds under names that end in `_at`, which the policy recognizes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final

from tenuto.errors import IdempotencyKeyReused
from tenuto.model.agent_run import AgentKind
from tenuto.model.plan import Step, StepRun, StepStatus
from tenuto.model.prompt import Language
from tenuto.model.task import BoardChange, BoardEntry, BoardLock, Note, Task, TaskError, TaskStatus
from tenuto.model.turn import IdempotencyKey
from tenuto.model.values import Json, JsonObject, Value

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MARK_BYTES: Final = 16
_LIFE_BYTES: Final = 8
_PLACE_BYTES: Final = 12
_KEY_BYTES: Final = 8
_UNDER_KEY: Final = re.compile(rf"(t-[0-9a-f]{{{2 * _PLACE_BYTES}}})-([0-9a-f]{{{2 * _LIFE_BYTES}}})")


def micros(at: datetime) -> int:
    """An instant as it is stored."""
    return (at - _EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    """A stored instant."""
    return _EPOCH + timedelta(microseconds=microseconds)


class NameRef(Value, frozen=True, kw_only=True):
    """The name of an agent or a session, and the digest that identifies it."""

    name: str
    mark: tuple[int, ...]

    def same(self, other: NameRef) -> bool:
        """Whether both are the same."""
        return self.mark == other.mark


def digest_of_key(text: str) -> tuple[int, ...]:
    """A digest of a text that the privacy policy leaves alone."""
    return tuple(blake2b(text.encode(), digest_size=_MARK_BYTES).digest())


def name_ref(name: str) -> NameRef:
    """The reference of a name."""
    return NameRef(name=name, mark=digest_of_key(name))


def write_mark(idempotency_key: IdempotencyKey | str) -> tuple[int, ...]:
    """A digest of the idempotency key of a write, and of its fingerprint if it has one; short since a record has
    several."""
    if isinstance(idempotency_key, str):
        return digest_of_key(idempotency_key)[:_KEY_BYTES]
    return (*digest_of_key(idempotency_key.key)[:_KEY_BYTES], *digest_of_key(idempotency_key.fingerprint)[:_KEY_BYTES])


def is_applied(mark: tuple[int, ...], marks: tuple[tuple[int, ...], ...]) -> bool:
    """Whether the write of a mark is one of those that were applied.

    Raises:
        IdempotencyKeyReused: its key is that of a write with another fingerprint.
    """
    same_key = next((one for one in marks if one[:_KEY_BYTES] == mark[:_KEY_BYTES]), None)
    if same_key is not None and len(same_key) == len(mark) and same_key != mark:
        raise IdempotencyKeyReused
    return same_key is not None


def place_for(owner: bytes, key: str) -> str:
    """The place of the tasks that an owner opens under a key."""
    return f"t-{blake2b(owner + key.encode(), digest_size=_PLACE_BYTES).hexdigest()}"


def wrap_value(key: str, value: Json) -> JsonObject:
    """A value under its key, by which the privacy policy recognizes passwords."""
    return {key: value}


def unwrap_value(wrapped: JsonObject) -> Json:
    """The value, under any key."""
    return next(iter(wrapped.values()), None)


class TaskHead(Value, frozen=True, kw_only=True):
    """A task. `owner` may write its protected keys; `asked` and `ended` are digests of the requests that opened and
    finished it, by which a repetition is recognized.

    All tasks opened under one key have one place, one after the other; `life` distinguishes them.
    """

    type: str
    life: tuple[int, ...] = ()
    owner: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    status: TaskStatus
    created_at: int
    updated_at: int
    expires_at: int
    goal: str = ""
    session: NameRef | None = None
    result: Json = None
    completed_at: int | None = None
    ended: tuple[int, ...] = ()
    error: TaskError | None = None
    runs: int = 0
    started_at: int | None = None
    deadline_at: int | None = None
    language: Language | None = None

    def task_id(self, place: str) -> str:
        """The id of the task at this place, which no other task there has."""
        return f"{place}-{bytes(self.life).hex()}" if self.life else place

    def task(self, place: str, version: int) -> Task:
        """The public value."""
        return Task(
            id=self.task_id(place),
            type=self.type,
            goal=self.goal,
            session_id=self.session.name if self.session is not None else None,
            status=self.status,
            result=self.result,
            created_at=instant(self.created_at),
            updated_at=instant(self.updated_at),
            completed_at=instant(self.completed_at) if self.completed_at is not None else None,
            expires_at=instant(self.expires_at),
            version=version,
            error=self.error,
            runs=self.runs,
            started_at=instant(self.started_at) if self.started_at is not None else None,
            deadline_at=instant(self.deadline_at) if self.deadline_at is not None else None,
            language=self.language,
        )


def new_incarnation(unique: str) -> tuple[int, ...]:
    """The unique `life` of a task."""
    return tuple(blake2b(unique.encode(), digest_size=_LIFE_BYTES).digest())


def parse_task_id(task_id: str) -> tuple[str, tuple[int, ...]]:
    """The place and `life` of a task id."""
    under_key = _UNDER_KEY.fullmatch(task_id)
    return (under_key[1], tuple(bytes.fromhex(under_key[2]))) if under_key else (task_id, ())


class LockRecord(Value, frozen=True, kw_only=True):
    """A lock on a key; an expired one stays until it is released or replaced."""

    by: NameRef
    token: int
    until_at: int


class WriteRecord(Value, frozen=True, kw_only=True):
    """One of the last writes of a key. Each write counts the version up by one, so its place tells its version."""

    writer: str
    written_at: int
    deleted: bool = False


class BoardRecord(Value, frozen=True, kw_only=True):
    """A key of a board: its value and its lock, changed by one compare-and-set.

    `value` is empty if there is none. `version` and `token` only grow. `applied` are digests of the idempotency keys of
    the last writes, `writes` the last writes and deletions.
    """

    value: JsonObject = {}
    by: NameRef | None = None
    before: NameRef | None = None
    written_at: int = 0
    version: int = 0
    token: int = 0
    lock: LockRecord | None = None
    applied: tuple[tuple[int, ...], ...] = ()
    writes: tuple[WriteRecord, ...] = ()

    def entry(self, key: str) -> BoardEntry | None:
        """The public value, if there is one."""
        if not self.value or self.by is None:
            return None
        return BoardEntry(
            key=key,
            value=unwrap_value(self.value),
            writer=self.by.name,
            written_at=instant(self.written_at),
            version=self.version,
            previous_writer=self.before.name if self.before is not None else None,
        )

    def history(self, key: str) -> tuple[BoardChange, ...]:
        """The last writes and deletions, oldest first."""
        first = self.version - len(self.writes) + 1
        return tuple(
            BoardChange(key=key, version=n, writer=one.writer, at=instant(one.written_at), deleted=one.deleted)
            for n, one in enumerate(self.writes, first)
        )

    def to_lock(self, key: str) -> BoardLock | None:
        """The lock, expired or not."""
        lock = self.lock
        if lock is None:
            return None
        return BoardLock(key=key, holder=lock.by.name, token=lock.token, expires_at=instant(lock.until_at))


class PlanRecord(Value, frozen=True, kw_only=True):
    """The plan of a task, as `plan_fields` writes it."""

    plan: JsonObject


class StepRecord(Value, frozen=True, kw_only=True):
    """A step of a plan. `token` grows with each worker that begins it, so that an earlier one is recognized.

    `output` is the value under its key on the board, empty if there is none; `answer` is a digest of a person's answer
    as it was given, by which a repetition is recognized.
    """

    status: StepStatus = StepStatus.PENDING
    token: int = 0
    attempts: int = 0
    takeovers: int = 0
    output: JsonObject = {}
    answer: tuple[int, ...] = ()
    error: TaskError | None = None
    started_at: int | None = None
    ended_at: int | None = None

    def run(self, step: Step) -> StepRun:
        """The public value."""
        return StepRun(
            step=step.id,
            agent=step.agent,
            status=self.status,
            attempts=self.attempts,
            takeovers=self.takeovers,
            output=unwrap_value(self.output),
            error=self.error,
            started_at=instant(self.started_at) if self.started_at is not None else None,
            ended_at=instant(self.ended_at) if self.ended_at is not None else None,
        )


class RunRecord(Value, frozen=True, kw_only=True):
    """What a run of an agent used. `calls` are name, success and milliseconds.

    `cost` is in groups of three digits, since the privacy policy may take one long number for a telephone number.
    """

    kind: AgentKind = AgentKind.FUNCTION
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: tuple[int, ...] = (0,)
    calls: tuple[tuple[str, bool, int], ...] = ()

    @property
    def cost_nanos(self) -> int:
        """The cost in billionths of a dollar."""
        return sum(part * 1000**power for power, part in enumerate(self.cost))

    @staticmethod
    def split_cost(nanos: int) -> tuple[int, ...]:
        """A cost as it is stored: in groups of three digits, the lowest first."""
        groups = [nanos % 1000]
        while nanos := nanos // 1000:
            groups.append(nanos % 1000)
        return tuple(groups)


class NoteRecord(Value, frozen=True, kw_only=True):
    """A note of one agent; empty if deleted or expired."""

    value: JsonObject = {}
    written_at: int = 0
    expires_at: int = 0
    version: int = 0

    def note(self, key: str) -> Note:
        """The public value."""
        return Note(
            key=key,
            value=unwrap_value(self.value),
            written_at=instant(self.written_at),
            expires_at=instant(self.expires_at),
            version=self.version,
        )
