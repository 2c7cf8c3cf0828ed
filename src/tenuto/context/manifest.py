"""Keeping the manifest: one entry for each candidate, neighbours that met the same end in one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from tenuto.context.tokens import TokenCounter
from tenuto.context.turns import Shown, Turn, VerbatimHistory
from tenuto.context.window import Window
from tenuto.model.message import Message
from tenuto.model.prompt import Disposition, Kind, Manifest, ManifestEntry, PromptPolicy, Reason, RecallPosition

# Looked up once, since there is an entry for each message.
_MESSAGE: Final = Kind.MESSAGE
_KEPT: Final = Disposition.KEPT
_FITS: Final = Reason.FITS
_RECALLED: Final = (Kind.MEMORY, Kind.EVIDENCE)


class ManifestBuilder:
    """The entries of one prompt, in the order of its parts."""

    def __init__(self, counter: TokenCounter, policy: PromptPolicy, room: int) -> None:
        self._counter = counter
        self._policy = policy
        self._room = room
        self._entries: dict[Kind, list[ManifestEntry]] = {kind: [] for kind in _kind_order(policy.recalled)}

    def add(
        self,
        kind: Kind,
        fate: Disposition,
        reason: Reason,
        tokens: int,
        whole: int | None = None,
        piece: str | None = None,
    ) -> None:
        """A part that is no message."""
        entry = ManifestEntry(
            kind=kind, fate=fate, reason=reason, tokens=tokens, whole=tokens if whole is None else whole, id=piece
        )
        self._entries[kind].append(entry)

    def covering(self, first: int, last: int, count: int) -> None:
        """Which messages the summary speaks for, whether or not they were loaded."""
        summaries = self._entries[Kind.SUMMARY]
        self._entries[Kind.SUMMARY] = [replace(entry, first=first, last=last, count=count) for entry in summaries]

    def stretch(self, messages: Sequence[Message], fate: Disposition, reason: Reason) -> None:
        """Messages in a row that are not in the prompt. Their size is what was stored; it is not worth counting."""
        if messages:
            entry = ManifestEntry(
                kind=_MESSAGE,
                fate=fate,
                reason=reason,
                whole=sum([message.tokens for message in messages]),
                first=messages[0].seq,
                last=messages[-1].seq,
                count=len(messages),
            )
            self._entries[_MESSAGE].append(entry)

    def window(self, history: Sequence[Message], window: Window) -> None:
        """Every message of the history: those shown one by one, the others in stretches."""
        if window.as_is is not None:
            self._entries[_MESSAGE] += _kept_entries(window.as_is)
            return
        places: list[tuple[int, Turn | tuple[int, Reason]]] = [(turn.start, turn) for turn in window.turns]
        places += [(start, (end, reason)) for start, end, reason in window.left_out]
        for start, what in sorted(places, key=itemgetter(0)):
            if isinstance(what, Turn):
                self._add_turn(history, what)
            else:
                self.stretch(history[start : what[0]], Disposition.DROPPED, what[1])

    def _add_turn(self, history: Sequence[Message], turn: Turn) -> None:
        if not turn.hidden:
            self._entries[_MESSAGE] += _entries(turn.shown)
            return
        shown = {one.message.seq: one for one in turn.shown}
        hidden = {message.seq: reason for message, reason in turn.hidden}
        for message in history[turn.start : turn.end]:
            one = shown.get(message.seq)
            if one is None:
                self.stretch([message], Disposition.DROPPED, hidden[message.seq])
            else:
                self._entries[_MESSAGE] += _entries((one,))

    def manifest(self) -> Manifest:
        """The finished account."""
        entries = tuple(chain.from_iterable(self._entries.values()))
        return Manifest(
            entries=entries,
            total=sum([entry.tokens for entry in entries]),
            room=self._room,
            budget=self._policy.budget,
            reply=self._policy.reply,
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            margin=self._counter.margin,
            layout=self._policy.layout,
        )


def _kept_entries(talk: VerbatimHistory) -> list[ManifestEntry]:
    around = talk.around
    return [
        ManifestEntry(
            kind=_MESSAGE,
            fate=_KEPT,
            reason=_FITS,
            tokens=message.tokens + around,
            whole=message.tokens + around,
            id=message.id,
            first=message.seq,
            last=message.seq,
        )
        for message in talk.messages
    ]


def _entries(shown: Sequence[Shown]) -> list[ManifestEntry]:
    return [
        ManifestEntry(
            kind=_MESSAGE,
            fate=one.fate,
            reason=one.reason,
            tokens=one.tokens + one.around,
            whole=one.whole,
            id=one.message.id,
            first=one.message.seq,
            last=one.message.seq,
        )
        for one in shown
    ]


@cache
def _kind_order(recalled: RecallPosition) -> tuple[Kind, ...]:
    early, late = (_RECALLED, ()) if recalled is RecallPosition.BEFORE_WINDOW else ((), _RECALLED)
    return (Kind.SYSTEM, Kind.PREFERENCES, Kind.SUMMARY, *early, Kind.MESSAGE, *late, Kind.QUESTION, Kind.FRAME)
