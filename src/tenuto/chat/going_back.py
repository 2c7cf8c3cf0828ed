"""Going back: an answer made anew, words said differently, and the keys of what is taken back for it.

A store forgets an idempotency key together with its words. Sent once more, a late request would then be said again,
behind the words that replaced it; so the session notes whose words or answer were taken back, and refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from tenuto.chat.holding import guarded, let_go
from tenuto.chat.request import ChatRequest
from tenuto.context.summaries import talk_in
from tenuto.errors import MessageNotFound, NothingToAnswer, TakenBack, TooLarge
from tenuto.model import Changes, Message, MessagePage, OpenTurn, Page, Role, Scope, Session, TurnState
from tenuto.model.message import is_summary
from tenuto.model.values import JsonObject
from tenuto.sessions import Sessions, TurnRequest

# How much of the end of a log is looked at, and how many keys a session notes.
_MOST: Final = 500
_NOTED: Final = 100
_TAKEN_BACK: Final = "taken_back"
# What a message's metadata says of the key it came under.
ONCE: Final = "once"
_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_log = logging.getLogger(__name__)


def mark_of(key: str) -> str:
    """A key as it is noted: a digest, since clients put anything into keys; in letters, which look like no data."""
    return blake2b(key.encode(), digest_size=8).hexdigest().translate(_LETTERS)


def refuse_taken_back(session: Session, key: str | None) -> None:
    """Refuse a key whose words or answer are gone.

    Raises:
        TakenBack: somebody has edited the words since, or had the answer made anew.
    """
    if key is not None and mark_of(key) in _noted(session):
        raise TakenBack


def note_of_answered(turn: OpenTurn) -> JsonObject:
    """What is noted together with another answer: the keys of the words it answers.

    They may have had none yet, and would come for a second one.
    """
    if turn.words:
        return {}
    answered = takewhile(lambda message: message.role is Role.USER, reversed(talk_in(turn.window)))
    return _note_of(turn.session, list(answered))


async def unsaid(sessions: Sessions, turn: OpenTurn) -> bool:
    """Take back the words a turn began with, which ends it; unless somebody has written behind them.

    Appending takes no lease, and who cuts off these words would cut off those as well. Looking and cutting are two
    steps: who writes in the very moment between them is not seen.
    """
    if turn.state is not TurnState.OPENED or not turn.words:
        return False
    behind = await sessions.messages(turn.scope, turn.session.id, Page(after=turn.words[-1].seq))
    # A summary of what was said before is made anew.
    if behind.more_after or not all(map(is_summary, behind.messages)):
        return False
    await sessions.truncate(turn.scope, turn.session.id, turn.words[0].seq - 1)
    return True


class GoingBack:
    """Takes back what a new answer, or new words, shall replace."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def rewound(self, scope: Scope, request: ChatRequest, wish: TurnRequest) -> OpenTurn | None:
        """Take back, and leave the session free; a key that was answered before brings its turn instead.

        First the session is taken, so that a running turn is waited for and not cut off; taking words back then gives
        it free again.
        """
        held = await self._sessions.begin(scope, _without_words(wish, request))
        if held.state is TurnState.FINISHED:
            return held
        if not await guarded(self._sessions, held, self._taken_back(scope, request, held.session)):
            await let_go(self._sessions, held)
        return None

    async def _taken_back(self, scope: Scope, request: ChatRequest, session: Session) -> bool:
        """Whether anything had to be: this key may have done so before."""
        assert request.session_id is not None
        refuse_taken_back(session, request.key)
        page = await self._sessions.messages(scope, request.session_id, Page(limit=_MOST))
        cut = await self._cut(scope, request, page)
        if cut is None:
            return False
        await self._note(scope, session, [message for message in page.messages if message.seq > cut])
        await self._sessions.truncate(scope, request.session_id, cut)
        return True

    async def _cut(self, scope: Scope, request: ChatRequest, page: MessagePage) -> int | None:
        """After which message to cut; `None` when this key has done so before."""
        if request.edit is None:
            last = next((message.seq for message in reversed(page.messages) if message.role is Role.USER), None)
            if last is None:
                raise NothingToAnswer
            return last
        mark = mark_of(request.key) if request.key is not None else None
        if mark is not None and any(message.metadata.get(ONCE) == mark for message in page.messages):
            return None
        return await self._editable(scope, page.session, request.edit)

    async def _editable(self, scope: Scope, session: Session, seq: int) -> int:
        if not 1 <= seq <= session.last_seq:
            raise MessageNotFound(seq)
        page = await self._sessions.messages(scope, session.id, Page(limit=1, after=seq - 1))
        found = page.messages[0] if page.messages else None
        if found is None:
            # Taken back before, by a request that went no further.
            return seq - 1
        theirs = None not in (scope.user, found.speaker) and found.speaker != scope.user
        if found.seq != seq or found.role is not Role.USER or theirs:
            raise MessageNotFound(seq)
        return seq - 1

    async def _note(self, scope: Scope, session: Session, going: Sequence[Message]) -> None:
        """Note the keys of messages before they go, so that none of them can slip through in between."""
        note = _note_of(session, going)
        if not note:
            return
        try:
            await self._sessions.patch(scope, session.id, Changes(metadata=note))
        except TooLarge:
            _log.warning("a session's head is full: keys of what was taken back are not noted")


def _without_words(wish: TurnRequest, request: ChatRequest) -> TurnRequest:
    """A turn that only takes the session; for another answer it is the turn itself, so its key counts."""
    return replace(wish, words=(), new=None, key=wish.key if request.regenerate else None)


def _note_of(session: Session, messages: Sequence[Message]) -> JsonObject:
    """What a session's metadata says when the keys of these have nothing more to bring; nothing if it says so."""
    marks = dict.fromkeys(mark for message in messages if isinstance(mark := message.metadata.get(ONCE), str))
    known = _noted(session)
    if marks.keys() <= set(known):
        return {}
    return {_TAKEN_BACK: [*(mark for mark in known if mark not in marks), *marks][-_NOTED:]}


def _noted(session: Session) -> list[str]:
    noted = session.metadata.get(_TAKEN_BACK)
    return [mark for mark in noted if isinstance(mark, str)] if isinstance(noted, list) else []
