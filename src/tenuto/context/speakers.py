"""The names under which a prompt shows the users of a conversation.

A name is a user's own text at the beginning of a line, so it must pass for no other line: no other speaker's, and none
of the layout's. Names that could are not shown.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Final

import regex

from tenuto.context.wording import WORDING
from tenuto.model.channel import ChatLine
from tenuto.model.message import NAME, Message, Role
from tenuto.model.prompt import Language, Piece
from tenuto.model.scope import speaker_tag
from tenuto.model.values import JsonObject

# The characters of another person's message that a prompt shows.
_LINE: Final = 500
# Scripts whose letters look alike are not mixed. No control or format characters, brackets, colons or line ends, and
# nothing at the end that looks like a tag.
_SCRIPTS: Final = (
    r"\p{Latin}\p{Han}\p{Hiragana}\p{Katakana}ー가-힣",
    *(rf"\p{{{script}}}" for script in ("Arabic", "Cyrillic", "Devanagari", "Greek", "Hebrew", "Thai")),
)
_PLAIN: Final = regex.compile(
    r"(?=\p{L})(?!.*[0-9a-fA-F]{6}\Z)(?:" + "|".join(rf"[{letters}0-9 .'’·-]{{1,40}}" for letters in _SCRIPTS) + ")"
)


def display_name(fields: JsonObject) -> str:
    """The display name in a message's extra fields or a profile; empty if there is none that a prompt may show."""
    name = fields.get(NAME)
    name = unicodedata.normalize("NFKC", name).strip() if isinstance(name, str) else ""
    return name if _PLAIN.fullmatch(name) else ""


def _key(name: str) -> str:
    """What names have in common that are taken for each other."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold()))


_RESERVED: Final = tuple(
    _key(label)
    for words in WORDING.values()
    for label in (
        *(words.user, words.assistant, words.system, words.preferences, words.style, words.summary),
        *(words.plain_history, words.plain_question),
    )
)


def speaker_names(
    talk: Iterable[Message], tenant: str, language: Language, *, in_chat: bool = False, personas: Iterable[str] = ()
) -> dict[str, str]:
    """Names for the users of a conversation; none where only one speaks, unless others may have spoken in a chat.

    A user without a name that may be shown, or named like one of the `personas`, gets a tag derived from the id; users
    who share a name have the tag behind it. Messages without a user are those of `""`.
    """
    fields: dict[str, JsonObject] = {}
    for message in talk:
        if message.role is Role.USER and (in_chat or message.speaker is not None):
            who = message.speaker or ""
            if who not in fields or NAME in message.extra:
                fields[who] = message.extra
    if len(fields) < 2 and not in_chat:
        return {}
    given = {user: display_name(extra) for user, extra in fields.items()}
    held, characters = Counter(map(_key, given.values())), {*map(_key, personas)}

    def label(user: str, name: str) -> str:
        key, tag = _key(name), speaker_tag(tenant, user)
        if not name or key in characters or key.startswith(_RESERVED):
            return f"{WORDING[language].user.rstrip(': ')} {tag}"
        return name if held[key] == 1 else f"{name} {tag}"

    return {user: label(user, name) for user, name in given.items()}


def chat_context(lines: Iterable[ChatLine], tenant: str, language: Language) -> tuple[Piece, ...]:
    """What other people wrote in a group as pieces of a prompt, newest first: one line each, under the writer's name.

    A writer without a name that may be shown gets a tag, as in `speaker_names`.
    """

    def text(line: ChatLine) -> str:
        name = display_name({NAME: line.sender_name})
        if not name or _key(name).startswith(_RESERVED):
            name = f"{WORDING[language].user.rstrip(': ')} {speaker_tag(tenant, line.sender)}"
        return f"{name}: {' '.join(line.text.split())[:_LINE]}"

    newest = sorted(lines, key=lambda line: line.sent_at, reverse=True)
    return tuple([Piece(id=str(number), text=text(line)) for number, line in enumerate(newest, 1)])
