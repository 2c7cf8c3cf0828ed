"""The sessions of clients that name nothing: found by the history that they send.

A session is noted under a few bits of a digest of its first question, in the state of its owner. What is noted tells
nothing of the question, and proves nothing: a session is found only if its talk ends where the history ends that was
sent. So two chats that begin alike stay two, and a history that parts from what is stored begins a session of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from hashlib import blake2b
from typing import Final, TypeAlias

from tenuto.chat.sent_history import Unit, units_of_sent, units_of_stored
from tenuto.compare_and_set import update_state
from tenuto.errors import SessionNotFound
from tenuto.model import Draft, MessagePage, Page, Scope, StateEntry
from tenuto.model.privacy import HISTORIES
from tenuto.model.values import Json, JsonObject
from tenuto.ports import Clock, StateStore
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.server.apps.presets import texts_of
from tenuto.sessions import Sessions
from tenuto.sessions.attachments import prepare_contents

# Hexadecimal digits of a digest that a first question is noted under: 4,096 keys for each owner.
_TAG_DIGITS: Final = 3
# Sessions that are noted under one key; more have begun with the same question, or the owner has very many.
_NOTED: Final = 16
# Entries of a history, and messages of a session, whose ends are compared.
_SENT_END: Final = 32
_STORED_END: Final = 64
_CALLS: Final = ("function_call", "custom_tool_call")


Read: TypeAlias = Callable[[int], Awaitable[Sequence[Draft]]]
"""Makes messages of the entries of a request from a place on."""


class Ending(Enum):
    """How the talk of a session ends, compared with a history: as it does, or before its last answer, or otherwise."""

    SAME = "same"
    UNANSWERED = "unanswered"
    OTHER = "other"


class SessionsByHistory:
    """Finds sessions by the histories that clients send, as long as they were used within `kept_for`."""

    def __init__(
        self, *, state: StateStore, sessions: Sessions, redaction: TurnRedaction, clock: Clock, kept_for: timedelta
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._redaction = redaction
        self._clock = clock
        self._kept_for = kept_for

    async def find(self, scope: Scope, items: Sequence[JsonObject], read: Read) -> str | None:
        """The session whose talk a request goes on with, or asks to answer again; `None` if it is a new one.

        `items` are the entries of the request without instructions. A first message alone goes on with nothing.
        Where no session ends as the history does, it may be one whose answer is not stored yet, as it was just stopped.

        Raises:
            Unavailable: the store is away.
        """
        if not any(_is_answer(item) for item in items):
            return None
        entry = await self._state.read_state(scope, HISTORIES, _tag_of(items))
        noted = _noted(entry, self._earliest())
        if not noted:
            return None
        first = max(0, len(items) - _SENT_END)
        drafts, unanswered = await read(first), None
        for session_id in noted:
            ending = await self._compare(scope, session_id, drafts, is_whole=not first)
            if ending is Ending.SAME:
                return session_id
            if ending is Ending.UNANSWERED and unanswered is None:
                unanswered = session_id
        return unanswered

    async def note(self, scope: Scope, items: Sequence[JsonObject], session_id: str) -> None:
        """Have the session found by the histories of its later requests. Each request that goes on with it notes it."""
        now, earliest = self._clock(), self._earliest()

        def change(noted: dict[str, datetime]) -> Json:
            # Only now and then: a note is valid for long.
            if session_id in noted and now - noted[session_id] < self._kept_for / 8:
                return None
            newest = {session_id: now, **{name: at for name, at in noted.items() if name != session_id}}
            return [(name, at.isoformat()) for name, at in list(newest.items())[:_NOTED]]

        await update_state(self._state, scope, HISTORIES, _tag_of(items), lambda entry: _noted(entry, earliest), change)

    def _earliest(self) -> datetime:
        return self._clock() - self._kept_for

    async def _compare(self, scope: Scope, session_id: str, drafts: Sequence[Draft], *, is_whole: bool) -> Ending:
        try:
            page = await self._sessions.messages(scope, session_id, Page(limit=_STORED_END, touch=False))
        except SessionNotFound:
            return Ending.OTHER
        session = page.session
        prepared = await prepare_contents(scope, tuple(drafts), self._sessions.policy)
        sent = units_of_sent(await self._redaction.as_stored(session, prepared))
        stored = units_of_stored([one for one in page.messages if one.seq >= session.window_start])
        return compare_ends(stored, sent, stored_whole=_is_whole(page), sent_whole=is_whole)


def compare_ends(stored: Sequence[Unit], sent: Sequence[Unit], *, stored_whole: bool, sent_whole: bool) -> Ending:
    """How the talk of a session ends, compared with a history.

    Either side may be given by its end alone, unless it is `whole`.
    """
    answered = next((place for place in range(len(sent), 0, -1) if sent[place - 1].is_answer), 0)
    if not answered or not stored:
        return Ending.OTHER
    # What follows the last answer may be stored, too: a question that was not answered.
    ends = [(stored, end) for end in range(len(sent), answered - 1, -1)]
    if stored[-1].is_answer and not sent[-1].is_answer:
        ends.append((stored[:-1], len(sent)))
    if any(_is_end(known, sent[:end], stored_whole, sent_whole) for known, end in ends):
        return Ending.SAME
    if not stored[-1].is_answer and _is_end(stored, sent[: answered - 1], stored_whole, sent_whole):
        return Ending.UNANSWERED
    return Ending.OTHER


def _is_end(known: Sequence[Unit], history: Sequence[Unit], stored_whole: bool, sent_whole: bool) -> bool:
    if (stored_whole and len(known) < len(history)) or (sent_whole and len(history) < len(known)):
        return False
    pairs = list(zip(reversed(known), reversed(history), strict=False))
    return bool(pairs) and all(one.is_same(other) for one, other in pairs)


def _is_whole(page: MessagePage) -> bool:
    """Whether the page has all messages that the session ever had, and all of them are context."""
    is_context = page.session.window_start <= 1
    return is_context and not page.more_before and (not page.messages or page.messages[0].seq == 1)


def _is_answer(item: JsonObject) -> bool:
    return item.get("role") == "assistant" or item.get("type") in _CALLS


def _tag_of(items: Sequence[JsonObject]) -> str:
    """The key that the sessions are noted under whose talk begins as this one does."""
    first = next((item for item in items if item.get("role") == "user"), {})
    text = "\n".join(texts_of(first.get("content"))).strip()
    return blake2b(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()[:_TAG_DIGITS]


def _noted(entry: StateEntry | None, earliest: datetime) -> dict[str, datetime]:
    """The sessions that are noted, newest first, without those that were not used for long."""
    noted = {name: datetime.fromisoformat(at) for name, at in entry.value} if entry is not None else {}
    return {name: at for name, at in noted.items() if at > earliest}
