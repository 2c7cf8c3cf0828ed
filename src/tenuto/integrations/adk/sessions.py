"""The session service of the Agent Development Kit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from tenuto.app import Tenuto
from tenuto.client.api import TenutoApi
from tenuto.compare_and_set import update_state
from tenuto.errors import IdempotencyKeyReused, Invalid, SessionBusy, SessionNotFound, TurnLost
from tenuto.integrations import missing_extra
from tenuto.integrations.embedded_media import EmbeddedMedia
from tenuto.integrations.event_loops import Installation, find_bridge
from tenuto.integrations.parts import FrameworkForm
from tenuto.integrations.session_log import SessionLog, SessionLogs, abandon_on_error, with_title
from tenuto.model import Changes, Draft, FinishTurn, Message, OpenTurn, Role, Scope, SessionQuery, StateEntry
from tenuto.model import Session as Head
from tenuto.model.message import is_summary
from tenuto.model.values import JsonObject, deep_copy
from tenuto.sessions import fresh_id

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import Event
    from google.adk.sessions import BaseSessionService, Session, State
    from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
    from pydantic_core import to_jsonable_python
except ImportError as error:
    raise missing_extra("adk") from error

_NAME: Final = "adk"
"""The key of a session's metadata, and the namespace of the state of apps and users."""
_STATE: Final = "adk:"
"""What keys of a session's state begin with in its metadata; each holds its value in a list, since null removes."""
_STATE_KEY: Final = "state"
_FORM: Final = FrameworkForm(
    *(_NAME, "text", lambda part: not part.get("thought")), media=EmbeddedMedia(("data", "mime_type"), url_safe=True)
)
_PAGE: Final = 1000


class TenutoSessionService(BaseSessionService):
    """The sessions of the apps and users of one tenant.

    `where` is an open installation, or the URL or the file of a store, which is opened once per process. An event whose
    session was changed by others since it was read is refused with `StaleSessionError`.
    """

    def __init__(self, where: Installation, *, tenant: str = "local") -> None:
        self._tenant = tenant
        self._bridge = find_bridge(where)
        self._logs = SessionLogs()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Make a session; `AlreadyExistsError` if there is one of that id."""
        scope = self._scope(app_name, user_id)
        name = (session_id or "").strip() or fresh_id()
        own, shared_state = _split(state or {})

        async def create(app: TenutoApi) -> Session:
            _check_shared_state(app, shared_state)
            metadata = {_NAME: {"id": name, "last": "", "updated": 0.0}, **_storable(own)}
            exists = AlreadyExistsError(f"Session with id {name} already exists.")
            try:
                head, new = await SessionLog(app, scope, name, metadata).create()
            except IdempotencyKeyReused:
                raise exists from None
            if not new:
                raise exists
            await _merge_shared_state(app, scope, shared_state)
            return _session(app_name, head, await _read_shared_state(app, scope))

        return await self._bridge.write(create)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """The session with its events, or those that the configuration asks for; `None` if there is none."""
        scope, name = self._scope(app_name, user_id), session_id.strip()
        recent, since = (config.num_recent_events, config.after_timestamp) if config is not None else (None, None)

        async def read(app: TenutoApi) -> Session | None:
            # At least one: its page tells whether the session exists.
            head, log = await self._logs.find(app, scope, name).messages(None if recent is None else max(recent, 1))
            if head is None:
                return None
            events = [_event(message) for message in log if not is_summary(message)]
            if recent is not None:
                events = events[len(events) - recent :] if recent < len(events) else events
            session = _session(app_name, head, await _read_shared_state(app, scope))
            session.events = [event for event in events if since is None or event.timestamp >= since]
            return session

        return await self._bridge.read(read)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users of the app, without events, the latest change last."""
        scope = self._scope(app_name, user_id)

        async def read(app: TenutoApi) -> list[Session]:
            shared_states: dict[str | None, JsonObject] = {}
            sessions: list[Session] = []
            async for head in _heads(app, scope):
                user = head.scope.user
                if user not in shared_states:
                    shared_states[user] = await _read_shared_state(app, head.scope)
                sessions.append(_session(app_name, head, shared_states[user]))
            return sorted(sessions, key=lambda one: (one.last_update_time, one.user_id, one.id))

        return ListSessionsResponse(sessions=await self._bridge.read(read))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove the session with its events; an absent one is no error."""
        scope = self._scope(app_name, user_id)
        await self._bridge.write(lambda app: self._logs.find(app, scope, session_id.strip()).delete())

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The user's state in the app, without prefixes."""
        shared_state = await self._bridge.read(lambda app: _read_shared_state(app, self._scope(app_name, user_id)))
        prefix = State.USER_PREFIX
        return {
            name.removeprefix(prefix): deep_copy(value)
            for name, value in shared_state.items()
            if name.startswith(prefix)
        }

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store the event with the changes of state that it brings; partial events are not stored.

        Raises:
            SessionNotFoundError: there is no such session.
            StaleSessionError: others have changed the session since it was read, or still did when the wait for them
                was over (`busy_wait`); the event was not stored.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        event.id = event.id or Event.new_id()
        scope = self._scope(session.app_name, session.user_id)
        await self._bridge.write(lambda app: _append(app, self._logs.find(app, scope, session.id), session, event))
        session.last_update_time, session._storage_update_marker = event.timestamp, event.id
        return self._commit_event_to_session(session, event)

    def close(self) -> None:
        """Release the store that this service named; it is closed with its last user."""
        self._bridge.close()

    def _scope(self, app_name: str, user_id: str | None) -> Scope:
        return Scope(tenant=self._tenant, site=app_name, user=user_id)


async def _append(app: TenutoApi, log: SessionLog, session: Session, event: Event) -> None:
    """Store an event behind those that the session has."""
    try:
        await _append_in_turn(app, log, session, event)
    except SessionNotFound:
        raise SessionNotFoundError(f"Session {session.id} not found.") from None
    except (SessionBusy, TurnLost):
        raise StaleSessionError("The session is being changed by others.") from None


async def _append_in_turn(app: TenutoApi, log: SessionLog, session: Session, event: Event) -> None:
    turn = await log.begin()
    async with abandon_on_error(log, turn):
        last = turn.session.metadata.get(_NAME, {}).get("last", "")
        if last == event.id:  # Delivered again.
            await log.sessions.finish(turn, FinishTurn(abandoned=True))
            return
        marker = session._storage_update_marker
        if last != (marker if marker is not None else session.events[-1].id if session.events else ""):
            raise StaleSessionError("The session was changed by others since it was read.")
        await _finish(app, log, turn, event)


async def _finish(app: TenutoApi, log: SessionLog, turn: OpenTurn, event: Event) -> None:
    own, shared_state = _split(event.actions.state_delta if event.actions else {})
    adk_metadata = {**turn.session.metadata.get(_NAME, {}), "last": event.id, "updated": event.timestamp}
    draft = _draft(event)
    changes = with_title(turn.session, (draft,), Changes(metadata={_NAME: adk_metadata, **_storable(own)}))
    # First what is shared: if the event is not stored, its sender tries again, with the same values.
    await _merge_shared_state(app, turn.scope, shared_state)
    await log.finish(turn, (draft,), changes)


def _draft(event: Event) -> Draft:
    body: JsonObject = event.model_dump(mode="json", exclude_none=True)
    content = body.get("content") or {}
    parts = content.pop("parts", None) or []
    return _FORM.draft(
        _role(event), parts, body, message_id=event.id, sent_at=datetime.fromtimestamp(event.timestamp, UTC)
    )


def _role(event: Event) -> Role:
    if event.content is None or not event.content.parts:
        return Role.ITEM
    if event.get_function_responses():
        return Role.TOOL
    return Role.USER if event.author == "user" else Role.ASSISTANT


def _event(message: Message) -> Event:
    parts, rest = _FORM.elements(message), _FORM.rest(message)
    if rest is None:
        author = "user" if message.role is Role.USER else "model"
        rest = {
            "id": message.id,
            "author": author,
            "timestamp": message.sent_at.timestamp(),
            "content": {"role": author},
        }
    body = {**rest, "content": {**rest["content"], "parts": parts}} if parts else rest
    # As JSON: bytes in it are base64.
    return Event.model_validate_json(msgspec.json.encode(body))


def _session(app_name: str, head: Head, shared_state: JsonObject) -> Session:
    adk_metadata = head.metadata.get(_NAME, {})
    own = {name.removeprefix(_STATE): value[0] for name, value in head.metadata.items() if name.startswith(_STATE)}
    session = Session(
        id=adk_metadata.get("id", head.id),
        app_name=app_name,
        user_id=head.scope.user or "",
        state=deep_copy({**own, **shared_state}),  # Agents change it, and the head may be that of a cache.
        last_update_time=adk_metadata.get("updated") or head.updated_at.timestamp(),
    )
    session._storage_update_marker = adk_metadata.get("last", "")
    return session


async def _heads(app: TenutoApi, scope: Scope) -> AsyncIterator[Head]:
    """The sessions of this framework in a scope."""
    query = SessionQuery(limit=_PAGE)
    while True:
        page = await app.sessions.list(scope, query)
        for head in page.sessions:
            if _NAME in head.metadata:
                yield head
        if page.cursor is None:
            return
        query = SessionQuery(limit=_PAGE, cursor=page.cursor)


def _split(state: Mapping[str, Any]) -> tuple[JsonObject, JsonObject]:
    """The session's own state, and that of its app and user; without what is temporary."""
    values: JsonObject = to_jsonable_python(dict(state))
    persistent = {name: value for name, value in values.items() if not name.startswith(State.TEMP_PREFIX)}
    shared_state = {
        name: value for name, value in persistent.items() if name.startswith((State.APP_PREFIX, State.USER_PREFIX))
    }
    return {name: value for name, value in persistent.items() if name not in shared_state}, shared_state


def _storable(own: JsonObject) -> JsonObject:
    return {_STATE + name: [value] for name, value in own.items()}


def _shared_places(scope: Scope) -> tuple[tuple[str, Scope], ...]:
    return ((State.APP_PREFIX, Scope(tenant=scope.tenant, site=scope.site)), (State.USER_PREFIX, scope))


async def _read_shared_state(app: TenutoApi, scope: Scope) -> JsonObject:
    """The state of the app and of the user, with its prefixes."""
    shared_state: JsonObject = {}
    for prefix, owner in _shared_places(scope):
        entry = await app.store.state.read_state(owner, _NAME, _STATE_KEY) if isinstance(app, Tenuto) else None
        shared_state |= {prefix + name: value for name, value in _shared_values(entry).items()}
    return shared_state


def _check_shared_state(app: TenutoApi, changes: JsonObject) -> None:
    if changes and not isinstance(app, Tenuto):
        raise Invalid("a server has no state of apps and users for its clients: use tenuto.open, or state of sessions")


async def _merge_shared_state(app: TenutoApi, scope: Scope, changes: JsonObject) -> None:
    """Change the state of the app and of the user, key by key."""
    _check_shared_state(app, changes)
    for prefix, owner in _shared_places(scope):
        delta = {name.removeprefix(prefix): value for name, value in changes.items() if name.startswith(prefix)}
        if delta and isinstance(app, Tenuto):
            await update_state(app.store.state, owner, _NAME, _STATE_KEY, _shared_values, partial(_merge, delta))


def _shared_values(entry: StateEntry | None) -> JsonObject:
    return entry.value if entry is not None else {}


def _merge(delta: JsonObject, old: JsonObject) -> JsonObject:
    return {**old, **delta}
