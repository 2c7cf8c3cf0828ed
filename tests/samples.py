"""People, words and calls that tests speak with."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from tenuto.model import (
    AppendBatch,
    BeginTurn,
    Content,
    Draft,
    FinishTurn,
    IdempotencyKey,
    Message,
    NewSession,
    OpenTurn,
    Page,
    Retention,
    Role,
    Scope,
    Session,
    SessionQuery,
    Usage,
    attachment_part,
    text_part,
)
from tenuto.model.turn import Trace, trace_id
from tenuto.model.values import Json
from tenuto.ports import Store

ANN = Scope(tenant="acme", user="ann")
BOB = Scope(tenant="acme", user="bob")
ACME = Scope(tenant="acme")
EVE = Scope(tenant="evil", user="ann")
ANN_ELSEWHERE = Scope(tenant="acme", site="museum", user="ann")

SENT_AT = datetime(2026, 1, 15, 8, 59, 30, 123456, tzinfo=UTC)
_numbers = count(1)
HEAD = Session(
    id="s",
    scope=ANN,
    incarnation="i",
    created_at=SENT_AT,
    updated_at=SENT_AT,
    expires_at=None,
    retention=Retention(),
    version=1,
)

CARD = "4242 4242 4242 4242"
# One group alone stands in every few thousandth id or instant; two side by side stand nowhere by chance.
_TWO_GROUPS = re.compile(r"4242\W{0,2}4242")


def shows_card(text: str) -> bool:
    """Whether `CARD` can be read in a text that also holds ids and instants: whole, or two groups of it."""
    return _TWO_GROUPS.search(text) is not None


def odd_texts(name: str) -> list[str]:
    """A list of `tests/data/odd_texts.json`."""
    texts: dict[str, list[str]] = json.loads((Path(__file__).parent / "data" / "odd_texts.json").read_text())
    return texts[name]


def one_field_each(**values: list[Any]) -> list[dict[str, Any]]:
    """A dictionary of one field for each value."""
    return [{name: value} for name, of_name in values.items() for value in of_name]


def fresh(prefix: str) -> str:
    """An id no other test uses."""
    return f"{prefix}-{next(_numbers)}"


def says(text: str, role: Role = Role.USER, **fields: Any) -> Draft:
    """A message, by the user unless told otherwise."""
    return Draft(**{"id": fresh("msg"), "role": role, "sent_at": SENT_AT, "parts": (text_part(text),), **fields})


def answers(text: str, **fields: Any) -> Draft:
    """The assistant's words."""
    return says(text, Role.ASSISTANT, **fields)


def shows(*contents: Content, brings: bool = True, **fields: Any) -> Draft:
    """A message with text and attachments, whose bytes it `brings` or not."""
    parts = (text_part("look"), *map(attachment_part, contents))
    return says("", **{"parts": parts, "contents": contents if brings else (), **fields})


def appends(*drafts: Draft, **fields: Any) -> AppendBatch:
    """Messages outside a turn; creates the session when there is none."""
    return batch(messages=drafts, **fields)


def trace_of(turn: OpenTurn, **fields: Any) -> Trace:
    """The least that is told of a turn, and what a test adds to it."""
    given = {
        "id": trace_id(turn.session.id, turn.number, turn.id),
        "session_id": turn.session.id,
        "turn_id": turn.id,
        "number": turn.number,
        "began_at": SENT_AT,
        "assistant": "general",
        **fields,
    }
    return Trace(**given)


def opening(session_id: str, *words: str, **fields: Any) -> BeginTurn:
    """A turn that creates its session when there is none."""
    given = {
        "session_id": session_id,
        "turn_id": fresh("turn"),
        "user_messages": tuple(says(text) for text in words),
        "create": NewSession(),
        **fields,
    }
    return BeginTurn(**given)


def batch(*words: str, **fields: Any) -> AppendBatch:
    """Words outside a turn, by the user and the assistant in alternation; creates the session when there is none."""
    roles = (Role.USER, Role.ASSISTANT)
    drafts = tuple(says(text, roles[place % 2]) for place, text in enumerate(words))
    return AppendBatch(**{"id": fresh("batch"), "messages": drafts, "create": NewSession(), **fields})


def closing(*words: str, tokens: int = 0, cost_nanos: int = 0, **fields: Any) -> FinishTurn:
    """An answer and what it cost."""
    usage = Usage(tokens=tokens, cost_nanos=cost_nanos)
    return FinishTurn(reply=tuple(answers(text) for text in words), usage=usage, **fields)


def stored(seq: int, text: str = "some words", **fields: Any) -> Message:
    """A message of a log; its place tells who spoke."""
    given = {
        "id": f"m{seq}",
        "role": Role.USER if seq % 2 else Role.ASSISTANT,
        "sent_at": SENT_AT,
        "parts": (text_part(text),),
        "seq": seq,
        "turn": (seq + 1) // 2,
        **fields,
    }
    return Message(**given)


def dialogue(*lines: str, persona: str | None = None) -> tuple[Message, ...]:
    """A log in which user and assistant speak in turns."""
    return tuple(stored(seq, line, persona=persona) for seq, line in enumerate(lines, start=1))


def once(key: str, fingerprint: str = "body") -> IdempotencyKey:
    """An idempotency key."""
    return IdempotencyKey(key=key, fingerprint=fingerprint)


async def begin(store: Store, scope: Scope, session_id: str, *words: str, **fields: Any) -> OpenTurn:
    """Begin a turn."""
    return await store.sessions.begin_turn(scope, opening(session_id, *words, **fields))


async def talk(store: Store, scope: Scope, session_id: str, question: str, answer: str, **fields: Any) -> OpenTurn:
    """One whole turn."""
    turn = await begin(store, scope, session_id, question, **fields)
    await store.sessions.finish_turn(turn, closing(answer))
    return turn


async def texts(store: Store, scope: Scope, session_id: str) -> list[str]:
    """What the log says, oldest first."""
    page = await store.sessions.messages(scope, session_id, Page(limit=10_000))
    return [message.text for message in page.messages]


async def listed(store: Store, scope: Scope, **query: Any) -> list[str]:
    """The ids of the sessions that a listing shows."""
    page = await store.sessions.list(scope, SessionQuery(**query))
    return [session.id for session in page.sessions]


async def value_of(store: Store, scope: Scope, namespace: str, key: str) -> Json:
    """What is kept under a key that there is."""
    entry = await store.state.read_state(scope, namespace, key)
    assert entry is not None
    return entry.value


ODD_VALUES: list[Any] = [
    0, 1, -1, 1.0, 0.1, 1e22, 1e-300, -0.0, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, True, False, None,
    "", " ", "\n\t", "\u2028", "😀👩‍👩‍👧", "中文，标点。", "\x7f", "\x01", "'\"\\", "[]", [], {}, [[], {}], {"": ""},
    {"a": {"b": {"c": [1, 1.0, "1", None]}}}, {"__proto__": 1, "$ref": 2, "1": 3},
]  # fmt: skip
