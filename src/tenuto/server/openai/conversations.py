"""Routes of conversations and their items."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, Literal
from uuid import uuid4

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from tenuto.errors import Invalid, SessionNotFound
from tenuto.model import Changes, Draft, IdempotencyKey, NewSession, Role, Scope, Session, SessionQuery, Usage
from tenuto.model.scope import session_key
from tenuto.model.values import JsonObject
from tenuto.server.attachments import referenced_contents
from tenuto.server.auth import ServerContext
from tenuto.server.json_io import QueryParameters, correct_token_counts, key_fingerprint, read_contents
from tenuto.server.openai.errors import OpenAIRouter, TooManyItems
from tenuto.server.openai.item_log import ItemLog, ItemPage
from tenuto.server.openai.items import CALL_OUTPUT, drafts_from_items, items_of
from tenuto.sessions import AppendRequest, Sessions
from tenuto.sessions.openai_parts import check_items
from tenuto.stores.encoding import encode_cursor, to_micros

routes = OpenAIRouter()
_ITEMS: Final[JsonObject] = {"items": [{"type": "message", "role": "user", "content": "Hello!"}]}

# OpenAI's limits of metadata.
_KEYS, _KEY_CHARACTERS, _VALUE_CHARACTERS = 16, 64, 512
# OpenAI's limit of items in one request.
_MOST_ITEMS: Final = 20
Items = list[JsonObject] | None
Metadata = dict[str, str] | None


class _NewConversation(msgspec.Struct, frozen=True, kw_only=True):
    items: Items = None
    metadata: Metadata = None


class _NewItems(msgspec.Struct, frozen=True, kw_only=True):
    items: list[JsonObject]


class _ChangedConversation(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Metadata = None


class ItemsQuery(QueryParameters, frozen=True, kw_only=True):
    """Which items to list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: str | None = None
    order: Literal["asc", "desc"] = "desc"


class ConversationListQuery(QueryParameters, frozen=True, kw_only=True):
    """Which conversations to list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: str | None = None


@routes.post("/conversations", body={"metadata": {"topic": "holiday"}})
async def create_conversation(
    scope: Scope, context: ServerContext, idempotency_key: str | None, body: _NewConversation
) -> JsonObject:
    """Create a conversation, with its first items."""
    _check_count(body.items or [])
    # Before the conversation: items that are refused leave none behind.
    drafts = await drafts_of_items(context, scope, body.items or [], "items")
    session, _ = await context.sessions.create(
        scope,
        NewSession(attributes=check_metadata(body.metadata)),
        # With a key the id follows from it, so that a retry finds the conversation.
        session_id=None if idempotency_key is not None else new_conversation_id(),
        idempotency_key=idempotency_key,
        fingerprint=await key_fingerprint(idempotency_key, [body.items, body.metadata]),
    )
    if body.items:
        await _append(context, scope, session.id, drafts, await _request_key("create", idempotency_key, body.items))
    return conversation_view(session)


@routes.get("/conversations")
async def list_conversations(scope: Scope, sessions: Sessions, query: ConversationListQuery) -> JsonObject:
    """List the caller's conversations. The one that changed last comes first. An extension of the API."""
    cursor = None
    if query.after is not None:
        last = await sessions.get(scope, query.after)
        cursor = encode_cursor(to_micros(last.updated_at), session_key(last.scope, last.id))
    found = await sessions.list(scope, SessionQuery(limit=query.limit, cursor=cursor))
    views = [conversation_view(session) for session in found.sessions]
    return list_view(ItemPage(views, found.cursor is not None))


@routes.get("/conversations/{conversation_id}")
async def get_conversation(scope: Scope, sessions: Sessions, conversation_id: str) -> JsonObject:
    """Get a conversation."""
    return conversation_view(await sessions.get(scope, conversation_id))


@routes.post("/conversations/{conversation_id}", body={"metadata": {"topic": "work"}})
async def update_conversation(
    scope: Scope, sessions: Sessions, conversation_id: str, body: _ChangedConversation
) -> JsonObject:
    """Replace the metadata of a conversation."""
    new = check_metadata(body.metadata)
    old = _public_metadata(await sessions.get(scope, conversation_id))
    changes = Changes(attributes={**dict.fromkeys(old), **new})
    return conversation_view(await sessions.patch(scope, conversation_id, changes))


@routes.delete("/conversations/{conversation_id}")
async def delete_conversation(scope: Scope, sessions: Sessions, conversation_id: str) -> JsonObject:
    """Delete a conversation with all its items and responses."""
    await sessions.delete(scope, conversation_id)
    return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}


@routes.post("/conversations/{conversation_id}/items", body=_ITEMS)
async def create_items(
    scope: Scope, context: ServerContext, conversation_id: str, idempotency_key: str | None, body: _NewItems
) -> JsonObject:
    """Append items to a conversation."""
    _check_count(body.items)
    drafts = await drafts_of_items(context, scope, body.items, "items", conversation_id)
    stored = await _append(
        context, scope, conversation_id, drafts, await _request_key("items", idempotency_key, body.items)
    )
    return list_view(ItemPage(stored, more=False))


@routes.get("/conversations/{conversation_id}/items")
async def list_items(scope: Scope, sessions: Sessions, conversation_id: str, query: ItemsQuery) -> JsonObject:
    """List the items of a conversation. The newest comes first unless `order` says otherwise."""
    log = ItemLog(sessions, scope, conversation_id)
    page = await log.page(limit=query.limit, after=query.after, ascending=query.order == "asc")
    return list_view(page)


@routes.get("/conversations/{conversation_id}/items/{item_id}")
async def get_item(scope: Scope, sessions: Sessions, conversation_id: str, item_id: str) -> JsonObject:
    """Get one item of a conversation."""
    return await ItemLog(sessions, scope, conversation_id).get(item_id)


@routes.delete("/conversations/{conversation_id}/items/{item_id}")
async def delete_item(scope: Scope, sessions: Sessions, conversation_id: str, item_id: str) -> JsonObject:
    """Delete one item of a conversation. The answer is the conversation."""
    return conversation_view(await ItemLog(sessions, scope, conversation_id).remove(item_id))


async def _request_key(route: str, key: str | None, items: list[JsonObject]) -> IdempotencyKey | None:
    """The request's key. As with OpenAI, it belongs to its route."""
    digest = await key_fingerprint(key, items)
    return None if digest is None else IdempotencyKey(key=f"{route} {key}", fingerprint=digest)


async def _append(
    context: ServerContext, scope: Scope, session_id: str, drafts: tuple[Draft, ...], key: IdempotencyKey | None
) -> list[JsonObject]:
    request = AppendRequest(
        messages=drafts,
        # What a model wrote elsewhere was paid for elsewhere.
        usage=Usage(),
        idempotency_key=key.key if key is not None else None,
        fingerprint=key.fingerprint if key is not None else None,
    )
    return items_of((await context.sessions.append(scope, session_id, request)).messages, session_id)


async def drafts_of_items(
    context: ServerContext,
    scope: Scope,
    items: list[JsonObject],
    field: str,
    session_id: str | None = None,
    places: Sequence[int] | None = None,
) -> tuple[Draft, ...]:
    """Items of a request's field as messages: those of the user have the caller as speaker, and all have token counts.

    Pages go on behind an id, so one that is taken in the session, or is none, is replaced by a new one. `places` are
    those of the items in the field, if these are not all of it.

    Raises:
        Invalid: a part is of a type that no model gets, or its content cannot be taken.
    """
    if field != "messages":
        check_items(items, field, places)
    taken: set[str] = set()
    if session_id is not None and any("id" in item for item in items):
        with suppress(SessionNotFound):
            taken = await ItemLog(context.sessions, scope, session_id).newest_ids()
    drafts = drafts_from_items(_with_own_ids(items, taken), context.clock())
    spoken = tuple(replace(each, speaker=scope.user) if each.role is Role.USER else each for each in drafts)

    def place_of(item: int, part: int, inner: int | None) -> str:
        inside = "output" if items[item].get("type") == CALL_OUTPUT else "content"
        return f"{field}[{places[item] if places else item}].{inside}[{part if inner is None else inner}]"

    stored = await referenced_contents(context, scope, spoken)
    return await correct_token_counts(context, await read_contents(context, scope, spoken, place_of, stored))


def _check_count(items: list[JsonObject]) -> None:
    if len(items) > _MOST_ITEMS:
        raise TooManyItems(len(items), _MOST_ITEMS)


def _with_own_ids(items: list[JsonObject], taken: set[str]) -> list[JsonObject]:
    """The items, without an id where it is empty, no text or taken."""
    kept: list[JsonObject] = []
    for item in items:
        given = item.get("id")
        if isinstance(given, str) and given and given not in taken:
            taken.add(given)
            kept.append(item)
        else:
            kept.append({name: value for name, value in item.items() if name != "id"})
    return kept


def new_conversation_id() -> str:
    """The id of a conversation that these routes make."""
    return f"conv_{uuid4().hex}"


def conversation_view(session: Session) -> JsonObject:
    """A session as a conversation."""
    return {
        "id": session.id,
        "object": "conversation",
        "created_at": int(session.created_at.timestamp()),
        "metadata": _public_metadata(session),
    }


def _public_metadata(session: Session) -> dict[str, str]:
    """A conversation's metadata are the session's attributes, of which other clients may set some that are no text."""
    return {name: value for name, value in session.attributes.items() if isinstance(value, str)}


def check_metadata(metadata: Metadata) -> dict[str, str]:
    """The metadata of a request, `{}` if it has none.

    Raises:
        Invalid: there is more of it than the API allows.
    """
    given = metadata or {}
    if len(given) > _KEYS:
        raise Invalid(f"metadata: more than {_KEYS} keys")
    if any(len(name) > _KEY_CHARACTERS or len(value) > _VALUE_CHARACTERS for name, value in given.items()):
        raise Invalid(
            f"metadata: a key is longer than {_KEY_CHARACTERS} characters, or a value than {_VALUE_CHARACTERS}"
        )
    return given


def list_view(page: ItemPage) -> JsonObject:
    """A page in the shape of the API's lists."""
    ids = [item["id"] for item in page.items]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return {"object": "list", "data": page.items, "first_id": first, "last_id": last, "has_more": page.more}
