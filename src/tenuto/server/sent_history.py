"""What doors share that get the whole conversation with each request: its session, and an answer that ends when its
client leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request

from tenuto.chat import ChatEvent, ChatRequest, LiveTurn, Reply, SentTalk, SentTurn
from tenuto.errors import Invalid, StateCorrupt, Unavailable
from tenuto.model import Draft
from tenuto.model.message import BY_APP
from tenuto.model.policy import OnMissing
from tenuto.model.values import JsonObject
from tenuto.server.apps.naming import SESSION, TASK, UNMARKED, AppRequest
from tenuto.server.apps.talk import Talk, split_talk
from tenuto.server.auth import ServerContext
from tenuto.server.streams import cancel_on_disconnect, until_lapsed
from tenuto.sessions import fresh_id
from tenuto.sessions.ids import session_id_for_name

_log = logging.getLogger(__name__)
HISTORY: Final = "Tenuto-History"
"""The header of a response that says what the history of its request meant for the session."""
ReadItems = Callable[[list[JsonObject], list[int]], Awaitable[tuple[Draft, ...]]]
"""Makes messages of entries, whose places in the request are given."""


async def begin_sent_turn(
    request: Request,
    context: ServerContext,
    app: AppRequest,
    template: ChatRequest,
    items: Sequence[JsonObject],
    read: ReadItems,
    *,
    streams: bool,
) -> SentTurn:
    """Begin the turn of an app's request in its session, by what is new among the entries.

    Raises:
        Invalid: there is nothing to answer.
        TenutoError: as in `SentTurns.start`.
    """
    talk = split_talk(items, app.own_texts)
    if items and not talk.items and not app.own_texts:
        # System messages alone are what is to be answered.
        talk = Talk(list(items), list(range(len(items))), "")
    if not talk.items:
        raise Invalid("messages: expected a message to answer")

    async def read_from(first: int) -> tuple[Draft, ...]:
        drafts = await read(talk.items[first:], talk.places[first:])
        return tuple([_of_app(one) if app.summaries and one.text.startswith(app.summaries) else one for one in drafts])

    sent = SentTalk(
        items=talk.items,
        read=read_from,
        app=app.app,
        whole=bool(app.app) or app.by_history,
        summaries=app.summaries,
        streams=streams,
        has_tools=bool(template.tools),
    )
    policy = context.chat.assistants.find(template.assistant).policies.sessions
    template = replace(
        template,
        session_id=await _session_of(context, app, template, sent),
        # What the client shows is context, however old it is.
        policy=replace(policy, on_missing=OnMissing.ADOPT, stale_after=None),
        instructions="\n\n".join(filter(None, (template.instructions, talk.instructions))) or None,
    )
    turn = await cancel_on_disconnect(request, context.sent_turns.start(app.scope, template, sent))
    if app.by_history and turn.live is not None:
        await _note_history(request, context, app, talk.items, turn.live)
    return turn


def _of_app(summary: Draft) -> Draft:
    """A summary that an app sends as its user, marked for what reads words of users."""
    return replace(summary, metadata={**summary.metadata, BY_APP: True})


async def _note_history(
    request: Request, context: ServerContext, app: AppRequest, items: Sequence[JsonObject], live: LiveTurn
) -> None:
    """Have the session found by what follows. The turn has begun: without a note its answer is told all the same."""
    if live.started is None:
        return
    noting = context.by_history.note(app.scope, items, live.started.session_id)
    try:
        await cancel_on_disconnect(request, noting)
    except Unavailable as error:
        _log.warning("%s: a session is not found by its history: %s", error.code, error)
    except (ClientDisconnect, asyncio.CancelledError):
        if live.key is None:
            live.stop_soon()
        raise


async def _session_of(context: ServerContext, app: AppRequest, template: ChatRequest, talk: SentTalk) -> str:
    """The session of the turn: the one that is named, or found by the history; else a new one."""
    if app.session is not None:
        return await context.sessions.find_named(app.scope, app.session)
    try:
        found = await context.by_history.find(app.scope, talk.items, talk.read)
    except StateCorrupt:
        raise
    except Unavailable:
        # All that was sent begins another session, as the policy for outages allows.
        found = None
    if found is not None:
        return found
    key = template.idempotency_key
    return fresh_id() if key is None else session_id_for_name(app.scope, key)


async def headers_of(sent: SentTurn, app: AppRequest) -> dict[str, str]:
    """What the response tells of the turn and its session."""
    if sent.live is None:
        return {**app.headers, TASK: UNMARKED, HISTORY: sent.change.value}
    started = sent.live.started
    session_id = started.session_id if started is not None else (await sent.live.reply()).session_id
    return {SESSION: session_id, **app.headers, HISTORY: sent.change.value}


async def reply_while_here(request: Request, live: LiveTurn) -> Reply:
    """The whole answer. Where no key lets the client come back, one that leaves ends it: what was said is stored.

    Raises:
        ClientDisconnect: the client has left.
    """
    try:
        return await cancel_on_disconnect(request, live.reply())
    except ClientDisconnect:
        if live.key is None:
            live.stop_soon()
        raise


async def events_while_here(request: Request, live: LiveTurn) -> AsyncIterator[ChatEvent]:
    """The events of an answer, which ends as in `reply_while_here`."""
    try:
        async for _, event in until_lapsed(request, live.events()):
            yield event
    finally:
        if live.key is None:
            live.stop_soon()
