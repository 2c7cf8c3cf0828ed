"""Pictures, sounds and files of a turn: what its model takes, and the bytes of what is sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tenuto.chat.deps import ChatDeps
from tenuto.chat.request import ChatRequest
from tenuto.chat.turn_values import TurnContext
from tenuto.errors import AttachmentNotFound, StateCorrupt, TenutoError, UnsupportedAttachment
from tenuto.model import Content, Message, Scope
from tenuto.model.attachment import ATTACHMENT, iter_media_parts, media_type_of, shows_attachment
from tenuto.model.media import describe_media, iter_parts, keep_media
from tenuto.model.prompt import Language, PromptMessage
from tenuto.model.values import JsonObject
from tenuto.ports import ChatModel, facts_of
from tenuto.sessions.attachments import complete_parts, named_alone

ATTACHMENTS = "attachment"
"""What `degraded` calls a picture, a sound or a file that the model did not get."""
_log = logging.getLogger(__name__)


async def with_known_attachments(deps: ChatDeps, scope: Scope, request: ChatRequest) -> ChatRequest:
    """The request with what its session knows of attachments that it names by their ids alone."""
    bare = named_alone(request.parts) or any(named_alone(message.parts) for message in request.messages)
    if not bare or request.session_id is None:
        return request
    try:
        known = {one.id: one for one in await deps.sessions.attachments(scope, request.session_id)}
    except TenutoError:
        return request  # The begin of the turn decides what that means.
    messages = tuple([replace(one, parts=complete_parts(one.parts, known)) for one in request.messages])
    return replace(request, parts=complete_parts(request.parts, known), messages=messages)


def check_attachments_taken(request: ChatRequest, model: ChatModel, history: Sequence[Message] = ()) -> None:
    """Refuse what the request, or a `history` that came with it, shows and the model does not take.

    Raises:
        UnsupportedAttachment: there is such a picture, sound or file.
    """
    takes = facts_of(model).media.takes
    parts = [*request.parts, *(part for message in (*history, *request.messages) for part in message.parts)]
    for part in iter_media_parts(parts):
        if not takes(part):
            raise UnsupportedAttachment(media_type_of(part) or part["type"], f"is not taken by {model.name}")


def name_shown(deps: ChatDeps, scope: Scope, request: ChatRequest) -> str:
    """What a request without words shows first, for a title; empty if that is nothing, or the policy names none."""
    parts = [*request.parts, *(part for message in request.messages for part in message.parts)]
    first = next(iter_media_parts(parts), None)
    if first is None or not deps.redaction.names_media(scope):
        return ""
    return describe_media({"type": first["type"], "name": first.get("name")}, request.language or Language.ENGLISH)


async def load_contents(
    deps: ChatDeps, context: TurnContext, messages: Sequence[PromptMessage]
) -> tuple[tuple[PromptMessage, ...], dict[str, Content], int]:
    """The bytes of what a prompt shows, by id, and the prompt with placeholders for those that cannot be read, and how
    many these are."""
    contents = {content.id: content for content in context.contents}
    wanted = [part[ATTACHMENT] for part in _attached(messages) if part[ATTACHMENT] not in contents]
    for attachment_id in dict.fromkeys(wanted):
        content = await _load(deps, context, attachment_id)
        if content is not None:
            contents[attachment_id] = content
    language = context.tool_context.language
    shown, missing = keep_media(messages, lambda part: ATTACHMENT not in part or part[ATTACHMENT] in contents, language)
    used = {part[ATTACHMENT] for part in _attached(shown)}
    return shown, {name: content for name, content in contents.items() if name in used}, missing


async def _load(deps: ChatDeps, context: TurnContext, attachment_id: str) -> Content | None:
    if context.turn is None:
        return None
    key = (context.turn.session.incarnation, attachment_id)
    content = deps.contents.get(key)
    if content is not None:
        return content
    try:
        content = await deps.sessions.attachment(context.turn.scope, context.session_id, attachment_id)
        deps.contents.put(key, content)
        return content
    except AttachmentNotFound:
        return None  # It was removed meanwhile.
    except (StateCorrupt, TenutoError) as error:
        _log.warning("an attachment could not be read: %s", error.code)
        return None


def _attached(messages: Iterable[PromptMessage]) -> list[JsonObject]:
    return [part for part in iter_media_parts(iter_parts(messages)) if shows_attachment(part)]
