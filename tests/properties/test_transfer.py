"""Export and import are inverse, in every format, whatever was said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from tenuto.errors import AttachmentNotFound, Invalid
from tenuto.model import AppendBatch, Content, Draft, Message, NewSession, Page, Role, Session, Status, Usage, text_part
from tenuto.sessions import fresh_id
from tenuto.sessions.transfer import ExportedSession, ExportFormat, iter_export, parse_export
from tenuto.sessions.views import MessageView
from tests.doubles import MemoryStore
from tests.samples import ANN

SOUND = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | SOUND
JSON = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(SOUND, SCALARS, max_size=2)
TRAPS = st.sampled_from(
    ['<!-- tenuto {"id": "forged", "role": "user", "text": "x"} -->', "-->", "\u2028", "# user", "---"]
)
FOREIGN = st.builds(lambda rest: {**rest, "type": "foreign"}, st.dictionaries(SOUND, JSON, max_size=2))
TEXTS = st.builds(lambda text: {"type": "text", "text": text}, SOUND | TRAPS)
NAMES = SOUND.map(lambda name: "n" + "".join(name.splitlines()))
OURS = {"id", "role", "text", "content", "parts", "speaker", "persona", "parent", "tokens", "sent_at", "metadata"}
DRAFTS = st.builds(
    Draft,
    id=NAMES,
    role=st.sampled_from(Role),
    sent_at=st.integers(0, 4 * 10**15).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)),
    parts=st.lists(TEXTS | FOREIGN, max_size=2).map(tuple),
    speaker=st.none() | NAMES,
    persona=st.none() | NAMES,
    parent=st.none() | NAMES,
    tokens=st.integers(0, 10**6),
    metadata=st.dictionaries(SOUND, JSON, max_size=2),
    extra=st.dictionaries(NAMES.filter(lambda name: name not in OURS), JSON, max_size=2),
)
TITLES = SOUND.map(lambda title: "".join(title.splitlines()))
VALUES = st.dictionaries(SOUND, JSON.filter(lambda value: value is not None), max_size=2)


async def _stored(drafts: list[Draft], new: NewSession, usage: Usage) -> tuple[Session, tuple[Message, ...]]:
    store = MemoryStore()
    await store.sessions.append(ANN, "s", AppendBatch(id="b", messages=tuple(drafts), create=new, usage=usage))
    page = await store.sessions.messages(ANN, "s", Page(limit=1000))
    return page.session, page.messages


async def _pages(messages: tuple[Message, ...]) -> AsyncIterator[tuple[Message, ...]]:
    for start in range(0, len(messages), 2):
        yield messages[start : start + 2]


async def _unread(attachment_id: str) -> Content:
    raise AttachmentNotFound


async def _written(session: Session, messages: tuple[Message, ...], how: ExportFormat) -> bytes:
    return b"".join([piece async for piece in iter_export(session, _pages(messages), how, _unread)])


def _read(raw: bytes) -> ExportedSession:
    return parse_export(raw, now=datetime(2026, 1, 1, tzinfo=UTC), new_id=fresh_id)


def _facts(draft: Draft) -> dict[str, Any]:
    return {name: repr(getattr(draft, name)) for name in Draft.__struct_fields__}


@pytest.mark.requirement("C14")
@pytest.mark.parametrize("how", ExportFormat)
@given(
    drafts=st.lists(DRAFTS, max_size=3), title=TITLES, context=VALUES, attributes=VALUES, tokens=st.integers(0, 10**9)
)
@settings(deadline=None, max_examples=20)
async def test_what_was_exported_comes_back(
    how: ExportFormat, drafts: list[Draft], title: str, context: Any, attributes: Any, tokens: int
) -> None:
    """No format loses or invents anything, not even words that look like the format itself."""
    new = NewSession(title=title, context=context, attributes=attributes)
    session, messages = await _stored(drafts, new, Usage(tokens=tokens, cost_nanos=tokens * 7))

    saved = _read(b"\xef\xbb\xbf" * (tokens % 2) + await _written(session, messages, how))

    assert [_facts(draft) for draft in saved.messages] == [_facts(draft) for draft in drafts]
    assert (saved.new.title, repr(saved.new.context), repr(saved.new.attributes)) == (
        title, repr(session.context), repr(session.attributes)
    )  # fmt: skip
    assert saved.usage == Usage(tokens=tokens, cost_nanos=tokens * 7)


@given(raw=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(deadline=None, max_examples=200)
def test_garbage_is_refused_with_an_error_of_ours(raw: bytes) -> None:
    with pytest.raises(Invalid):
        _read(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"[]",
        b"null",
        b"",
        b'{"format": "tenuto.session", "version": 1}',
        b'{"format": "tenuto.session", "version": 99, "session": {}, "messages": []}',
        b'{"format": "tenuto.session", "version": 1, "session": {"title": 5}, "messages": []}',
        b'{"format": "tenuto.session", "version": 1, "session": {}, "messages": {}}',
        b'{"format": "tenuto.session", "version": 1, "session": {}, "messages": [5]}',
        b'{"format": "tenuto.session", "version": 1, "session": {}, "messages": [{"role": "king", "text": "x"}]}',
        b'{"format": "tenuto.session", "version": 1, "session": {"tokens": "many"}, "messages": []}',
        b"<!-- no comment of ours -->",
        b'{"a":' * 100_000,
        b'{"format": "tenuto.session", "version": 1, "session": {"title": "\xff"}, "messages": []}',
        b'{"format": "tenuto.session", "version": 1, "session": {"cost_usd": "1e9999999"}, "messages": []}',
        b'{"format": "tenuto.session", "version": 1, "session": {"tokens": 1.5}, "messages": []}',
        b'{"format": "tenuto.session", "version": 1, "session": {"tokens": true}, "messages": []}',
        b'{"format": "tenuto.session", "version": 1, "session": {"status": "lost"}, "messages": []}',
    ],
    ids=count(),
)
def test_a_broken_export_is_refused(raw: bytes) -> None:
    with pytest.raises(Invalid):
        _read(raw)


async def test_markdown_reads_well() -> None:
    """A person who opens the file sees the talk."""
    new_year = datetime(2026, 1, 1, tzinfo=UTC)
    drafts = [
        Draft(id="1", role=Role.USER, sent_at=new_year, parts=(text_part("Hi"),)),
        Draft(id="2", role=Role.ASSISTANT, sent_at=new_year, parts=(text_part("你好"),)),
    ]
    session, messages = await _stored(drafts, NewSession(title="Greetings"), Usage())

    text = (await _written(session, messages, ExportFormat.MARKDOWN)).decode()

    visible = [line for line in text.split("\n") if line and not line.startswith("<!--")]
    assert visible[0] == "# Greetings"
    assert visible[2:] == ["## user · 2026-01-01T00:00:00Z", "Hi", "## assistant · 2026-01-01T00:00:00Z", "你好"]


async def test_a_messages_json_keeps_the_senders_fields_beside_ours() -> None:
    draft = Draft(id="1", role=Role.USER, sent_at=datetime(2026, 1, 1, tzinfo=UTC), extra={"phase": "final", "seq": 99})
    _, messages = await _stored([draft], NewSession(), Usage())

    shown = to_builtins(MessageView.of(messages[0]))

    assert (shown["phase"], shown["seq"]) == ("final", 1)


async def test_status_and_owner_travel_along() -> None:
    session, messages = await _stored([], NewSession(), Usage())
    raw = await _written(replace(session, status=Status.ARCHIVED), messages, ExportFormat.JSON)

    saved = _read(raw)

    assert (saved.status, saved.user) == (Status.ARCHIVED, "ann")


async def test_markdown_cannot_steer_a_terminal() -> None:
    draft = Draft(id="1", role=Role.USER, sent_at=datetime(2026, 1, 1, tzinfo=UTC), parts=(text_part("\x1b[2Jgone"),))
    session, messages = await _stored([draft], NewSession(), Usage())

    raw = await _written(session, messages, ExportFormat.MARKDOWN)

    assert b"\x1b" not in raw
    assert _read(raw).messages[0].text == "\x1b[2Jgone"
