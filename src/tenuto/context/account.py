"""Keeping the manifest: one entry for each candidate, neighbours that met the same end in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenuto.context.tokens import Counter
from tenuto.context.turns import Shown
from tenuto.context.window import Window
from tenuto.model.message import Message
from tenuto.model.prompt import Entry, Fate, Kind, Manifest, PromptPolicy, Reason, RecallPlace

_RECALLED: Final = (Kind.MEMORY, Kind.EVIDENCE)


class Account:
    """The entries of one prompt, in the order of its parts."""

    def __init__(self, counter: Counter, policy: PromptPolicy, room: int) -> None:
        self._counter = counter
        self._policy = policy
        self._room = room
        self._entries: dict[Kind, list[Entry]] = {kind: [] for kind in _order(policy.recalled)}

    def add(
        self,
        kind: Kind,
        fate: Fate,
        reason: Reason,
        tokens: int,
        whole: int | None = None,
        piece: str | None = None,
    ) -> None:
        """A part that is no message."""
        entry = Entry(
            kind=kind, fate=fate, reason=reason, tokens=tokens, whole=tokens if whole is None else whole, id=piece
        )
        self._entries[kind].append(entry)

    def stretch(self, messages: Sequence[Message], fate: Fate, reason: Reason) -> None:
        """Messages in a row that are not in the prompt. Their size is what was stored; it is not worth counting."""
        if messages:
            entry = Entry(
                kind=Kind.MESSAGE,
                fate=fate,
                reason=reason,
                whole=sum([message.tokens for message in messages]),
                first=messages[0].seq,
                last=messages[-1].seq,
                count=len(messages),
            )
            self._entries[Kind.MESSAGE].append(entry)

    def window(self, history: Sequence[Message], window: Window) -> None:
        """Every message of the history: those shown one by one, the others in stretches."""
        shown = {one.message.seq: one for one in window.shown}
        hidden = {message.seq: reason for turn in window.turns for message, reason in turn.hidden}
        kept = {turn.start: turn.end for turn in window.turns}
        for start, end, reason in sorted([*window.left_out, *((start, end, None) for start, end in kept.items())]):
            if reason is not None:
                self.stretch(history[start:end], Fate.DROPPED, reason)
            else:
                self._turn(history[start:end], shown, hidden)

    def _turn(self, messages: Sequence[Message], shown: dict[int, Shown], hidden: dict[int, Reason]) -> None:
        for message in messages:
            one = shown.get(message.seq)
            if one is None:
                self.stretch([message], Fate.DROPPED, hidden[message.seq])
            else:
                entry = Entry(
                    kind=Kind.MESSAGE,
                    fate=one.fate,
                    reason=one.reason,
                    tokens=one.cost,
                    whole=one.whole,
                    id=message.id,
                    first=message.seq,
                    last=message.seq,
                )
                self._entries[Kind.MESSAGE].append(entry)

    def manifest(self) -> Manifest:
        """The finished account."""
        entries = tuple(entry for kind in self._entries.values() for entry in kind)
        return Manifest(
            entries=entries,
            total=sum(entry.tokens for entry in entries),
            room=self._room,
            budget=self._policy.budget,
            reply=self._policy.reply,
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            margin=self._counter.margin,
            layout=self._policy.layout,
        )


def _order(recalled: RecallPlace) -> tuple[Kind, ...]:
    early, late = (_RECALLED, ()) if recalled is RecallPlace.BEFORE_WINDOW else ((), _RECALLED)
    return (Kind.SYSTEM, Kind.PREFERENCES, Kind.SUMMARY, *early, Kind.MESSAGE, *late, Kind.QUESTION, Kind.FRAME)
