"""Going back: an answer made anew, words said differently, and the keys of what is taken back for it.

A store forgets an idempotency key together with its words. Sent once more, a late request would then be said again,
behind the words that replaced it; so the session notes whose words or answer were taken back, and refuses it.

Appending takes no lease, so others may write at any moment. What is taken back is therefore cut off from the very
version of the session that was looked at, or not at all.

Words that are said differently replace the old ones at once. An old answer stays until the new one is there, and makes
room for it within the same turn: a model that fails, or a caller who goes, costs nobody the answer they had.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from tenuto.chat.request import ChatRequest
from tenuto.context import last_words
from tenuto.context.compression import conversation_in, outliving
from tenuto.errors import MessageNotFound, Superseded, TooLarge, VersionConflict
from tenuto.model import Changes, Message, MessagePage, OpenTurn, Page, Role, Scope, Session, Truncation, TurnState
from tenuto.model.message import is_summary
from tenuto.model.turn import ONCE, TAKEN_BACK, superseded_digests
from tenuto.model.values import JsonObject
from tenuto.ports import release_lease
from tenuto.sessions import Sessions, TurnRequest
from tenuto.sessions.service import release_on_error

# How much of the end of a log is looked at, and how many keys a session notes.
_MOST: Final = 500
_NOTED: Final = 100
# How often a session that changes between a look and the cut is looked at anew: titles and summaries change it too.
_LOOKS: Final = 5
_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_log = logging.getLogger(__name__)


@lru_cache(maxsize=1024)
def mark_of(key: str) -> str:
    """A key as it is noted: a digest, since clients put anything into keys; in letters, which look like no data."""
    return blake2b(key.encode(), digest_size=8).hexdigest().translate(_LETTERS)


def check_not_superseded(session: Session, key: str | None) -> None:
    """Refuse a key whose words or answer are gone.

    Raises:
        TakenBack: somebody has edited the words since, or had the answer made anew.
    """
    if key is not None and mark_of(key) in superseded_digests(session):
        raise Superseded


def superseding_metadata(turn: OpenTurn, replaced: Sequence[Message]) -> JsonObject:
    """What is noted together with another answer: the keys of the words it answers, and of the answer it replaces.

    The words may have had none yet, and would come for a second one.
    """
    if turn.words:
        return {}
    return _superseded_metadata(turn.session, [*last_words(conversation_in(turn.window)), *replaced])


async def undo_user_message(sessions: Sessions, turn: OpenTurn) -> bool:
    """Take back the words a turn began with, which ends it; unless somebody has written behind them.

    Who cuts off these words would cut off those as well.
    """
    if turn.state is not TurnState.OPENED or not turn.words:
        return False
    for _ in range(_LOOKS):
        page = await sessions.messages(turn.scope, turn.session.id, Page(limit=_MOST))
        if _has_messages_after(page, turn.words[-1].seq):
            return False
        if await _truncate(sessions, turn.scope, page, turn.words[0].seq - 1, page.session.version) is not None:
            return True
    return False


class Revision:
    """Takes back what a new answer, or new words, shall replace."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def hide_old_answer(self, turn: OpenTurn, window: int) -> tuple[OpenTurn, tuple[Message, ...]]:
        """A turn that shall answer the last words anew, as if they had no answer yet; and the one they have.

        Raises:
            VersionConflict: somebody has spoken since the turn began.
        """
        page = await self._sessions.messages(turn.scope, turn.session.id, Page(limit=_MOST))
        _check_no_new_messages(page, turn)
        last = _last_user_seq(page.messages)
        if last is None:
            return turn, ()
        stays = outliving(page.messages, last)
        kept = [one for one in page.messages if one.seq <= last or one.seq in stays]
        left = turn.session.messages - len(page.messages) + len(kept)
        shown = [one for one in kept if one.seq >= turn.session.window_start]
        replaced = tuple(one for one in page.messages if one.seq > last and not is_summary(one))
        return replace(turn, session=replace(turn.session, messages=left), window=tuple(shown[-window:])), replaced

    async def remove_old_answer(self, turn: OpenTurn) -> Session:
        """Take the old answer back now that the new one is there; the turn goes on.

        Raises:
            VersionConflict: somebody has spoken since the turn began, and nothing was taken back.
            TurnLost: another turn has begun, or the session was reset, truncated or deleted.
        """
        last = _last_user_seq(turn.window)
        assert last is not None, "without words there was nothing to answer"
        newest = turn.session.version
        for _ in range(_LOOKS):
            page = await self._sessions.messages(turn.scope, turn.session.id, Page(limit=_MOST))
            _check_no_new_messages(page, turn)
            newest = page.session.version
            session = await _truncate(self._sessions, turn.scope, page, last, newest, within=turn)
            if session is not None:
                return session
        raise VersionConflict(turn.session.version, newest)

    async def rewind_for_edit(self, scope: Scope, request: ChatRequest, wish: TurnRequest) -> None:
        """Take back what an edit replaces, and leave the session free.

        First the session is taken, so that a running turn is waited for and not cut off; taking words back then gives
        it free again.
        """
        held = await self._sessions.begin(scope, replace(wish, words=(), new=None, key=None))
        if not await release_on_error(
            self._sessions.finish, held, self._truncate_for_edit(scope, request, held.session)
        ):
            await release_lease(self._sessions.finish, held)

    async def _truncate_for_edit(self, scope: Scope, request: ChatRequest, session: Session) -> bool:
        """Whether anything had to be: this key may have done so before.

        Raises:
            VersionConflict: somebody has spoken since the session was taken. Whoever asked to go back has not seen
                those words, so nothing is taken back.
        """
        assert request.session_id is not None
        check_not_superseded(session, request.key)
        newest = session
        for _ in range(_LOOKS):
            page = await self._sessions.messages(scope, request.session_id, Page(limit=_MOST))
            newest = page.session
            cut = await self._cut_position(scope, request, page)
            if cut is None:
                return False
            if _has_messages_after(page, session.last_seq):
                break
            version = await self._record_superseded(scope, newest, [one for one in page.messages if one.seq > cut])
            if version is not None and await _truncate(self._sessions, scope, page, cut, version) is not None:
                return True
        noted_before = session.metadata.get(TAKEN_BACK)
        await self._sessions.patch(scope, session.id, Changes(metadata={TAKEN_BACK: noted_before}))
        raise VersionConflict(session.version, newest.version)

    async def _cut_position(self, scope: Scope, request: ChatRequest, page: MessagePage) -> int | None:
        """After which message to cut; `None` when this key has done so before."""
        assert request.edit is not None
        mark = mark_of(request.key) if request.key is not None else None
        if mark is not None and any(message.metadata.get(ONCE) == mark for message in page.messages):
            return None
        return await self._check_editable(scope, page, request.edit)

    async def _check_editable(self, scope: Scope, page: MessagePage, seq: int) -> int:
        if not 1 <= seq <= page.session.last_seq:
            raise MessageNotFound(seq)
        there = await self._sessions.messages(scope, page.session.id, Page(limit=1, after=seq - 1))
        found = there.messages[0] if there.messages else None
        if found is None or found.seq != seq:
            if _has_messages_after(page, seq):
                raise MessageNotFound(seq)
            # Taken back before, by a request that went no further.
            return seq - 1
        theirs = None not in (scope.user, found.speaker) and found.speaker != scope.user
        if found.role is not Role.USER or theirs:
            raise MessageNotFound(seq)
        return seq - 1

    async def _record_superseded(self, scope: Scope, session: Session, going: Sequence[Message]) -> int | None:
        """Note the keys of messages before they go, so that none of them can slip through in between.

        Gives the session's version with the note, `None` where it has changed since it was looked at.
        """
        note = _superseded_metadata(session, going)
        if not note:
            return session.version
        try:
            changes = Changes(metadata=note, if_version=session.version)
            return (await self._sessions.patch(scope, session.id, changes)).version
        except TooLarge:
            _log.warning("a session's head is full: keys of what was taken back are not noted")
            return session.version
        except VersionConflict:
            return None


async def _truncate(
    sessions: Sessions, scope: Scope, page: MessagePage, cut: int, version: int, *, within: OpenTurn | None = None
) -> Session | None:
    """Forget what stands behind a message, of this version alone; `None` where it was that no more.

    Summaries that speak of nothing behind it stay: what a small stored cap has let go since lives in them alone.
    """
    sparing = outliving(page.messages, cut)
    truncating = Truncation(after=cut, if_version=version, sparing=sparing, within=within)
    try:
        return await sessions.truncate(scope, page.session.id, truncating)
    except VersionConflict:
        return None


def _last_user_seq(messages: Sequence[Message]) -> int | None:
    """Where a user spoke last."""
    return next((message.seq for message in reversed(messages) if message.role is Role.USER), None)


def _check_no_new_messages(page: MessagePage, turn: OpenTurn) -> None:
    """Refuse to go on when somebody has spoken since a turn began: whoever asked for it has not seen those words."""
    if _has_messages_after(page, turn.session.last_seq):
        raise VersionConflict(turn.session.version, page.session.version)


def _has_messages_after(page: MessagePage, seq: int) -> bool:
    """Whether anybody has spoken after a message; a summary is nobody's words."""
    return any(message.seq > seq and not is_summary(message) for message in page.messages)


def _superseded_metadata(session: Session, messages: Sequence[Message]) -> JsonObject:
    """What a session's metadata says when the keys of these have nothing more to bring; nothing if it says so."""
    marks = dict.fromkeys(mark for message in messages if isinstance(mark := message.metadata.get(ONCE), str))
    known = superseded_digests(session)
    if marks.keys() <= set(known):
        return {}
    return {TAKEN_BACK: [*(mark for mark in known if mark not in marks), *marks][-_NOTED:]}
