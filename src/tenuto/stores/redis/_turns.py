"""A turn's and a page's way there and back: arguments of the scripts that move messages, and what they answer."""

from __future__ import annotations

from tenuto.model import (
    Appended,
    Batch,
    Closing,
    Forking,
    ForkPoint,
    Message,
    MessagePage,
    Opening,
    OpenTurn,
    Page,
    Scope,
    Session,
    TurnState,
)
from tenuto.model.turn import turn_offsets
from tenuto.stores.codec import from_micros
from tenuto.stores.redis._keys import shelves_of
from tenuto.stores.redis._records import (
    change_args,
    draft_args,
    encode_fork,
    keeping_args,
    messages_of,
    new_args,
    once_args,
    placed,
    producer_args,
    session_of,
    variable_args,
    who,
)
from tenuto.stores.redis._wire import Part, Reply


def begin_args(scope: Scope, opening: Opening, lease_until: int) -> tuple[Part, ...]:
    """What `begin_turn.lua` takes."""
    override: tuple[Part, ...] = (0,) if opening.keeping is None else (1, *keeping_args(opening.keeping))
    return (
        opening.turn_id,
        lease_until,
        opening.window,
        *once_args(opening.once),
        *producer_args(opening.producer),
        *override,
        *new_args(scope, opening.session_id, opening.create),
        *draft_args(opening.words),
    )


def opened_turn(scope: Scope, opening: Opening, reply: Reply, lease_until: int) -> OpenTurn:
    """A turn begun or taken up again. The words did not travel back: they are the opening's own."""
    state, told, place, first, words, window, last_active, created, expired, old = reply
    session = session_of(told)
    resumed = state == b"resumed"
    # resumed words stand in the log already, and so in the window that came back
    new = () if old or resumed else placed(opening.words, first, [place] * len(opening.words))
    return OpenTurn(
        id=opening.turn_id,
        number=place,
        scope=scope,
        session=session,
        state=TurnState.RESUMED if resumed or (old and opening.words) else TurnState.OPENED,
        words=messages_of(words) if resumed else new,
        window=_window(messages_of(window[::-1]), new, session, opening.window),
        lease=opening.lease,
        lease_until=from_micros(lease_until),
        created=bool(created),
        expired=bool(expired),
        last_active_at=None if last_active == b"" else from_micros(last_active),
    )


def _window(before: tuple[Message, ...], new: tuple[Message, ...], session: Session, size: int) -> tuple[Message, ...]:
    """What stood in the window before, and the new words where caps and window start let them in."""
    cap = session.keeping.max_messages
    kept = new if cap is None else new[-cap:]
    shown = tuple(message for message in kept if message.seq >= session.window_start)
    return (before + shown)[-size:] if size else ()


def finished_turn(scope: Scope, reply: Reply) -> OpenTurn:
    """A turn that its idempotency key found finished."""
    _, told, turn_id, number, words, answer = reply
    session = session_of(told)
    return OpenTurn(
        id=turn_id.decode(),
        number=number,
        scope=scope,
        session=session,
        state=TurnState.FINISHED,
        words=messages_of(words),
        window=(),
        reply=messages_of(answer),
        last_active_at=session.updated_at,
    )


def finish_args(turn: OpenTurn, closing: Closing) -> tuple[Part, ...]:
    """What `finish_turn.lua` takes."""
    return (
        turn.session.incarnation,
        turn.id,
        turn.number,
        int(closing.abandoned),
        closing.usage.tokens,
        closing.usage.cost_nanos,
        *producer_args(closing.producer),
        *draft_args(closing.reply),
        *change_args(closing.changes),
    )


def append_args(scope: Scope, session_id: str, batch: Batch) -> tuple[Part, ...]:
    """What `append.lua` takes."""
    spent = batch.spent
    return (
        batch.id,
        *once_args(batch.once),
        *producer_args(batch.producer),
        spent.tokens,
        spent.cost_nanos,
        *new_args(scope, session_id, batch.create),
        *draft_args(batch.messages, turn_offsets(batch.messages)),
    )


def appended_batch(batch: Batch, reply: Reply) -> Appended:
    """Messages that were stored now."""
    _, told, first, place, created, expired = reply
    turns = [place + offset for offset in turn_offsets(batch.messages)]
    return Appended(
        session=session_of(told),
        messages=placed(batch.messages, first, turns),
        created=bool(created),
        expired=bool(expired),
    )


def page_of(page: Page, reply: Reply) -> MessagePage:
    """A page of the log. One message more than asked for tells that there are more."""
    _, told, found, beyond = reply
    kept, more = found[: page.limit], len(found) > page.limit
    forward = page.after is not None
    return MessagePage(
        session=session_of(told),
        messages=messages_of(kept if forward else kept[::-1]),
        more_before=beyond > 0 if forward else more,
        more_after=more if forward else beyond > 0,
    )


def fork_args(forking: Forking, reply: Reply) -> tuple[Part, ...]:
    """What `plant.lua` takes, from a snapshot of the source. Messages go over byte by byte."""
    source, log = session_of(reply[1]), messages_of(reply[2])
    at = source.last_seq if forking.at is None else min(forking.at, source.last_seq)
    lines: list[Part] = []
    for message, member in zip(log, reply[2], strict=True):
        lines += (message.seq, member)
    return (
        who(source.scope, forking.new_id),
        shelves_of(source.scope)[1],
        forking.new_id,
        *keeping_args(source.keeping),
        source.title if forking.title is None else forking.title,
        source.status.value,
        encode_fork(ForkPoint(session_id=source.id, seq=at)),
        log[-1].turn if log else 0,
        at,
        min(source.window_start, at + 1),
        len(log),
        *variable_args(source.context, source.attributes, source.metadata),
        *lines,
    )


def or_empty(number: int | None) -> Part:
    """A number that may be absent."""
    return b"" if number is None else number
