"""Sessions on their way out, to be kept elsewhere: head and messages as the policy for exports wants them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec.structs import replace

from tenuto.model import Message, Scope, Session
from tenuto.model.privacy import Mode, Sink
from tenuto.privacy.pages import screened_draft, screened_values
from tenuto.privacy.screening import Screen
from tenuto.privacy.sheet import Slot


async def export_head(screen: Screen, scope: Scope, session: Session) -> Session:
    """A session's head as an export may hold it; the very same where private data is kept in exports."""
    if screen.mode(Sink.EXPORT, scope) is Mode.KEEP:
        return session
    values = (session.context, session.attributes, session.metadata)
    context, attributes, metadata = await screened_values(screen, Sink.EXPORT, scope, None, values)
    title = (await screen.texts(Sink.EXPORT, scope, None, [Slot(session.title)])).texts[0]
    return replace(session, title=title, context=context, attributes=attributes, metadata=metadata)


async def export_pages(
    screen: Screen, scope: Scope, pages: AsyncIterator[tuple[Message, ...]]
) -> AsyncIterator[tuple[Message, ...]]:
    """The pages of a session's log as an export may hold them, one at a time."""
    kept = screen.mode(Sink.EXPORT, scope) is Mode.KEEP
    async for page in pages:
        if kept:
            yield page
        else:
            yield tuple([await screened_draft(screen, Sink.EXPORT, scope, None, message) for message in page])
