"""Sealing of values on their way into a store, and unsealing on their way out. Pure, but for the cipher's randomness.

Stores copy messages and heads into forks as they are. So the id of the session that a value was written in is sealed
with it and compared on reading: only a fork may hold values of another session, the one it branched off from, and only
up to that message. What that session had from yet another one is sealed again for the fork (`reseal_session`,
`reseal_messages`).

Users may have written text in the form of sealed text while nothing was sealed. In heads and in state, such text that
names none of the tenant's keys is taken as plain. Sealed messages and traces are marked as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, MasterKeyMissing
from tenuto.model import (
    AppendBatch,
    BeginTurn,
    Changes,
    Draft,
    FinishTurn,
    ForkRequest,
    IdempotencyKey,
    Message,
    NewSession,
    OpenTurn,
    Rewrite,
    Scope,
    Session,
    StateEntry,
)
from tenuto.model.privacy import is_sealed
from tenuto.model.turn import ToolRun, Trace
from tenuto.model.values import Json, JsonObject, Value
from tenuto.ports import Cipher, Place

_PART: Final = "sealed"
_HEAD_VALUES: Final = ("context", "attributes", "metadata")
UNOPENED: Final = "[SEALED]"
"""The title that a listing shows of a session whose head does not open."""
_Words = TypeVar("_Words", bound=Draft)


class _MessageBody(Value, frozen=True, kw_only=True):
    """What a message holds, and the session it was written in."""

    session: str
    parts: tuple[JsonObject, ...] = ()
    metadata: JsonObject = {}
    extra: JsonObject = {}


class _SessionValue(Value, frozen=True, kw_only=True):
    """One value of a head, and the session it was written in."""

    session: str
    value: Json


class _TraceBody(Value, frozen=True, kw_only=True):
    """The texts of a trace."""

    request: str = ""
    answer: str = ""
    tools: tuple[ToolRun, ...] = ()
    data: JsonObject = {}
    error_message: str = ""


class _SealedNewSession(NewSession, frozen=True, kw_only=True):
    """Validated before it was sealed; a sealed title is longer than a title may be."""

    def __post_init__(self) -> None:
        return


class _SealedChanges(Changes, frozen=True, kw_only=True):
    """Validated before, as `_SealedNewSession`."""

    def __post_init__(self) -> None:
        return


class _SealedForkRequest(ForkRequest, frozen=True, kw_only=True):
    """Validated before, as `_SealedNewSession`."""

    def __post_init__(self) -> None:
        return


_encoder: Final = msgspec.json.Encoder()
_bodies: Final = msgspec.json.Decoder(list[_MessageBody])
_variable: Final = msgspec.json.Decoder(_SessionValue)
_account: Final = msgspec.json.Decoder(_TraceBody)


# Calls on their way in


def looks_sealed(call: BeginTurn | AppendBatch | FinishTurn | Changes | Rewrite | ForkRequest) -> bool:
    """Whether a plain value in the call has the form of sealed text."""
    match call:
        case BeginTurn():
            return _drafts_look_sealed(call.user_messages) or _session_looks_sealed(call.create)
        case AppendBatch():
            return _drafts_look_sealed(call.messages) or _session_looks_sealed(call.create)
        case FinishTurn():
            traces = () if call.trace is None else (call.trace,)
            return _drafts_look_sealed(call.reply) or _session_looks_sealed(call.changes) or _traces_look_sealed(traces)
        case Changes():
            return _session_looks_sealed(call)
        case Rewrite():
            return _drafts_look_sealed(call.messages) or _traces_look_sealed(call.traces)
        case ForkRequest():
            return is_sealed(call.title)


def seal_begin_turn(cipher: Cipher, opening: BeginTurn) -> BeginTurn:
    """The opening with its user messages and new session sealed."""
    create = None if opening.create is None else seal_new_session(cipher, opening.session_id, opening.create)
    words = seal_drafts(cipher, opening.session_id, opening.user_messages)
    return replace(
        opening,
        user_messages=words,
        create=create,
        idempotency_key=_digest_fingerprint(cipher, opening.session_id, opening.idempotency_key),
    )


def seal_batch(cipher: Cipher, session_id: str, batch: AppendBatch) -> AppendBatch:
    """The batch with its messages and new session sealed."""
    create = None if batch.create is None else seal_new_session(cipher, session_id, batch.create)
    messages = seal_drafts(cipher, session_id, batch.messages)
    return replace(
        batch,
        messages=messages,
        create=create,
        idempotency_key=_digest_fingerprint(cipher, session_id, batch.idempotency_key),
    )


def seal_finish_turn(cipher: Cipher, session_id: str, closing: FinishTurn) -> FinishTurn:
    """The closing with its reply, changes and trace sealed."""
    return replace(
        closing,
        reply=seal_drafts(cipher, session_id, closing.reply),
        changes=None if closing.changes is None else seal_changes(cipher, session_id, closing.changes),
        trace=None if closing.trace is None else seal_trace(cipher, session_id, closing.trace),
    )


def seal_rewrite(cipher: Cipher, session_id: str, rewriting: Rewrite) -> Rewrite:
    """The rewrite with its messages and traces sealed."""
    return replace(
        rewriting,
        messages=seal_drafts(cipher, session_id, rewriting.messages),
        traces=tuple(seal_trace(cipher, session_id, trace) for trace in rewriting.traces),
    )


def seal_drafts(cipher: Cipher, session_id: str, drafts: tuple[_Words, ...]) -> tuple[_Words, ...]:
    """Messages whose parts, metadata and extra fields are one sealed part."""
    sealed = []
    for draft in drafts:
        body = _MessageBody(session=session_id, parts=draft.parts, metadata=draft.metadata, extra=draft.extra)
        text = cipher.seal(_encoder.encode(body), ("message", draft.id))
        sealed.append(replace(draft, parts=({"type": _PART, "text": text},), metadata={}, extra={}))
    return tuple(sealed)


def seal_new_session(cipher: Cipher, session_id: str, new: NewSession) -> NewSession:
    """A new session with its title and each of its values sealed."""
    return _SealedNewSession(
        retention=new.retention,
        title=_seal_title(cipher, session_id, new.title),
        **_seal_objects(cipher, session_id, new),
    )


def seal_changes(cipher: Cipher, session_id: str, changes: Changes) -> Changes:
    """A patch with its title and each of its values sealed; removals stay."""
    return _SealedChanges(
        title=changes.title if changes.title is UNSET else _seal_title(cipher, session_id, changes.title),
        status=changes.status,
        window_start=changes.window_start,
        if_version=changes.if_version,
        **_seal_objects(cipher, session_id, changes),
    )


def seal_fork_request(cipher: Cipher, forking: ForkRequest) -> ForkRequest:
    """A fork, its new title sealed for the new session."""
    title = None if forking.title is None else _seal_title(cipher, forking.new_id, forking.title)
    return _SealedForkRequest(new_id=forking.new_id, at=forking.at, title=title)


def seal_trace(cipher: Cipher, session_id: str, trace: Trace) -> Trace:
    """A trace whose texts are one sealed text."""
    account = _TraceBody(**{name: getattr(trace, name) for name in _TraceBody.__struct_fields__})
    sealed = cipher.seal(_encoder.encode(account), _trace_associated_data(session_id, trace))
    return replace(trace, request="", answer="", tools=(), data={_PART: sealed}, error_message="")


def seal_state(cipher: Cipher, scope: Scope, namespace: str, key: str, value: Json) -> Json:
    """A value of the state."""
    return cipher.seal(_encoder.encode(value), _state_associated_data(scope, namespace, key))


# Answers on their way out


def unseal_session(cipher: Cipher, session: Session) -> Session:
    """The head with its title and values unsealed. Raises `DecryptionFailed`."""
    title = session.title
    if _was_sealed(title, cipher):
        title = _unseal_value(cipher, session, title, ("title",))
    values = {what: _unseal_object(cipher, session, what) for what in _HEAD_VALUES if getattr(session, what)}
    return replace(session, title=title, **values) if values or title else session


def unseal_listed_session(cipher: Cipher, session: Session) -> Session:
    """The head for a listing, which a head that was tampered with must not fail.

    Raises:
        MasterKeyMissing: its master key is not configured.
        DecryptionFailed: it does not open with the cached keys, but there may be newer ones.
    """
    try:
        return unseal_session(cipher, session)
    except MasterKeyMissing:
        raise
    except DecryptionFailed:
        if not cipher.fresh:
            raise
        return replace(session, title=UNOPENED, context={}, attributes={}, metadata={})


def unseal_messages(cipher: Cipher, session: Session, messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages unsealed; all are decoded in one call. Raises `DecryptionFailed`."""
    found = [(message, _sealed_text(message)) for message in messages]
    plain = [cipher.open(text, ("message", message.id)) for message, text in found if text is not None]
    bodies = iter(_bodies.decode(b"[" + b",".join(plain) + b"]"))
    unsealed = []
    for message, text in found:
        if text is not None:
            body, fork = next(bodies), session.forked_from
            if body.session != session.id and (
                fork is None or body.session != fork.session_id or message.seq > fork.seq
            ):
                raise _moved_error()
            message = replace(message, parts=body.parts, metadata=body.metadata, extra=body.extra)
        unsealed.append(message)
    return tuple(unsealed)


def unseal_turn(cipher: Cipher, turn: OpenTurn) -> OpenTurn:
    """The turn unsealed. Raises `DecryptionFailed`."""
    session = unseal_session(cipher, turn.session)
    window = unseal_messages(cipher, session, turn.window)
    # The user messages are mostly in the window, too: do not open them twice.
    opened = {message.seq: message for message in window}
    apart = [message for message in (*turn.user_messages, *turn.reply) if message.seq not in opened]
    opened |= {message.seq: message for message in unseal_messages(cipher, session, apart)}
    return replace(
        turn,
        session=session,
        window=window,
        user_messages=tuple(opened[message.seq] for message in turn.user_messages),
        reply=tuple(opened[message.seq] for message in turn.reply),
    )


def unseal_trace(cipher: Cipher, session_id: str, trace: Trace) -> Trace:
    """The trace unsealed. Raises `DecryptionFailed`."""
    sealed = trace.data.get(_PART)
    if not _trace_is_sealed(trace):
        return trace
    assert is_sealed(sealed)
    account = _account.decode(cipher.open(sealed, _trace_associated_data(session_id, trace)))
    return replace(trace, **{name: getattr(account, name) for name in _TraceBody.__struct_fields__})


def unseal_state(cipher: Cipher, scope: Scope, namespace: str, entry: StateEntry) -> StateEntry:
    """A value of the state unsealed. Raises `DecryptionFailed`."""
    if not _was_sealed(entry.value, cipher):
        return entry
    return replace(
        entry, value=msgspec.json.decode(cipher.open(entry.value, _state_associated_data(scope, namespace, entry.key)))
    )


# What a fork has from the session before the one it branched off from


def reseal_session(cipher: Cipher, source: Session, fork: Session, *, titled: bool) -> Changes | None:
    """Seal a fork's head again, except a title that the fork was given. Raises `DecryptionFailed`."""
    copied = replace(fork, id=source.id, forked_from=source.forked_from, title="" if titled else fork.title)
    plain = unseal_session(cipher, copied)
    changes = Changes(
        title=plain.title if is_sealed(copied.title) else UNSET,
        context=_pick_sealed(fork.context, plain.context),
        attributes=_pick_sealed(fork.attributes, plain.attributes),
        metadata=_pick_sealed(fork.metadata, plain.metadata),
    )
    return None if changes == Changes() else seal_changes(cipher, fork.id, changes)


def _pick_sealed(stored: JsonObject, plain: JsonObject) -> JsonObject:
    return {name: plain[name] for name, value in stored.items() if is_sealed(value)}


def reseal_messages(cipher: Cipher, source: Session, fork: Session, messages: Iterable[Message]) -> Rewrite | None:
    """Seal those of a fork's messages again that are sealed."""
    sealed = [message for message in messages if _sealed_text(message) is not None]
    if not sealed:
        return None
    return Rewrite(messages=seal_drafts(cipher, fork.id, unseal_messages(cipher, source, sealed)))


# What both directions share


def _digest_fingerprint(cipher: Cipher, session_id: str, once: IdempotencyKey | None) -> IdempotencyKey | None:
    """A keyed digest of the fingerprint, which is a plain digest of the text and can be guessed."""
    if once is None:
        return None
    return IdempotencyKey(
        key=once.key, fingerprint=cipher.digest(once.fingerprint.encode(), ("fingerprint", session_id))
    )


def _was_sealed(value: Json, cipher: Cipher) -> TypeGuard[str]:
    """Whether a value was sealed: it names a key of the tenant, or one that may be new."""
    return is_sealed(value) and (cipher.knows(value) or not cipher.fresh)


def _drafts_look_sealed(drafts: Iterable[Draft]) -> bool:
    return any(_sealed_text(draft) is not None for draft in drafts)


def _session_looks_sealed(head: NewSession | Changes | None) -> bool:
    if head is None:
        return False
    values = (value for what in _HEAD_VALUES for value in getattr(head, what).values())
    return (type(head.title) is str and is_sealed(head.title)) or any(map(is_sealed, values))


def _traces_look_sealed(traces: Iterable[Trace]) -> bool:
    return any(map(_trace_is_sealed, traces))


def _trace_is_sealed(trace: Trace) -> bool:
    return len(trace.data) == 1 and is_sealed(trace.data.get(_PART))


def _sealed_text(message: Draft) -> str | None:
    """The sealed text of a message; `None` when it was stored plain."""
    part = message.parts[0] if len(message.parts) == 1 else {}
    text = part.get("text")
    return text if part.get("type") == _PART and is_sealed(text) else None


def _seal_title(cipher: Cipher, session_id: str, title: str) -> str:
    return _seal_value(cipher, session_id, title, ("title",)) if title else ""


def _seal_objects(cipher: Cipher, session_id: str, head: NewSession | Changes) -> dict[str, JsonObject]:
    """Value by value, so that the store can merge patches of different keys."""
    return {
        what: {
            name: None if value is None else _seal_value(cipher, session_id, value, (what, name))
            for name, value in getattr(head, what).items()
        }
        for what in _HEAD_VALUES
    }


def _unseal_object(cipher: Cipher, session: Session, what: str) -> JsonObject:
    values: JsonObject = getattr(session, what)
    return {
        name: _unseal_value(cipher, session, value, (what, name)) if _was_sealed(value, cipher) else value
        for name, value in values.items()
    }


def _seal_value(cipher: Cipher, session_id: str, value: Json, place: Place) -> str:
    return cipher.seal(_encoder.encode(_SessionValue(session=session_id, value=value)), place)


def _unseal_value(cipher: Cipher, session: Session, sealed: str, place: Place) -> Json:
    variable, fork = _variable.decode(cipher.open(sealed, place)), session.forked_from
    if variable.session != session.id and (fork is None or variable.session != fork.session_id):
        raise _moved_error()
    return variable.value


def _trace_associated_data(session_id: str, trace: Trace) -> Place:
    return ("trace", session_id, trace.id)


def _state_associated_data(scope: Scope, namespace: str, key: str) -> Place:
    return ("state", namespace, key, *scope.owner)


def _moved_error() -> DecryptionFailed:
    return DecryptionFailed("does not open: it was written in another session")
