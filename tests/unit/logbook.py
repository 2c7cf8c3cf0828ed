"""What a talk left behind: who said what, and the trace of a turn."""

from __future__ import annotations

from tenuto.chat import Reply
from tenuto.model import Page, Scope
from tenuto.model.turn import Trace, place_of
from tests.samples import ANN
from tests.talking import Talk


async def log_of(of: Talk, session_id: str, scope: Scope = ANN) -> list[tuple[str, str]]:
    """Who said what."""
    page = await of.sessions.messages(scope, session_id, Page(limit=1000))
    return [(message.role.value, message.text) for message in page.messages]


async def trace_of(of: Talk, reply: Reply) -> Trace:
    """What is told of a turn."""
    session_id, number = place_of(reply.trace_id)
    trace = await of.store.traces.trace(ANN, session_id, number)
    assert trace is not None
    return trace
