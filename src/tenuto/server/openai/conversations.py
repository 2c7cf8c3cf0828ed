"""Routes of conversations and their items."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final, Literal
from uuid import uuid4

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import Invalid, SessionNotFound
from tenuto.model import Changes, Draft, NewSession, Role, Scope, Session, SessionQuery, Usage
from tenuto.model.scope import session_key
from tenuto.model.values import Json, JsonObject
from tenuto.server.auth import asking, service, sessions
from tenuto.server.json_io import (
    JSON,
    body_of,
    correct_token_counts,
    fingerprint,
    idempotency_key,
    parse_query,
    path_parameter,
)
from tenuto.server.openai.errors import OpenAIRouter, TooManyItems, describe_openai
from tenuto.server.openai.items import drafts_from_items, items_of
from tenuto.server.openai.log import ItemLog, ItemPage
from tenuto.sessions import AppendRequest
from tenuto.stores.encoding import encode_cursor, to_micros

routes = OpenAIRouter(prefix="/v1")
_ITEMS: Final[JsonObject] = {"items": [{"type": "message", "role": "user", "content": "Hello!"}]}

# OpenAI's limits of metadata.
_KEYS, _KEY_CHARACTERS, _VALUE_CHARACTERS = 16, 64, 512
# OpenAI's limit of items in one request.
_MOST_ITEMS: Final = 20
Items = list[JsonObject] | None
Metadata = dict[str, str] | None
ID: Final = "conversation_id"


class _NewConversation(msgspec.Struct, frozen=True, kw_only=True):
    items: Items = None
    metadata: Metadata = None


class _NewItems(msgspec.Struct, frozen=True, kw_only=True):
    items: list[JsonObject]


class _ChangedConversation(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Metadata = None


class ItemsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which items to list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: str | None = None
    order: Literal["asc", "desc"] = "desc"


class ConversationListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversations to list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: str | None = None


@routes.post("/conversations", describe_openai(body={"metadata": {"topic": "holiday"}}))
async def create_conversation(request: Request) -> Response:
    """Create a conversation, with its first items."""
    scope = await asking(request)
    body = await body_of(request, _NewConversation)
    _check_count(body.items or [])
    key = idempotency_key(request)
    # Before the conversation: items that are refused leave none behind.
    drafts = await drafts_of_items(request, scope, body.items or [])
    session, _ = await sessions(request).create(
        scope,
        NewSession(attributes=check_metadata(body.metadata)),
        # With a key the id follows from it, so that a retry finds the conversation.
        session_id=None if key is not None else new_conversation_id(),
        idempotency_key=key,
        fingerprint=fingerprint([body.items, body.metadata]),
    )
    if body.items:
        await _append(request, scope, session.id, body.items, drafts, "create")
    return json_response(conversation_view(session))


@routes.get("/conversations", describe_openai(query=ConversationListQuery))
async def list_conversations(request: Request) -> Response:
    """List the caller's conversations. The one that changed last comes first. An extension of the API."""
    scope = await asking(request)
    asked = parse_query(request, ConversationListQuery)
    cursor = None
    if asked.after is not None:
        last = await sessions(request).get(scope, asked.after)
        cursor = encode_cursor(to_micros(last.updated_at), session_key(last.scope, last.id))
    found = await sessions(request).list(scope, SessionQuery(limit=asked.limit, cursor=cursor))
    views = [conversation_view(session) for session in found.sessions]
    return json_response(list_view(ItemPage(views, found.cursor is not None)))


@routes.get("/conversations/{conversation_id}", describe_openai())
async def get_conversation(request: Request) -> Response:
    """Get a conversation."""
    scope = await asking(request)
    return json_response(conversation_view(await sessions(request).get(scope, path_parameter(request, ID))))


@routes.post("/conversations/{conversation_id}", describe_openai(body={"metadata": {"topic": "work"}}))
async def update_conversation(request: Request) -> Response:
    """Replace the metadata of a conversation."""
    scope = await asking(request)
    new = check_metadata((await body_of(request, _ChangedConversation)).metadata)
    session_id = path_parameter(request, ID)
    old = _public_metadata(await sessions(request).get(scope, session_id))
    changes = Changes(attributes={**dict.fromkeys(old), **new})
    return json_response(conversation_view(await sessions(request).patch(scope, session_id, changes)))


@routes.delete("/conversations/{conversation_id}", describe_openai())
async def delete_conversation(request: Request) -> Response:
    """Delete a conversation with all its items and responses."""
    scope = await asking(request)
    session_id = path_parameter(request, ID)
    await sessions(request).delete(scope, session_id)
    return json_response({"id": session_id, "object": "conversation.deleted", "deleted": True})


@routes.post("/conversations/{conversation_id}/items", describe_openai(body=_ITEMS))
async def create_items(request: Request) -> Response:
    """Append items to a conversation."""
    scope = await asking(request)
    body = await body_of(request, _NewItems)
    _check_count(body.items)
    session_id = path_parameter(request, ID)
    drafts = await drafts_of_items(request, scope, body.items, session_id)
    stored = await _append(request, scope, session_id, body.items, drafts, "items")
    return json_response(list_view(ItemPage(stored, more=False)))


@routes.get("/conversations/{conversation_id}/items", describe_openai(query=ItemsQuery))
async def list_items(request: Request) -> Response:
    """List the items of a conversation. The newest comes first unless `order` says otherwise."""
    log = await _log_of(request)
    asked = parse_query(request, ItemsQuery)
    page = await log.page(limit=asked.limit, after=asked.after, ascending=asked.order == "asc")
    return json_response(list_view(page))


@routes.get("/conversations/{conversation_id}/items/{item_id}", describe_openai())
async def get_item(request: Request) -> Response:
    """Get one item of a conversation."""
    return json_response(await (await _log_of(request)).get(path_parameter(request, "item_id")))


@routes.delete("/conversations/{conversation_id}/items/{item_id}", describe_openai())
async def delete_item(request: Request) -> Response:
    """Delete one item of a conversation. The answer is the conversation."""
    return json_response(conversation_view(await (await _log_of(request)).remove(path_parameter(request, "item_id"))))


async def _log_of(request: Request) -> ItemLog:
    return ItemLog(sessions(request), await asking(request), path_parameter(request, ID))


async def _append(
    request: Request, scope: Scope, session_id: str, items: list[JsonObject], drafts: tuple[Draft, ...], route: str
) -> list[JsonObject]:
    key = idempotency_key(request)
    appending = AppendRequest(
        messages=drafts,
        # What a model wrote elsewhere was paid for elsewhere.
        usage=Usage(),
        # As with OpenAI, a key belongs to its route.
        idempotency_key=None if key is None else f"{route} {key}",
        fingerprint=fingerprint(items),
    )
    return items_of((await sessions(request).append(scope, session_id, appending)).messages)


async def drafts_of_items(
    request: Request, scope: Scope, items: list[JsonObject], session_id: str | None = None
) -> tuple[Draft, ...]:
    """Items as messages: those of the user have the caller as speaker, and all have token counts.

    Pages go on behind an id, so one that is taken in the session, or is none, is replaced by a new one.
    """
    taken: set[str] = set()
    if session_id is not None and any("id" in item for item in items):
        with suppress(SessionNotFound):
            taken = await ItemLog(sessions(request), scope, session_id).newest_ids()
    drafts = drafts_from_items(_with_own_ids(items, taken), service(request).clock())
    spoken = tuple(replace(each, speaker=scope.user) if each.role is Role.USER else each for each in drafts)
    return await correct_token_counts(request, spoken)


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


def json_response(body: Json, status: int = 200) -> Response:
    """A JSON response."""
    return Response(msgspec.json.encode(body), status, None, JSON)
