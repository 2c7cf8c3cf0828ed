"""The names under which a prompt shows the users of a conversation.

A name is a user's own text at the beginning of a line, so it must pass for no other line: no other speaker's, and none
of the layout's. Names that could are not shown.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
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
# The layout's headings stand in square brackets.
_ROUND: Final = str.maketrans("[]【】［］", "()（）（）")
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
    return _label_users({user: display_name(extra) for user, extra in fields.items()}, tenant, language, personas)


def chat_context(
    lines: Iterable[ChatLine],
    tenant: str,
    language: Language,
    *,
    speakers: Mapping[str, str] = MappingProxyType({}),
    personas: Iterable[str] = (),
) -> tuple[Piece, ...]:
    """What other people wrote in a group as pieces of a prompt, newest first: one line each, under the writer's name.

    Writers who speak in the conversation keep the name that `speakers` gives them; the others get theirs as there, and
    a tag behind one that a speaker has. A text has no square brackets, so that it contains no heading of the layout.
    """
    newest = sorted(lines, key=lambda line: line.sent_at, reverse=True)
    display_names: dict[str, str] = {}
    for line in newest:
        if line.sender not in speakers:
            display_names[line.sender] = display_names.get(line.sender) or display_name({NAME: line.sender_name})
    speaker_labels = [label.removesuffix(f" {speaker_tag(tenant, user)}") for user, label in speakers.items()]
    names = {**_label_users(display_names, tenant, language, personas, speaker_labels), **speakers}

    def text(line: ChatLine) -> str:
        return f"{names[line.sender]}: {' '.join(line.text.split())[:_LINE].translate(_ROUND)}"

    return tuple([Piece(id=str(number), text=text(line)) for number, line in enumerate(newest, 1)])


def _label_users(
    display_names: Mapping[str, str],
    tenant: str,
    language: Language,
    personas: Iterable[str],
    labels: Iterable[str] = (),
) -> dict[str, str]:
    """Users by their names, or by a tag; a name that two have, or that is one of the `labels`, has the tag, too."""
    uses, characters = Counter(map(_key, (*display_names.values(), *labels))), {*map(_key, personas)}

    def label(user: str, name: str) -> str:
        key, tag = _key(name), speaker_tag(tenant, user)
        if not name or key in characters or key.startswith(_RESERVED):
            return f"{WORDING[language].user.rstrip(': ')} {tag}"
        return name if uses[key] == 1 else f"{name} {tag}"

    return {user: label(user, name) for user, name in display_names.items()}
