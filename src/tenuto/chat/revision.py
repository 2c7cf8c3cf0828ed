"""Revisions: regenerate an answer, edit a message, and record the idempotency keys of what they remove.

A store drops an idempotency key together with its messages. A late retry would then append the message again, behind
its replacement; so the session records the digests of superseded keys, and a retry is refused.

Appending takes no lease, so concurrent writers are possible at any time. A truncation therefore applies only to the
version of the session that was read.

An edit removes the old message at once. A regeneration keeps the old answer until the new one is ready, and replaces it
within the same turn: a failed model or a cancelled request loses no answer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.chat.request import ChatRequest
from tenuto.compare_and_set import write_if_unchanged
from tenuto.context import last_input
from tenuto.context.compression import conversation_in, outliving
from tenuto.errors import (
    AttachmentNotFound,
    MessageNotFound,
    SessionBusy,
    Superseded,
    TooLarge,
    UnknownAttachment,
    VersionConflict,
)
from tenuto.model import (
    Changes,
    Draft,
    Message,
    MessagePage,
    OpenTurn,
    Page,
    Role,
    Scope,
    Session,
    Truncation,
    TurnState,
)
from tenuto.model.attachment import shown_in
from tenuto.model.message import is_input, is_summary
from tenuto.model.turn import ONCE, TAKEN_BACK, superseded_digests
from tenuto.model.values import JsonObject
from tenuto.ports import release_lease
from tenuto.sessions import Sessions, TurnRequest
from tenuto.sessions.lease import release_on_error

SessionCheck: TypeAlias = Callable[[Session], Awaitable[None]]
"""Raises if a session may not begin the turn."""

# Messages read from the end of a log.
_READ_MESSAGES: Final = 500
# Digests of superseded keys that a session records.
_MOST_SUPERSEDED: Final = 100
# If the session changes between the read and the truncation: titles and summaries change it too.
_ATTEMPTS: Final = 5
_HEX_TO_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_log = logging.getLogger(__name__)


@lru_cache(maxsize=1024)
def digest_of_key(key: str) -> str:
    """The recorded digest of a key, since a key may hold user data; in letters, so that no detector matches it."""
    return blake2b(key.encode(), digest_size=8).hexdigest().translate(_HEX_TO_LETTERS)


def check_not_superseded(session: Session, key: str) -> None:
    """Refuse a key whose message or answer was removed.

    Raises:
        Superseded: the message was edited, or the answer regenerated.
    """
    if digest_of_key(key) in superseded_digests(session.metadata):
        raise Superseded


def superseding_metadata(turn: OpenTurn, replaced: Sequence[Message]) -> JsonObject:
    """The metadata stored with a regenerated answer: keys of the message it answers and of the answer it replaces.

    A retry of the message's own key would otherwise request a second answer.
    """
    return _superseded_metadata(turn.session, [*last_input(conversation_in(turn.window)), *replaced])


async def undo_user_message(sessions: Sessions, turn: OpenTurn) -> bool:
    """Remove the message a turn began with, which ends the turn; not if later messages follow it.

    The truncation would remove those as well.
    """
    if turn.state is not TurnState.OPENED or not turn.user_messages:
        return False
    for _ in range(_ATTEMPTS):
        page = await sessions.messages(turn.scope, turn.session.id, Page(limit=_READ_MESSAGES))
        if _has_messages_after(page, turn.user_messages[-1].seq):
            return False
        if await _truncate(sessions, turn.scope, page, turn.user_messages[0].seq - 1, page.session.version) is not None:
            return True
    return False


async def check_after_turn(sessions: Sessions, turn: OpenTurn, number: int) -> None:
    """Refuse a turn after another than that, and undo what it stored.

    By the messages before it: numbers of turns that were undone are not used again.

    Raises:
        VersionConflict: the last turn has another number.
    """
    before = (one for one in reversed(turn.window) if one.turn != turn.number and not is_summary(one))
    last = next(before, None)
    if last is None or last.turn != number:
        await undo_user_message(sessions, turn)
        raise VersionConflict(number, last.turn if last is not None else 0)


async def check_after_seq(sessions: Sessions, turn: OpenTurn, request: ChatRequest) -> None:
    """Refuse a turn before which another message stands than the caller knew of, and undo what it stored.

    Raises:
        VersionConflict: messages were appended or removed since the caller read them.
    """
    expected = request.edited_from - 1 if request.replaces else request.after_seq
    assert expected is not None
    first = turn.user_messages[0].seq if turn.user_messages else turn.session.last_seq + 1
    last = _last_talk_seq(turn.window, first)
    if last is None:
        page = await sessions.messages(turn.scope, turn.session.id, Page(limit=_READ_MESSAGES, before=first))
        # More messages than the session keeps have evicted what stood before them.
        evicted = expected if turn.session.messages < len(turn.user_messages) else 0
        last = _last_talk_seq(page.messages, first) or evicted
    if last > expected or (not (request.replaces or request.regenerate) and last < expected):
        await undo_user_message(sessions, turn)
        raise VersionConflict(expected, last)


def _last_talk_seq(messages: Sequence[Message], before: int) -> int | None:
    return next((one.seq for one in reversed(messages) if one.seq < before and not is_summary(one)), None)


async def hide_old_answer(sessions: Sessions, turn: OpenTurn, window: int) -> tuple[OpenTurn, tuple[Message, ...]]:
    """The turn without the answer that it regenerates, and that answer.

    Raises:
        VersionConflict: messages were appended since the turn began.
    """
    page = await sessions.messages(turn.scope, turn.session.id, Page(limit=_READ_MESSAGES))
    _check_no_new_messages(page, turn)
    last = _last_input_seq(page.messages)
    if last is None:
        return turn, ()
    stays = outliving(page.messages, last)
    remaining = [one for one in page.messages if one.seq <= last or one.seq in stays]
    count = turn.session.messages - len(page.messages) + len(remaining)
    visible = [one for one in remaining if one.seq >= turn.session.window_start]
    replaced = tuple(one for one in page.messages if one.seq > last and not is_summary(one))
    return replace(turn, session=replace(turn.session, messages=count), window=tuple(visible[-window:])), replaced


async def remove_old_answer(sessions: Sessions, turn: OpenTurn) -> Session:
    """Remove the old answer once the new one is ready; the turn goes on.

    Raises:
        VersionConflict: messages were appended since the turn began; nothing was removed.
        TurnLost: another turn has begun, or the session was reset, truncated or deleted.
    """
    last = _last_input_seq(turn.window)
    assert last is not None, "a regeneration has a message to answer"
    newest = turn.session.version
    for _ in range(_ATTEMPTS):
        page = await sessions.messages(turn.scope, turn.session.id, Page(limit=_READ_MESSAGES))
        _check_no_new_messages(page, turn)
        newest = page.session.version
        session = await _truncate(sessions, turn.scope, page, last, newest, within=turn)
        if session is not None:
            return session
    raise VersionConflict(turn.session.version, newest)


async def rewind_for_edit(
    sessions: Sessions, scope: Scope, request: ChatRequest, turn_request: TurnRequest, check: SessionCheck
) -> None:
    """Remove what an edit replaces, if its turn will be admitted, and leave the session without a lease.

    The lease is taken first, so that a running turn is waited for and not cut off; the truncation releases it.

    Raises:
        IdempotencyKeyReused: the key belongs to another request; nothing was removed.
        TenutoError: what `check` raises for the session; nothing was removed.
    """
    held = await sessions.begin(scope, replace(turn_request, user_messages=(), new_session=None, idempotency_key=None))
    rewinding = _rewind_held(sessions, scope, request, turn_request, held.session, check)
    if not await release_on_error(sessions.finish, held, rewinding):
        await release_lease(sessions.finish, held)


async def with_stored_contents(
    sessions: Sessions, scope: Scope, session_id: str, messages: tuple[Draft, ...]
) -> tuple[Draft, ...]:
    """The messages of an edit, with the contents of attachments that they name by id.

    An attachment goes with the last message that shows it, which may be the one that the edit removes.

    Raises:
        UnknownAttachment: the session has none of such an id; nothing was removed.
    """
    completed = list[Draft]()
    for message in messages:
        brought = {content.id for content in message.contents}
        try:
            contents = [
                await sessions.attachment(scope, session_id, attachment_id)
                for attachment_id in shown_in(message.parts)
                if attachment_id not in brought
            ]
        except AttachmentNotFound:
            raise UnknownAttachment from None
        completed.append(replace(message, contents=(*message.contents, *contents)) if contents else message)
    return tuple(completed)


async def _rewind_held(
    sessions: Sessions,
    scope: Scope,
    request: ChatRequest,
    turn_request: TurnRequest,
    session: Session,
    check: SessionCheck,
) -> bool:
    if request.idempotency_key is not None:
        check_not_superseded(session, request.idempotency_key)
        assert turn_request.policy is not None
        at_once = replace(turn_request, new_session=None, policy=replace(turn_request.policy, busy_wait=timedelta(0)))
        with suppress(SessionBusy):  # The lease is ours, so only a known key gets another answer.
            await sessions.begin(scope, at_once)
            return False  # Its answer is stored.
    return await _truncate_for_edit(sessions, scope, request, session, check)


async def _truncate_for_edit(
    sessions: Sessions, scope: Scope, request: ChatRequest, session: Session, check: SessionCheck
) -> bool:
    """Returns whether anything was removed: an earlier request with this key may have done so.

    Raises:
        VersionConflict: messages were appended since the lease was taken, which the caller has not seen; nothing
            is removed.
    """
    assert request.session_id is not None
    newest = session
    for _ in range(_ATTEMPTS):
        page = await sessions.messages(scope, request.session_id, Page(limit=_READ_MESSAGES))
        newest = page.session
        cut = await _cut_position(sessions, scope, request, page)
        if cut is None:
            return False
        await check(newest)
        known = session.last_seq if request.after_seq is None else min(session.last_seq, request.after_seq)
        if _has_messages_after(page, known):
            break
        version = await _record_superseded(sessions, scope, newest, [one for one in page.messages if one.seq > cut])
        if version is not None and await _truncate(sessions, scope, page, cut, version) is not None:
            return True
    superseded_before = session.metadata.get(TAKEN_BACK)
    await sessions.patch(scope, session.id, Changes(metadata={TAKEN_BACK: superseded_before}))
    raise VersionConflict(session.version, newest.version)


async def _cut_position(sessions: Sessions, scope: Scope, request: ChatRequest, page: MessagePage) -> int | None:
    """The message to truncate after; `None` if an earlier request with this key did so."""
    mark = digest_of_key(request.idempotency_key) if request.idempotency_key is not None else None
    if mark is not None and any(message.metadata.get(ONCE) == mark for message in page.messages):
        return None
    if request.replaces_after is not None:
        return request.replaces_after
    assert request.edit is not None
    return await _check_editable(sessions, scope, page, request.edit)


async def _check_editable(sessions: Sessions, scope: Scope, page: MessagePage, seq: int) -> int:
    if not 1 <= seq <= page.session.last_seq:
        raise MessageNotFound(seq)
    page_at = await sessions.messages(scope, page.session.id, Page(limit=1, after=seq - 1))
    message = page_at.messages[0] if page_at.messages else None
    if message is None or message.seq != seq:
        if _has_messages_after(page, seq):
            raise MessageNotFound(seq)
        # Removed before, by a request that then failed.
        return seq - 1
    foreign = None not in (scope.user, message.speaker) and message.speaker != scope.user
    if message.role is not Role.USER or foreign:
        raise MessageNotFound(seq)
    return seq - 1


async def _record_superseded(
    sessions: Sessions, scope: Scope, session: Session, removed: Sequence[Message]
) -> int | None:
    """Record the keys of messages before they are removed, so that no retry gets in between.

    Returns the new version of the session, `None` if it has changed since it was read.
    """
    note = _superseded_metadata(session, removed)
    if not note:
        return session.version
    try:
        changes = Changes(metadata=note, if_version=session.version)
        patched = await write_if_unchanged(sessions.patch(scope, session.id, changes))
    except TooLarge:
        _log.warning("session metadata over max_head_bytes; superseded keys are not recorded")
        return session.version
    return None if patched is None else patched.version


async def _truncate(
    sessions: Sessions, scope: Scope, page: MessagePage, cut: int, version: int, *, within: OpenTurn | None = None
) -> Session | None:
    """Remove what follows a message, at this version only; `None` if the session has changed.

    Summaries that cover nothing behind it stay: they may be all that is left of evicted messages.
    """
    sparing = outliving(page.messages, cut)
    truncating = Truncation(after=cut, if_version=version, keep_seqs=sparing, within_turn=within)
    return await write_if_unchanged(sessions.truncate(scope, page.session.id, truncating))


def _last_input_seq(messages: Sequence[Message]) -> int | None:
    return next((message.seq for message in reversed(messages) if is_input(message)), None)


def _check_no_new_messages(page: MessagePage, turn: OpenTurn) -> None:
    """Refuse to go on if messages were appended since the turn began: the caller has not seen them."""
    if _has_messages_after(page, turn.session.last_seq):
        raise VersionConflict(turn.session.version, page.session.version)


def _has_messages_after(page: MessagePage, seq: int) -> bool:
    """Whether messages other than summaries follow this one."""
    return any(message.seq > seq and not is_summary(message) for message in page.messages)


def _superseded_metadata(session: Session, messages: Sequence[Message]) -> JsonObject:
    """The metadata that records the keys of these messages as superseded; empty if it does already."""
    marks = dict.fromkeys(mark for message in messages if isinstance(mark := message.metadata.get(ONCE), str))
    digests = superseded_digests(session.metadata)
    if marks.keys() <= set(digests):
        return {}
    return {TAKEN_BACK: [*(mark for mark in digests if mark not in marks), *marks][-_MOST_SUPERSEDED:]}
