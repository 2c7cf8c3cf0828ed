"""What a talk left behind: who said what, the trace of a turn, and a summary that somebody wrote."""

from __future__ import annotations

from typing import Any

from tenuto.chat import Reply
from tenuto.context.compression import summary_draft
from tenuto.model import Page, Scope
from tenuto.model.generation import Summary
from tenuto.model.turn import Trace, place_of
from tenuto.sessions import AppendRequest
from tests.chats import Talk
from tests.samples import ANN, SENT_AT, fresh


async def stored_messages(of: Talk, session_id: str, scope: Scope = ANN) -> list[tuple[str, str]]:
    """Who said what."""
    page = await of.sessions.messages(scope, session_id, Page(limit=1000))
    return [(message.role.value, message.text) for message in page.messages]


async def stored_trace(of: Talk, reply: Reply) -> Trace:
    """What is told of a turn."""
    session_id, number = place_of(reply.trace_id)
    trace = await of.store.traces.trace(ANN, session_id, number)
    assert trace is not None
    return trace


async def write_summary(
    of: Talk, text: str, through: int | None = None, *, persona: str | None = None, **fields: Any
) -> None:
    """Another process, or a client, writes a summary of a talk, up to a message or to its end."""
    page = await of.sessions.messages(ANN, "s", Page(limit=100))
    last = page.messages[-1] if through is None else next(one for one in page.messages if one.seq == through)
    summary = Summary(text=text, through=last.seq, through_id=last.id, **fields)
    seen = page.session.last_seq
    draft = summary_draft(summary, message_id=fresh("sum"), sent_at=SENT_AT, seen=seen, since=1, persona=persona)
    await of.sessions.append(ANN, "s", AppendRequest(messages=(draft,)))
