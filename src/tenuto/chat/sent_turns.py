"""Turns of clients that send the conversation as they show it: what is new in it is taken into its session.

What a client sends is matched with what is stored (`sent_history`). A history that goes on from the last request is
known by its digest, and only what is behind it is read. The turn begins only if the session is as it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from tenuto.chat.live import LiveTurns
from tenuto.chat.live_turn import LiveTurn
from tenuto.chat.request import ChatRequest
from tenuto.chat.sent_history import (
    HistoryChange,
    HistoryMatch,
    known_unit,
    match_history,
    units_of_sent,
    units_of_stored,
)
from tenuto.errors import SessionNotFound, StateCorrupt, Unavailable, VersionConflict
from tenuto.lru_cache import LruCache
from tenuto.model import Changes, Draft, Message, Page, Rewrite, Scope, Session, text_part
from tenuto.model.message import is_summary, readable_part
from tenuto.model.scope import session_key
from tenuto.model.turn import history_length
from tenuto.model.values import JsonObject
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.sessions import Sessions
from tenuto.sessions.attachments import prepare_contents

SENT_WITH: Final = "sent_with"
"""The key of an answer's metadata for what its request was like."""
# Tries if the session changes between the reading and the begin of the turn.
_TRIES: Final = 5
# Messages read at once, and behind a known history.
_READ: Final = 500
# Messages at the end of a session among which its last answer is looked for.
_NEWEST: Final = 20
_MOST_CACHED: Final = 10_000
_encoder: Final = msgspec.json.Encoder()
_CALLS: Final = ("function_call", "custom_tool_call")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTalk:
    """What a client sent: its entries in their order, without instructions.

    `read` makes messages of those from a place on. An `app` that sends all that it shows each time sends the `whole`
    of it; other clients may send a message alone, to be appended. `summaries` are how texts begin by which the
    app replaces its history. `streams` and `has_tools` tell the chat of an app from what it asks besides.
    """

    items: Sequence[JsonObject]
    read: Callable[[int], Awaitable[tuple[Draft, ...]]]
    app: str = ""
    whole: bool = False
    summaries: tuple[str, ...] = ()
    streams: bool = False
    has_tools: bool = False

    @property
    def has_history(self) -> bool:
        """Whether it contains an answer."""
        return any(item.get("role") == "assistant" or item.get("type") in _CALLS for item in self.items)

    def to_metadata(self) -> JsonObject:
        """What is stored of the request in the metadata of its answer."""
        shape = {"app": self.app, "history": self.has_history, "stream": self.streams, "tools": self.has_tools}
        return {name: value for name, value in shape.items() if value}


class SentTurn(NamedTuple):
    """A turn that began, and what its request means for the session; without a turn it is to be answered apart."""

    change: HistoryChange
    live: LiveTurn | None


class _CachedHistory(NamedTuple):
    """The entries that a session had with the last request, and where the last of them stands."""

    length: int
    digest: bytes
    seq: int
    incarnation: str


class _Plan(NamedTuple):
    change: HistoryChange
    request: ChatRequest
    window_start: int | None = None
    session: Session | None = None
    shortened: tuple[Message, ...] = ()


class SentTurns:
    """Starts the turns that requests with a history ask for."""

    def __init__(self, sessions: Sessions, redaction: TurnRedaction, live: LiveTurns) -> None:
        self._sessions = sessions
        self._redaction = redaction
        self._live = live
        self._histories: LruCache[bytes, _CachedHistory] = LruCache(_MOST_CACHED)

    async def start(self, scope: Scope, template: ChatRequest, talk: SentTalk) -> SentTurn:
        """Begin the turn in the session that the template names; all but its messages is the template's.

        Raises:
            VersionConflict: others changed the session again and again.
            TenutoError: as in `Chat.take_turn`, before the first event.
        """
        template = replace(template, reply_metadata={**template.reply_metadata, SENT_WITH: talk.to_metadata()})
        tries = 1 if template.idempotency_key is not None else _TRIES
        for left in reversed(range(tries)):
            try:
                return await self._try(scope, template, talk)
            except VersionConflict:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _try(self, scope: Scope, template: ChatRequest, talk: SentTalk) -> SentTurn:
        digests = _Digests(talk.items)
        plan = await self._plan(scope, template, talk, digests)
        if plan.change is HistoryChange.STATELESS:
            return SentTurn(plan.change, None)
        session, start = plan.session, plan.window_start
        if session is not None and plan.shortened:
            rewriting = Rewrite(messages=plan.shortened, if_version=session.version)
            session = await self._sessions.rewrite(scope, session.id, rewriting)
        if session is not None and start is not None and start > session.window_start:
            changes = Changes(window_start=start, if_version=session.version)
            await self._sessions.patch(scope, session.id, changes)
        live = self._live.start(scope, plan.request)
        try:
            await anext(live.events())
        except asyncio.CancelledError:
            if plan.request.idempotency_key is None:
                live.stop_soon()
            raise
        self._cache_history(scope, live, len(talk.items), digests)
        return SentTurn(plan.change, live)

    def _cache_history(self, scope: Scope, live: LiveTurn, length: int, digests: _Digests) -> None:
        started = live.started
        if started is not None and started.input_seq:
            known = _CachedHistory(length, digests.through(length), started.input_seq, started.incarnation)
            self._histories.put(session_key(scope, started.session_id), known)

    async def _plan(self, scope: Scope, template: ChatRequest, talk: SentTalk, digests: _Digests) -> _Plan:
        assert template.session_id is not None
        try:
            if template.idempotency_key is not None:
                return await self._plan_keyed(scope, template, talk)
            if not talk.whole and not talk.has_history:
                lone = await self._plan_lone(scope, template, talk)
                if lone is not None:
                    return lone
            return await self._plan_known(scope, template, talk, digests) or await self._plan_whole(
                scope, template, talk
            )
        except SessionNotFound:
            return _Plan(HistoryChange.NEW, _with_messages(replace(template, after_seq=0), await talk.read(0)))
        except StateCorrupt:
            raise
        except Unavailable:
            # Nothing to compare with: what follows the last answer counts as new. What an outage means for the turn is
            # decided at its begin, by the session's policy.
            return _appended(template, await talk.read(0))

    async def _plan_keyed(self, scope: Scope, template: ChatRequest, talk: SentTalk) -> _Plan:
        """What may be a retry is not matched; all of it begins a session, and by its key it does so once."""
        session = await self._sessions.get(scope, str(template.session_id))
        drafts = await talk.read(0)
        if session.last_seq:
            return _appended(template, drafts)
        return _Plan(HistoryChange.NEW, _with_messages(template, drafts))

    async def _plan_lone(self, scope: Scope, template: ChatRequest, talk: SentTalk) -> _Plan | None:
        """A message alone is appended; `None` if it may stand for all that the client shows."""
        page = await self._sessions.messages(scope, str(template.session_id), Page(limit=_NEWEST))
        if _last_request(page.messages).get("history"):
            return None
        drafts = await self._prepared(scope, template, await talk.read(0))
        stored, shown = units_of_stored(page.messages), await self._redaction.as_stored(page.session, drafts)
        match = match_history(stored, units_of_sent(shown))
        # The session has nothing but this question, with or without an answer.
        is_all_stored = match.common == len(stored) or match.common == len(stored) - 1
        if match.change is HistoryChange.REGENERATED and is_all_stored:
            # The same question again: a client that shows the chat, or one that says a thing twice. What it says next
            # is appended.
            return _planned(template, drafts, match, page.session, page.messages, stands_for_all=False)
        return _Plan(HistoryChange.CONTINUED if stored else HistoryChange.NEW, _with_messages(template, drafts))

    async def _plan_known(self, scope: Scope, template: ChatRequest, talk: SentTalk, digests: _Digests) -> _Plan | None:
        """The plan where the request goes on from the last one; `None` if it does not."""
        known = self._histories.get(session_key(scope, str(template.session_id)))
        if known is None or len(talk.items) < known.length or digests.through(known.length) != known.digest:
            return None
        query = Page(limit=_READ, after=known.seq - 1)
        page = await self._sessions.messages(scope, str(template.session_id), query)
        session = page.session
        is_there = bool(page.messages) and page.messages[0].seq == known.seq >= session.window_start
        if not is_there or page.more_after or session.incarnation != known.incarnation:
            return None
        drafts = await self._prepared(scope, template, await talk.read(known.length))
        shown = await self._redaction.as_stored(session, drafts)
        sent, stored = units_of_sent(shown), units_of_stored(page.messages[1:])
        match = match_history([known_unit(known.seq), *stored], [known_unit(-1), *sent], talk.summaries)
        if match.change is HistoryChange.PUT_ASIDE or match.after < known.seq:
            return None
        return _planned(template, drafts, match, session, page.messages, shown)

    async def _plan_whole(self, scope: Scope, template: ChatRequest, talk: SentTalk) -> _Plan:
        """The plan by the whole history and the whole session."""
        session, messages = await self._read_all(scope, str(template.session_id))
        drafts = await self._prepared(scope, template, await talk.read(0))
        shown = await self._redaction.as_stored(session, drafts)
        sent = units_of_sent(shown)
        stored = units_of_stored([one for one in messages if one.seq >= session.window_start])
        match = match_history(stored, sent, talk.summaries, from_first=talk.whole)
        if stored and not match.common and match.change is HistoryChange.EDITED:
            last, now = _last_request(messages), talk.to_metadata()
            other_shape = any(last.get(name) != now.get(name) for name in ("stream", "tools"))
            if talk.whole and other_shape:
                return _Plan(HistoryChange.STATELESS, template)
            if other_shape or last.get("app") != now.get("app"):
                # A client without a name may ask it besides its chat: nothing is removed for it.
                match = HistoryMatch(HistoryChange.PUT_ASIDE, 0, session.last_seq, session.last_seq + 1)
        if not talk.whole and match.change is not HistoryChange.PUT_ASIDE:
            # A client that sends the newest messages alone leaves it to the session what is before them.
            match = match._replace(window_start=None)
        return _planned(template, drafts, match, session, messages, shown)

    async def _read_all(self, scope: Scope, session_id: str) -> tuple[Session, list[Message]]:
        """The messages that are context, oldest first."""
        page = await self._sessions.messages(scope, session_id, Page(limit=_READ))
        session, pages = page.session, [page.messages]
        while page.more_before and page.messages[0].seq > session.window_start:
            page = await self._sessions.messages(scope, session_id, Page(limit=_READ, before=page.messages[0].seq))
            pages.append(page.messages)
        return session, [message for messages in reversed(pages) for message in messages]

    async def _prepared(self, scope: Scope, template: ChatRequest, drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
        """The messages with their pictures as they are stored, by whose ids they are compared."""
        return await prepare_contents(scope, drafts, template.policy or self._sessions.policy)


def _planned(
    template: ChatRequest,
    drafts: tuple[Draft, ...],
    match: HistoryMatch,
    session: Session,
    messages: Sequence[Message],
    shown: Sequence[Draft] = (),
    *,
    stands_for_all: bool = True,
) -> _Plan:
    """The plan of a match; `shown` are the drafts as the session's policy stores them."""
    newest = max([one.seq for one in messages if not is_summary(one)], default=0)
    metadata = template.reply_metadata
    if stands_for_all and match.change in (HistoryChange.REGENERATED, HistoryChange.EDITED, HistoryChange.PUT_ASIDE):
        # A message alone stood for all that is shown, and may do so again.
        metadata = {**metadata, SENT_WITH: {**metadata[SENT_WITH], "history": True}}
    request = following = replace(template, after_seq=newest, reply_metadata=metadata)
    if match.change is not HistoryChange.REGENERATED:
        request = _with_messages(following, drafts[match.rest :])
    if match.change is HistoryChange.EDITED:
        request = replace(request, replaces_after=match.after)
    window_start = session.last_seq + 1 if match.change is HistoryChange.PUT_ASIDE else match.window_start
    return _Plan(match.change, request, window_start, session, _shortened(shown, match, messages))


def _shortened(shown: Sequence[Draft], match: HistoryMatch, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Stopped answers as the client shows them: more was stored than had arrived there."""
    stored = {message.seq: message for message in messages} if match.shortened else {}
    return tuple(
        [
            replace(message, parts=(*_beside_text(message), text_part(shown[place].text)), tokens=shown[place].tokens)
            for seq, place in match.shortened
            if (message := stored.get(seq)) is not None
        ]
    )


def _beside_text(message: Message) -> list[JsonObject]:
    return [part for part in message.parts if readable_part(part)["type"] != "text"]


def _appended(template: ChatRequest, drafts: tuple[Draft, ...]) -> _Plan:
    """What follows the last answer, without a look at the session."""
    return _Plan(HistoryChange.CONTINUED, _with_messages(template, drafts[history_length(drafts) :]))


def _with_messages(template: ChatRequest, drafts: tuple[Draft, ...]) -> ChatRequest:
    return replace(template, regenerate=False, messages=drafts)


def _last_request(messages: Sequence[Message]) -> JsonObject:
    """What `SentTalk.to_metadata` said of the last request that was answered."""
    answers = (one.metadata[SENT_WITH] for one in reversed(messages) if SENT_WITH in one.metadata)
    return next(answers, {})


class _Digests:
    """Digests of the beginnings of a history, from shorter to longer ones: each entry is read once."""

    def __init__(self, items: Sequence[JsonObject]) -> None:
        self._items = items
        self._hash = blake2b(digest_size=16)
        self._through = 0

    def through(self, length: int) -> bytes:
        """The digest of so many entries."""
        self._hash.update(_encoder.encode_lines(self._items[self._through : length]))
        self._through = length
        return self._hash.digest()
