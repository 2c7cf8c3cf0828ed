"""Words and answers that were taken back: a session notes their keys, so that late requests do not say them again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tenuto.model.message import Draft
from tenuto.model.session import Session

TAKEN_BACK: Final = "taken_back"
"""The key of a session's metadata under which stand the marks of keys that have nothing more to bring."""

ONCE: Final = "once"
"""The key of a message's metadata under which stands the mark of the key it came under."""


def superseded_digests(session: Session) -> list[str]:
    """The marks that a session notes, oldest first."""
    noted = session.metadata.get(TAKEN_BACK)
    return [mark for mark in noted if isinstance(mark, str)] if isinstance(noted, list) else []


def is_superseded(session: Session, words: Iterable[Draft]) -> bool:
    """Whether these words came under a key that has nothing more to bring."""
    noted = session.metadata.get(TAKEN_BACK)
    return bool(noted) and any(draft.metadata.get(ONCE) in superseded_digests(session) for draft in words)
