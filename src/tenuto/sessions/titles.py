"""Titles: their length, the first line that stands in for a model's title, and which turn asks for a better one.

A title is generated if `metadata["title"]["text"]` equals the session's title; any other title was given by a user and
is never changed. `by` names the source: `fallback` (the first line of the question) or `model`. The turn that writes
`tried_at`, which happens under its lease, is the one that asks the model, so concurrent requests cost one call. If the
messages that a title was made of are removed, the title is stale and the next turn replaces it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
import regex

from tenuto.model.graphemes import graphemes
from tenuto.model.prompt import Language
from tenuto.model.session import Changes, NewSession, Session
from tenuto.model.values import Value

RETRY_AFTER: Final = timedelta(minutes=1)
_KEY: Final = "title"
ELLIPSIS: Final = "..."
# A visible character can be hundreds of code points (stacked accents), so a title is bounded in code points as well.
_CODE_POINTS: Final = 480
_SCANNED: Final = 2000
_CONTROL: Final = regex.compile(r"[\p{Cc}\p{Cf}--[\u200d\u200c]]+", regex.VERSION1)


def clip_title(title: str, limit: int) -> str:
    """A title of at most `limit` characters: of 60 a longer one keeps 57 and gets "..." (A18); never through a
    character (A24)."""
    visible = graphemes(title)
    kept = visible if len(visible) <= limit else [*visible[: limit - len(ELLIPSIS)], ELLIPSIS]
    while sum(map(len, kept)) > _CODE_POINTS:
        kept.remove(max(kept, key=len))
    return "".join(kept)


def fallback_title(text: str, language: Language, limit: int) -> str:
    """The first line, cut at `limit` characters, at the last blank if that lies past half, with "..." (A17)."""
    lines = (" ".join(_CONTROL.sub(" ", line).split()) for line in text[:_SCANNED].splitlines())
    line = next((line for line in lines if line), "")
    visible = graphemes(line)
    if len(visible) <= limit:
        return clip_title(line, limit) or ("新对话" if language is Language.CHINESE else "New conversation")
    head = "".join(visible[:limit])
    blank = head.rfind(" ")
    if len(graphemes(head[: max(blank, 0)])) > limit // 2:
        head = head[:blank]
    return clip_title(head.rstrip() + ELLIPSIS, limit + len(ELLIPSIS))


class TitleSource(StrEnum):
    """What a generated title was made by."""

    FALLBACK = "fallback"
    MODEL = "model"


class GeneratedTitle(Value, frozen=True, kw_only=True):
    """A generated title as the session's metadata hold it; a `stale` one is made of messages that were removed."""

    by: TitleSource
    text: str
    tried_at: datetime | None = None
    stale: bool = False


def generated_title(session: Session) -> GeneratedTitle | None:
    """The generated title; `None` if there is none or a user has named the session."""
    stored = session.metadata.get(_KEY)
    try:
        title = msgspec.convert(stored, GeneratedTitle) if isinstance(stored, dict) else None
    except msgspec.ValidationError:
        return None
    return title if title is not None and session.title in ("", title.text) else None


def with_fallback_title(new: NewSession, question: str, language: Language, limit: int) -> NewSession:
    """A session about to be created, with its first title; one that the caller has named stays as it is.

    Written when the session is created, the title cannot overwrite a name given while the first answer is generated.
    """
    if new.title or _KEY in new.metadata:
        return new
    text = fallback_title(question, language, limit)
    stored = msgspec.to_builtins(GeneratedTitle(by=TitleSource.FALLBACK, text=text))
    return msgspec.structs.replace(new, title=text, metadata={**new.metadata, _KEY: stored})


def claim_title(
    session: Session, question: str, language: Language, now: datetime, *, limit: int, model: bool = False
) -> Changes | None:
    """What a turn stores with its answer if it is the one to set a title; `None` if it is not.

    A fallback is tried again after a minute while there is a `model`; without one the first claim is the only one. The
    title itself is left to `title_changes`, which checks the version: this turn's head may be older than a rename.
    """
    title = generated_title(session)
    if title is None and (session.title or _KEY in session.metadata):
        return None
    if title is None:
        title = GeneratedTitle(by=TitleSource.FALLBACK, text=fallback_title(question, language, limit))
    elif title.tried_at is not None and session.messages == 1:
        # The session had its title, and now holds the question of this turn alone: the first messages were removed.
        title = msgspec.structs.replace(title, stale=True)
    else:
        again = model or not session.title
        final = bool(session.title) and title.by is TitleSource.MODEL
        if final or (title.tried_at is not None and not (again and now - title.tried_at >= RETRY_AFTER)):
            return None
    return Changes(metadata={_KEY: msgspec.to_builtins(msgspec.structs.replace(title, tried_at=now))})


def title_changes(
    session: Session, text: str | None, by: TitleSource, replacement: str | None = None
) -> Changes | None:
    """The change that sets the title of this very version of the session; `None` if there is nothing to set.

    Without a text the fallback is set where there is no title yet, and `replacement` where the title is stale.
    """
    title = generated_title(session)
    if title is None:
        return None
    if text is None and title.stale:
        text, by = replacement, TitleSource.FALLBACK
    if text is None and session.title:
        return None
    better = GeneratedTitle(by=by, text=text, tried_at=title.tried_at) if text is not None else title
    return Changes(title=better.text, metadata={_KEY: msgspec.to_builtins(better)}, if_version=session.version)
