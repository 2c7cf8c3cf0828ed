"""Titles: whose a session's title is, and which turn has a better one made.

A title is ours if `metadata["title"]["text"]` is what the session is called; any other name was given by somebody and
is never touched. `by` tells who made ours: `fallback` (the beginning of the question), `extract` (a phrase of it) or
`model`. Where the words that it was made of are taken back, another one is made. The turn that writes `tried_at`, which
happens under its lease, is the one that asks for a better title; so one need means one call, however many requests come
at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from tenuto.model.prompt import Language
from tenuto.model.session import Changes, NewSession, Session
from tenuto.model.values import JsonObject, Value
from tenuto.sessions.title_phrases import from_talk
from tenuto.sessions.title_rules import clipped, fallback, tidy, title_request

__all__ = [
    "RETRY_AFTER",
    "By",
    "Made",
    "clipped",
    "fallback",
    "from_talk",
    "made",
    "named",
    "opening_changes",
    "tidy",
    "title_request",
    "titled",
    "wanted",
]

RETRY_AFTER: Final = timedelta(minutes=1)
_KEY: Final = "title"


class By(StrEnum):
    """Who made a title of ours."""

    FALLBACK = "fallback"
    EXTRACT = "extract"
    MODEL = "model"


class Made(Value, frozen=True, kw_only=True):
    """A title we gave, as the session's metadata remember it; a `stale` one is made of words that were taken back."""

    by: By
    text: str
    tried_at: datetime | None = None
    stale: bool = False


def made(session: Session) -> Made | None:
    """Our title, `None` when there is none or somebody has named the session."""
    kept = session.metadata.get(_KEY)
    try:
        known = msgspec.convert(kept, Made) if isinstance(kept, dict) else None
    except msgspec.ValidationError:
        return None
    return known if known is not None and session.title in ("", known.text) else None


def wanted(session: Session, *, model: bool = False) -> bool:
    """Whether the session should get a better title; one cut out of the talk is good enough until there is a model."""
    return _wanted(session, made(session), model)


def _wanted(session: Session, known: Made | None, model: bool) -> bool:
    if not session.title:
        return True
    return known is not None and (known.by is By.FALLBACK or (model and known.by is By.EXTRACT))


def named(new: NewSession, question: str, language: Language) -> NewSession:
    """A session about to be made, with its first title; one that the caller has named stays as it is.

    Written when the session is created, the title cannot overwrite a name given while the first answer is thought over.
    """
    if new.title or _KEY in new.metadata:
        return new
    text = fallback(question, language)
    return msgspec.structs.replace(
        new, title=text, metadata={**new.metadata, _KEY: _kept(Made(by=By.FALLBACK, text=text))}
    )


def opening_changes(
    session: Session, question: str, language: Language, now: datetime, *, model: bool = False
) -> Changes | None:
    """What a turn stores with its answer if it is to have a better title made; `None` when it is not.

    The title itself is left to `titled`, which minds the version: the head this turn knows may be older than a name
    that was given meanwhile.
    """
    known = made(session)
    if known is not None and _begins_anew(session, known):
        return Changes(metadata={_KEY: _kept(msgspec.structs.replace(known, tried_at=now, stale=True))})
    if not _wanted(session, known, model) or (known is None and _KEY in session.metadata):
        return None
    if known is not None and known.tried_at is not None and now - known.tried_at < RETRY_AFTER:
        return None
    claim = known or Made(by=By.FALLBACK, text=fallback(question, language))
    return Changes(metadata={_KEY: _kept(msgspec.structs.replace(claim, tried_at=now))})


def _begins_anew(session: Session, known: Made) -> bool:
    """Whether a session that had its title has only the words of this turn: the first were taken back."""
    return known.tried_at is not None and session.messages == 1


def titled(session: Session, text: str | None, by: By, instead: str | None = None) -> Changes | None:
    """The change that gives this very version of the session its new title; `None` if it is not ours to give.

    Without a text the fallback is put in place where there is no title yet, and `instead` where the one there is stale.
    """
    known = made(session)
    if known is None:
        return None
    if text is None and known.stale:
        text, by = instead, By.FALLBACK
    if text is None and session.title:
        return None
    better = Made(by=by, text=text, tried_at=known.tried_at) if text is not None else known
    return Changes(title=better.text, metadata={_KEY: _kept(better)}, if_version=session.version)


def _kept(title: Made) -> JsonObject:
    kept: JsonObject = msgspec.to_builtins(title)
    return kept
